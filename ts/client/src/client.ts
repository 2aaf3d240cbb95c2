import type {
  Agent, ApprovalQuery, ApprovalsChanged, Caller, Compaction, EventPage, EventQuery, ForkOptions, Input, NewSession, Page, PageQuery,
  PendingDecision, Remember, Resolution, Resolved, SavedCheckpoint, Session, SessionChange, SessionQuery, Stats,
  StoredMessage, Tool, ToolRun, Trace, TraceSummary, Turn, UsageRow,
} from "./api.ts";
import { toEvent } from "./events.ts";
import type { AgentEvent, Json, JsonObject } from "./event.generated.ts";
import type { Batch } from "./follow.ts";
import { Http, newKey, pathOf, type HttpOptions, type RequestOptions } from "./http.ts";
import { Run, type RunOptions } from "./run.ts";
import { AgentSocket, type SocketFactory } from "./socket.ts";
import { Subscription } from "./subscription.ts";

export interface ClientOptions extends HttpOptions {
  /** The constructor of WebSockets, where the platform has none, such as Node 20. */
  WebSocket?: SocketFactory | undefined;
  /** How `subscribe` reads events: each stream over a request of its own ("sse"), or all over one socket ("ws"); "auto": "ws" if there is one. */
  transport?: "sse" | "ws" | "auto" | undefined;
}

export interface SubscribeOptions extends EventQuery {
  signal?: AbortSignal;
}

/** Reasons of `stream.end` after which the same session can be followed again: the server stops or restarts. */
const RESTARTS = new Set(["", "closed", "drain", "draining"]);

/** The client of a vaka server. */
export class AgentClient {
  readonly http: Http;
  readonly #options: ClientOptions;
  #socket: AgentSocket | undefined;

  constructor(options: ClientOptions = {}) {
    this.#options = options;
    this.http = new Http(options);
  }

  /** One session, which need not exist yet. */
  session(id: string): SessionClient {
    return new SessionClient(this, id);
  }

  readonly sessions = {
    create: (session: NewSession = {}) => this.#post<Session>("/sessions", session),
    list: (query: SessionQuery = {}) => this.#get<Page<Session>>("/sessions", query),
    get: (id: string) => this.#get<Session>(pathOf("sessions", id)),
    update: (id: string, change: SessionChange) =>
      this.http.json<Session>("PATCH", pathOf("sessions", id), { body: change }),
    delete: (id: string) => this.http.json<void>("DELETE", pathOf("sessions", id)),
    fork: (id: string, from: ForkOptions = {}) =>
      this.#post<Session>(pathOf("sessions", id, "fork"), from),
    rewind: (id: string, to: string | number, options: { interrupt?: boolean; files?: boolean } = {}) =>
      this.#post<Session>(pathOf("sessions", id, "rewind"), { to, ...options }),
    /** Have a model summarize the older messages; the log keeps them. */
    compact: (id: string, options: { instructions?: string; interrupt?: boolean } = {}) =>
      this.#post<Compaction>(pathOf("sessions", id, "compact"), options),
    close: (id: string) => this.#post<Session>(pathOf("sessions", id, "close"), {}),
    /** The stored events as JSON Lines. */
    export: async (id: string) => (await this.http.send("GET", pathOf("sessions", id, "export"))).text(),
    stats: (id: string) => this.#get<Stats>(pathOf("sessions", id, "stats")),
    events: async (id: string, query: EventQuery & { limit?: number } = {}): Promise<EventPage> => {
      const page = await this.#get<EventPage>(pathOf("sessions", id, "events"), query);
      return { ...page, data: page.data.map(toEvent) };
    },
    checkpoints: (id: string) => this.#get<Page<SavedCheckpoint>>(pathOf("sessions", id, "checkpoints")),
    saveCheckpoint: (id: string, label: string) => this.#post<SavedCheckpoint>(pathOf("sessions", id, "checkpoints"), { label }),
    restoreCheckpoint: (id: string, label: string) =>
      this.#post<Session>(pathOf("sessions", id, "checkpoints", label, "restore"), {}),
  };

  readonly messages = {
    list: (session: string, query: PageQuery & { order?: "asc" | "desc" } = {}) =>
      this.#get<Page<StoredMessage>>(pathOf("sessions", session, "messages"), query),
    search: (session: string, q: string, query: PageQuery = {}) =>
      this.#get<Page<StoredMessage>>(pathOf("sessions", session, "messages", "search"), { q, ...query }),
  };

  readonly turns = {
    list: (session: string, query: PageQuery = {}) => this.#get<Page<Turn>>(pathOf("sessions", session, "turns"), query),
    /** A turn by its id or by the key of its input. */
    get: (session: string, id: string) => this.#get<Turn>(pathOf("sessions", session, "turns", id)),
    cancel: (session: string, id = "current", note = "") =>
      this.#post<Turn>(pathOf("sessions", session, "turns", id, "cancel"), { note }),
    steer: (session: string, input: Input, id = "current") =>
      this.#post<Turn>(pathOf("sessions", session, "turns", id, "steer"), { input }),
    wait: (session: string, id: string, timeout?: number) =>
      this.http.json<Turn>("POST", pathOf("sessions", session, "turns", id, "wait"), { query: { timeout } }),
  };

  readonly approvals = {
    list: (query: ApprovalQuery = {}) => this.#get<Page<PendingDecision>>("/approvals", query),
    count: async (query: ApprovalQuery = {}) => (await this.#get<{ count: number }>("/approvals/count", query)).count,
    get: (id: string) => this.#get<PendingDecision>(pathOf("approvals", id)),
    resolve: (id: string, resolution: Resolution) => this.#post<Resolved>(pathOf("approvals", id, "resolve"), resolution),
    approve: (id: string, { edit, ...options }: { edit?: JsonObject; message?: string; remember?: Remember } = {}) =>
      this.approvals.resolve(id, edit ? { decision: "edit", edited_args: edit, ...options } : { decision: "approve", ...options }),
    reject: (id: string, message = "") => this.approvals.resolve(id, { decision: "reject", message }),
    answer: (id: string, answer: Json) => this.approvals.resolve(id, { decision: "answer", answer }),
    /** Yield the number and ids of the open approvals each time they change. */
    watch: (options: { signal?: AbortSignal } = {}): AsyncIterable<ApprovalsChanged> => this.#watchApprovals(options.signal),
  };

  readonly agents = {
    list: (query: PageQuery = {}) => this.#get<Page<Agent>>("/agents", query),
    get: (name: string) => this.#get<Agent>(pathOf("agents", name)),
    reload: async () => (await this.#post<{ data: string[] }>("/agents/reload", {})).data,
  };

  readonly tools = {
    list: (query: PageQuery & { agent?: string } = {}) => this.#get<Page<Tool>>("/tools", query),
    get: (name: string, query: { agent?: string } = {}) => this.#get<Tool>(pathOf("tools", name), query),
    /** One governed call. */
    execute: (name: string, args: JsonObject, options: { agent?: string } = {}) =>
      this.#post<ToolRun>(pathOf("tools", name, "execute"), { ...options, arguments: args }),
  };

  readonly traces = {
    list: (query: PageQuery & { session?: string } = {}) => this.#get<Page<TraceSummary>>("/traces", query),
    /** The trace of a turn, or of a whole session. */
    get: (session: string, turn?: string) => this.#get<Trace>(pathOf("traces", session, ...(turn ? [turn] : []))),
  };

  readonly stats = {
    get: () => this.#get<Stats>("/stats"),
    /** Usage per day and model. */
    usage: (days?: number) => this.#get<Page<UsageRow>>("/usage", { days }),
  };

  me(): Promise<Caller> {
    return this.#get("/me");
  }

  version(): Promise<{ name: string; version: string }> {
    return this.#get("/version");
  }

  /** Close the socket, if there is one. Streams that are read over it end. */
  close(): void {
    this.#socket?.close();
    this.#socket = undefined;
  }

  /** One connection to the events of a session, over the transport of the client. */
  openEvents(session: string, query: EventQuery, cursor: string, signal: AbortSignal): AsyncIterable<Batch> {
    const after = cursor || query.after;
    if (this.#usesSocket()) return this.socket.subscribe(session, { ...query, after }, signal);
    const headers: Record<string, string> = cursor ? { "last-event-id": cursor } : {};
    return this.http.events("GET", pathOf("sessions", session, "events"), { query: { ...query, after }, headers, signal });
  }

  /** The socket of the client; it connects with its first use. */
  get socket(): AgentSocket {
    this.#socket ??= new AgentSocket(this.http, this.#options.WebSocket ?? globalThis.WebSocket);
    return this.#socket;
  }

  #usesSocket(): boolean {
    const { transport = "sse", WebSocket = globalThis.WebSocket } = this.#options;
    return transport === "ws" || (transport === "auto" && typeof WebSocket === "function");
  }

  async *#watchApprovals(signal: AbortSignal | undefined): AsyncGenerator<ApprovalsChanged, void, undefined> {
    const feed = new Subscription({
      open: (_, connection) => this.http.events("GET", "/approvals", { signal: connection }), retry: this.http.retry, signal,
    });
    for await (const event of feed) {
      const { raw } = event as { raw?: { count?: number; data?: ApprovalsChanged } };
      if (raw?.data?.count !== undefined) yield raw.data;
      else if (raw?.count !== undefined) yield raw as ApprovalsChanged;
    }
  }

  #get<T>(path: string, query?: object): Promise<T> {
    return this.http.json<T>("GET", path, { query });
  }

  #post<T>(path: string, body: object, options: RequestOptions = {}): Promise<T> {
    return this.http.json<T>("POST", path, { ...options, body });
  }
}

/** The operations of one session. */
export class SessionClient {
  readonly id: string;
  readonly #client: AgentClient;

  constructor(client: AgentClient, id: string) {
    this.#client = client;
    this.id = id;
  }

  /** A turn that answers `input`. It starts when it is read. */
  run(input: Input, options: RunOptions = {}): Run {
    return new Run(this.#client, this.id, input, options);
  }

  /** Events from a cursor on: stored ones, then new ones as they happen. Reconnects until it is closed. */
  subscribe(options: SubscribeOptions = {}): Subscription {
    const { signal, after, ...query } = options;
    let head: string | undefined;
    const client = this.#client;
    const open = async function* (this: SessionClient, cursor: string, connection: AbortSignal): AsyncGenerator<Batch> {
      // "now" is asked once: a connection that is lost before the first event must not skip what comes meanwhile.
      if (!cursor && after === "now") head ??= (await client.sessions.get(this.id)).cursor;
      yield* client.openEvents(this.id, query, cursor || (head ?? ""), connection);
    }.bind(this);
    return new Subscription({
      open, retry: client.http.retry, signal, ...(after && after !== "now" ? { after } : {}),
      isLast: (event: AgentEvent) => event.type === "stream.end" && !RESTARTS.has(event.data.reason ?? ""),
    });
  }

  get(): Promise<Session> {
    return this.#client.sessions.get(this.id);
  }

  steer(input: Input): Promise<Turn> {
    return this.#client.turns.steer(this.id, input);
  }

  /** Stop the running turn. */
  cancel(note = ""): Promise<Turn> {
    return this.#client.turns.cancel(this.id, "current", note);
  }

  /** Return the result of a call that the client runs. */
  answerCall(call: string, result: Json, options: { failed?: boolean } = {}): Promise<unknown> {
    return this.#client.http.json("POST", pathOf("sessions", this.id, "calls", call, "result"), {
      body: { result, ...options }, headers: { "idempotency-key": newKey() },
    });
  }
}
