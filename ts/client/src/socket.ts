// All subscriptions of a client over one WebSocket, protocol agent.v1+json.
import type { EventQuery } from "./api.ts";
import { AgentError } from "./errors.ts";
import { toEvent } from "./events.ts";
import type { AgentEvent, JsonObject } from "./event.generated.ts";
import type { Batch } from "./follow.ts";
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
  error?: { code: string; message: string; retryable?: boolean; data?: { status?: number; retry_after?: number } };
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
  #events: AgentEvent[] = [];
  #error: AgentError | undefined;
  #hasSign = false;
  #wake = () => {};

  /** Add an event; false when the reader is too slow, which ends the subscription. */
  push(event: AgentEvent): boolean {
    const isFull = this.#events.length >= MAX_QUEUED;
    if (isFull) this.end(new AgentError("the reader is slow", { code: "slow_consumer", retryable: true, retryAfterMs: 0 }));
    else this.#events.push(event);
    this.#wake();
    return !isFull;
  }

  end(error: AgentError): void {
    this.#error ??= error;
    this.#wake();
  }

  /** Note that the server has sent something. */
  sign(): void {
    this.#hasSign = true;
    this.#wake();
  }

  /** The events that have arrived; none after a sign of life. Throws the error that ended the subscription. */
  async take(): Promise<AgentEvent[]> {
    const isReady = this.#events.length || this.#error || this.#hasSign;
    if (!isReady) await new Promise<void>((resolve) => (this.#wake = resolve));
    this.#hasSign = false;
    const events = this.#events;
    this.#events = [];
    if (!events.length && this.#error) throw this.#error;
    return events;
  }
}

function parseFrame(text: string): Frame | undefined {
  try {
    const frame: unknown = JSON.parse(text);
    return typeof frame === "object" && frame !== null ? (frame as Frame) : undefined;
  } catch {
    return undefined;
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
  readonly #waiting = new Map<number, Waiting>();
  readonly #inboxes = new Map<string, Inbox>();
  #opening: Promise<WebSocket> | undefined;
  #socket: WebSocket | undefined;
  #requests = 0;
  #heartbeat: ReturnType<typeof setInterval> | undefined;
  #drainMs: number | undefined;

  constructor(http: Http, factory: SocketFactory | undefined) {
    this.#http = http;
    this.#factory = factory;
  }

  /** Call a method of the protocol. */
  async call(method: string, params: object = {}): Promise<JsonObject> {
    return this.#request(await this.#connect(), method, params);
  }

  /** The events of a session, until the connection is lost or the reader is too slow. */
  async *subscribe(session: string, query: EventQuery, signal: AbortSignal): AsyncGenerator<Batch, void, undefined> {
    const socket = await this.#connect();
    const { path, ...rest } = query;
    const inbox = new Inbox();
    const params = { session, ...rest, ...(path ? { path: path.split("/") } : {}) };
    const sub = String((await this.#request(socket, "subscribe", params, inbox)).sub);
    signal.addEventListener("abort", () => inbox.end(new AgentError("closed", { code: "closed", retryable: true })));
    let unacknowledged = 0;
    try {
      yield { events: [] };
      for (;;) {
        const events = await inbox.take();
        yield { events };
        const cursor = events.findLast((event) => event.id)?.id;
        unacknowledged += events.length;
        if (!cursor || unacknowledged < ACK_EVERY) continue;
        unacknowledged = 0;
        this.#notify(socket, "ack", { sub, cursor });
      }
    } finally {
      if (this.#inboxes.delete(sub)) this.#notify(socket, "unsubscribe", { sub });
    }
  }

  close(): void {
    const socket = this.#socket;
    this.#lose(new AgentError("the client was closed", { code: "closed" }));
    socket?.close(1000);
  }

  #connect(): Promise<WebSocket> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.#opening = undefined;
      throw error;
    });
    return this.#opening;
  }

  async #open(): Promise<WebSocket> {
    if (!this.#factory) {
      throw new AgentError('this platform has no WebSocket: pass one to AgentClient, or use transport: "sse"', { code: "no_websocket" });
    }
    const ticket = await this.#ticket();
    const url = new URL(this.#http.root, globalThis.location?.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    url.pathname += "/ws";
    if (ticket) url.searchParams.set("ticket", ticket);
    const socket = new this.#factory(url.href, [SUBPROTOCOL]);
    this.#socket = socket;
    // Every handler is set before the socket can open: a frame may arrive together with the opening.
    await new Promise<void>((resolve, reject) => {
      socket.onopen = () => resolve();
      socket.onerror = () => reject(new AgentError("the socket could not be opened", { code: "network", retryable: true }));
      socket.onmessage = (event) => this.#receive(socket, String(event.data));
      socket.onclose = (event) => {
        const error = closeError(event.code, event.reason, this.#drainMs);
        reject(error);
        if (this.#socket === socket) this.#lose(error);
      };
    });
    if (!ticket) await this.#request(socket, "auth", { token: await this.#http.token() });
    const { heartbeat_ms } = await this.#request(socket, "hello", { client: "@vaka/client" });
    this.#keepAlive(socket, Math.min(Number(heartbeat_ms) || Infinity, this.#http.retry.heartbeatMs));
    return socket;
  }

  /** A ticket for one connection, since a page cannot set headers; "" where the server has none, and a token is sent first. */
  async #ticket(): Promise<string> {
    try {
      return (await this.#http.json<{ ticket: string }>("POST", "/ws-tickets", { body: {} })).ticket;
    } catch (error) {
      if (error instanceof AgentError && (error.status === 404 || error.status >= 500) && this.#http.hasToken) return "";
      throw error;
    }
  }

  /** Send pings; a connection that has not answered one when the next is due is dead. */
  #keepAlive(socket: WebSocket, ms: number): void {
    let isAnswered = true;
    clearInterval(this.#heartbeat);
    this.#heartbeat = setInterval(() => {
      if (!isAnswered) {
        this.#lose(new AgentError("the server shows no sign of life", { code: "network", retryable: true }));
        return socket.close();
      }
      isAnswered = false;
      this.#request(socket, "ping", {}).then(() => (isAnswered = true), () => {});
    }, ms);
  }

  #request(socket: WebSocket, method: string, params: object, inbox?: Inbox): Promise<JsonObject> {
    const id = ++this.#requests;
    return new Promise((resolve, reject) => {
      const receive = (result: JsonObject) => {
        if (inbox) this.#inboxes.set(String(result.sub), inbox);
        resolve(result);
      };
      this.#waiting.set(id, { resolve: receive, reject });
      socket.send(JSON.stringify({ id, method, params }));
    });
  }

  /** Send a request whose reply does not matter. */
  #notify(socket: WebSocket, method: string, params: object): void {
    if (socket.readyState === 1) this.#request(socket, method, params).catch(() => {});
  }

  #receive(socket: WebSocket, text: string): void {
    const frame = parseFrame(text);
    if (!frame) {
      this.#lose(new AgentError("a frame is not a JSON object", { code: "network", retryable: true }));
      return socket.close(4400, "a frame is not a JSON object");
    }
    if (frame.sub !== undefined && frame.event !== undefined) this.#deliver(socket, frame.sub, toEvent(frame.event));
    else if (frame.ctl) this.#control(socket, frame);
    else if (typeof frame.id === "number") this.#reply(frame.id, frame);
  }

  #deliver(socket: WebSocket, sub: string, event: AgentEvent): void {
    const inbox = this.#inboxes.get(sub);
    if (!inbox || inbox.push(event)) return;
    this.#inboxes.delete(sub);
    this.#notify(socket, "unsubscribe", { sub });
  }

  #reply(id: number, { result, error }: Frame): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    for (const inbox of this.#inboxes.values()) inbox.sign();
    if (!error) return waiting?.resolve(result ?? {});
    const { status = 0, retry_after } = error.data ?? {};
    waiting?.reject(
      new AgentError(error.message, {
        status, code: error.code, retryable: error.retryable ?? false,
        ...(retry_after === undefined ? {} : { retryAfterMs: retry_after * 1000 }),
      }),
    );
  }

  #control(socket: WebSocket, frame: Frame): void {
    if (frame.ctl === "ping") this.#notify(socket, "ping", {});
    else if (frame.ctl === "drain") this.#drainMs = frame.reconnect_after_ms;
    else if (frame.ctl === "ended" && frame.sub) {
      const isFinal = /not_found|forbidden|unauthorized/.test(frame.code ?? "");
      this.#inboxes.get(frame.sub)?.end(new AgentError(frame.message ?? "ended", { code: frame.code ?? "ended", retryable: !isFinal }));
      this.#inboxes.delete(frame.sub);
    }
  }

  /** End everything that used the connection. */
  #lose(error: AgentError): void {
    clearInterval(this.#heartbeat);
    this.#opening = this.#socket = this.#drainMs = undefined;
    for (const inbox of this.#inboxes.values()) inbox.end(error);
    for (const { reject } of this.#waiting.values()) reject(error);
    this.#inboxes.clear();
    this.#waiting.clear();
  }
}
