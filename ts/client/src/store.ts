// The state of a session as a fold of its events. `reduce` is pure, and its cost does not grow with the history.
//
// Durable events make the lists, live events only `live` and `output`, which are dropped when the durable event with
// the whole content arrives. So a stream that was cut and resumed gives the same state as one that was not.
import type { AgentEvent, EventOf, EventTypes, Json, Usage } from "./event.generated.ts";
import {
  addCall, addDecision, answerQuestion, endCall, endSubagent, resolveApproval, startCall, startSubagent,
} from "./store/calls.ts";
import { at, last, push, replace, truncate, type List } from "./store/list.ts";
import { reduceLive } from "./store/live.ts";
import {
  elapsed, initialState, isEmpty, isOpen, newCall, newMessage, NO_USAGE, own, rememberEnd, without, type Block, type DurableEventOf,
  type ErrorEntry, type LiveEventOf, type NoticeBlock, type Part, type SessionState, type Stamp,
  type Totals, type TurnState, type TurnStatus,
} from "./store/state.ts";
import { textOf } from "./store/views.ts";

export type * from "./event.generated.ts";
export type * from "./store/state.ts";
export { at, last, pages, toArray, type List } from "./store/list.ts";
export { OUTPUT_TAIL } from "./store/live.ts";
export { initialState } from "./store/state.ts";
export { currentTurn, liveMessages, openDecisions, outputOf, textOf, transcript } from "./store/views.ts";

const TITLE_LENGTH = 80;

/** Apply an event. The same event twice, or a snapshot after its deltas, changes nothing the second time. */
export function reduce(state: SessionState, event: AgentEvent): SessionState {
  if (event.seq === undefined) return event.type === "unknown" ? state : reduceLive(state, event as LiveEventOf);
  const epoch = Number(String(event.id).split(".")[0]) || 1;
  if (epoch === state.epoch && event.seq <= state.seq) return state;
  const base = state.epoch !== 0 && epoch !== state.epoch ? initialState(state.session) : state;
  const next: SessionState = {
    ...base,
    session: base.session || event.session || "",
    cursor: event.id ?? "",
    epoch,
    seq: event.seq,
  };
  if (event.type !== "unknown") applyDurable(next, event as DurableEventOf);
  const turn = last(next.turns);
  const status = isEmpty(next.decisions) ? "running" : "waiting";
  if (turn && isOpen(turn)) {
    next.status = status;
    if (turn.status !== status) updateTurn(next, { status });
  } else next.status = isEmpty(next.inputs) ? (next.closed ? "closed" : "idle") : "queued";
  return next;
}

function applyDurable(state: SessionState, event: DurableEventOf): void {
  switch (event.type) {
    case "input.added":
      return addInput(state, event);
    case "input.withdrawn":
      state.inputs = without(state.inputs, event.data.input);
      return;
    case "interrupt.requested":
      return updateTurn(state, { stopping: true });
    case "turn.started":
      return startTurn(state, event);
    case "turn.resumed":
      state.live = state.output = {};
      return updateTurn(state, { stopping: false });
    case "turn.completed":
      return endTurn(state, event, "completed", { stop: event.data.stop ?? "end", limit: event.data.limit ?? "" });
    case "turn.failed": {
      const { code, message, withdrawn } = event.data;
      endTurn(state, event, "failed", { error: { code, message } });
      addError(state, event, "turn.failed", code, message);
      const turn = last(state.turns);
      if (withdrawn && turn) state.messages = truncate(state.messages, turn.first);
      return;
    }
    case "turn.cancelled":
      return endTurn(state, event, "cancelled", { note: event.data.note ?? "" });
    case "turn.interrupted":
      return endTurn(state, event, "interrupted", { note: event.data.note ?? "", stop: event.data.code ?? "" });
    case "step.started":
      takeInputs(state, event, event.data.inputs ?? []);
      if (!event.path.length) updateTurn(state, { steps: event.data.number, model: event.data.model ?? "" });
      return;
    case "step.completed":
      return forgetMessages(state, event.path);
    case "message.completed":
      return completeMessage(state, event);
    case "message.discarded":
      return endMessage(state, event.data.message_id);
    case "tool.called":
      return addCall(state, event);
    case "tool.started":
      return startCall(state, event);
    case "tool.completed":
    case "tool.failed":
      return endCall(state, event);
    case "subagent.started":
      return startSubagent(state, event);
    case "subagent.completed":
      return endSubagent(state, event);
    case "approval.requested":
    case "question.asked":
      return addDecision(state, event);
    case "approval.resolved":
      return resolveApproval(state, event.data.approval, event.data);
    case "approval.expired":
      return resolveApproval(state, event.data.approval, { decision: "expired" });
    case "question.answered":
      return answerQuestion(state, event.data.question);
    case "usage":
      return addUsage(state, event);
    case "model.failed":
      return addError(state, event, "model.failed", event.data.code, event.data.message, event.data.retried);
    case "error":
      return addError(state, event, "error", event.data.code, event.data.message);
    default:
      return applySession(state, event);
  }
}

type SessionEventOf = Exclude<
  DurableEventOf,
  { type: `${"turn" | "step" | "message" | "tool" | "subagent" | "approval" | "question" | "input" | "interrupt"}.${string}` }
>;

/** The events of the session itself, and those that change nothing here. A new type of event is an error of the compiler. */
function applySession(state: SessionState, event: Exclude<SessionEventOf, EventOf<"usage" | "model.failed" | "error">> | EventOf<"turn.queued" | "tool.returned">): void {
  switch (event.type) {
    case "session.opened":
      state.agent = event.data.agent ?? "";
      state.title = event.data.title ?? "";
      state.owner = event.data.owner ?? "";
      state.tags = event.data.tags ?? [];
      state.metadata = event.data.metadata ?? {};
      state.folder = event.data.workspace?.root ?? "";
      return;
    case "session.updated":
      return updateSession(state, event.data);
    case "session.forked":
      state.origin = { session: event.data.origin, cursor: event.data.cursor };
      return addNotice(state, event, `forked from ${event.data.origin} at ${event.data.cursor}`);
    case "session.reverted":
      return revert(state, event);
    case "session.closed":
      state.closed = true;
      return;
    case "session.erased": {
      const { session, cursor, epoch, seq, origin, usage, models } = state;
      Object.assign(state, { ...initialState(session), cursor, epoch, seq, origin, usage, models, closed: true });
      return;
    }
    case "handoff":
      state.agent = event.data.target;
      return addNotice(state, event, `${event.data.source} hands over to ${event.data.target}`);
    case "checkpoint.saved":
      if (typeof event.data.number === "number") return;
      state.checkpoints = [...state.checkpoints, { label: event.data.label, seq: event.seq, cursor: event.id, ts: event.ts }];
      return addNotice(state, event, event.data.label);
    case "context.compacted":
      if (!event.path.length && state.context && event.data.after) state.context = { ...state.context, tokens: event.data.after };
      return addNotice(state, event, event.data.summary || "long results of earlier calls are shown in part");
    case "agent.continued":
      return addNotice(state, event, event.data.text);
    case "output.rejected":
      return addNotice(state, event, event.data.feedback);
    case "budget.warning":
      return addNotice(state, event, `${event.data.used} of ${event.data.limit} (${event.data.budget})`);
    case "turn.queued":
    case "tool.returned":
    case "state.changed":
    case "model.selected":
    case "hook.ran":
    case "cache.busted":
    case "mcp.changed":
    case "log":
    case "script.called":
    case "script.answered":
      return;
    default:
      event satisfies EventTypes["custom"];
  }
}

// --- inputs and turns

function addInput(state: SessionState, event: EventOf<"input.added">): void {
  const { key, content, source } = event.data;
  state.closed = false;
  state.title ||= [...textOf(content).trim().replace(/\s+/g, " ")].slice(0, TITLE_LENGTH).join("");
  if (own(state.inputs, key)) return;
  const message = newMessage(event, key, "user", blocksOf(content));
  state.inputs = { ...state.inputs, [key]: { ...message, status: "queued", source: source ?? "" } };
}

/** Move inputs to the conversation: a turn or a step has taken them. */
function takeInputs(state: SessionState, event: Stamp, keys: readonly string[]): void {
  for (const key of keys) {
    const input = own(state.inputs, key);
    if (!input) continue;
    const { turn, step, seq, id: cursor } = event;
    state.messages = push(state.messages, { ...input, status: "complete", turn, step, seq, cursor });
    state.inputs = without(state.inputs, key);
  }
}

function startTurn(state: SessionState, event: EventOf<"turn.started">): void {
  const { agent, inputs } = event.data;
  const first = state.messages.size;
  state.agent = agent;
  state.closed = false;
  takeInputs(state, event, inputs);
  state.turns = push(state.turns, {
    id: event.turn, agent, inputs, status: "running", stopping: false, text: "", stop: "", limit: "", note: "",
    error: null, steps: 0, model: "", usage: NO_USAGE, started: event.ts, ended: "", durationMs: null, seq: event.seq,
    cursor: event.id, endCursor: "", first,
  });
}

function updateTurn(state: SessionState, change: Partial<TurnState>): void {
  const turn = last(state.turns);
  if (turn && isOpen(turn)) state.turns = replace(state.turns, state.turns.size - 1, { ...turn, ...change });
}

type TurnEnd = EventOf<"turn.completed" | "turn.failed" | "turn.cancelled" | "turn.interrupted">;

function endTurn(state: SessionState, event: TurnEnd, status: TurnStatus, change: Partial<TurnState>): void {
  const turn = last(state.turns);
  const { text, usage } = event.data;
  const ends = { text: text ?? "", ended: event.ts, endCursor: event.id, durationMs: turn ? elapsed(turn.started, event.ts) : null };
  updateTurn(state, { ...change, ...ends, status, ...(usage ? { usage: { ...NO_USAGE, ...usage } } : {}) });
  for (const index of Object.values(state.openAgents)) {
    const child = at(state.subagents, index);
    if (child) state.subagents = replace(state.subagents, index, { ...child, status: "interrupted", ended: event.ts });
  }
  dropOpen(state);
}

function dropOpen(state: SessionState): void {
  state.live = state.output = state.decisions = {};
  state.openCalls = state.openMessages = state.openAgents = {};
}

// --- messages

function completeMessage(state: SessionState, event: EventOf<"message.completed">): void {
  const { message_id, content, model, stop, cut } = event.data;
  const message = newMessage(event, message_id, "assistant", blocksOf(content));
  const index = state.messages.size;
  state.messages = push(state.messages, {
    ...message, status: cut ? "cut" : "complete", model: model ?? "", stop: stop ?? "",
  });
  endMessage(state, message_id);
  forgetMessages(state, event.path);
  state.openMessages = { ...state.openMessages, [message_id]: index };
  message.blocks.forEach((block, position) => {
    if (block.type === "call") state.openCalls = { ...state.openCalls, [block.id]: [index, position] };
  });
}

/** Drop what was streamed of a message; deltas of it that arrive later are ignored. */
function endMessage(state: SessionState, id: string): void {
  if (own(state.live, id)) state.live = without(state.live, id);
  rememberEnd(state, id);
}

/** Forget where the message of the last step of an agent is: all its calls have results. */
function forgetMessages(state: SessionState, path: readonly string[]): void {
  const agent = path.join("/");
  for (const [id, index] of Object.entries(state.openMessages)) {
    if (at(state.messages, index)?.path.join("/") === agent) state.openMessages = without(state.openMessages, id);
  }
}

function blocksOf(content: readonly Part[]): Block[] {
  return content.map((part): Block => {
    if (part.type === "call") return newCall({ id: part.id, name: "" });
    if (part.type === "reasoning") return { type: "reasoning", text: part.text ?? "" };
    return part;
  });
}

function addNotice(state: SessionState, event: DurableEventOf, text: string): void {
  const block: NoticeBlock = { type: "notice", kind: event.type, text, data: event.data as unknown as Json };
  state.messages = push(state.messages, newMessage(event, event.id, "notice", [block]));
}

// --- usage and errors

function addUsage(state: SessionState, event: EventOf<"usage">): void {
  const { model, usage, call } = event.data;
  state.usage = sum(state.usage, usage);
  state.models = { ...state.models, [model]: sum(own(state.models, model) ?? NO_USAGE, usage) };
  const turn = last(state.turns);
  if (turn) updateTurn(state, { usage: sum(turn.usage, usage) });
  const index = own(state.openAgents, event.path.join("/"));
  const child = index === undefined ? undefined : at(state.subagents, index);
  if (child) state.subagents = replace(state.subagents, index!, { ...child, usage: sum(child.usage, usage) });
  if (!event.path.length && !call) state.context = { model, tokens: usage.input ?? 0 };
}

function sum(total: Totals, usage: Usage): Totals {
  const added = { ...total };
  for (const key of Object.keys(NO_USAGE) as (keyof Totals)[]) added[key] += usage[key] ?? 0;
  return added;
}

function addError(
  state: SessionState, event: Stamp, kind: ErrorEntry["kind"], code: string, message: string, retried = false,
): void {
  const { turn, path, ts, seq, id: cursor } = event;
  state.errors = push(state.errors, { kind, code, message, turn, path, ts, seq, cursor, retried });
}

// --- the session

function updateSession(state: SessionState, data: EventOf<"session.updated">["data"]): void {
  state.title = data.title ?? state.title;
  state.owner = data.owner ?? state.owner;
  state.tags = data.tags ?? state.tags;
  state.folder = data.workspace?.root ?? state.folder;
  if (!data.metadata) return;
  const metadata = { ...state.metadata, ...data.metadata };
  state.metadata = Object.fromEntries(Object.entries(metadata).filter(([, value]) => value !== null));
}

/** Go back to the event `to`, which may be on a branch that an earlier rewind has left. */
function revert(state: SessionState, event: EventOf<"session.reverted">): void {
  const { to, onward } = event.data;
  const { messages, turns, subagents } = state;
  const from = state.branches.find((branch) => branch.seq > to) ?? state;
  state.branches = [...state.branches, { seq: event.seq, messages, turns, subagents }];
  state.messages = upTo(from.messages, to);
  state.turns = upTo(from.turns, to);
  state.subagents = upTo(from.subagents, to);
  state.checkpoints = state.checkpoints.filter((checkpoint) => checkpoint.seq <= to);
  state.closed = false;
  dropOpen(state);
  if (onward) {
    updateTurn(state, { steps: onward.step, usage: { ...NO_USAGE, ...onward.spent } });
  } else {
    state.inputs = {};
    updateTurn(state, { status: "interrupted", ended: event.ts, endCursor: event.id });
  }
  addNotice(state, event, `back to event ${to}`);
}

function upTo<T extends { seq: number }>(list: List<T>, seq: number): List<T> {
  let size = list.size;
  while (size > 0 && at(list, size - 1)!.seq > seq) size--;
  return truncate(list, size);
}

export interface Store {
  readonly state: SessionState;
  apply(event: AgentEvent): void;
  /** Call `listener` after each change; the result stops that. */
  subscribe(listener: () => void): () => void;
}

/** A state that changes with each event, for views that follow it. */
export function createStore(initial: SessionState | string = ""): Store {
  let state = typeof initial === "string" ? initialState(initial) : initial;
  const listeners = new Set<() => void>();
  return {
    get state() {
      return state;
    },
    apply(event) {
      const next = reduce(state, event);
      if (next === state) return;
      state = next;
      for (const listener of [...listeners]) listener();
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
