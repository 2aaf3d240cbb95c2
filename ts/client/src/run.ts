// One turn: from its input to its end, over as many connections as it takes.
import type { ClientTool, ConflictPolicy, Input, PendingDecision, Remember, Resolved, Turn } from "./api.ts";
import type { AgentClient } from "./client.ts";
import { AgentError } from "./errors.ts";
import type { AgentEvent, Json, JsonObject, MessageCompleted, Usage } from "./event.generated.ts";
import type { Batch } from "./follow.ts";
import { newKey, pathOf } from "./http.ts";
import { Subscription } from "./subscription.ts";

export interface RunOptions {
  /** The agent of a session that does not exist yet. */
  agent?: string;
  model?: string;
  options?: JsonObject;
  /** What happens while another turn runs; the default is "enqueue". */
  onConflict?: ConflictPolicy;
  onDisconnect?: "continue" | "cancel";
  ifNotExists?: "create" | "reject";
  /** Tools that the client runs; `answerCall` returns their results. */
  clientTools?: ClientTool[];
  /** The same key again is the same input; by default each run has its own. */
  idempotencyKey?: string;
  signal?: AbortSignal;
}

export interface RunResult {
  status: "completed" | "failed" | "cancelled" | "interrupted" | "withdrawn";
  text: string;
  /** The last answer of the agent, with all its parts. */
  message: MessageCompleted["content"];
  /** "end", or "limit" with the name of the limit. */
  stop: string;
  limit: string;
  usage: Usage;
  turnId: string;
  cursor: string;
  error?: { code: string; message: string };
}

/** A turn of a session. It starts with the first event that is read, with `start` or with `result`. */
export class Run implements AsyncIterable<AgentEvent> {
  /** The key of the input. */
  readonly key: string;
  readonly #client: AgentClient;
  readonly #session: string;
  readonly #input: Input;
  readonly #options: RunOptions;
  readonly #events: Subscription;
  #turn = "";
  /** Whether `start` has stored the input. */
  #isStored = false;
  #message: MessageCompleted["content"] = [];
  #result: RunResult | undefined;
  #reading: Promise<void> | undefined;

  constructor(client: AgentClient, session: string, input: Input, options: RunOptions) {
    this.#client = client;
    this.#session = session;
    this.#input = input;
    this.#options = options;
    this.key = options.idempotencyKey ?? newKey();
    this.#events = new Subscription({
      open: (cursor, signal) => this.#open(cursor, signal), retry: client.http.retry, signal: options.signal,
      isLast: () => this.#result !== undefined,
    });
  }

  /** The cursor of the last durable event that was read. */
  get cursor(): string {
    return this.#events.cursor;
  }

  /** The id of the turn; "" until it begins. */
  get turnId(): string {
    return this.#turn;
  }

  /** The state of its connection. */
  get connection(): Subscription {
    return this.#events;
  }

  /** Yield the events of the turn. After `break` the turn goes on, and iterating again continues after the last event. */
  async *[Symbol.asyncIterator](): AsyncGenerator<AgentEvent, void, undefined> {
    if (this.#result) return;
    let ended = () => {};
    this.#reading = new Promise((resolve) => (ended = resolve));
    try {
      for await (const event of this.#events) {
        this.#note(event);
        yield event;
      }
    } finally {
      this.#reading = undefined;
      ended();
    }
  }

  /** Store the input without reading the turn: it runs on the server. */
  async start(): Promise<Turn> {
    const turn = await this.#client.http.json<Turn>("POST", this.#path("turns"), {
      body: { ...this.#body(), background: true }, headers: { "idempotency-key": this.key }, signal: this.#options.signal,
    });
    this.#isStored = true;
    return turn;
  }

  /** The outcome of the turn. Reads the turn to its end, or waits for the loop that reads it: do not await it in that loop. */
  async result(): Promise<RunResult> {
    if (!this.#result) await this.#reading;
    if (!this.#result) for await (const _ of this) continue;
    if (!this.#result) throw new AgentError("the run was closed before its turn ended", { code: "closed" });
    return this.#result;
  }

  /** Stop reading. The turn goes on; `cancel` stops it. */
  close(): void {
    this.#events.close();
  }

  cancel(note = ""): Promise<Turn> {
    return this.#client.http.json("POST", this.#path("turns", this.#turn || this.key, "cancel"), { body: { note } });
  }

  /** Add an input to the running turn. */
  steer(input: Input): Promise<Turn> {
    return this.#client.http.json("POST", this.#path("turns", this.#turn || "current", "steer"), { body: { input } });
  }

  approve(id: string, options: { edit?: JsonObject; message?: string; remember?: Remember } = {}): Promise<Resolved> {
    return this.#client.approvals.approve(id, options);
  }

  reject(id: string, message = ""): Promise<Resolved> {
    return this.#client.approvals.reject(id, message);
  }

  answer(id: string, answer: Json): Promise<Resolved> {
    return this.#client.approvals.answer(id, answer);
  }

  /** Return the result of a call of one of `clientTools`. */
  answerCall(call: string, result: Json, options: { failed?: boolean } = {}): Promise<unknown> {
    return this.#client.session(this.#session).answerCall(call, result, options);
  }

  /** The open decisions of the turn, as the server has them. */
  async decisions(): Promise<PendingDecision[]> {
    return (await this.#client.turns.get(this.#session, this.#turn || this.key)).decisions;
  }

  #path(...parts: string[]): string {
    return pathOf("sessions", this.#session, ...parts);
  }

  #body(): object {
    const { agent, model, options, onConflict, onDisconnect, ifNotExists, clientTools } = this.#options;
    return {
      input: this.#input, agent, model, options, on_conflict: onConflict, on_disconnect: onDisconnect,
      if_not_exists: ifNotExists, client_tools: clientTools,
    };
  }

  /** Before the first event the input is sent, again with the same key if need be; then its turn is followed. */
  #open(cursor: string, signal: AbortSignal): AsyncIterable<Batch> {
    const { http } = this.#client;
    if (cursor || this.#isStored) {
      const headers: Record<string, string> = cursor ? { "last-event-id": cursor } : {};
      return http.events("GET", this.#path("turns", this.#turn || this.key), { headers, signal });
    }
    const headers = { "idempotency-key": this.key };
    return http.events("POST", this.#path("turns"), { body: { ...this.#body(), stream: true }, headers, signal });
  }

  #note(event: AgentEvent): void {
    if (event.turn) this.#turn ||= event.turn;
    const ended = { turnId: this.#turn, cursor: event.id ?? "", text: "", message: this.#message, stop: "", limit: "", usage: {} };
    switch (event.type) {
      case "message.completed":
        if (!event.path.length) this.#message = event.data.content;
        return;
      case "turn.completed":
        this.#result = { ...ended, status: "completed", stop: "end", ...event.data };
        return;
      case "turn.failed": {
        const { code, message, text = "", usage = {} } = event.data;
        this.#result = { ...ended, status: "failed", text, usage, error: { code, message } };
        return;
      }
      case "turn.cancelled":
      case "turn.interrupted": {
        const { text = "", usage = {} } = event.data;
        this.#result = { ...ended, status: event.type === "turn.cancelled" ? "cancelled" : "interrupted", text, usage };
        return;
      }
      case "input.withdrawn":
        if (event.data.input === this.key) this.#result = { ...ended, status: "withdrawn" };
        return;
      default:
    }
  }
}
