import { Fragment } from "preact";
import { useState } from "preact/hooks";
import { api } from "../api.ts";
import { CopyButton, Failure, Status, useLoaded } from "../components/basics.tsx";
import { JsonView } from "../components/JsonView.tsx";
import { Arguments } from "../components/ToolCard.tsx";
import { cost, count, duration } from "../format.ts";
import { Icon } from "../icons.tsx";
import { path as pageOf } from "../router.ts";
import type { Envelope, Span, Trace } from "../types.ts";
import { endOf, errorText, pathOf } from "./layout.ts";

type Tab = "summary" | "events" | "raw";
const MOST_EVENTS = 200;

export function SpanDetail({ span, trace, end, onClose }: { span: Span; trace: Trace; end: number; onClose: () => void }) {
  const [tab, setTab] = useState<Tab>("summary");
  return (
    <aside class="detail" aria-label={`Details of ${span.name}`}>
      <div class="inside">
        <div class="row">
          <h2 class="grow" style={{ overflowWrap: "anywhere" }}>{span.name}</h2>
          <Status status={span.status} />
          <button type="button" class="plain square" onClick={onClose} aria-label="Close the details"><Icon name="cross" /></button>
        </div>
        <div class="segmented" role="group" aria-label="Details">
          {(["summary", "events", "raw"] as const).map((each) => <button type="button" class="small" key={each} aria-pressed={tab === each} onClick={() => setTab(each)}>{each}</button>)}
        </div>
        {tab === "summary" && <Summary span={span} trace={trace} end={end} />}
        {tab === "events" && <Events span={span} session={trace.session} />}
        {tab === "raw" && <div><CopyButton text={JSON.stringify(span, null, 2)} label="Copy this span as JSON" /><JsonView value={span} open={3} searchable /></div>}
      </div>
    </aside>
  );
}

function Summary({ span, trace, end }: { span: Span; trace: Trace; end: number }) {
  const error = errorText(span.error);
  const took = endOf(span, end) - span.start_ms;
  const output = span.tokens?.output ?? 0;
  const speed = span.kind === "model" && output && took > 0 ? (1000 * output) / Math.max(1, took - (span.ttft_ms ?? 0)) : 0;
  return (
    <>
      {error && <div class="notice"><Icon name="alert" /><span>{error}</span></div>}
      <dl class="facts">
        <dt>kind</dt><dd>{span.kind}</dd>
        {pathOf(span) && <><dt>agent path</dt><dd class="mono">{pathOf(span)}</dd></>}
        <dt>start</dt><dd>{duration(span.start_ms)}</dd>
        <dt>duration</dt><dd>{duration(took)}</dd>
        {span.ttft_ms ? <><dt>first token</dt><dd>{duration(span.ttft_ms)}</dd></> : null}
        {span.tokens && <><dt>tokens</dt><dd>{`in ${count(span.tokens.input)} · out ${count(span.tokens.output)} · cached ${count(span.tokens.cached)} · reasoning ${count(span.tokens.reasoning)}`}</dd></>}
        {speed ? <><dt>speed</dt><dd>{`${speed.toFixed(1)} tokens/s`}</dd></> : null}
        {span.cost ? <><dt>cost</dt><dd>{cost(span.cost)}</dd></> : null}
        {Object.entries(span.detail ?? {}).filter(([, value]) => isShort(value)).map(([name, value]) => <Fragment key={name}><dt>{name.replaceAll("_", " ")}</dt><dd class="mono">{String(value)}</dd></Fragment>)}
        <dt>cursor</dt>
        <dd><a href={`${pageOf("sessions", trace.session, "events")}?at=${span.cursor}`} class="mono">{span.cursor}</a>{span.end_cursor && ` to ${span.end_cursor}`}</dd>
      </dl>
      {Object.entries(span.detail ?? {}).filter(([, value]) => !isShort(value)).map(([name, value]) => (
        <section key={name}>
          <h3>{name}</h3>
          <DetailValue name={name} value={value} tool={span.name} />
        </section>
      ))}
    </>
  );
}

const isShort = (value: unknown): boolean => (typeof value === "string" ? value.length <= 60 && !value.includes("\n") && !value.startsWith("{") : typeof value !== "object" || value === null);

function DetailValue({ name, value, tool }: { name: string; value: unknown; tool: string }) {
  const parsed = name === "arguments" && typeof value === "string" ? parsedObject(value) : undefined;
  if (parsed) return <Arguments name={tool} args={parsed} />;
  return typeof value === "string" ? <pre class="block" tabIndex={0}>{value}</pre> : <JsonView value={value} open={3} />;
}

/** An object from its JSON; undefined for anything else, such as JSON that was cut. */
function parsedObject(text: string): Record<string, unknown> | undefined {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, unknown>) : undefined;
  } catch {
    return undefined;
  }
}

function Events({ span, session }: { span: Span; session: string }) {
  const { data, error, reload } = useLoaded<Envelope[]>(() => api.eventsBetween(session, span.cursor, span.end_cursor, MOST_EVENTS), [span.id]);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data) return <p class="muted">Loading</p>;
  return (
    <>
      {data.map((event) => (
        <details key={event.id} class="fold">
          <summary><span class="caret"><Icon name="caret" /></span><span class="mono">{event.id}</span><span>{event.type}</span></summary>
          <JsonView value={event.data} open={2} />
        </details>
      ))}
      {data.length >= MOST_EVENTS && <p class="muted small">{`The first ${MOST_EVENTS} events; the rest is on the events page.`}</p>}
    </>
  );
}
