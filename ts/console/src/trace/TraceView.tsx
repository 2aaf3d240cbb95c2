import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useMemo, useState } from "preact/hooks";
import { Virtual } from "../components/Virtual.tsx";
import { Empty, Status } from "../components/basics.tsx";
import { compact, cost, count, duration } from "../format.ts";
import { Icon, KIND_ICONS } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import type { Span, Trace } from "../types.ts";
import { agentsOf, buildTree, endOf, type Filter, firstError, isError, listRows, NO_FILTER, type Row, ticks, treeRows, type Tree } from "./layout.ts";
import { MiniMap, type Range, zoomed } from "./MiniMap.tsx";
import { SpanDetail } from "./SpanDetail.tsx";

const ROW = 26;
type View = "waterfall" | "tree" | "list";

/** The spans of a turn or a session, as waterfall, tree or list over the same rows. */
export function TraceView({ trace, actions }: { trace: Trace; actions?: ComponentChildren }) {
  const tree = useMemo(() => buildTree(trace.spans), [trace.spans]);
  const [view, setView] = useState<View>("waterfall");
  const [filter, setFilter] = useState<Filter>(NO_FILTER);
  const [folded, setFolded] = useState<Set<string>>(new Set());
  const [opened, setOpened] = useState<Set<string>>(new Set());
  const [selected, setSelected] = useState<string>("");
  const [range, setRange] = useState<Range>({ start: 0, end: Math.max(1, tree.end) });
  const shownRange = range.end > tree.end || range.start >= range.end ? { start: 0, end: Math.max(1, tree.end) } : range;

  const rows = useMemo(
    () => (view === "list" ? listRows(tree, filter) : treeRows(tree, filter, folded, opened)),
    [tree, view, filter, folded, opened],
  );
  const at = selected ? rows.findIndex((row) => row.span.id === selected) : -1;
  const failure = useMemo(() => firstError(tree), [tree]);

  const toggle = (row: Row) => {
    if (row.repeats > 1) setOpened(new Set([...opened, row.span.id]));
    else if (row.children) setFolded(flip(folded, row.span.id));
  };
  const reveal = (span: Span) => {
    setFilter(NO_FILTER);
    const above = new Set<string>();
    for (let up = span.parent; up; up = tree.byId.get(up)?.parent ?? null) above.add(up);
    setFolded(new Set([...folded].filter((id) => !above.has(id))));
    if (span.parent) setOpened(new Set([...opened, ...(tree.children.get(span.parent) ?? []).map((each) => each.id)]));
    setSelected(span.id);
  };
  useShortcuts([{ keys: "f", label: "First error", group: "Trace", run: () => { if (failure) reveal(failure); } }]);

  const onKeyDown = (event: KeyboardEvent) => {
    const zoom = event.shiftKey || event.key === "+" || event.key === "-" ? zoomed(event.key, shownRange, Math.max(1, tree.end)) : null;
    const row = rows[at];
    if (zoom) setRange(zoom);
    else if (event.key === "ArrowDown" || event.key === "j") setSelected(rows[Math.min(rows.length - 1, at + 1)]?.span.id ?? "");
    else if (event.key === "ArrowUp" || event.key === "k") setSelected(rows[Math.max(0, at - 1)]?.span.id ?? "");
    else if (event.key === "Home") setSelected(rows[0]?.span.id ?? "");
    else if (event.key === "End") setSelected(rows.at(-1)?.span.id ?? "");
    else if (event.key === "PageDown") setSelected(rows[Math.min(rows.length - 1, at + 20)]?.span.id ?? "");
    else if (event.key === "PageUp") setSelected(rows[Math.max(0, at - 20)]?.span.id ?? "");
    else if (event.key === "ArrowRight" && row && (row.repeats > 1 || !row.open)) toggle(row);
    else if (event.key === "ArrowLeft" && row?.open) toggle(row);
    else if (event.key === "ArrowLeft" && row?.span.parent) setSelected(row.span.parent);
    else if (event.key === "Enter" && row) toggle(row);
    else if (event.key === "Escape") setSelected("");
    else return;
    event.preventDefault();
  };

  const chosen = selected ? tree.byId.get(selected) : undefined;
  return (
    <div class="trace">
      <header>
        <Status status={trace.status} />
        <Facts trace={trace} />
        <div class="row" style={{ marginLeft: "auto" }}>{actions}</div>
      </header>
      <MiniMap tree={tree} range={shownRange} onRange={setRange} />
      <Filters tree={tree} filter={filter} onFilter={setFilter} view={view} onView={setView} failure={failure} onFailure={reveal} shown={rows.length} />
      <div class={`split ${chosen ? "" : "alone"}`}>
        <div class="rows">
          {view !== "list" && <Axis range={shownRange} bars={view === "waterfall"} />}
          {rows.length === 0 ? <Empty icon="search" title="No span matches the filter" /> : (
            <Virtual
              class="grow" count={rows.length} rowHeight={ROW} reveal={at} role={view === "list" ? "listbox" : "tree"} label={`Spans as ${view}`} onKeyDown={onKeyDown}
              activeId={at >= 0 ? `span-${selected}` : undefined}
              render={(index) => (
                <SpanRow row={rows[index]!} view={view} tree={tree} range={shownRange} selected={rows[index]!.span.id === selected} onSelect={setSelected} onToggle={toggle} />
              )}
            />
          )}
        </div>
        {chosen && <SpanDetail key={chosen.id} span={chosen} trace={trace} end={tree.end} onClose={() => setSelected("")} />}
      </div>
    </div>
  );
}

function flip(set: Set<string>, id: string): Set<string> {
  const next = new Set(set);
  if (!next.delete(id)) next.add(id);
  return next;
}

function Facts({ trace }: { trace: Trace }) {
  const tokens = trace.tokens ?? {};
  const cached = tokens.cached && tokens.input ? ` (${Math.round((100 * tokens.cached) / tokens.input)}% cached)` : "";
  return (
    <div class="facts-line">
      <span><b>{duration(trace.duration_ms)}</b></span>
      <span><b>{count(tokens.total)}</b> tokens{cached}</span>
      <span class="wide">in <b>{count(tokens.input)}</b> · out <b>{count(tokens.output)}</b>{tokens.reasoning ? <> · reasoning <b>{count(tokens.reasoning)}</b></> : null}</span>
      <span><b>{cost(trace.cost)}</b></span>
      {trace.ttft_ms !== null && trace.ttft_ms !== undefined && <span>first token <b>{duration(trace.ttft_ms)}</b></span>}
      <span class="wide"><b>{count(trace.spans.length)}</b> spans</span>
    </div>
  );
}

interface FiltersProps {
  tree: Tree;
  filter: Filter;
  onFilter: (filter: Filter) => void;
  view: View;
  onView: (view: View) => void;
  failure: Span | undefined;
  onFailure: (span: Span) => void;
  shown: number;
}

function Filters({ tree, filter, onFilter, view, onView, failure, onFailure, shown }: FiltersProps) {
  const kinds = useMemo(() => [...new Set([...tree.byId.values()].map((span) => span.kind))].sort(), [tree]);
  return (
    <div class="filters">
      <div class="segmented" role="group" aria-label="View">
        {(["waterfall", "tree", "list"] as const).map((each) => (
          <button type="button" key={each} class="small" aria-pressed={view === each} onClick={() => onView(each)}>{each}</button>
        ))}
      </div>
      <input type="search" class="small" placeholder="Filter spans" aria-label="Filter spans by name, agent or error" value={filter.text} onInput={(event) => onFilter({ ...filter, text: event.currentTarget.value })} />
      <select class="small wide" aria-label="Kind of span" value={[...filter.kinds][0] ?? ""} onChange={(event) => onFilter({ ...filter, kinds: new Set(event.currentTarget.value ? [event.currentTarget.value] : []) })}>
        <option value="">every kind</option>
        {kinds.map((kind) => <option key={kind} value={kind}>{kind}</option>)}
      </select>
      <select class="small wide" aria-label="Shortest duration" value={String(filter.longerThan)} onChange={(event) => onFilter({ ...filter, longerThan: Number(event.currentTarget.value) })}>
        <option value="0">any duration</option>
        {[10, 100, 1000, 10_000].map((ms) => <option key={ms} value={String(ms)}>{`at least ${duration(ms)}`}</option>)}
      </select>
      <button type="button" class="small wide" aria-pressed={filter.group} onClick={() => onFilter({ ...filter, group: !filter.group })}>group repeats</button>
      <button type="button" class="small" disabled={!failure} onClick={() => failure && onFailure(failure)}><Icon name="alert" />first error</button>
      <span class="faint small wide" aria-live="polite">{`${count(shown)} rows`}</span>
    </div>
  );
}

function Axis({ range, bars }: { range: Range; bars: boolean }) {
  const width = range.end - range.start;
  return (
    <div class="axis" aria-hidden="true">
      <span class="names">span</span>
      <div class="ticks">
        {bars && ticks(range.start, range.end, innerWidth < 700 ? 1 : 5).map((at) => <span key={at} style={{ left: `${((at - range.start) / width) * 100}%` }}>{at === 0 ? "0" : duration(at)}</span>)}
      </div>
    </div>
  );
}

interface SpanRowProps {
  row: Row;
  view: View;
  tree: Tree;
  range: Range;
  selected: boolean;
  onSelect: (id: string) => void;
  onToggle: (row: Row) => void;
}

/** Drawn again only when something of it changes: while rows scroll, those that stay in sight cost nothing. */
const SpanRow = memo(({ row, view, tree, range, selected, onSelect, onToggle }: SpanRowProps) => {
  const { span } = row;
  const took = endOf(span, tree.end) - span.start_ms;
  const agents = agentsOf(span, tree);
  const common = { id: `span-${span.id}`, "aria-selected": selected, onClick: () => onSelect(span.id) };
  const name = (
    <>
      <span class={isError(span) ? "is-error" : `kind-${span.kind}`}><Icon name={isError(span) ? "alert" : (KIND_ICONS[span.kind] ?? "step")} label={isError(span) ? `${span.kind}, failed` : span.kind} /></span>
      <span class={`label ${isError(span) ? "is-error" : ""}`} title={agents ? `${span.name} (${agents})` : span.name}>{span.name}</span>
      {row.repeats > 1 && <span class="chip">×{row.repeats}</span>}
      {agents && <span class="lane-path ellipsis">{agents}</span>}
    </>
  );
  const tokens = span.tokens?.total ? `${compact(span.tokens.total)} tok` : "";
  if (view === "list") {
    return (
      <div {...common} class="span-row list" role="option">
        <span class="cell faint number" style={{ paddingLeft: "12px" }}>{duration(span.start_ms)}</span>
        <span class="cell">{name}</span>
        <span class="cell faint small wide number">{tokens}</span>
        <span class="cell number small">{duration(took)}</span>
      </div>
    );
  }
  return (
    <div {...common} class="span-row" role="treeitem" aria-level={row.depth + 1} aria-expanded={row.children || row.repeats > 1 ? row.open : undefined} onDblClick={() => onToggle(row)}>
      <span class="cell" style={{ paddingLeft: `${8 + Math.min(row.depth, 14) * 14}px` }}>
        {row.children || row.repeats > 1 ? (
          <span class={`caret-box ${row.open ? "open" : ""}`} onClick={(event) => { event.stopPropagation(); onToggle(row); }}><Icon name="caret" /></span>
        ) : <span class="caret-box" />}
        {name}
        {view === "waterfall" && tokens && <span class="extra number">{tokens}</span>}
      </span>
      {view === "waterfall" ? <Bar span={span} took={took} range={range} /> : (
        <span class="cell small muted number">{[duration(took), tokens, span.cost ? cost(span.cost) : "", span.ttft_ms ? `first token ${duration(span.ttft_ms)}` : ""].filter(Boolean).join("  ·  ")}</span>
      )}
    </div>
  );
});

function Bar({ span, took, range }: { span: Span; took: number; range: Range }) {
  const width = range.end - range.start;
  const left = ((span.start_ms - range.start) / width) * 100;
  const right = ((span.start_ms + took - range.start) / width) * 100;
  if (right < 0 || left > 100) return <span class="lane" />;
  const from = Math.max(0, left);
  const to = Math.min(100, right);
  const inside = to - from > 60 && to > 82 && !isError(span) && span.kind !== "approval";
  const labelLeft = to > 82 && !inside;
  const first = span.ttft_ms ? ((span.start_ms + span.ttft_ms - range.start) / width) * 100 : null;
  return (
    <span class="lane">
      <span class={`bar kind-${span.kind} ${isError(span) ? "status-error" : ""} ${span.status} ${inside ? "labelled" : ""}`} style={{ left: `${from}%`, width: `${Math.max(0, to - from)}%` }} />
      {first !== null && first > from && first < to && <span class="first" style={{ left: `${first}%` }} title={`first token after ${duration(span.ttft_ms)}`} />}
      <span class={`after number ${inside ? "inside" : labelLeft ? "left" : ""}`} style={{ left: `${labelLeft ? from : to}%` }}>{duration(took)}</span>
    </span>
  );
}
