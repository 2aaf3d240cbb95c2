import { useEffect, useRef, useState } from "preact/hooks";
import { api } from "../api.ts";
import { Empty, Failure, Loading, Status } from "../components/basics.tsx";
import { Virtual } from "../components/Virtual.tsx";
import { ago, count, plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import { navigate, path, route, setQuery } from "../router.ts";
import { agents } from "../shared.ts";
import type { Session } from "../types.ts";

const STATUSES = ["idle", "queued", "running", "waiting", "closed"];
const ROW = 44;

export function SessionsPage() {
  const { query } = route.value;
  const wanted = { q: query.get("q") ?? "", status: query.get("status") ?? "", agent: query.get("agent") ?? "" };
  const [rows, setRows] = useState<Session[] | null>(null);
  const [next, setNext] = useState<string | null>(null);
  const [error, setError] = useState<Error | null>(null);
  const [at, setAt] = useState(-1);
  const [picked, setPicked] = useState<string>("");
  const loading = useRef(false);
  const search = useRef<HTMLInputElement>(null);

  useEffect(() => {
    let current = true;
    const timer = setTimeout(() => {
      api.sessions({ ...wanted, limit: "100" }).then((page) => {
        if (!current) return;
        setRows(page.data); setNext(page.next_cursor); setError(null);
      }, (reason: Error) => { if (current) setError(reason); });
    }, wanted.q ? 150 : 0);
    return () => { current = false; clearTimeout(timer); };
  }, [wanted.q, wanted.status, wanted.agent]);

  const more = () => {
    if (!next || loading.current || !rows) return;
    loading.current = true;
    api.sessions({ ...wanted, limit: "100", cursor: next })
      .then((page) => { setRows([...rows, ...page.data]); setNext(page.next_cursor); }, setError)
      .finally(() => { loading.current = false; });
  };
  const open = () => { const row = rows?.[at]; if (row) navigate(path("sessions", row.id)); };
  useShortcuts([
    { keys: "j", label: "Next", group: "Sessions", run: () => setAt((now) => Math.min((rows?.length ?? 1) - 1, now + 1)) },
    { keys: "k", label: "Previous", group: "Sessions", run: () => setAt((now) => Math.max(0, now - 1)) },
    { keys: "Enter", label: "Open", group: "Sessions", run: open },
    { keys: "/", label: "Search", group: "Sessions", run: () => search.current?.focus() },
  ]);

  const compare = (id: string) => {
    if (picked && picked !== id) navigate(`${path("compare")}?a=${encodeURIComponent(picked)}&b=${encodeURIComponent(id)}`);
    else setPicked(picked === id ? "" : id);
  };
  return (
    <div class="column" style={{ height: "100%", gap: 0 }}>
      <div class="row wrap pad" style={{ borderBottom: "1px solid var(--line)", background: "var(--panel)" }}>
        <input ref={search} type="search" class="grow" style={{ maxWidth: "360px" }} placeholder="Search titles" aria-label="Search sessions" value={wanted.q} onInput={(event) => setQuery({ q: event.currentTarget.value })} />
        <select aria-label="Status" value={wanted.status} onChange={(event) => setQuery({ status: event.currentTarget.value })}>
          <option value="">every status</option>{STATUSES.map((each) => <option key={each} value={each}>{each}</option>)}
        </select>
        <select aria-label="Agent" value={wanted.agent} onChange={(event) => setQuery({ agent: event.currentTarget.value })}>
          <option value="">every agent</option>{agents.value.map((each) => <option key={each.name} value={each.name}>{each.name}</option>)}
        </select>
        {picked && <span class="chip accent">{`compare ${picked} with…`}</span>}
        {rows && <span class="faint small">{next ? `${count(rows.length)}+ sessions` : plural(rows.length, "session")}</span>}
      </div>
      {error ? <Failure error={error} /> : !rows ? <Loading what="sessions" /> : rows.length === 0 ? (
        <Empty icon="list" title={wanted.q || wanted.status || wanted.agent ? "No session matches" : "No session yet"} command='vaka run --session first "Say hello"'>
          <p>Sessions of this store appear here, whether they began in the terminal, over the API or in this console.</p>
        </Empty>
      ) : (
        <>
          <div class="session-row head"><span>title</span><span>status</span><span class="wide">agent</span><span class="wide">last activity</span><span class="wide">cursor</span></div>
          <Virtual
            class="grow" count={rows.length} rowHeight={ROW} reveal={at} onEnd={more} role="list" label="Sessions"
            render={(index) => {
              const session = rows[index]!;
              return (
                <div role="listitem" class={`session-row ${index === at ? "selected" : ""}`} onClick={(event) => { if (!(event.target as Element).closest("a, button")) navigate(path("sessions", session.id)); }}>
                    <span class="column" style={{ gap: 0 }}>
                      <a class="ellipsis plain-link" href={path("sessions", session.id)}>{session.title || session.id}</a>
                      <span class="ellipsis faint small mono">{session.id}{session.origin ? `, forked from ${session.origin}` : ""}</span>
                    </span>
                    <span><Status status={session.status} /></span>
                    <span class="wide ellipsis">{session.agent}</span>
                    <span class="wide muted">{ago(session.updated)}</span>
                    <span class="wide row"><span class="mono faint grow">{session.cursor}</span>
                      <button type="button" class="plain small" aria-pressed={picked === session.id} aria-label={`Compare ${session.id}`} title="Compare" onClick={() => compare(session.id)}><Icon name="compare" /></button>
                    </span>
                </div>
              );
            }}
          />
        </>
      )}
    </div>
  );
}
