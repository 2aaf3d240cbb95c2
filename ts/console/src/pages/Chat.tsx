import { last, type SessionState, toArray } from "@vaka/client/store.ts";
import type { RefObject } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "../api.ts";
import { download, Empty, Failure, Status } from "../components/basics.tsx";
import { Composer } from "../components/Composer.tsx";
import { Transcript } from "../components/Transcript.tsx";
import { ago, compact, cost, count, plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import { startsHere, useLiveSession } from "../live.ts";
import { navigate, path, route } from "../router.ts";
import { missing, ScopedButton } from "../scopes.tsx";
import { agents, recent, refreshAgents, refreshSessions } from "../shared.ts";
import { report, toast } from "../toast.ts";

export function ChatPage() {
  const id = route.value.rest[0] ?? "";
  const started = id !== "" || route.value.query.has("new");
  return (
    <div class={`chat ${started ? "open" : ""} ${id ? "with-inspector" : ""}`}>
      <SessionList current={id} />
      {id ? <Conversation key={id} id={id} /> : <NewConversation />}
    </div>
  );
}

function SessionList({ current }: { current: string }) {
  const [find, setFind] = useState("");
  const shown = recent.value.filter((each) => !find || `${each.title} ${each.id} ${each.agent}`.toLowerCase().includes(find.toLowerCase()));
  const at = shown.findIndex((each) => each.id === current);
  const go = (to: number) => { const next = shown[to]; if (next) navigate(path("chat", next.id)); };
  useShortcuts([
    { keys: "n", label: "New chat", group: "Chat", run: () => navigate(`${path("chat")}?new=1`) },
    { keys: "]", label: "Next session", group: "Chat", run: () => go(at + 1) },
    { keys: "[", label: "Previous session", group: "Chat", run: () => go(Math.max(0, at - 1)) },
  ]);
  return (
    <aside class="session-list" aria-label="Recent sessions">
      <div class="head">
        <input type="search" class="grow" placeholder="Find a session" aria-label="Find a session" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
        <a class="button square" href={`${path("chat")}?new=1`} aria-label="New chat" title="New chat (n)"><Icon name="plus" /></a>
      </div>
      <ul>
        {shown.map((session) => (
          <li key={session.id}>
            <a href={path("chat", session.id)} aria-current={session.id === current ? "page" : undefined}>
              <span class="ellipsis">{session.title || session.id}</span>
              <span class="sub">
                {session.status === "running" && <span class="dot pulse kind-agent" />}
                {session.status === "waiting" && <span class="dot kind-approval" />}
                <span class="ellipsis">{session.status === "idle" || session.status === "closed" ? session.agent : `${session.status} · ${session.agent}`}</span>
                <span style={{ marginLeft: "auto", flex: "none" }}>{ago(session.updated)}</span>
              </span>
            </a>
          </li>
        ))}
        {shown.length === 0 && <li class="muted small pad">{find ? "No session matches." : "No session yet."}</li>}
      </ul>
    </aside>
  );
}

function NewConversation() {
  const [agent, setAgent] = useState(route.value.query.get("agent") ?? "");
  const name = agent || agents.value[0]?.name || "";
  const chosen = agents.value.find((each) => each.name === name);
  const start = async (input: string, key: string) => {
    // One request makes the session and starts the turn; the id comes from here, so that sending again makes no second session.
    const id = `chat-${new Date().toISOString().slice(0, 10).replaceAll("-", "")}-${key.slice(-8)}`;
    if (!name) await refreshAgents(); // the message was sent before the list of agents had arrived
    await api.startTurn(id, { input, agent: name || agents.value[0]?.name || "", background: true }, key);
    startsHere.add(id);
    void refreshSessions();
    navigate(path("chat", id));
  };
  return (
    <section class="conversation" aria-label="New chat">
      <div class="stream">
        <Empty icon="chat" title="What should be done?" command={recent.value.length ? undefined : 'vaka run "Say hello"'}>
          <p>{chosen ? chosen.description || `You are talking to ${chosen.name}.` : "The server offers no agent yet; name one with --agent, or put one into .claude/agents."}</p>
          {chosen && <p class="faint small">{`${chosen.model || "default model"} · ${plural(chosen.tools?.length ?? 0, "tool")}`}</p>}
        </Empty>
      </div>
      <Composer draft="new" running={false} agent={name} onAgent={setAgent} onSend={start} />
    </section>
  );
}

function Conversation({ id }: { id: string }) {
  const { state, session, error, earlier, loadEarlier } = useLiveSession(id);
  const stream = useRef<HTMLDivElement>(null);
  const pinned = useRef(true);
  const [away, setAway] = useState(false);
  const running = state.status === "running" || state.status === "waiting" || state.status === "queued";

  // Blocks get their height late, when they are drawn or opened: the end is followed until the reader scrolls up.
  const content = useRef<HTMLDivElement>(null);
  const lastTop = useRef(0);
  useLayoutEffect(() => {
    const follow = () => { if (pinned.current && stream.current) stream.current.scrollTop = stream.current.scrollHeight; };
    const observer = new ResizeObserver(follow);
    if (content.current) observer.observe(content.current);
    return () => observer.disconnect();
  }, []);
  // Earlier turns are put above what is in sight, which stays where it is.
  const fromEnd = useRef(0);
  useLayoutEffect(() => {
    const element = stream.current;
    if (!element) return;
    if (fromEnd.current && state.messages.size) element.scrollTop = element.scrollHeight - fromEnd.current;
    else if (pinned.current) element.scrollTop = element.scrollHeight;
  }, [state]);
  const showEarlier = () => {
    const element = stream.current;
    pinned.current = false;
    fromEnd.current = element ? element.scrollHeight - element.scrollTop : 0;
    setTimeout(() => { fromEnd.current = 0; }, 1000);
    loadEarlier();
  };
  useEffect(() => { void refreshSessions(); }, [state.status]);
  const onScroll = () => {
    const element = stream.current!;
    if (element.scrollHeight - element.scrollTop - element.clientHeight < 60) pinned.current = true;
    else if (element.scrollTop < lastTop.current - 4) pinned.current = false;
    lastTop.current = element.scrollTop;
    setAway(!pinned.current);
  };
  const toEnd = () => { pinned.current = true; setAway(false); if (stream.current) stream.current.scrollTop = stream.current.scrollHeight; };

  const send = async (input: string, key: string, steer: boolean) => {
    pinned.current = true;
    await api.startTurn(id, { input, background: true, on_conflict: steer ? "steer" : "enqueue" }, key);
  };
  const stop = () => api.cancel(id).then(() => toast("Stopping"), report);
  const fork = useMemo(() => forker(id), [id]);
  const panel = usePanel();
  useShortcuts([
    { keys: "Escape", label: "Stop the turn", group: "Chat", run: () => { if (panel.open) panel.close(); else if (running && !missing("runs:write")) void stop(); } },
    { keys: "i", label: "About this session", group: "Chat", run: panel.show },
    { keys: "e", label: "Go to the end", group: "Chat", run: toEnd },
  ]);

  return (
    <>
      <section class="conversation" aria-label="Conversation">
        <div class="session-bar">
          <Status status={state.status} />
          <span class="grow" />
          <button type="button" class="small" ref={panel.button} aria-expanded={panel.open} aria-controls="about-session" onClick={panel.show}><Icon name="panel" />About this session</button>
        </div>
        <div class="stream" ref={stream} onScroll={onScroll} tabIndex={0} role="log" aria-label="Transcript" aria-live="off">
          {error ? <Failure error={error} /> : (
            <div ref={content}>
              {earlier && <div class="row" style={{ justifyContent: "center", paddingTop: "12px" }}><button type="button" class="small" onClick={showEarlier}>Show earlier turns</button></div>}
              {state.messages.size === 0 && state.seq > 0 && Object.keys(state.inputs).length === 0 ? <Empty icon="chat" title="Nothing was said here yet" command={`vaka run --session ${id} "Hello"`} /> : <Transcript state={state} onFork={fork} />}
            </div>
          )}
        </div>
        <Announcer state={state} />
        {away && <button type="button" class="to-bottom small" onClick={toEnd}><Icon name="down" />Newest</button>}
        <Composer draft={id} running={running} agent={state.agent || session?.agent || ""} onSend={send} onStop={stop} />
      </section>
      {panel.open && <div class="panel-backdrop" onClick={panel.close} />}
      <Inspector state={state} id={id} partial={earlier} panel={panel} />
    </>
  );
}

interface Panel {
  open: boolean;
  show: () => void;
  close: () => void;
  /** The button that opens the panel, and the one in the panel that closes it. */
  button: RefObject<HTMLButtonElement | null>;
  closer: RefObject<HTMLButtonElement | null>;
}

/** The panel about the session. Where it has no room beside the conversation, a button lays it over the conversation and the focus goes with it. */
function usePanel(): Panel {
  const [open, setOpen] = useState(false);
  const button = useRef<HTMLButtonElement>(null);
  const closer = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => { if (open) closer.current?.focus(); }, [open]);
  const show = () => { if (button.current?.offsetParent) setOpen(true); else document.getElementById("about-session")?.focus(); };
  const close = () => { setOpen(false); button.current?.focus(); };
  return { open, show, close, button, closer };
}

/** Fork a session at a cursor and open what came of it. */
export function forker(id: string): (cursor: string) => void {
  return (cursor) => {
    const reason = missing("runs:write");
    if (reason) return toast(reason);
    api.fork(id, { at: cursor }).then((session) => {
      toast(`Forked at ${cursor}`);
      void refreshSessions();
      navigate(path("chat", session.id));
    }, report);
  };
}

/** Have a model summarize the older messages; the transcript shows what came of it. */
async function compactNow(id: string): Promise<void> {
  toast("Summarizing");
  await api.compact(id).then((done) => { if (!done.compacted) toast(done.skipped || "There is nothing to summarize yet"); }, report);
}

/** Tell a screen reader what changed, at most once for each message and decision. */
function Announcer({ state }: { state: SessionState }) {
  const turn = last(state.turns);
  const open = Object.values(state.decisions).at(-1);
  const text = open ? `The turn waits: ${open.call?.name ?? open.question}` : turn?.ended ? `Turn ${turn.status}. ${turn.text.slice(0, 300)}` : turn ? "The agent is working" : "";
  return <div class="sr" aria-live="polite">{text}</div>;
}

/** The title of a session, which can be changed here, and the way to delete it. */
function Title({ id, title }: { id: string; title: string }) {
  const [text, setText] = useState<string | null>(null);
  const save = () => {
    const next = text?.trim() ?? "";
    setText(null);
    if (next && next !== title) api.updateSession(id, { title: next }).then(() => { toast("Renamed"); void refreshSessions(); }, report);
  };
  const remove = () => {
    if (confirm(`Delete the session ${id}? Its log is removed.`)) api.deleteSession(id).then(() => { toast("Deleted"); void refreshSessions(); navigate(path("chat")); }, report);
  };
  if (text !== null) {
    return (
      <form class="row title-line" onSubmit={(event) => { event.preventDefault(); save(); }}>
        <input class="grow" autofocus aria-label="Title of the session" value={text} onInput={(event) => setText(event.currentTarget.value)} onKeyDown={(event) => { if (event.key === "Escape") setText(null); }} />
        <button type="submit" class="small">Save</button>
      </form>
    );
  }
  return (
    <div class="row title-line">
      <h2 class="grow">Session</h2>
      <ScopedButton scope="runs:write" class="plain small" title="Rename" aria-label="Rename the session" onClick={() => setText(title)}><Icon name="edit" /></ScopedButton>
      <ScopedButton scope="runs:write" class="plain small" title="Delete" aria-label="Delete the session" onClick={remove}><Icon name="trash" /></ScopedButton>
    </div>
  );
}

const CHILDREN_SHOWN = 8;

/** The newest child agents by name, with what became of them. */
function Children({ state }: { state: SessionState }) {
  const all = toArray(state.subagents);
  const hidden = all.length - CHILDREN_SHOWN;
  return (
    <section>
      <h2>Child agents</h2>
      <ul class="column">
        {all.slice(-CHILDREN_SHOWN).map((child) => (
          <li key={child.cursor} class="row"><span class="kind-subagent"><Icon name="subagent" /></span><span class="ellipsis grow" title={child.path.join(" / ")}>{child.agent}</span><Status status={child.status} /></li>
        ))}
      </ul>
      {hidden > 0 && <p class="faint small">{`and ${count(hidden)} before`}</p>}
    </section>
  );
}

function Inspector({ state, id, partial, panel }: { state: SessionState; id: string; partial: boolean; panel: Panel }) {
  const usage = state.usage;
  return (
    <aside class={`inspector ${panel.open ? "open" : ""}`} id="about-session" tabIndex={-1} aria-label="About this session" onKeyDown={(event) => { if (event.key === "Escape" && panel.open) { event.preventDefault(); panel.close(); } }}>
      <button type="button" class="small plain panel-close" ref={panel.closer} onClick={panel.close}><Icon name="cross" />Close</button>
      <section>
        <Title id={id} title={state.title} />
        <dl class="facts">
          <dt>status</dt><dd><Status status={state.status} /></dd>
          <dt>agent</dt><dd>{state.agent || "–"}</dd>
          <dt>cursor</dt><dd class="mono">{state.cursor || "–"}</dd>
          {state.origin && <><dt>forked from</dt><dd><a class="mono" href={path("chat", state.origin.session)}>{state.origin.session}</a></dd></>}
          {state.folder && <><dt>folder</dt><dd class="mono small">{state.folder}</dd></>}
        </dl>
      </section>
      <section>
        <h2>{partial ? "Tokens of the turns shown" : "Tokens"}</h2>
        <dl class="facts">
          <dt>input</dt><dd class="number">{count(usage.input)}</dd>
          <dt>output</dt><dd class="number">{count(usage.output)}</dd>
          <dt>cached</dt><dd class="number">{count(usage.cache_read)}</dd>
          <dt>reasoning</dt><dd class="number">{count(usage.reasoning)}</dd>
          <dt>cost</dt><dd class="number">{cost(usage.cost)}</dd>
          {state.context && <><dt>context</dt><dd class="number" title={state.context.model}>{`${compact(state.context.tokens)} in the last prompt`}</dd></>}
        </dl>
      </section>
      {state.subagents.size > 0 && <Children state={state} />}
      {state.checkpoints.length > 0 && (
        <section>
          <h2>Checkpoints</h2>
          <ul class="column">{state.checkpoints.slice(-8).map((each) => <li key={each.cursor} class="row"><Icon name="flag" /><span class="ellipsis grow">{each.label}</span><span class="mono faint">{each.cursor}</span></li>)}</ul>
        </section>
      )}
      <section class="column">
        <h2>Look closer</h2>
        <a href={path("sessions", id, "trace")}>Trace</a>
        <a href={path("sessions", id, "events")}>Events</a>
        <a href={path("sessions", id, "replay")}>Replay</a>
        <a href={`${path("compare")}?a=${encodeURIComponent(state.origin?.session ?? id)}&b=${encodeURIComponent(state.origin ? id : "")}`}>Compare</a>
        {state.context && state.status === "idle" && <ScopedButton scope="runs:write" class="link" onClick={() => void compactNow(id)}>Summarize older messages</ScopedButton>}
        <button type="button" class="link" onClick={() => api.export(id).then((text) => download(`${id}.jsonl`, text), report)}>Export JSONL</button>
      </section>
      {state.errors.size > 0 && <section><h2 class="is-error">Errors</h2><p class="small">{last(state.errors)?.message}</p></section>}
    </aside>
  );
}
