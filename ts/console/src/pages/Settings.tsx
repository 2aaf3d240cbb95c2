import { useState } from "preact/hooks";
import { api, me, signOut } from "../api.ts";
import { Failure, Loading, useLoaded } from "../components/basics.tsx";
import { JsonView } from "../components/JsonView.tsx";
import { date } from "../format.ts";
import { missing, ScopedButton, ScopeNotice } from "../scopes.tsx";
import { type Theme, theme } from "../theme.ts";
import { report, toast } from "../toast.ts";
import type { Rule, Setting } from "../types.ts";

export function SettingsPage() {
  return (
    <div class="scroll">
      <div class="page">
        <div class="cards">
          <Appearance />
          <Identity />
          <Health />
        </div>
        <RememberedRules />
        {missing("operator") ? <ScopeNotice scope="operator">The configuration of the server is not shown</ScopeNotice> : <Configuration />}
      </div>
    </div>
  );
}

function Appearance() {
  return (
    <section class="panel pad column">
      <h2>Appearance</h2>
      <div class="segmented" role="group" aria-label="Theme">
        {(["system", "light", "dark"] as Theme[]).map((each) => <button type="button" key={each} aria-pressed={theme.value === each} onClick={() => { theme.value = each; }}>{each}</button>)}
      </div>
    </section>
  );
}

function Identity() {
  const who = me.value;
  return (
    <section class="panel pad column">
      <h2>You</h2>
      <dl class="facts"><dt>id</dt><dd class="mono">{who?.id || "–"}</dd><dt>namespace</dt><dd class="mono">{who?.namespace || "default"}</dd><dt>scopes</dt><dd>{who?.scopes?.join(", ")}</dd></dl>
      <div><button type="button" class="small" onClick={() => signOut().catch(report)}>Sign out</button></div>
    </section>
  );
}

function Health() {
  const { data } = useLoaded(() => Promise.all([api.version(), api.ready().catch((error: Error) => ({ status: error.message }))]), []);
  return (
    <section class="panel pad column">
      <h2>Server</h2>
      {data ? <dl class="facts">{Object.entries({ ...data[0], ...data[1] }).filter(([, value]) => typeof value !== "object").map(([name, value]) => <><dt>{name}</dt><dd class="mono">{String(value)}</dd></>)}</dl> : <span class="muted">Loading</span>}
    </section>
  );
}

/** The rules that "Approve & remember" has stored for an owner of sessions; by default those of the caller. */
function RememberedRules() {
  const [owner, setOwner] = useState(me.value?.id ?? "");
  const { data, error, reload } = useLoaded(() => api.rules(owner), [owner]);
  const remove = (rule: Rule) => api.removeRule(rule.id, owner).then(() => { toast("Removed the rule"); reload(); }, report);
  return (
    <section class="panel" aria-label="Remembered rules">
      <div class="row wrap pad">
        <h2 class="grow">Remembered rules</h2>
        {!missing("admin") && <input placeholder="Owner" aria-label="Owner of the rules" value={owner} onChange={(event) => setOwner(event.currentTarget.value.trim() || (me.value?.id ?? ""))} />}
      </div>
      {error ? <Failure error={error} retry={reload} /> : !data ? <Loading what="the rules" /> : data.data.length === 0 ? (
        <div class="pad muted">No approval for the project or the user is remembered.</div>
      ) : (
        <table class="grid">
          <thead><tr><th>rule</th><th class="wide">counts in</th><th class="wide">granted by</th><th class="wide">since</th><th><span class="sr">actions</span></th></tr></thead>
          <tbody>
            {data.data.map((each) => (
              <tr key={each.id}>
                <td class="mono" style={{ overflowWrap: "anywhere", whiteSpace: "pre-wrap" }}>{each.rule}</td>
                <td class="wide" style={{ overflowWrap: "anywhere" }}>{each.scope === "project" ? each.cwd || "the project" : "all folders"}</td>
                <td class="mono wide" style={{ overflowWrap: "anywhere" }}>{each.by}</td>
                <td class="muted wide">{date(each.created)}</td>
                <td><ScopedButton scope="approvals:write" class="small danger" onClick={() => remove(each)}>Remove</ScopedButton></td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function SettingValue({ value }: { value: unknown }) {
  if (value === null || value === undefined || value === "") return <span class="faint">not set</span>;
  if (typeof value !== "object") return <>{String(value)}</>;
  return Object.keys(value).length ? <JsonView value={value} open={0} /> : <span class="faint">{JSON.stringify(value)}</span>;
}

function Configuration() {
  const { data, error, reload } = useLoaded<Setting[]>(async () => { const found = await api.config(); return Array.isArray(found) ? found : found.data; }, []);
  const [find, setFind] = useState("");
  if (error) return <section class="panel"><Failure error={error} retry={reload} /></section>;
  if (!data) return <Loading what="the configuration" />;
  const shown = data.filter((each) => !find || `${each.key} ${JSON.stringify(each.value)} ${each.origin}`.toLowerCase().includes(find.toLowerCase()));
  return (
    <section class="panel">
      <div class="row wrap pad"><h2 class="grow">Effective configuration</h2><input type="search" placeholder="Find a setting" aria-label="Find a setting" value={find} onInput={(event) => setFind(event.currentTarget.value)} /></div>
      <div class="scroll" tabIndex={0} role="region" aria-label="Settings with their origins">
        <table class="grid">
          <thead><tr><th>key</th><th>value</th><th class="wide">layer</th><th class="wide">origin</th></tr></thead>
          <tbody>
            {shown.map((each) => (
              <tr key={each.key}>
                <td class="mono" style={{ overflowWrap: "anywhere" }}>{each.key}</td>
                <td class="mono" style={{ overflowWrap: "anywhere" }}><SettingValue value={each.value} /></td>
                <td class="wide"><span class="chip">{each.layer}</span></td>
                <td class="faint small wide" style={{ overflowWrap: "anywhere" }}>{each.origin}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {shown.length === 0 && <div class="pad muted">No setting matches.</div>}
    </section>
  );
}
