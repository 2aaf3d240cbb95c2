// Which events a reader has: durable ones up to a cursor, and of open blocks the text up to an offset.
import { countPoints, dropPoints } from "./code_points.ts";
import { AgentError } from "./errors.ts";
import type { AgentEvent, EventOf } from "./event.generated.ts";

/** Ended messages that are remembered, to drop late deltas of them; and open ones, if their ends are filtered out. */
const REMEMBERED = 128;

type Delta = EventOf<"text.delta" | "reasoning.delta" | "tool.args.delta" | "tool.output.delta">;

export class SeenEvents {
  #cursor: string;
  #epoch: number;
  #seq: number;
  /** The end of each open block in code points, by message and block. */
  readonly #blocks = new Map<string, Map<number, number>>();
  readonly #ended = new Set<string>();
  readonly #gaps = new Set<string>();

  constructor(cursor: string) {
    this.#cursor = cursor;
    [this.#epoch = 0, this.#seq = 0] = cursor.split(".").map((part) => Number(part) || 0);
  }

  /** The cursor of the last durable event. */
  get cursor(): string {
    return this.#cursor;
  }

  /** The event if it is new, the new part of a delta, or nothing. A snapshot becomes the delta that is missing. */
  take(event: AgentEvent): AgentEvent | undefined {
    if (event.seq !== undefined) return this.#takeDurable(event, event.seq) ? event : undefined;
    switch (event.type) {
      case "stream.reset":
        this.#cursor = "";
        this.#epoch = this.#seq = 0;
        this.#forgetBlocks();
        return event;
      case "message.started":
        return this.#ended.has(event.data.message_id) ? undefined : event;
      case "message.snapshot":
        return this.#takeText(event, (event.data.offset ?? 0) > 0);
      case "text.delta":
      case "reasoning.delta":
      case "tool.args.delta":
      case "tool.output.delta":
        return this.#takeText(event, false);
      default:
        return event;
    }
  }

  #takeDurable(event: AgentEvent, seq: number): boolean {
    const epoch = Number(String(event.id).split(".")[0]) || 1;
    if (epoch === this.#epoch && seq <= this.#seq) return false;
    this.#epoch = epoch;
    this.#seq = seq;
    this.#cursor = event.id ?? `${epoch}.${seq}`;
    switch (event.type) {
      case "message.completed":
      case "message.discarded":
        this.#end(event.data.message_id);
        break;
      case "tool.completed":
      case "tool.failed":
        this.#end(event.data.result.call);
        break;
      case "turn.resumed": // a call that goes on prints from the start again
        this.#blocks.clear();
        break;
      case "turn.completed":
      case "turn.failed":
      case "turn.cancelled":
      case "turn.interrupted":
        for (const message of this.#blocks.keys()) this.#end(message);
        break;
      default:
    }
    return true;
  }

  #end(message: string): void {
    this.#blocks.delete(message);
    this.#ended.add(message);
    if (this.#ended.size > REMEMBERED) this.#ended.delete(this.#ended.values().next().value!);
  }

  #forgetBlocks(): void {
    this.#blocks.clear();
    this.#ended.clear();
    this.#gaps.clear();
  }

  #takeText(event: Delta | EventOf<"message.snapshot">, isTail: boolean): AgentEvent | undefined {
    const { message_id: message, block, text, offset = 0 } = event.data;
    if (this.#ended.has(message)) return undefined;
    const blocks = this.#blocks.get(message) ?? new Map<number, number>();
    const end = blocks.get(block) ?? 0;
    if (offset > end && !isTail) return this.#reportGap(`${message} ${block}`);
    const isGap = offset > end;
    const fresh = isGap ? text : dropPoints(text, end - offset);
    if (!fresh && blocks.has(block)) return undefined;
    this.#blocks.set(message, blocks.set(block, (isGap ? offset : end) + countPoints(fresh)));
    if (this.#blocks.size > REMEMBERED) this.#blocks.delete(this.#blocks.keys().next().value!);
    if (isGap || (event.type !== "message.snapshot" && fresh === text)) return event;
    return asDelta(event, end, fresh);
  }

  /** Ask for a new connection, which begins with a snapshot; once for each block. */
  #reportGap(block: string): undefined {
    if (this.#gaps.has(block)) return undefined;
    this.#gaps.add(block);
    throw new AgentError("a delta is missing", { code: "gap", retryable: true });
  }
}

function asDelta(event: Delta | EventOf<"message.snapshot">, offset: number, text: string): AgentEvent {
  const { message_id, block } = event.data;
  const type = event.type === "message.snapshot" ? event.data.of : event.type;
  const name = "name" in event.data && event.data.name ? { name: event.data.name } : {};
  const stream = "stream" in event.data && event.data.stream ? { stream: event.data.stream } : {};
  return { ...event, type, data: { message_id, block, offset, text, ...name, ...stream } } as Delta;
}
