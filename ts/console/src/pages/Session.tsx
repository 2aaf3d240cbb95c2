import { initialState, reduce, type SessionState } from "@vaka/client/store.ts";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "../api.ts";
import { download, Empty, Failure, Loading, Status, useLoaded } from "../components/basics.tsx";
import { JsonView } from "../components/JsonView.tsx";
import { Transcript } from "../components/Transcript.tsx";
import { Virtual } from "../components/Virtual.tsx";
import { ago, clock, count, cut, date, duration, plural } from "../format.ts";
import { Icon } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import { useLiveSession } from "../live.ts";
import { navigate, path, route, setQuery } from "../router.ts";
import { missing, ScopedButton, ScopeNotice } from "../scopes.tsx";
import { report, toast } from "../toast.ts";
import { TraceView } from "../trace/TraceView.tsx";
import type { Envelope, Session } from "../types.ts";
import { forker } from "./Chat.tsx";

const TABS = ["transcript", "trace", "events", "checkpoints", "replay"] as const;

/** On a narrow screen the tabs are wider than the screen; the open one stays in sight. */
const scrollToTab = (tab: HTMLElement | null) => tab?.scrollIntoView({ block: "nearest", inline: "nearest" });

/** One session: its transcript, trace, events, checkpoints and replay. */
export function SessionPage() {
  const [id = "", tab = "transcript"] = route.value.rest;
  const { data, error, reload } = useLoaded<Session>(() => api.session(id), [id]);
  return (
    <div class="column" style={{ height: "100%", gap: 0 }}>
      <nav class="tabs" aria-label="Views of this session">
        {TABS.map((each) => <a key={each} href={path("sessions", id, each)} aria-current={each === tab ? "page" : undefined} ref={each === tab ? scrollToTab : undefined}>{each}</a>)}
        <span class="grow" />
        {data && <span class="row" style={{ flex: "none" }}><Status status={data.status} /><span class="faint small">{ago(data.updated)}</span><a class="button small" href={path("chat", id)}><Icon name="chat" />Chat</a></span>}
      </nav>
      <div class="grow" style={{ minHeight: 0, overflow: "hidden" }}>
        {error ? <Failure error={error} retry={reload} /> : <Tab key={`${id}/${tab}`} id={id} tab={tab} />}
      </div>
    </div>
  );
}

function Tab({ id, tab }: { id: string; tab: string }) {
  switch (tab) {
    case "trace": return <TraceTab id={id} />;
    case "events": return <EventsTab id={id} />;
    case "checkpoints": return <CheckpointsTab id={id} />;
    case "replay": return <ReplayTab id={id} />;
    default: return <TranscriptTab id={id} />;
  }
}

function TranscriptTab({ id }: { id: string }) {
  const { state, error, earlier, loadEarlier } = useLiveSession(id);
  const fork = useMemo(() => forker(id), [id]);
  if (error) return <Failure error={error} />;
  return (
    <div class="scroll" style={{ height: "100%" }} tabIndex={0} role="region" aria-label="Transcript">
      {earlier && <div class="row" style={{ justifyContent: "center", paddingTop: "12px" }}><button type="button" class="small" onClick={loadEarlier}>Show earlier turns</button></div>}
      <Transcript state={state} onFork={fork} />
    </div>
  );
}

export function TraceTab({ id, turn }: { id: string; turn?: string }) {
  const { data, error, reload } = useLoaded(() => api.trace(id, turn), [id, turn]);
  useEffect(() => {
    if (data?.status !== "running" && data?.status !== "waiting") return;
    const timer = setInterval(() => { if (!document.hidden) reload(); }, 2000);
    return () => clearInterval(timer);
  }, [data?.status]);
  if (error && !data) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading what="the trace" />;
  if (data.spans.length === 0) return <Empty icon="trace" title="Nothing ran in this session yet" command={`vaka run --session ${id} "Hello"`} />;
  return (
    <TraceView
      trace={data}
      actions={
        <>
          <a class="button small wide" href={`${path("compare")}?a=${encodeURIComponent(id)}`}><Icon name="compare" />Compare</a>
          <button type="button" class="small" onClick={() => download(`${id}-trace.json`, JSON.stringify(data, null, 2))}><Icon name="download" />JSON</button>
          <button type="button" class="small wide" onClick={() => api.otlp(id, turn).then((trace) => download(`${id}-otlp.json`, JSON.stringify(trace, null, 2)), report)}><Icon name="download" />OTLP</button>
        </>
      }
    />
  );
}

/** The stored events, a page at a time. */
function useEvents(id: string): { events: Envelope[]; head: string; done: boolean; error: Error | null; more: () => void } {
  const [state, setState] = useState<{ events: Envelope[]; head: string; next: string | null; done: boolean }>({ events: [], head: "", next: "", done: false });
  const [error, setError] = useState<Error | null>(null);
  const loading = useRef(false);
  const more = () => {
    if (loading.current || state.done) return;
    loading.current = true;
    api.events(id, { after: state.next || "0", limit: "500" }).then((page) => {
      setState((now) => ({ events: [...now.events, ...page.data], head: page.head, next: page.next_cursor, done: !page.has_more }));
    }, setError).finally(() => { loading.current = false; });
  };
  useEffect(more, []);
  return { events: state.events, head: state.head, done: state.done, error, more };
}

function EventsTab({ id }: { id: string }) {
  const { events, head, done, error, more } = useEvents(id);
  const wanted = route.value.query.get("at") ?? "";
  const [find, setFind] = useState("");
  const [at, setAt] = useState(wanted);
  const shown = useMemo(() => events.filter((event) => !find || `${event.type} ${JSON.stringify(event.data)}`.toLowerCase().includes(find.toLowerCase())), [events, find]);
  const index = shown.findIndex((event) => event.id === at);
  const fork = useMemo(() => forker(id), [id]);
  useEffect(() => { if (wanted && index < 0 && !done) more(); }, [events.length, wanted]);
  useEffect(() => { if (find && !done) more(); }, [find, events.length]);
  const choose = (cursor: string) => { setAt(cursor); setQuery({ at: cursor }); };
  const move = (by: number) => { const next = shown[Math.min(shown.length - 1, Math.max(0, index + by))]; if (next?.id) choose(next.id); };
  useShortcuts([
    { keys: "j", label: "Next event", group: "Events", run: () => move(1) },
    { keys: "k", label: "Previous event", group: "Events", run: () => move(-1) },
    { keys: "f", label: "Fork at this event", group: "Events", run: () => { if (at) fork(at); } },
  ]);
  if (error && events.length === 0) return <Failure error={error} />;
  const chosen = shown[index];
  return (
    <div class={`events-page ${chosen ? "" : "alone"}`}>
      <div class="column" style={{ gap: 0, minHeight: 0 }}>
        <div class="row wrap pad" style={{ borderBottom: "1px solid var(--line)" }}>
          <input type="search" class="grow" style={{ maxWidth: "320px" }} placeholder="Filter by type or content" aria-label="Filter events" value={find} onInput={(event) => setFind(event.currentTarget.value)} />
          <span class="faint small">{`${done ? plural(shown.length, "event") : `${count(shown.length)}+ events`} · head ${head || "–"}`}</span>
          <CurlButton id={id} />
        </div>
        <Virtual
          class="grow" count={shown.length} rowHeight={28} reveal={index} onEnd={more} role="listbox" label="Events" activeId={chosen ? `event-${chosen.id}` : undefined}
          onKeyDown={(event) => { if (event.key === "ArrowDown") move(1); else if (event.key === "ArrowUp") move(-1); else return; event.preventDefault(); }}
          render={(row) => {
            const event = shown[row]!;
            return (
              <div id={`event-${event.id}`} class="event-row" role="option" aria-selected={event.id === at} onClick={() => choose(event.id ?? "")}>
                <span class="mono faint">{event.id}</span>
                <span class="faint small number wide">{clock(event.ts)}</span>
                <span class="mono ellipsis">{event.type}</span>
                <span class="muted ellipsis small wide">{[event.path].flat().filter(Boolean).join("/")} {cut(JSON.stringify(event.data), 200)}</span>
                <span />
              </div>
            );
          }}
        />
      </div>
      {chosen && (
        <aside class="side" aria-label={`Event ${chosen.id}`}>
          <div class="column">
            <div class="row">
              <h2 class="grow mono">{chosen.type}</h2>
              <ScopedButton scope="runs:write" class="small" onClick={() => fork(chosen.id ?? "")}><Icon name="fork" />Fork here</ScopedButton>
              <button type="button" class="plain square" aria-label="Close the event" onClick={() => choose("")}><Icon name="cross" /></button>
            </div>
            <JsonView value={chosen} open={4} searchable />
          </div>
        </aside>
      )}
    </div>
  );
}

function CurlButton({ id }: { id: string }) {
  const command = `curl -N -H "Authorization: Bearer $VAKA_API_KEY" -H "Accept: text/event-stream" "${location.origin}/api/v1/sessions/${encodeURIComponent(id)}/events?after=0"`;
  return <button type="button" class="small" onClick={() => navigator.clipboard?.writeText(command).then(() => toast("Copied the curl command"), report)}><Icon name="copy" />curl</button>;
}

function CheckpointsTab({ id }: { id: string }) {
  const { data, error, reload } = useLoaded(() => api.checkpoints(id), [id]);
  const [label, setLabel] = useState("");
  const fork = useMemo(() => forker(id), [id]);
  if (error) return <Failure error={error} retry={reload} />;
  if (!data) return <Loading what="checkpoints" />;
  const mayNot = missing("runs:write") !== "";
  const save = () => api.saveCheckpoint(id, label.trim()).then(() => { setLabel(""); toast("Saved"); reload(); }, report);
  return (
    <div class="scroll" style={{ height: "100%" }}>
      <div class="page">
        <ScopeNotice scope="runs:write">You can read this, but not change it</ScopeNotice>
        <form class="row" onSubmit={(event) => { event.preventDefault(); if (label.trim() && !mayNot) void save(); }}>
          <input class="grow" readOnly={mayNot} style={{ maxWidth: "320px" }} placeholder="Label of a new checkpoint" aria-label="Label of a new checkpoint" value={label} onInput={(event) => setLabel(event.currentTarget.value)} />
          <button type="submit" disabled={mayNot || !label.trim()}><Icon name="flag" />Save</button>
        </form>
        {data.data.length === 0 ? (
          <Empty icon="flag" title="No checkpoint yet"><p>A checkpoint names a place in the log, to go back to or to fork from. Every event is such a place, too: see the events page.</p></Empty>
        ) : (
          <table class="grid panel">
            <thead><tr><th>label</th><th>cursor</th><th class="wide">saved</th><th><span class="sr">actions</span></th></tr></thead>
            <tbody>
              {data.data.map((each) => (
                <tr key={each.cursor}>
                  <td style={{ overflowWrap: "anywhere" }}>{each.label}</td>
                  <td class="mono"><a href={`${path("sessions", id, "events")}?at=${each.cursor}`}>{each.cursor}</a></td>
                  <td class="muted wide">{date(each.ts)}</td>
                  <td>
                    <span class="row wrap">
                      <ScopedButton scope="runs:write" class="small" onClick={() => fork(each.cursor)}><Icon name="fork" />Fork</ScopedButton>
                      <ScopedButton scope="runs:write" class="small danger" onClick={() => { if (confirm(`Take the session back to "${each.label}"? What came after stays in the log.`)) api.restore(id, each.label).then(() => { toast("Restored"); navigate(path("chat", id)); }, report); }}><Icon name="turn" />Restore</ScopedButton>
                    </span>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </div>
    </div>
  );
}

const SNAPSHOT_EVERY = 64;
const LONGEST_PAUSE_MS = 1500;
const SPEEDS = [1, 2, 4, 16];

/** States after each stretch of events, so that a jump folds at most one stretch. */
class Replay {
  private readonly kept: SessionState[] = [];

  constructor(private readonly id: string, readonly events: Envelope[]) {}

  stateAt(index: number): SessionState {
    let stretch = Math.min(Math.floor(index / SNAPSHOT_EVERY), this.kept.length - 1);
    let state = stretch >= 0 ? this.kept[stretch]! : initialState(this.id);
    if (stretch < 0) { this.kept.push(state); stretch = 0; }
    for (let at = stretch * SNAPSHOT_EVERY; at < index; at++) {
      state = reduce(state, this.events[at] as never);
      if ((at + 1) % SNAPSHOT_EVERY === 0 && this.kept.length === (at + 1) / SNAPSHOT_EVERY) this.kept.push(state);
    }
    return state;
  }
}

function ReplayTab({ id }: { id: string }) {
  const { events, done, error, more } = useEvents(id);
  const [at, setAt] = useState(0);
  const [playing, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(2);
  const replay = useMemo(() => new Replay(id, events), [id, events]);
  const stream = useRef<HTMLDivElement>(null);
  useEffect(() => { if (!done && events.length) more(); }, [events.length, done]);
  const state = useMemo(() => replay.stateAt(Math.min(at, events.length)), [replay, at]);
  const current = events[at - 1];
  const next = events[at];

  useEffect(() => {
    if (!playing) return;
    if (!next) return setPlaying(false);
    const gap = current ? Date.parse(next.ts) - Date.parse(current.ts) : 0;
    const timer = setTimeout(() => setAt(at + 1), Math.min(LONGEST_PAUSE_MS, Math.max(15, gap / speed)));
    return () => clearTimeout(timer);
  }, [playing, at, speed, !!next]);
  useEffect(() => { if (stream.current && playing) stream.current.scrollTop = stream.current.scrollHeight; }, [state, playing]);
  const toggle = () => { if (!playing && at >= events.length) setAt(0); setPlaying(!playing); };
  useShortcuts([
    { keys: " ", label: "Play or pause", group: "Replay", run: toggle },
    { keys: "ArrowRight", label: "Next event", group: "Replay", run: () => setAt((now) => Math.min(events.length, now + 1)) },
    { keys: "ArrowLeft", label: "Previous event", group: "Replay", run: () => setAt((now) => Math.max(0, now - 1)) },
  ]);
  if (error) return <Failure error={error} />;
  const begun = events[0]?.ts;
  return (
    <div class="column" style={{ height: "100%", gap: 0 }}>
      <div class="scroll grow" ref={stream} tabIndex={0} role="region" aria-label="Replayed transcript">
        {at === 0 ? <Empty icon="play" title="Replay this session"><p>{`${count(events.length)} events, at the speed they were recorded; long waits are shortened.`}</p><button type="button" class="primary" onClick={toggle}><Icon name="play" />Play</button></Empty> : <Transcript state={state} passive />}
      </div>
      <div class="scrubber">
        <button type="button" class="square" onClick={toggle} aria-label={playing ? "Pause" : "Play"}><Icon name={playing ? "pause" : "play"} /></button>
        <input type="range" disabled={events.length === 0} min={0} max={events.length} value={at} aria-label="Event" aria-valuetext={current ? `${current.id} ${current.type}` : "start"} onInput={(event) => { setPlaying(false); setAt(Number(event.currentTarget.value)); }} />
        <span class="mono small">{current ? current.id : "–"}</span>
        <span class="small muted mono ellipsis" style={{ width: "150px" }}>{current?.type ?? ""}</span>
        <span class="small faint number">{current && begun ? `+${duration(Date.parse(current.ts) - Date.parse(begun))}` : ""}</span>
        <select aria-label="Speed" value={String(speed)} onChange={(event) => setSpeed(Number(event.currentTarget.value))}>{SPEEDS.map((each) => <option key={each} value={String(each)}>{`${each}×`}</option>)}</select>
      </div>
    </div>
  );
}
