// What views read from the state.
import { last, toArray } from "./list.ts";
import { newCall, own, type Block, type Decision, type LiveBlock, type Message, type Part, type SessionState, type TurnState } from "./state.ts";

/** The messages that are streamed now, as messages; they come after those of `messages`. */
export function liveMessages(state: SessionState): Message[] {
  return Object.values(state.live).filter((message) => !message.isOver).map(({ blocks, isOver: _, ...message }) => ({
    ...message, role: "assistant", status: "streaming", seq: 0, cursor: "", stop: "", source: "",
    blocks: Object.keys(blocks).sort((a, b) => Number(a) - Number(b)).map((key) => streamedBlock(blocks[key]!)),
  }));
}

function streamedBlock({ type, text, name }: LiveBlock): Block {
  if (type !== "call") return { type, text };
  return { ...newCall({ id: "", name }), status: "writing", argumentsText: text };
}

/** The whole conversation: `messages`, what is streamed now, and inputs that wait for their turn. */
export function transcript(state: SessionState): Message[] {
  return [...toArray(state.messages), ...liveMessages(state), ...Object.values(state.inputs)];
}

/** What a running call has printed so far: the end of each stream. */
export function outputOf(state: SessionState, call: string): { stdout: string; stderr: string } {
  const printed = { stdout: "", stderr: "" };
  for (const { stream, text } of Object.values(own(state.output, call) ?? {})) printed[stream] += text;
  return printed;
}

/** The newest turn, or undefined. */
export const currentTurn = (state: SessionState): TurnState | undefined => last(state.turns);

/** The open approvals and questions, oldest first. */
export const openDecisions = (state: SessionState): Decision[] => Object.values(state.decisions);

/** The text of content, without reasoning. */
export function textOf(content: readonly (Part | Block)[]): string {
  return content.map((part) => (part.type === "text" ? part.text : part.type === "stored" ? (part.preview ?? "") : "")).join("");
}
