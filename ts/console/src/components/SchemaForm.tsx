import { useId, useState } from "preact/hooks";
import { pretty } from "../format.ts";
import { type Field, problems, resolve, type Schema } from "../schema.ts";

interface Props {
  schema: Schema;
  value: Record<string, unknown>;
  onChange: (value: Record<string, unknown>, valid: boolean) => void;
}

/** A form for a JSON Schema of an object, with a switch to the JSON text itself. */
export function SchemaForm({ schema, value, onChange }: Props) {
  const [asText, setAsText] = useState(false);
  const found = problems(value, schema);
  const change = (next: Record<string, unknown>) => onChange(next, Object.keys(problems(next, schema)).length === 0);
  const empty = Object.keys(schema.properties ?? {}).length === 0;
  return (
    <div class="schema-form">
      <div class="row">
        <span class="muted small grow">{empty && !asText ? "This tool takes no arguments." : "Arguments"}</span>
        <button type="button" class="small" aria-pressed={asText} onClick={() => setAsText(!asText)}>JSON</button>
      </div>
      {asText ? <JsonField value={value} onChange={(next) => change(next as Record<string, unknown>)} onInvalid={() => onChange(value, false)} label="Arguments as JSON" rows={10} />
        : <Properties schema={schema} root={schema} value={value} onChange={change} found={found} path="" />}
    </div>
  );
}

interface PropertiesProps {
  schema: Schema;
  root: Schema;
  value: Record<string, unknown>;
  onChange: (value: Record<string, unknown>) => void;
  found: Record<string, string>;
  path: string;
}

function Properties({ schema, root, value, onChange, found, path }: PropertiesProps) {
  const set = (name: string, next: unknown) => {
    const { [name]: _old, ...rest } = value;
    onChange(next === undefined ? rest : { ...value, [name]: next });
  };
  return (
    <>
      {Object.entries(schema.properties ?? {}).map(([name, property]) => {
        const at = path ? `${path}.${name}` : name;
        return (
          <PropertyField
            key={name} name={name} field={resolve(property, root)} root={root} value={value[name]} required={!!schema.required?.includes(name)}
            problem={found[at]} found={found} path={at} onChange={(next) => set(name, next)}
          />
        );
      })}
    </>
  );
}

interface FieldProps {
  name: string;
  field: Field;
  root: Schema;
  value: unknown;
  required: boolean;
  problem: string | undefined;
  found: Record<string, string>;
  path: string;
  onChange: (value: unknown) => void;
}

function PropertyField({ name, field, root, value, required, problem, found, path, onChange }: FieldProps) {
  const id = useId();
  if (field.kind === "object") {
    return (
      <fieldset>
        <legend>{name}{required ? " *" : ""}</legend>
        {field.schema.description && <div class="describe">{field.schema.description}</div>}
        <Properties schema={field.schema} root={root} value={(value ?? {}) as Record<string, unknown>} onChange={onChange} found={found} path={path} />
      </fieldset>
    );
  }
  const described = field.schema.description || problem ? `${id}-about` : undefined;
  return (
    <div class="column" style={{ gap: "3px" }}>
      <label for={id} class="row small"><span class="mono">{name}</span>{required && <span class="is-error" aria-hidden="true">*</span>}<span class="faint">{typeName(field)}</span></label>
      <Input id={id} field={field} value={value} required={required} described={described} onChange={onChange} />
      {described && <div id={described} class={problem && value !== undefined ? "problem" : "describe"}>{problem && value !== undefined ? problem : field.schema.description}</div>}
    </div>
  );
}

const typeName = (field: Field): string => (field.kind === "choice" ? "one of" : field.kind === "list" ? "list, one per line" : field.kind) + (field.nullable ? ", optional" : "");

interface InputProps {
  id: string;
  field: Field;
  value: unknown;
  required: boolean;
  described: string | undefined;
  onChange: (value: unknown) => void;
}

function Input({ id, field, value, required, described, onChange }: InputProps) {
  const common = { id, "aria-describedby": described, "aria-required": required };
  switch (field.kind) {
    case "boolean":
      return <span><input {...common} type="checkbox" checked={value === true} onChange={(event) => onChange(event.currentTarget.checked)} /></span>;
    case "choice":
      return (
        <select {...common} value={value === undefined ? "" : JSON.stringify(value)} onChange={(event) => onChange(event.currentTarget.value ? JSON.parse(event.currentTarget.value) : undefined)}>
          {(!required || value === undefined) && <option value="">–</option>}
          {field.schema.enum?.map((each) => <option key={String(each)} value={JSON.stringify(each)}>{String(each)}</option>)}
        </select>
      );
    case "integer":
    case "number":
      return (
        <input
          {...common} type="number" step={field.kind === "integer" ? 1 : "any"} min={field.schema.minimum} max={field.schema.maximum} value={typeof value === "number" ? value : ""}
          onInput={(event) => onChange(event.currentTarget.value === "" ? undefined : Number(event.currentTarget.value))}
        />
      );
    case "list":
      return <ListInput common={common} value={value} numeric={field.schema.items?.type !== "string"} onChange={onChange} />;
    case "text":
      return (
        <textarea
          {...common} rows={Math.min(12, Math.max(1, String(value ?? "").split("\n").length))} value={typeof value === "string" ? value : ""} spellcheck={false} class="mono"
          onInput={(event) => onChange(event.currentTarget.value === "" && !required ? undefined : event.currentTarget.value)}
        />
      );
    default:
      return <JsonField id={id} value={value} onChange={onChange} onInvalid={() => undefined} label="" rows={3} />;
  }
}

function ListInput({ common, value, numeric, onChange }: { common: object; value: unknown; numeric: boolean; onChange: (value: unknown) => void }) {
  const lines = Array.isArray(value) ? value.map(String) : [];
  return (
    <textarea
      {...common} rows={Math.max(2, lines.length)} class="mono" value={lines.join("\n")}
      onInput={(event) => {
        const text = event.currentTarget.value;
        onChange(text === "" ? undefined : text.split("\n").map((each) => (numeric ? Number(each) : each)));
      }}
    />
  );
}

interface JsonFieldProps {
  id?: string;
  value: unknown;
  onChange: (value: unknown) => void;
  onInvalid: () => void;
  label: string;
  rows: number;
}

/** A text field that holds JSON; what does not parse is kept in the field and reported under it. */
export function JsonField({ id, value, onChange, onInvalid, label, rows }: JsonFieldProps) {
  const [text, setText] = useState(value === undefined ? "" : pretty(typeof value === "string" ? JSON.stringify(value) : value));
  const [error, setError] = useState("");
  const read = (next: string) => {
    setText(next);
    try {
      onChange(next.trim() === "" ? undefined : JSON.parse(next));
      setError("");
    } catch (problem) {
      setError((problem as Error).message);
      onInvalid();
    }
  };
  return (
    <div class="column" style={{ gap: "3px" }}>
      <textarea id={id} aria-label={label || undefined} class="mono" rows={Math.max(rows, Math.min(24, text.split("\n").length))} spellcheck={false} value={text} aria-invalid={!!error} onInput={(event) => read(event.currentTarget.value)} />
      {error && <div class="problem" role="alert">{error}</div>}
    </div>
  );
}
