import type { Span } from "../types.ts";

export interface Row {
  span: Span;
  depth: number;
  children: number;
  open: boolean;
  /** Spans folded into this row because they repeat: the row stands for `repeats` siblings. */
  repeats: number;
}

export interface Filter {
  text: string;
  kinds: Set<string>;
  longerThan: number;
  errors: boolean;
  group: boolean;
}

export const NO_FILTER: Filter = { text: "", kinds: new Set(), longerThan: 0, errors: false, group: true };

export interface Tree {
  roots: Span[];
  children: Map<string, Span[]>;
  byId: Map<string, Span>;
  /** The name of each child agent, by its path. */
  agents: Map<string, string>;
  end: number;
}

export const endOf = (span: Span, end: number): number => span.end_ms ?? end;
export const isError = (span: Span): boolean => span.status === "error";
export const pathOf = (span: Span): string => (Array.isArray(span.path) ? span.path.join("/") : (span.path ?? ""));

/** The names of the agents on the path of a span, "" for the root agent. The span of a child has its own name as label. */
export function agentsOf(span: Span, tree: Tree): string {
  const parts = pathOf(span).split("/").filter(Boolean);
  const names = parts.map((part, index) => tree.agents.get(parts.slice(0, index + 1).join("/")) ?? part);
  return (span.kind === "subagent" ? names.slice(0, -1) : names).join(" / ");
}

export function errorText(error: Span["error"]): string {
  if (!error) return "";
  return typeof error === "string" ? error : [error.code, error.message].filter(Boolean).join(": ");
}

export function buildTree(spans: Span[]): Tree {
  const byId = new Map(spans.map((span) => [span.id, span]));
  const children = new Map<string, Span[]>();
  const agents = new Map<string, string>();
  const roots: Span[] = [];
  let end = 0;
  for (const span of spans) {
    if (span.kind === "subagent") agents.set(pathOf(span), span.name);
    end = Math.max(end, span.start_ms, span.end_ms ?? 0);
    if (!span.parent || !byId.has(span.parent)) roots.push(span);
    else {
      const siblings = children.get(span.parent);
      if (siblings) siblings.push(span);
      else children.set(span.parent, [span]);
    }
  }
  return { roots, children, byId, agents, end };
}

export function matches(span: Span, filter: Filter, end: number): boolean {
  if (filter.kinds.size && !filter.kinds.has(span.kind)) return false;
  if (filter.errors && !isError(span)) return false;
  if (filter.longerThan && endOf(span, end) - span.start_ms < filter.longerThan) return false;
  if (!filter.text) return true;
  const wanted = filter.text.toLowerCase();
  return span.name.toLowerCase().includes(wanted) || pathOf(span).toLowerCase().includes(wanted) || errorText(span.error).toLowerCase().includes(wanted);
}

const isActive = (filter: Filter): boolean => !!(filter.text || filter.kinds.size || filter.longerThan || filter.errors);

/** Spans that match and everything above them. */
function keptBy(tree: Tree, filter: Filter, spans: Iterable<Span>): Set<string> | null {
  if (!isActive(filter)) return null;
  const kept = new Set<string>();
  for (const span of spans) {
    if (!matches(span, filter, tree.end)) continue;
    let current: Span | undefined = span;
    while (current && !kept.has(current.id)) {
      kept.add(current.id);
      current = current.parent ? tree.byId.get(current.parent) : undefined;
    }
  }
  return kept;
}

/** Rows of the tree in depth-first order, without those in folded branches. No recursion: a trace may be deep. */
export function treeRows(tree: Tree, filter: Filter, folded: Set<string>, opened: Set<string>): Row[] {
  const kept = keptBy(tree, filter, tree.byId.values());
  const rows: Row[] = [];
  const stack: { span: Span; depth: number; repeats: number }[] = [];
  const push = (spans: Span[], depth: number) => {
    const shown = kept ? spans.filter((each) => kept.has(each.id)) : spans;
    for (const each of grouped(shown, tree, filter.group && !kept, opened).reverse()) stack.push({ ...each, depth });
  };
  push(tree.roots, 0);
  for (let next = stack.pop(); next; next = stack.pop()) {
    const below = tree.children.get(next.span.id) ?? [];
    const open = below.length > 0 && !folded.has(next.span.id) && next.repeats === 1;
    rows.push({ span: next.span, depth: next.depth, children: below.length, open, repeats: next.repeats });
    if (open) push(below, next.depth + 1);
  }
  return rows;
}

const REPEATS = 4;

/** Fold a run of equal siblings without children into one row, unless it was opened. */
function grouped(spans: Span[], tree: Tree, on: boolean, opened: Set<string>): { span: Span; repeats: number }[] {
  const result: { span: Span; repeats: number }[] = [];
  let index = 0;
  while (index < spans.length) {
    const first = spans[index]!;
    let last = index + 1;
    while (on && last < spans.length && repeats(first, spans[last]!, tree)) last++;
    if (last - index >= REPEATS && !opened.has(first.id)) result.push({ span: first, repeats: last - index });
    else for (const span of spans.slice(index, last)) result.push({ span, repeats: 1 });
    index = last;
  }
  return result;
}

function repeats(first: Span, other: Span, tree: Tree): boolean {
  return first.kind === other.kind && first.name === other.name && first.status === other.status && !isError(other) && !tree.children.has(first.id) && !tree.children.has(other.id);
}

/** Matching spans by their start. */
export function listRows(tree: Tree, filter: Filter): Row[] {
  return [...tree.byId.values()]
    .filter((span) => matches(span, filter, tree.end))
    .sort((a, b) => a.start_ms - b.start_ms)
    .map((span) => ({ span, depth: 0, children: 0, open: false, repeats: 1 }));
}

/** The first failure in time; of nested failures the innermost, which is where it began. */
export function firstError(tree: Tree): Span | undefined {
  const failed = [...tree.byId.values()].filter(isError).sort((a, b) => a.start_ms - b.start_ms);
  let found = failed[0];
  while (found) {
    const inner = (tree.children.get(found.id) ?? []).filter(isError).sort((a, b) => a.start_ms - b.start_ms)[0];
    if (!inner) return found;
    found = inner;
  }
  return undefined;
}

/** Five or so round marks of a time axis. */
export function ticks(start: number, end: number, wanted = 5): number[] {
  const range = end - start;
  if (range <= 0) return [start];
  const rough = range / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough) ?? 10 * power;
  const marks = [];
  for (let at = Math.ceil(start / step) * step; at <= end; at += step) marks.push(at);
  return marks;
}
