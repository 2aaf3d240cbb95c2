// Live events: the text of messages and the output of tools while they arrive.
import type { EventOf } from "../event.generated.ts";
import { countPoints, dropPoints, isLowSurrogate } from "../code_points.ts";
import { last } from "./list.ts";
import { initialState, isOpen, own, type LiveBlock, type LiveEventOf, type LiveMessage, type Output, type SessionState } from "./state.ts";

/** Characters held of each stream of a running call. */
export const OUTPUT_TAIL = 64 * 1024;

export function reduceLive(state: SessionState, event: LiveEventOf): SessionState {
  if (event.type === "stream.reset") return initialState(state.session);
  if (event.type === "stream.end") return state;
  const turn = last(state.turns);
  if (turn && turn.id === event.turn && !isOpen(turn)) return state; // another turn may have begun, whose start follows
  const { data } = event;
  const of = event.type === "message.snapshot" ? event.data.of : event.type;
  if (of === "tool.output.delta") return addOutput(state, data as EventOf<"tool.output.delta">["data"], event.type !== of);
  const known = own(state.live, data.message_id);
  if (known ? known.isOver : state.ended.includes(data.message_id)) return state;
  const message = known ?? newLiveMessage(event);
  if (event.type !== "message.started") return addText(state, message, event, of);
  const model = event.data.model ?? "";
  return known?.model === model ? state : withLive(state, { ...message, model });
}

/** Add what is new in a delta or snapshot of a block. After a gap the next snapshot or the whole message has the text. */
function addText(state: SessionState, message: LiveMessage, event: BlockEvent, of: string): SessionState {
  const type = own(LIVE_BLOCKS, of);
  const { block, offset = 0, text } = event.data;
  const name = "name" in event.data ? (event.data.name ?? "") : "";
  const old = message.blocks[block];
  const end = old?.end ?? 0;
  if (!type || offset > end || (old && old.type !== type)) return state;
  const added = dropPoints(text, end - offset);
  if (old && !added && (!name || name === old.name)) return state;
  const changed = { type, text: (old?.text ?? "") + added, name: name || (old?.name ?? ""), end: end + countPoints(added) };
  return withLive(state, { ...message, blocks: { ...message.blocks, [block]: changed } });
}

type BlockEvent = EventOf<"text.delta" | "reasoning.delta" | "tool.args.delta" | "tool.output.delta" | "message.snapshot">;

const LIVE_BLOCKS: { [delta: string]: LiveBlock["type"] } = {
  "text.delta": "text", "reasoning.delta": "reasoning", "tool.args.delta": "call",
};

function newLiveMessage(event: LiveEventOf & { data: { message_id: string } }): LiveMessage {
  const { path, turn, step, ts, data } = event;
  return { id: data.message_id, path, turn, step, ts, model: "", blocks: {}, isOver: false };
}

/** The state with a live message. An agent writes one message at a time: a new one ends the others of its agent. */
function withLive(state: SessionState, message: LiveMessage): SessionState {
  const live = { ...state.live, [message.id]: message };
  if (!own(state.live, message.id)) {
    for (const other of Object.values(state.live)) {
      if (other.path.join("/") === message.path.join("/")) live[other.id] = { ...other, blocks: {}, isOver: true };
    }
  }
  return { ...state, live };
}

function addOutput(state: SessionState, data: EventOf<"tool.output.delta">["data"], isSnapshot: boolean): SessionState {
  const { message_id: call, block, offset = 0, text, stream = "stdout" } = data;
  if (state.ended.includes(call)) return state;
  const blocks = own(state.output, call) ?? {};
  const old = blocks[block] ?? { stream, text: "", end: 0 };
  const isGap = offset > old.end;
  if (isGap && !isSnapshot) return state;
  const added = isGap ? text : dropPoints(text, old.end - offset);
  if (!added) return state;
  const whole = isGap ? added : old.text + added;
  const changed: Output = {
    stream, text: whole.length > 2 * OUTPUT_TAIL ? lastChars(whole, OUTPUT_TAIL) : whole,
    end: isGap ? offset + countPoints(text) : old.end + countPoints(added),
  };
  return { ...state, output: { ...state.output, [call]: { ...blocks, [block]: changed } } };
}

function lastChars(text: string, length: number): string {
  const start = text.length - length;
  return text.slice(isLowSurrogate(text.charCodeAt(start)) ? start + 1 : start);
}
