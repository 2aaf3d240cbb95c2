import { initialState, reduce, type SessionState } from "@vaka/client/store.ts";
import { useMemo, useState } from "preact/hooks";
import { api } from "../api.ts";
import { align, type Figures, figuresOf, type Item, itemsOf, type Pair } from "../compare.ts";
import { Empty, Failure, Loading, useLoaded } from "../components/basics.tsx";
import { WordDiff } from "../components/DiffView.tsx";
import { cost, count, duration, plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { path, route, setQuery } from "../router.ts";
import { recent } from "../shared.ts";

const MOST_EVENTS = 20_000;

/** Two sessions side by side, aligned by what was said and done. */
export function ComparePage() {
  const a = route.value.query.get("a") ?? "";
  const b = route.value.query.get("b") ?? "";
  return (
    <div class="scroll">
      <div class="page">
        <div class="two">
          <Picker label="Left" value={a} onChange={(value) => setQuery({ a: value })} />
          <Picker label="Right" value={b} onChange={(value) => setQuery({ b: value })} />
        </div>
        {a && b ? <Comparison key={`${a}|${b}`} a={a} b={b} /> : (
          <Empty icon="compare" title="Choose two sessions" command={`vaka sessions fork ${a || "SESSION"}`}>
            <p>A session and its fork, or any two: what was said and done is aligned, changed words are marked, and the numbers are compared.</p>
          </Empty>
        )}
      </div>
    </div>
  );
}

function Picker({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  const id = `compare-${label}`;
  return (
    <label class="field">
      <span>{label}</span>
      <input list={id} value={text || value} placeholder="id of a session" onInput={(event) => setText(event.currentTarget.value)} onChange={(event) => onChange(event.currentTarget.value.trim())} />
      <datalist id={id}>{recent.value.map((each) => <option key={each.id} value={each.id}>{each.title}</option>)}</datalist>
    </label>
  );
}

async function load(id: string): Promise<SessionState> {
  let state = initialState(id);
  let after = "0";
  for (let read = 0; read < MOST_EVENTS; ) {
    const page = await api.events(id, { after, limit: "1000" });
    for (const event of page.data) state = reduce(state, event as never);
    read += page.data.length;
    if (!page.has_more || !page.next_cursor) break;
    after = page.next_cursor;
  }
  return state;
}

function Comparison({ a, b }: { a: string; b: string }) {
  const { data, error, reload } = useLoaded(() => Promise.all([load(a), load(b)]), [a, b]);
  const [all, setAll] = useState(false);
  const result = useMemo(() => {
    if (!data) return null;
    const [left, right] = [itemsOf(data[0]), itemsOf(data[1])];
    return { pairs: align(left, right), left: figuresOf(data[0], left), right: figuresOf(data[1], right) };
  }, [data]);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data || !result) return <Loading what="both sessions" />;
  const equal = result.pairs.findIndex((pair) => !pair.same);
  const common = equal < 0 ? result.pairs.length : equal;
  const fork = data[1].origin?.session === a ? data[1].origin.cursor : data[0].origin?.session === b ? data[0].origin.cursor : "";
  return (
    <>
      <FiguresTable left={result.left} right={result.right} a={a} b={b} />
      <div class="compare">
        <div><a class="mono" href={path("chat", a)}>{a}</a></div>
        <div><a class="mono" href={path("chat", b)}>{b}</a></div>
        {common > 0 && (
          <div class="both row wrap">
            <span class="grow">{equal < 0 ? `Equal: ${plural(common, "item")}` : `${plural(common, "equal item")} before the first difference`}{fork && `, forked at ${fork}`}</span>
            <button type="button" class="small" aria-pressed={all} onClick={() => setAll(!all)}>{all ? "Hide" : "Show"}</button>
          </div>
        )}
        {result.pairs.map((pair, index) => (index < common && !all ? null : <PairView key={index} pair={pair} />))}
      </div>
    </>
  );
}

function PairView({ pair }: { pair: Pair }) {
  return (
    <>
      <Side item={pair.a} other={pair.b} side="before" same={pair.same} />
      <Side item={pair.b} other={pair.a} side="after" same={pair.same} />
    </>
  );
}

function Side({ item, other, side, same }: { item: Item | null; other: Item | null; side: "before" | "after"; same: boolean }) {
  if (!item) return <div class="missing">not here</div>;
  return (
    <div class={same ? "muted" : ""}>
      <div class="row small muted">
        <Icon name={item.kind === "tool" ? "tool" : item.kind === "user" ? "chat" : "model"} />
        <span class="ellipsis">{item.kind === "tool" ? item.name : item.name ? `${item.name} (${item.kind})` : item.kind}</span>
        {item.kind === "tool" && <span>{item.status}</span>}
        {item.ms !== null && <span class="number">{duration(item.ms)}</span>}
      </div>
      {same || !other ? <div class={`words ${item.kind === "tool" ? "mono" : ""}`}>{item.text}</div>
        : <div class={item.kind === "tool" ? "mono" : ""}><WordDiff before={side === "before" ? item.text : other.text} after={side === "before" ? other.text : item.text} side={side} /></div>}
    </div>
  );
}

const ROWS: [keyof Figures, string, (value: number) => string][] = [
  ["turns", "turns", count], ["steps", "steps", count], ["calls", "tool calls", count], ["input", "input tokens", count], ["output", "output tokens", count], ["cost", "cost", cost], ["ms", "time in turns", duration],
];

function FiguresTable({ left, right, a, b }: { left: Figures; right: Figures; a: string; b: string }) {
  return (
    <div class="panel scroll" tabIndex={0} role="region" aria-label="Numbers">
      <table class="grid">
        <thead><tr><th><span class="sr">figure</span></th><th class="number ellipsis" title={a}>left</th><th class="number ellipsis" title={b}>right</th><th class="number">change</th></tr></thead>
        <tbody>
          {ROWS.map(([key, label, show]) => {
            const change = right[key] - left[key];
            return (
              <tr key={key}>
                <td>{label}</td><td class="number">{show(left[key])}</td><td class="number">{show(right[key])}</td>
                <td class="number">{change === 0 ? <span class="faint">±0</span> : `${change > 0 ? "+" : "−"}${show(Math.abs(change))}${left[key] ? ` (${change > 0 ? "+" : "−"}${Math.round((100 * Math.abs(change)) / left[key])}%)` : ""}`}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
