// Tool calls, the decisions they wait for, and child agents.
import type { EventOf, ToolCall } from "../event.generated.ts";
import { at, push, replace } from "./list.ts";
import { elapsed, newCall, newMessage, NO_USAGE, own, rememberEnd, without, type CallBlock, type Decision, type SessionState } from "./state.ts";

export function addCall(state: SessionState, event: EventOf<"tool.called">): void {
  const { call, message_id } = event.data;
  if (own(state.openCalls, call.id)) return updateCall(state, call.id, callFields(call));
  const parent = call.id.slice(0, Math.max(call.id.lastIndexOf("."), 0));
  const places = [own(state.openMessages, message_id), own(state.openCalls, parent)?.[0]];
  const isOfAgent = (place?: number) => place !== undefined && at(state.messages, place)?.path.join("/") === event.path.join("/");
  let index = places.find(isOfAgent);
  if (index === undefined) {
    index = state.messages.size;
    state.messages = push(state.messages, newMessage(event, message_id, "assistant", []));
    state.openMessages = { ...state.openMessages, [message_id]: index };
  }
  const message = at(state.messages, index)!;
  const block = { ...newCall(call), parent: isOfAgent(places[1]) ? parent : "" };
  state.messages = replace(state.messages, index, { ...message, blocks: [...message.blocks, block] });
  state.openCalls = { ...state.openCalls, [call.id]: [index, message.blocks.length] };
}

const callFields = (call: ToolCall): Partial<CallBlock> => ({
  name: call.name, arguments: call.arguments ?? {}, argumentsText: call.raw ?? "",
});

function updateCall(state: SessionState, id: string, change: Partial<CallBlock>): void {
  const place = own(state.openCalls, id);
  const message = place && at(state.messages, place[0]);
  const block = message?.blocks[place![1]];
  if (!message || block?.type !== "call") return;
  const blocks = message.blocks.slice();
  blocks[place![1]] = { ...block, ...change };
  state.messages = replace(state.messages, place![0], { ...message, blocks });
}

function callOf(state: SessionState, id: string): CallBlock | undefined {
  const place = own(state.openCalls, id);
  const block = place && at(state.messages, place[0])?.blocks[place[1]];
  return block?.type === "call" ? block : undefined;
}

export function startCall(state: SessionState, event: EventOf<"tool.started">): void {
  const { call, effect, deadline, attempt } = event.data;
  updateCall(state, call.id, {
    ...callFields(call), status: "running", effect, deadline: deadline ?? "", attempt: attempt ?? 1, started: event.ts,
  });
  dropDecisions(state, call.id, "approval");
}

export function endCall(state: SessionState, event: EventOf<"tool.completed" | "tool.failed">): void {
  const { result } = event.data;
  const started = callOf(state, result.call)?.started;
  updateCall(state, result.call, {
    status: event.type === "tool.failed" ? "failed" : "completed", result, ended: event.ts,
    durationMs: started ? elapsed(started, event.ts) : null,
  });
  state.openCalls = without(state.openCalls, result.call);
  if (own(state.output, result.call)) state.output = without(state.output, result.call);
  rememberEnd(state, result.call);
  dropDecisions(state, result.call);
}

export function addDecision(state: SessionState, event: EventOf<"approval.requested" | "question.asked">): void {
  const { path, turn, seq, id: cursor, ts: asked } = event;
  const common = { path, turn, seq, cursor, asked, expires: event.data.expires ?? "" };
  let decision: Decision;
  if (event.type === "approval.requested") {
    const { approval, call, reason, rule, message, effect, cwd, folder, decisions, grant, scopes, agent } = event.data;
    decision = {
      ...common, id: approval, kind: "approval", agent: agent ?? "", call, callId: call.id, reason: reason ?? "",
      rule: rule ?? "", message: message ?? "", effect: effect ?? "", cwd: cwd ?? "", folder: folder ?? "",
      decisions: decisions ?? [], grant: grant ?? "", scopes: allowedScopes(grant ?? "", scopes ?? []), question: "", options: [],
    };
  } else {
    const { question, text, options, call, kind } = event.data;
    decision = {
      ...common, id: question, kind: kind ?? "question", agent: "", call: null, callId: call ?? "", reason: "", rule: "",
      message: "", effect: "", cwd: "", folder: "", decisions: [], grant: "", scopes: [], question: text,
      options: options ?? [],
    };
  }
  state.decisions = { ...state.decisions, [decision.id]: decision };
  updateCall(state, decision.callId, { status: "waiting" });
}

const APPROVAL_SCOPES = ["once", "session", "project", "user"];

/** The scopes an approval may have: without a rule to remember only "once", with one every scope unless the event names some. */
function allowedScopes(grant: string, scopes: readonly string[]): string[] {
  if (!grant) return ["once"];
  return scopes.length ? APPROVAL_SCOPES.filter((scope) => scopes.includes(scope)) : APPROVAL_SCOPES;
}

export function resolveApproval(state: SessionState, id: string, decision: NonNullable<CallBlock["decision"]>): void {
  const asked = own(state.decisions, id);
  if (!asked) return;
  const { edit } = decision;
  updateCall(state, asked.callId, { status: "pending", decision, ...(edit ? { arguments: edit } : {}) });
  state.decisions = without(state.decisions, id);
}

export function answerQuestion(state: SessionState, id: string): void {
  const asked = own(state.decisions, id);
  if (!asked) return;
  updateCall(state, asked.callId, { status: "running" });
  state.decisions = without(state.decisions, id);
}

function dropDecisions(state: SessionState, call: string, kind?: Decision["kind"]): void {
  for (const decision of Object.values(state.decisions)) {
    if (decision.callId === call && (!kind || decision.kind === kind)) {
      state.decisions = without(state.decisions, decision.id);
    }
  }
}

export function startSubagent(state: SessionState, event: EventOf<"subagent.started">): void {
  const { call, agent, child } = event.data;
  const path = [...event.path, child];
  state.openAgents = { ...state.openAgents, [path.join("/")]: state.subagents.size };
  state.subagents = push(state.subagents, {
    path, agent, call, turn: event.turn, status: "running", text: "", stop: "", reason: "", usage: NO_USAGE,
    started: event.ts, ended: "", seq: event.seq, cursor: event.id,
  });
  updateCall(state, call, { child: path });
}

export function endSubagent(state: SessionState, event: EventOf<"subagent.completed">): void {
  const { child, text, failed, stop, reason } = event.data;
  const key = [...event.path, child].join("/");
  const index = own(state.openAgents, key);
  const started = index === undefined ? undefined : at(state.subagents, index);
  if (index === undefined || !started) return;
  state.subagents = replace(state.subagents, index, {
    ...started, status: failed ? "failed" : "completed", text: text ?? "", stop: stop ?? "end", reason: reason ?? "",
    ended: event.ts,
  });
  state.openAgents = without(state.openAgents, key);
}
