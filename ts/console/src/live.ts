import { type ConnectionStatus, follow } from "@vaka/client/follow.ts";
import { pathOf } from "@vaka/client/http.ts";
import { SeenEvents } from "@vaka/client/seen_events.ts";
import { type AgentEvent, initialState, reduce, type SessionState } from "@vaka/client/store.ts";
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo, useState } from "preact/hooks";
import { api, http } from "./api.ts";
import { openApprovals } from "./shared.ts";
import type { Session } from "./types.ts";

export type Link = "connecting" | "live" | "reconnecting" | "offline";

export interface Connection {
  link: Link;
  /** The session that is followed, "" for the inbox. */
  of: string;
  cursor: string;
  attempts: number;
  since: number;
}

/** The connection that the pill shows: that of the open session, else that of the inbox. */
export const connection = signal<Connection>({ link: "connecting", of: "", cursor: "", attempts: 0, since: Date.now() });

function setConnection(changes: Partial<Connection>): void {
  const now = connection.value;
  const since = changes.link && changes.link !== now.link ? Date.now() : now.since;
  connection.value = { ...now, since, ...changes };
}

const OFFLINE_AFTER = 6;

interface Reported {
  status: ConnectionStatus;
  attempt: number;
}

let ofInbox: Reported = { status: "connecting", attempt: 0 };
let ofSession: Reported | null = null;

function linkOf({ status, attempt }: Reported): Link {
  if (status === "failed" || !navigator.onLine || attempt >= OFFLINE_AFTER) return "offline";
  return status === "live" || status === "reconnecting" ? status : "connecting";
}

function showStatus(changes: Partial<Connection> = {}): void {
  const shown = ofSession ?? ofInbox;
  setConnection({ link: linkOf(shown), attempts: shown.attempt, ...changes });
}

for (const change of ["online", "offline"]) addEventListener(change, () => showStatus());

/** A session that is followed: its state after each frame of the screen. */
export class LiveSession {
  readonly state: Signal<SessionState>;
  readonly error = signal<Error | null>(null);
  private next: SessionState;
  private scheduled = false;
  private closed = false;
  private abort = new AbortController();
  private seen = new SeenEvents("");

  constructor(readonly id: string) {
    this.next = initialState(id);
    this.state = signal(this.next);
  }

  /** Follow after a cursor, "" for the whole log, until `pause` or `close`. */
  start(after: string): void {
    this.seen = new SeenEvents(after);
    void this.follow();
  }

  /** End the connection of a page that is out of sight: a browser opens few connections to one server. */
  pause(): void {
    this.abort.abort();
  }

  /** Go on where `pause` ended. */
  resume(): void {
    if (!this.abort.signal.aborted || this.closed) return;
    this.abort = new AbortController();
    void this.follow();
  }

  private async follow(): Promise<void> {
    const { signal } = this.abort;
    const open = (cursor: string, signal: AbortSignal) => http.events("GET", pathOf("sessions", this.id, "events"), { query: { after: cursor || "0" }, signal });
    const onStatus = (status: ConnectionStatus, attempt: number) => {
      if (signal.aborted) return;
      ofSession = { status, attempt };
      showStatus({ of: this.id, cursor: this.next.cursor });
    };
    try {
      for await (const event of follow(open, { seen: this.seen, signal, onStatus })) this.apply(event);
    } catch (error) {
      if (!signal.aborted) this.error.value = error as Error;
    }
  }

  private apply(event: AgentEvent): void {
    this.next = reduce(this.next, event);
    if (this.scheduled) return;
    // Deltas arrive faster than the screen is drawn; a hidden page has no frames, so a timer stands in.
    this.scheduled = true;
    if (document.hidden) setTimeout(this.show, 200);
    else requestAnimationFrame(this.show);
  }

  private readonly show = (): void => {
    this.scheduled = false;
    if (this.state.value === this.next || this.closed) return;
    this.state.value = this.next;
    if (connection.value.of === this.id) setConnection({ cursor: this.next.cursor });
  };

  close(): void {
    this.closed = true;
    this.abort.abort();
  }
}

const TURNS_SHOWN = 30;
/** The longest page of a list that the server gives; more turns than that are read as the whole log. */
const LONGEST_PAGE = 200;

/** Sessions that this page has begun: their logs are followed from the start, without asking for their length first. */
export const startsHere = new Set<string>();

/** The cursor before the newest turns of a session, "" when all of them are shown. */
async function startOf(id: string, turns: number): Promise<string> {
  if (turns >= LONGEST_PAGE) return "";
  const page = await api.turns(id, { limit: String(turns + 1) });
  return page.data.length > turns ? (page.data[turns]?.cursor ?? "") : "";
}

/** What the log says before the first turn that is shown comes from the index of sessions. */
function withSession(state: SessionState, session: Session, partial: boolean): SessionState {
  if (!partial) return state.agent ? state : { ...state, agent: session.agent };
  return { ...state, agent: state.agent || session.agent, title: session.title, folder: state.folder || session.folder };
}

interface Followed {
  state: SessionState;
  session: Session | null;
  error: Error | null;
  /** Whether there are turns before those that are shown. */
  earlier: boolean;
  loadEarlier: () => void;
}

/** Follow a session while the component is on the page, from its newest turns on. */
export function useLiveSession(id: string): Followed {
  const [live, setLive] = useState<LiveSession>(() => new LiveSession(id));
  const [session, setSession] = useState<Session | null>(null);
  const [failure, setFailure] = useState<Error | null>(null);
  const [turns, setTurns] = useState(TURNS_SHOWN);
  const [start, setStart] = useState("");
  useEffect(() => {
    const current = new LiveSession(id);
    let open = true;
    setFailure(null);
    const begin = startsHere.has(id) ? Promise.resolve([null, ""] as const) : Promise.all([api.session(id), startOf(id, turns)]);
    begin.then(([found, after]) => {
      if (!open) return;
      setSession(found);
      setStart(after);
      setLive(current);
      current.start(after);
      if (document.hidden) current.pause();
    }, (error: Error) => { if (open) setFailure(error); });
    const onVisible = () => { if (document.hidden) current.pause(); else current.resume(); };
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      open = false;
      document.removeEventListener("visibilitychange", onVisible);
      current.close();
      ofSession = null;
      showStatus({ of: "", cursor: "" });
    };
  }, [id, turns]);
  const state = live.state.value;
  const shown = useMemo(() => (session ? withSession(state, session, start !== "") : state), [state, session, start]);
  return { state: shown, session, error: failure ?? live.error.value, earlier: start !== "", loadEarlier: () => setTurns(turns * 4) };
}

/** Counts the changes of the open approvals. */
export const inboxChanged = signal(0);

/** Follow the open approvals until the result is called. */
export function followInbox(): () => void {
  const abort = new AbortController();
  const open = (_cursor: string, signal: AbortSignal) => http.events("GET", "/approvals", { signal });
  const onStatus = (status: ConnectionStatus, attempt: number) => {
    if (abort.signal.aborted) return;
    ofInbox = { status, attempt };
    showStatus();
  };
  const run = async () => {
    for await (const event of follow(open, { signal: abort.signal, onStatus })) {
      const data = (event.type === "unknown" ? event.raw : event.data) as { count?: number; data?: { count?: number } } | null;
      const open = data?.count ?? data?.data?.count;
      if (typeof open === "number") openApprovals.value = open;
      inboxChanged.value++;
    }
  };
  run().catch((error: Error) => { if (!abort.signal.aborted) console.warn(`the feed of approvals has ended: ${error.message}`); });
  return () => abort.abort();
}
