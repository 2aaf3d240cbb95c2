import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { Icon } from "../icons.tsx";
import { copy } from "../toast.ts";

type Json = unknown;
const FIRST = 100;
const LONG = 400;

interface NodeProps {
  name: string | number | null;
  value: Json;
  path: string;
  depth: number;
  open: number;
  find: string;
}

/** A JSON value as a tree: children are made when opened, long lists and texts in pieces, paths can be copied. */
export function JsonView({ value, open = 1, searchable = false }: { value: Json; open?: number; searchable?: boolean }) {
  const [find, setFind] = useState("");
  return (
    <div class="column">
      {searchable && (
        <input
          type="search" class="small" placeholder="Find in this value" aria-label="Find in this value" value={find}
          onInput={(event) => setFind(event.currentTarget.value)}
        />
      )}
      <div class="json">
        <Node name={null} value={value} path="$" depth={0} open={find ? 99 : open} find={find.toLowerCase()} key={find ? "found" : "all"} />
      </div>
    </div>
  );
}

function Node({ name, value, path, depth, open, find }: NodeProps) {
  const isBranch = typeof value === "object" && value !== null;
  const entries = useMemo(() => (isBranch ? childrenOf(value as object) : []), [value]);
  const [opened, setOpened] = useState(depth < open && (!find || contains(value, find)));
  const [shown, setShown] = useState(FIRST);
  if (!isBranch || entries.length === 0) return <Leaf name={name} value={value} path={path} find={find} />;
  const brackets = Array.isArray(value) ? "[]" : "{}";
  return (
    <div class="node">
      <div class="line">
        <button type="button" class="toggle" aria-expanded={opened} aria-label={`${opened ? "Fold" : "Open"} ${name ?? "value"}`} onClick={() => setOpened(!opened)}>
          <Icon name={opened ? "down" : "caret"} />
        </button>
        <Key name={name} find={find} />
        <span class="muted">{opened ? brackets[0] : `${brackets[0]}${entries.length}${brackets[1]}`}</span>
        <CopyPath path={path} value={value} />
      </div>
      {opened && entries.slice(0, shown).map(([key, child]) => (
        <Node key={key} name={key} value={child} path={join(path, key)} depth={depth + 1} open={open} find={find} />
      ))}
      {opened && entries.length > shown && (
        <button type="button" class="plain small" onClick={() => setShown(shown + 10 * FIRST)}>{`${entries.length - shown} more`}</button>
      )}
    </div>
  );
}

function Leaf({ name, value, path, find }: { name: string | number | null; value: Json; path: string; find: string }) {
  return (
    <div class="node">
      <div class="line">
        <Key name={name} find={find} />
        <Value value={value} find={find} />
        <CopyPath path={path} value={value} />
      </div>
    </div>
  );
}

function Key({ name, find }: { name: string | number | null; find: string }) {
  return name === null ? null : <span class="key">{mark(String(name), find)}<span class="muted">:</span></span>;
}

function Value({ value, find }: { value: Json; find: string }) {
  const [whole, setWhole] = useState(false);
  if (typeof value !== "string") return <span class="literal">{mark(JSON.stringify(value) ?? "undefined", find)}</span>;
  if (value.length <= LONG || whole || find) return <span class="string">{mark(`"${value}"`, find)}</span>;
  return (
    <span class="string">
      {`"${value.slice(0, LONG)}`}
      <button type="button" class="plain small" onClick={() => setWhole(true)}>{`… ${value.length - LONG} more characters`}</button>
    </span>
  );
}

function CopyPath({ path, value }: { path: string; value: Json }) {
  return (
    <button
      type="button" class="copy" title={`Copy ${path}`} aria-label={`Copy the value of ${path}`}
      onClick={(event) => (event.altKey || event.shiftKey ? copy(path, `Copied the path ${path}`) : copy(text(value), `Copied ${path}; with Shift the path`))}
    >copy</button>
  );
}

const text = (value: Json): string => (typeof value === "string" ? value : JSON.stringify(value, null, 2));
const childrenOf = (value: object): [string | number, Json][] => (Array.isArray(value) ? value.map((each, index) => [index, each]) : Object.entries(value));
const join = (path: string, key: string | number): string => (typeof key === "number" ? `${path}[${key}]` : /^[A-Za-z_]\w*$/.test(key) ? `${path}.${key}` : `${path}[${JSON.stringify(key)}]`);

function contains(value: Json, find: string): boolean {
  return (JSON.stringify(value) ?? "").toLowerCase().includes(find);
}

function mark(value: string, find: string): ComponentChildren {
  const at = find ? value.toLowerCase().indexOf(find) : -1;
  if (at < 0) return value;
  return <>{value.slice(0, at)}<mark>{value.slice(at, at + find.length)}</mark>{value.slice(at + find.length)}</>;
}
