/** What a form needs to know of a JSON Schema; everything else is edited as JSON. */
export interface Schema {
  type?: string | string[];
  title?: string;
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  format?: string;
}

export type FieldKind = "text" | "integer" | "number" | "boolean" | "choice" | "object" | "list" | "json";

export interface Field {
  kind: FieldKind;
  schema: Schema;
  nullable: boolean;
}

/** Follow references and take the one alternative that is not null. */
export function resolve(schema: Schema, root: Schema, depth = 0): Field {
  let current = schema;
  while (current.$ref && depth++ < 20) {
    const name = current.$ref.split("/").pop() ?? "";
    current = { ...root.$defs?.[name], ...withoutRef(current) };
  }
  const alternatives = current.anyOf ?? current.oneOf;
  if (alternatives) {
    const others = alternatives.filter((each) => each.type !== "null");
    if (others.length !== 1) return { kind: "json", schema: current, nullable: others.length < alternatives.length };
    const { anyOf: _any, oneOf: _one, ...own } = current;
    const field = resolve({ ...others[0], ...own }, root, depth + 1);
    return { ...field, nullable: true };
  }
  const types = [current.type ?? (current.properties ? "object" : current.enum ? "string" : "")].flat();
  const named = types.filter((each) => each !== "null");
  return { kind: kindOf(current, named), schema: current, nullable: types.includes("null") };
}

function withoutRef({ $ref: _ref, ...rest }: Schema): Schema {
  return rest;
}

function kindOf(schema: Schema, types: string[]): FieldKind {
  if (schema.enum?.length) return "choice";
  if (types.length !== 1) return "json";
  switch (types[0]) {
    case "string": return "text";
    case "integer": return "integer";
    case "number": return "number";
    case "boolean": return "boolean";
    case "object": return schema.properties ? "object" : "json";
    case "array": return schema.items && ["string", "integer", "number"].includes(String(schema.items.type)) ? "list" : "json";
    default: return "json";
  }
}

/** The value a form starts with: defaults, and nothing for what is not required. */
export function initial(schema: Schema, root: Schema = schema): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  for (const [name, property] of Object.entries(resolve(schema, root).schema.properties ?? {})) {
    const field = resolve(property, root);
    if (field.schema.default !== undefined) value[name] = field.schema.default;
    else if (schema.required?.includes(name) && field.kind === "boolean") value[name] = false;
  }
  return value;
}

/** Why a value does not fit, by path; the server has the last word. */
export function problems(value: unknown, schema: Schema, root: Schema = schema, path = ""): Record<string, string> {
  const field = resolve(schema, root);
  if (value === undefined || (value === null && field.nullable)) return {};
  if (field.kind === "object") return objectProblems(value, field.schema, root, path);
  const reason = scalarProblem(value, field);
  return reason ? { [path]: reason } : {};
}

function objectProblems(value: unknown, schema: Schema, root: Schema, path: string): Record<string, string> {
  if (typeof value !== "object" || value === null || Array.isArray(value)) return { [path]: "must be an object" };
  const found: Record<string, string> = {};
  const held = value as Record<string, unknown>;
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    const at = path ? `${path}.${name}` : name;
    if (held[name] === undefined) {
      if (schema.required?.includes(name)) found[at] = "is required";
    } else Object.assign(found, problems(held[name], property, root, at));
  }
  return found;
}

function scalarProblem(value: unknown, { kind, schema }: Field): string {
  if (kind === "text" && typeof value === "string") {
    if (schema.minLength !== undefined && value.length < schema.minLength) return `needs at least ${schema.minLength} characters`;
    if (schema.maxLength !== undefined && value.length > schema.maxLength) return `has more than ${schema.maxLength} characters`;
  }
  if (kind === "integer" || kind === "number") {
    if (typeof value !== "number" || Number.isNaN(value)) return "must be a number";
    if (kind === "integer" && !Number.isInteger(value)) return "must be a whole number";
    if (schema.minimum !== undefined && value < schema.minimum) return `must be at least ${schema.minimum}`;
    if (schema.maximum !== undefined && value > schema.maximum) return `must be at most ${schema.maximum}`;
  }
  return "";
}
