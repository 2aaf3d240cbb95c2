// All subscriptions of a client over one WebSocket, protocol agent.v1+json.
import type { EventQuery } from "./api.ts";
import { AgentError } from "./errors.ts";
import { toEvent } from "./events.ts";
import type { AgentEvent, JsonObject } from "./event.generated.ts";
import { RETRY_DEFAULTS, type Batch } from "./follow.ts";
import type { Http } from "./http.ts";

export type SocketFactory = new (url: string, protocols?: string | string[]) => WebSocket;

export const SUBPROTOCOL = "agent.v1+json";
/** Events that wait for a slow reader. Beyond that its subscription ends, and begins anew where the reader is. */
export const MAX_QUEUED = 1024;
/** Durable events after which a cursor is acknowledged. */
const ACK_EVERY = 64;

interface Frame {
  id?: number | null;
  result?: JsonObject;
  error?: { code: string; message: string; retryable?: boolean };
  sub?: string;
  event?: unknown;
  ctl?: string;
  reconnect_after_ms?: number;
  code?: string;
  message?: string;
}

interface Waiting {
  resolve: (result: JsonObject) => void;
  reject: (error: AgentError) => void;
}

/** The queue of one subscription. */
class Inbox {
  events: AgentEvent[] = [];
  error: AgentError | undefined;
  isAlive = false;
  #wake: (() => void) | undefined;

  push(event: AgentEvent): void {
    this.events.push(event);
    if (this.events.length > MAX_QUEUED) this.end(new AgentError("the reader is slow", { code: "slow", retryable: true }));
    else this.wake();
  }

  end(error: AgentError): void {
    this.error ??= error;
    this.wake();
  }

  wake(): void {
    this.isAlive = true;
    this.#wake?.();
  }

  async take(): Promise<AgentEvent[]> {
    if (!this.events.length && !this.error && !this.isAlive) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.isAlive = false;
    const { events } = this;
    this.events = [];
    if (!events.length && this.error) throw this.error;
    return events;
  }
}

/** The error that a close code stands for: 44xx is final, 42xx asks to come back at once, all others later. */
export function closeError(code: number, reason: string, drainMs?: number): AgentError {
  const family = Math.floor(code / 100);
  return new AgentError(reason || `the socket was closed with ${code}`, {
    status: family === 44 ? code - 4000 : 0, code: `ws_${code}`, retryable: family !== 44,
    ...(family === 42 ? { retryAfterMs: drainMs ?? 0 } : {}),
  });
}

export class AgentSocket {
  readonly #http: Http;
  readonly #factory: SocketFactory | undefined;
  #socket: Promise<WebSocket> | undefined;
  #requests = 0;
  #waiting = new Map<number, Waiting>();
  #inboxes = new Map<string, Inbox>();
  /** Events that arrived before the reply that names their subscription was handled. */
  #heartbeat: ReturnType<typeof setInterval> | undefined;
  #drainMs: number | undefined;

  constructor(http: Http, factory: SocketFactory | undefined) {
    this.#http = http;
    this.#factory = factory;
  }

  /** Call a method of the protocol. */
  async call(method: string, params: object = {}): Promise<JsonObject> {
    const socket = await this.#connect();
    return this.#request(socket, method, params);
  }

  /** The events of a session, until the connection is lost or the reader is too slow. */
  async *subscribe(session: string, query: EventQuery, signal: AbortSignal): AsyncGenerator<Batch, void, undefined> {
    const socket = await this.#connect();
    const inbox = new Inbox();
    const { path, ...rest } = query;
    const params = { session, ...rest, ...(path ? { path: path.split("/") } : {}) };
    const sub = String((await this.#request(socket, "subscribe", params, inbox)).sub);
    signal.addEventListener("abort", () => inbox.end(new AgentError("closed", { code: "closed", retryable: true })));
    let unacknowledged = 0;
    try {
      yield { events: [] };
      for (;;) {
        const events = await inbox.take();
        yield { events };
        const durable = events.filter((event) => event.id);
        unacknowledged += durable.length;
        if (unacknowledged < ACK_EVERY) continue;
        unacknowledged = 0;
        this.#request(socket, "ack", { sub, cursor: durable.at(-1)?.id }).catch(() => {});
      }
    } finally {
      if (this.#inboxes.delete(sub) && socket.readyState === 1) this.#request(socket, "unsubscribe", { sub }).catch(() => {});
    }
  }

  close(): void {
    const socket = this.#socket;
    this.#lose(new AgentError("the client was closed", { code: "closed" }));
    socket?.then((open) => open.close(1000)).catch(() => {});
  }

  #connect(): Promise<WebSocket> {
    if (!this.#socket) {
      const opening = this.#open();
      this.#socket = opening;
      opening.catch((error: AgentError) => {
        if (this.#socket === opening) this.#lose(error);
      });
    }
    return this.#socket;
  }

  async #open(): Promise<WebSocket> {
    if (!this.#factory) {
      throw new AgentError("this platform has no WebSocket: pass one to AgentClient, or use transport: \"sse\"", { code: "no_websocket" });
    }
    const { ticket } = await this.#http.json<{ ticket: string }>("POST", "/ws-tickets", { body: {} });
    const root = new URL(this.#http.root, globalThis.location?.href);
    root.protocol = root.protocol === "https:" ? "wss:" : "ws:";
    const socket = new this.#factory(`${root.href}/ws?ticket=${encodeURIComponent(ticket)}`, [SUBPROTOCOL]);
    const current = () => this.#socket === opening;
    const opening = this.#socket;
    // Every handler is set before the socket can open: a frame may arrive together with the opening.
    const opened = new Promise<void>((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onerror = () => reject(new AgentError("the socket could not be opened", { code: "network", retryable: true }));
      socket.onclose = (event) => {
        const error = closeError(event.code, event.reason, this.#drainMs);
        reject(error);
        if (current()) this.#lose(error);
      };
      socket.onmessage = (event) => this.#receive(socket, String(event.data));
    });
    await opened;
    const hello = await this.#request(socket, "hello", { client: "@vaka/client" });
    const heartbeatMs = Number(hello.heartbeat_ms) || RETRY_DEFAULTS.heartbeatMs;
    this.#heartbeat = setInterval(() => this.#request(socket, "ping", {}).catch(() => {}), Math.min(heartbeatMs, this.#http.retry.heartbeatMs));
    return socket;
  }

  #request(socket: WebSocket, method: string, params: object, inbox?: Inbox): Promise<JsonObject> {
    const id = ++this.#requests;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, {
        reject,
        resolve: (result) => {
          if (inbox) this.#inboxes.set(String(result.sub), inbox);
          resolve(result);
        },
      });
      socket.send(JSON.stringify({ id, method, params }));
    });
  }

  #receive(socket: WebSocket, text: string): void {
    let frame: Frame;
    try {
      frame = JSON.parse(text) as Frame;
    } catch {
      socket.close(4400, "a frame is not JSON");
      return;
    }
    for (const inbox of this.#inboxes.values()) inbox.isAlive = true;
    if (frame.sub !== undefined && frame.event !== undefined) this.#inboxes.get(frame.sub)?.push(toEvent(frame.event));
    else if (frame.ctl) this.#control(socket, frame);
    else if (typeof frame.id === "number") this.#reply(frame.id, frame);
  }

  #reply(id: number, { result, error }: Frame): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) waiting?.reject(new AgentError(error.message, { code: error.code, retryable: error.retryable ?? false }));
    else waiting?.resolve(result ?? {});
    for (const inbox of this.#inboxes.values()) inbox.wake();
  }

  #control(socket: WebSocket, frame: Frame): void {
    if (frame.ctl === "ping") this.#request(socket, "ping", {}).catch(() => {});
    else if (frame.ctl === "drain") this.#drainMs = frame.reconnect_after_ms;
    else if (frame.ctl === "ended" && frame.sub) {
      const isFinal = /not_found|forbidden|unauthenticated/.test(frame.code ?? "");
      this.#inboxes.get(frame.sub)?.end(new AgentError(frame.message ?? "ended", { code: frame.code ?? "ended", retryable: !isFinal }));
      this.#inboxes.delete(frame.sub);
    }
  }

  /** End everything that used the connection. */
  #lose(error: AgentError): void {
    clearInterval(this.#heartbeat);
    this.#socket = undefined;
    this.#drainMs = undefined;
    for (const inbox of this.#inboxes.values()) inbox.end(error);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#inboxes.clear();
    this.#waiting.clear();
  }
}
