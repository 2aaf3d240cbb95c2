import { useState } from "preact/hooks";
import { api, type ToolRun } from "../api.ts";
import { Empty, Failure, Loading, useLoaded } from "../components/basics.tsx";
import { JsonView } from "../components/JsonView.tsx";
import { SchemaForm } from "../components/SchemaForm.tsx";
import { Transcript } from "../components/Transcript.tsx";
import { cut, plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { useLiveSession } from "../live.ts";
import { path, route } from "../router.ts";
import { initial, type Schema } from "../schema.ts";
import { ScopedButton, ScopeNotice } from "../scopes.tsx";
import { refreshAgents } from "../shared.ts";
import { report, toast } from "../toast.ts";
import type { Agent, ToolInfo } from "../types.ts";

/** The agents of the server; one of them with its tools; one of these with a form to run it. */
export function AgentsPage() {
  const [name, tool] = route.value.rest;
  return <div class="scroll"><div class="page">{name ? <AgentView key={name} name={name} tool={tool} /> : <AgentList />}</div></div>;
}

function AgentList() {
  const { data, error, reload } = useLoaded(() => api.agents(), []);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading what="agents" />;
  const reread = () => api.reloadAgents().then(() => { toast("Definitions read again"); reload(); void refreshAgents(); }, report);
  return (
    <>
      <div class="row"><span class="muted grow">{plural(data.data.length, "agent")}</span><ScopedButton scope="operator" class="small" onClick={reread}><Icon name="turn" />Read definitions again</ScopedButton></div>
      {data.data.length === 0 ? <Empty icon="agent" title="No agent is served" command="vaka serve --agent NAME" /> : (
        <div class="cards">
          {data.data.map((agent) => (
            <a key={agent.name} class="panel card" href={path("agents", agent.name)}>
              <span class="row"><span class="kind-agent"><Icon name="agent" /></span><b class="ellipsis grow">{agent.name}</b>{agent.kind && <span class="chip">{agent.kind}</span>}</span>
              <span class="muted">{cut(agent.description || "no description", 160)}</span>
              <span class="row wrap small faint"><span>{agent.model || "default model"}</span><span>{plural(agent.tools?.length ?? 0, "tool")}</span></span>
            </a>
          ))}
        </div>
      )}
    </>
  );
}

function AgentView({ name, tool }: { name: string; tool: string | undefined }) {
  const { data, error, reload } = useLoaded<Agent>(() => api.agent(name), [name]);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading what={name} />;
  const chosen = data.tools?.find((each) => each.name === tool);
  return (
    <>
      <div class="panel pad column">
        <div class="row wrap">
          <span class="kind-agent"><Icon name="agent" /></span><h2 class="grow">{data.name}</h2>
          <a class="button small" href={`${path("chat")}?new=1&agent=${encodeURIComponent(data.name)}`}><Icon name="chat" />Chat</a>
        </div>
        {data.description && <p>{data.description}</p>}
        <dl class="facts"><dt>model</dt><dd class="mono">{data.model || "default"}</dd><dt>kind</dt><dd>{data.kind || "–"}</dd><dt>defined in</dt><dd class="mono">{data.source || "–"}</dd></dl>
      </div>
      <div class="two">
        <section class="panel">
          <table class="grid">
            <thead><tr><th>tool</th><th>effect</th><th class="wide">from</th></tr></thead>
            <tbody>
              {(data.tools ?? []).map((each) => (
                <tr key={each.name} aria-current={each.name === tool ? "true" : undefined}>
                  <td><a class="mono" href={path("agents", name, each.name)}>{each.name}</a><div class="muted small">{cut(each.description?.split("\n")[0] ?? "", 110)}</div></td>
                  <td><span class="chip">{each.effect}</span></td><td class="faint small wide">{each.source}</td>
                </tr>
              ))}
            </tbody>
          </table>
          {!data.tools?.length && <div class="pad muted">This agent has no tool.</div>}
        </section>
        {chosen ? <ToolForm key={chosen.name} tool={chosen} agent={name} /> : data.tools?.length ? <div class="muted pad">Choose a tool to see its schema and to run it.</div> : null}
      </div>
    </>
  );
}

/** A call that waits for a person, followed until it has its result. */
function WaitingRun({ id }: { id: string }) {
  const { state, error } = useLiveSession(id);
  return error ? <Failure error={error} /> : <Transcript state={state} />;
}

function ToolForm({ tool, agent }: { tool: ToolInfo; agent: string }) {
  const schema = tool.parameters as Schema;
  const [value, setValue] = useState<Record<string, unknown>>(() => initial(schema));
  const [valid, setValid] = useState((schema.required ?? []).length === 0);
  const [busy, setBusy] = useState(false);
  const [run, setRun] = useState<ToolRun | null>(null);
  const execute = () => {
    setBusy(true);
    setRun(null);
    api.runTool(tool.name, { agent, arguments: value }).then(setRun, report).finally(() => setBusy(false));
  };
  return (
    <section class="panel pad column" aria-label={`Run ${tool.name}`}>
      <div class="row"><span class="kind-tool"><Icon name="tool" /></span><h2 class="mono grow">{tool.name}</h2><span class="chip">{tool.effect}</span></div>
      <p class="muted" style={{ whiteSpace: "pre-wrap" }}>{cut(tool.description, 1200)}</p>
      <SchemaForm schema={schema} value={value} onChange={(next, good) => { setValue(next); setValid(good); }} />
      <ScopeNotice scope="tools:execute">You can read this, but not run it</ScopeNotice>
      <div class="row wrap"><ScopedButton scope="tools:execute" class="primary" disabled={busy || !valid} onClick={execute}><Icon name="play" />Run</ScopedButton><span class="faint small">One governed call: rules, hooks and approvals apply.</span></div>
      {busy && <div class="row muted"><span class="spinner" />running</div>}
      {run?.status === "waiting" && <WaitingRun key={run.session} id={run.session} />}
      {run && run.status !== "waiting" && (
        <div class="column">
          <div class="row wrap"><span class={`chip ${run.failed ? "error" : "ok"}`}>{run.status}</span><a class="mono small" href={path("sessions", run.session)}>{run.session}</a></div>
          <JsonView value={run.value ?? run.content} open={3} searchable />
        </div>
      )}
      <details class="fold"><summary><span class="caret"><Icon name="caret" /></span>JSON Schema</summary><JsonView value={tool.parameters} open={3} /></details>
    </section>
  );
}
