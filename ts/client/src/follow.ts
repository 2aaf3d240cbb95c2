// A stream of events that survives its connections: it resumes at its cursor and yields each event once.
import { AgentError, connectionError } from "./errors.ts";
import type { AgentEvent } from "./event.generated.ts";
import { SeenEvents } from "./seen_events.ts";

export type ConnectionStatus = "idle" | "connecting" | "live" | "reconnecting" | "closed" | "failed";

export interface RetryOptions {
  /** The longest delay before the first new try; it doubles with each try. A stream may set it with `retry:`. */
  minMs: number;
  maxMs: number;
  /** The time between two signs of life of the server. After 2.5 times of it without one the connection is dropped. */
  heartbeatMs: number;
  random: () => number;
}

export const RETRY_DEFAULTS: RetryOptions = { minMs: 250, maxMs: 10_000, heartbeatMs: 10_000, random: Math.random };

/** What a connection has read together; without events it is a sign of life. */
export interface Batch {
  events: AgentEvent[];
  retryMs?: number | undefined;
}

/** Opens a connection whose events come after `cursor`; its iterator ends when the connection does. */
export type Source = (cursor: string, signal: AbortSignal) => AsyncIterable<Batch>;

export interface FollowOptions {
  /** What the reader has already. */
  seen?: SeenEvents | undefined;
  signal?: AbortSignal | undefined;
  retry?: Partial<RetryOptions> | undefined;
  onStatus?: ((status: ConnectionStatus, attempt: number) => void) | undefined;
  /** Called with the cursor of each durable event, before it is yielded. */
  onCursor?: ((cursor: string) => void) | undefined;
  /** Whether the stream is complete after this event. */
  isLast?: ((event: AgentEvent) => boolean) | undefined;
}

/** Yield the events of a source, and connect again until the stream is complete. Throws the `AgentError` that is final. */
export async function* follow(open: Source, options: FollowOptions = {}): AsyncGenerator<AgentEvent, void, undefined> {
  const { signal, onStatus, onCursor, isLast } = options;
  const retry = { ...RETRY_DEFAULTS, ...options.retry };
  const seen = options.seen ?? new SeenEvents("");
  const delay = new Delay();
  let connection: Connection | undefined;
  const stop = () => {
    connection?.drop();
    delay.end();
  };
  const forget = onReturn(() => {
    connection?.dropIfSilent();
    delay.end();
  });
  signal?.addEventListener("abort", stop);
  let final: ConnectionStatus = "closed";
  let minMs = retry.minMs;
  try {
    for (let attempt = 0; !signal?.aborted; ) {
      onStatus?.(attempt ? "reconnecting" : "connecting", attempt);
      let waitMs = 0;
      connection = new Connection(open, seen.cursor, retry.heartbeatMs);
      const opened = Date.now();
      try {
        for (let batch = await connection.next(); batch; batch = await connection.next()) {
          onStatus?.("live", 0);
          minMs = batch.retryMs ?? minMs;
          for (const event of batch.events) {
            const fresh = seen.take(event);
            if (!fresh) continue;
            attempt = 0;
            if (fresh.seq !== undefined) onCursor?.(seen.cursor);
            yield fresh;
            if (isLast?.(fresh)) return;
          }
        }
      } catch (error) {
        if (signal?.aborted) return;
        const failure = connectionError(error);
        if (!failure.retryable) {
          final = "failed";
          throw failure;
        }
        waitMs = failure.retryAfterMs ?? 0;
      } finally {
        connection.drop();
      }
      if (signal?.aborted) return;
      if (Date.now() - opened > retry.maxMs) attempt = 0; // it worked: an idle session has no events that would show it
      attempt++;
      onStatus?.("reconnecting", attempt);
      await delay.wait(Math.max(waitMs, backoff(attempt, minMs, retry)));
    }
  } finally {
    forget();
    signal?.removeEventListener("abort", stop);
    onStatus?.(final, 0);
  }
}

/** A random delay up to twice that of the attempt before. */
export function backoff(attempt: number, minMs: number, { maxMs, random }: RetryOptions): number {
  return random() * Math.min(maxMs, minMs * 2 ** (attempt - 1));
}

/** One connection, which is dropped when it shows no sign of life. */
class Connection {
  readonly #abort = new AbortController();
  readonly #batches: AsyncIterator<Batch>;
  readonly #heartbeatMs: number;
  #fail: ((error: unknown) => void) | undefined;
  #lastSign = Date.now();

  constructor(open: Source, cursor: string, heartbeatMs: number) {
    this.#batches = open(cursor, this.#abort.signal)[Symbol.asyncIterator]();
    this.#heartbeatMs = heartbeatMs;
  }

  /** The next batch; undefined at the end of the connection. */
  next(): Promise<Batch | undefined> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => this.drop("the server shows no sign of life"), 2.5 * this.#heartbeatMs);
      this.#fail = (error) => {
        clearTimeout(timer);
        reject(error);
      };
      this.#batches.next().then((result) => {
        clearTimeout(timer);
        this.#lastSign = Date.now();
        resolve(result.done ? undefined : result.value);
      }, this.#fail);
    });
  }

  drop(reason = "dropped"): void {
    this.#abort.abort();
    this.#batches.return?.().catch(() => {});
    this.#fail?.(new AgentError(reason, { code: "network", retryable: true }));
  }

  /** Drop a connection that may have died while the machine slept or the page was frozen. */
  dropIfSilent(): void {
    if (Date.now() - this.#lastSign > 1.2 * this.#heartbeatMs) this.drop("silent while the page was hidden or offline");
  }
}

/** A delay that can be cut short. */
export class Delay {
  #end: (() => void) | undefined;

  wait(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#end = () => {
        clearTimeout(timer);
        resolve();
      };
    });
  }

  end(): void {
    this.#end?.();
  }
}

/** Call `action` when the network or the page comes back; the result stops that. Does nothing outside of browsers. */
function onReturn(action: () => void): () => void {
  const page = globalThis.document as Document | undefined;
  if (typeof globalThis.addEventListener !== "function") return () => {};
  const onVisible = () => {
    if (page?.visibilityState === "visible") action();
  };
  globalThis.addEventListener("online", action);
  page?.addEventListener("visibilitychange", onVisible);
  return () => {
    globalThis.removeEventListener("online", action);
    page?.removeEventListener("visibilitychange", onVisible);
  };
}
