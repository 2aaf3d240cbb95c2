import type { AgentEvent } from "./event.generated.ts";
import { follow, type ConnectionStatus, type RetryOptions, type Source } from "./follow.ts";
import { SeenEvents } from "./seen_events.ts";

export type StatusListener = (status: ConnectionStatus, attempt: number) => void;

export interface StreamSettings {
  open: Source;
  after?: string;
  retry: RetryOptions;
  signal?: AbortSignal | undefined;
  isLast?: (event: AgentEvent) => boolean;
}

/** Events of a session from a cursor on. Iterate it once; it connects when the iteration begins and closes when it ends. */
export class Subscription implements AsyncIterable<AgentEvent> {
  readonly #settings: StreamSettings;
  readonly #seen: SeenEvents;
  readonly #closing = new AbortController();
  readonly #listeners = new Set<StatusListener>();
  #status: ConnectionStatus = "idle";
  #attempt = 0;

  constructor(settings: StreamSettings) {
    this.#settings = settings;
    this.#seen = new SeenEvents(settings.after ?? "");
    settings.signal?.addEventListener("abort", () => this.close(), { once: true });
    if (settings.signal?.aborted) this.close();
  }

  get status(): ConnectionStatus {
    return this.#status;
  }

  /** How often the connection was tried since it was lost. */
  get attempt(): number {
    return this.#attempt;
  }

  /** The cursor of the last durable event that was yielded: pass it as `after` to go on later. */
  get cursor(): string {
    return this.#seen.cursor;
  }

  /** Call `listener` on each change of `status`; the result stops that. */
  onStatus(listener: StatusListener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#closing.abort();
  }

  [Symbol.asyncIterator](): AsyncGenerator<AgentEvent, void, undefined> {
    const { open, retry, isLast } = this.#settings;
    return follow(open, {
      seen: this.#seen, retry, isLast, signal: this.#closing.signal,
      onStatus: (status, attempt) => this.#setStatus(status, attempt),
    });
  }

  #setStatus(status: ConnectionStatus, attempt: number): void {
    if (status === this.#status && attempt === this.#attempt) return;
    this.#status = status;
    this.#attempt = attempt;
    for (const listener of [...this.#listeners]) listener(status, attempt);
  }
}
