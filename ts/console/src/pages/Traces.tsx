import { api } from "../api.ts";
import { Empty, Failure, Loading, Status, useLoaded } from "../components/basics.tsx";
import { Virtual } from "../components/Virtual.tsx";
import { ago, compact, cost, duration, plural } from "../format.ts";
import { navigate, path, route } from "../router.ts";
import { recent } from "../shared.ts";
import { TraceTab } from "./Session.tsx";

/** The newest turns of all sessions, or one turn. */
export function TracesPage() {
  const [session, turn] = route.value.rest;
  return session ? <TraceTab key={`${session}/${turn}`} id={session} turn={turn} /> : <TraceList />;
}

function TraceList() {
  const { data, error, reload } = useLoaded(() => api.traces({ limit: "200" }), []);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading what="traces" />;
  if (data.data.length === 0) return <Empty icon="trace" title="No turn has run yet" command='vaka run "Say hello"'><p>Each turn leaves a trace: its steps, model calls, tools and child agents.</p></Empty>;
  return (
    <div class="column" style={{ height: "100%", gap: 0 }}>
      <div class="trace-row session-row head"><span>turn</span><span>status</span><span class="wide">duration</span><span class="wide">tokens · cost</span><span class="wide">started</span></div>
      <Virtual
        class="grow" count={data.data.length} rowHeight={44} role="list" label="Traces"
        render={(index) => {
          const trace = data.data[index]!;
          return (
            <div role="listitem" class="session-row" onClick={(event) => { if (!(event.target as Element).closest("a")) navigate(path("traces", trace.session, trace.id)); }}>
              <span class="column" style={{ gap: 0 }}>
                <a class="ellipsis plain-link" href={path("traces", trace.session, trace.id)}>{recent.value.find((each) => each.id === trace.session)?.title || trace.session}</a>
                <span class="ellipsis faint small mono">{`${trace.agent} · ${trace.session} · ${plural(trace.spans, "span")}`}</span>
              </span>
              <span><Status status={trace.status} /></span>
              <span class="wide number">{duration(trace.duration_ms)}{trace.ttft_ms ? <span class="faint">{` · ttft ${duration(trace.ttft_ms)}`}</span> : null}</span>
              <span class="wide number">{`${compact(trace.tokens?.total)} · ${cost(trace.cost)}`}</span>
              <span class="wide muted">{ago(trace.started)}</span>
            </div>
          );
        }}
      />
    </div>
  );
}
