// Requests to the native API.
import { AgentError, connectionError, errorOf } from "./errors.ts";
import { parseEvent } from "./events.ts";
import { backoff, RETRY_DEFAULTS, type Batch, type RetryOptions } from "./follow.ts";
import { SseParser } from "./sse.ts";

export interface HttpOptions {
  /** The address of the server, such as `http://127.0.0.1:8080`; in a browser "" for the page's own. */
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  /** Returns the token of the next request; called again after a 401. */
  getToken?: (() => string | Promise<string>) | undefined;
  fetch?: typeof globalThis.fetch | undefined;
  headers?: Record<string, string> | undefined;
  retry?: Partial<RetryOptions> | undefined;
}

export type Query = Record<string, string | number | boolean | readonly string[] | null | undefined>;

export interface RequestOptions {
  query?: object | undefined;
  body?: unknown;
  headers?: Record<string, string> | undefined;
  signal?: AbortSignal | undefined;
}

const TRIES = 3;

export class Http {
  readonly root: string;
  readonly retry: RetryOptions;
  readonly #options: HttpOptions;

  constructor(options: HttpOptions) {
    const base = (options.baseUrl ?? "").replace(/\/+$/, "");
    this.root = base.endsWith("/api/v1") ? base : `${base}/api/v1`;
    this.retry = { ...RETRY_DEFAULTS, ...options.retry };
    this.#options = options;
  }

  /** Whether requests carry a credential of the client; otherwise the browser's cookie may. */
  get hasToken(): boolean {
    return Boolean(this.#options.apiKey ?? this.#options.getToken);
  }

  async token(): Promise<string> {
    return this.#options.getToken ? this.#options.getToken() : (this.#options.apiKey ?? "");
  }

  /** Send a request and return its response; one that is not ok is thrown as an `AgentError`. */
  async send(method: string, path: string, options: RequestOptions = {}): Promise<Response> {
    const { body, signal } = options;
    const url = this.root + path + queryOf(options.query);
    const init: RequestInit = { method, credentials: "same-origin", cache: "no-store" };
    if (signal) init.signal = signal;
    if (body !== undefined) init.body = JSON.stringify(body);
    const fetch = this.#options.fetch ?? globalThis.fetch;
    for (let tries = 1; ; tries++) {
      const token = await this.token();
      init.headers = {
        accept: "application/json",
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(token ? { authorization: `Bearer ${token}` } : {}),
        ...this.#options.headers,
        ...options.headers,
      };
      const response = await fetch(url, init);
      if (response.ok) return response;
      const error = await errorOf(response);
      if (error.status !== 401 || tries > 1 || !this.#options.getToken) throw error;
    }
  }

  /** Send a request and return the JSON of its response. A request that is safe to repeat is tried again. */
  async json<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
    const isSafe = method === "GET" || Boolean(options.headers?.["idempotency-key"]);
    for (let tries = 1; ; tries++) {
      try {
        const response = await this.send(method, path, options);
        return (response.status === 204 ? undefined : await response.json()) as T;
      } catch (error) {
        if (options.signal?.aborted) throw error;
        const failure = connectionError(error);
        if (!isSafe || !failure.retryable || tries >= TRIES) throw failure;
        const delay = Math.max(failure.retryAfterMs ?? 0, backoff(tries, this.retry.minMs, this.retry));
        await new Promise((resolve) => setTimeout(resolve, Math.min(delay, this.retry.maxMs)));
      }
    }
  }

  /** Send a request and read its response as server-sent events. */
  async *events(method: string, path: string, options: RequestOptions): AsyncGenerator<Batch, void, undefined> {
    const headers = { ...options.headers, accept: "text/event-stream" };
    const response = await this.send(method, path, { ...options, headers });
    if (!response.headers.get("content-type")?.startsWith("text/event-stream") || !response.body) {
      void response.body?.cancel().catch(() => {});
      throw new AgentError("the answer is not an event stream: is this the address of a vaka server?", {
        status: response.status, code: "not_a_stream",
      });
    }
    const reader = response.body.getReader();
    const parser = new SseParser();
    try {
      yield { events: [] };
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        yield { events: parser.push(value).map((frame) => parseEvent(frame.data)), retryMs: parser.retryMs };
      }
    } finally {
      void reader.cancel().catch(() => {});
    }
  }
}

export function queryOf(query: object = {}): string {
  const words = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value === undefined || value === null || value === "") continue;
    words.set(key, Array.isArray(value) ? value.join(",") : String(value));
  }
  const text = words.toString();
  return text && `?${text}`;
}

/** A path of the API with its parts escaped. */
export const pathOf = (...parts: string[]): string => parts.map((part) => `/${encodeURIComponent(part)}`).join("");

/** A key that no other client has: also in pages that are not served over HTTPS. */
export function newKey(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
