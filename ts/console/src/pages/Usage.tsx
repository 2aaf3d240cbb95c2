import { useMemo, useState } from "preact/hooks";
import { api, type UsageRow } from "../api.ts";
import { Empty, Failure, Loading, useLoaded } from "../components/basics.tsx";
import { compact, cost, count } from "../format.ts";

type Measure = "tokens" | "cost";
const RANGES = [7, 30, 90];

const tokensOf = (row: UsageRow): number => row.input + row.output;

/** Tokens and cost of each day and model, added up from the logs. */
export function UsagePage() {
  const [days, setDays] = useState(30);
  const [measure, setMeasure] = useState<Measure>("tokens");
  const { data, error, reload } = useLoaded(() => api.usage(days), [days]);
  return (
    <div class="scroll">
      <div class="page">
        <div class="row wrap">
          <div class="segmented" role="group" aria-label="Range">
            {RANGES.map((each) => <button type="button" key={each} aria-pressed={days === each} onClick={() => setDays(each)}>{`${each} days`}</button>)}
          </div>
          <div class="segmented" role="group" aria-label="Measure">
            {(["tokens", "cost"] as const).map((each) => <button type="button" key={each} aria-pressed={measure === each} onClick={() => setMeasure(each)}>{each}</button>)}
          </div>
        </div>
        {error ? <Failure error={error} retry={reload} /> : !data ? <Loading what="usage" /> : data.data.length === 0 ? (
          <Empty icon="chart" title="No model was used in this time" command='vaka run "Say hello"'><p>Numbers come from the usage events of the logs; nothing else is counted.</p></Empty>
        ) : <Figures rows={data.data} days={days} measure={measure} />}
      </div>
    </div>
  );
}

function Figures({ rows, days, measure }: { rows: UsageRow[]; days: number; measure: Measure }) {
  const total = rows.reduce((sum, row) => ({ input: sum.input + row.input, output: sum.output + row.output, cached: sum.cached + (row.cache_read ?? 0), cost: sum.cost + row.cost }), { input: 0, output: 0, cached: 0, cost: 0 });
  const models = useMemo(() => byModel(rows), [rows]);
  return (
    <>
      <div class="cards">
        <div class="panel stat"><span class="muted">input tokens</span><b>{compact(total.input)}</b><span class="faint small">{total.input ? `${Math.round((100 * total.cached) / total.input)}% from the cache` : ""}</span></div>
        <div class="panel stat"><span class="muted">output tokens</span><b>{compact(total.output)}</b></div>
        <div class="panel stat"><span class="muted">cost</span><b>{cost(total.cost)}</b><span class="faint small">{`${cost(total.cost / days)} a day`}</span></div>
      </div>
      <div class="panel pad">
        <h2>{`${measure === "cost" ? "Cost" : "Tokens"} by day and model`}</h2>
        <Bars rows={rows} days={days} measure={measure} models={models.map((each) => each.model)} />
        <div class="row wrap">{models.map((each, index) => <span key={each.model} class={`chip b${index % 6}`}><span class="dot" />{each.model}</span>)}</div>
      </div>
      <div class="panel scroll" tabIndex={0} role="region" aria-label="Usage by model">
        <table class="grid">
          <thead><tr><th>model</th><th class="number">input</th><th class="number wide">cached</th><th class="number">output</th><th class="number wide">reasoning</th><th class="number">cost</th></tr></thead>
          <tbody>
            {models.map((each) => (
              <tr key={each.model}>
                <td class="mono" style={{ overflowWrap: "anywhere" }}>{each.model}</td><td class="number">{count(each.input)}</td><td class="number wide">{count(each.cache_read)}</td>
                <td class="number">{count(each.output)}</td><td class="number wide">{count(each.reasoning)}</td><td class="number">{cost(each.cost)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

function byModel(rows: UsageRow[]): UsageRow[] {
  const found = new Map<string, UsageRow>();
  for (const row of rows) {
    const sum = found.get(row.model) ?? { day: "", model: row.model, input: 0, output: 0, cache_read: 0, reasoning: 0, cost: 0 };
    found.set(row.model, {
      ...sum, input: sum.input + row.input, output: sum.output + row.output, cache_read: (sum.cache_read ?? 0) + (row.cache_read ?? 0),
      reasoning: (sum.reasoning ?? 0) + (row.reasoning ?? 0), cost: sum.cost + row.cost,
    });
  }
  return [...found.values()].sort((a, b) => tokensOf(b) - tokensOf(a));
}

function lastDays(days: number): string[] {
  const today = Date.now();
  return Array.from({ length: days }, (_, index) => new Date(today - (days - 1 - index) * 86_400_000).toISOString().slice(0, 10));
}

const HEIGHT = 200;
const LEFT = 48;
const BOTTOM = 22;

function Bars({ rows, days, measure, models }: { rows: UsageRow[]; days: number; measure: Measure; models: string[] }) {
  const value = (row: UsageRow) => (measure === "cost" ? row.cost : tokensOf(row));
  const show = measure === "cost" ? cost : compact;
  const names = lastDays(days);
  const byDay = new Map<string, UsageRow[]>();
  for (const row of rows) byDay.set(row.day.slice(0, 10), [...(byDay.get(row.day.slice(0, 10)) ?? []), row]);
  const most = Math.max(1e-9, ...names.map((day) => (byDay.get(day) ?? []).reduce((sum, row) => sum + value(row), 0)));
  const width = Math.max(240, Math.min(1100, innerWidth - 120));
  const every = Math.ceil((names.length * 60) / width);
  const slot = (width - LEFT) / names.length;
  const height = HEIGHT - BOTTOM - 10;
  return (
    <svg class="chart" viewBox={`0 0 ${width} ${HEIGHT}`} role="img" aria-label={`${measure} of each of the last ${days} days, at most ${show(most)}; the table below has the numbers`}>
      {[0, 0.5, 1].map((part) => (
        <g key={part}>
          <line x1={LEFT} x2={width} y1={10 + height * (1 - part)} y2={10 + height * (1 - part)} />
          <text x={LEFT - 6} y={14 + height * (1 - part)} text-anchor="end">{show(most * part)}</text>
        </g>
      ))}
      {names.map((day, index) => {
        let top = 10 + height;
        return (
          <g key={day}>
            {(byDay.get(day) ?? []).map((row) => {
              const size = (value(row) / most) * height;
              top -= size;
              return <rect key={row.model} class={`b${models.indexOf(row.model) % 6}`} x={LEFT + index * slot + slot * 0.12} y={top} width={slot * 0.76} height={Math.max(0, size)} rx={1.5}><title>{`${day} ${row.model}: ${show(value(row))}`}</title></rect>;
            })}
            {index % every === 0 && <text x={LEFT + index * slot + slot / 2} y={HEIGHT - 6} text-anchor="middle">{day.slice(5)}</text>}
          </g>
        );
      })}
    </svg>
  );
}
