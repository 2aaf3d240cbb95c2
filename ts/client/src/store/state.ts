// The state of a session. It is plain JSON: it may be stored, sent and gone on with.
import type {
  ApprovalResolved, Audio, CallRef, Citation, Document, Image, Json, JsonObject, KnownEvent, Reasoning, Stored, Text,
  ToolCall, ToolResult, Usage,
} from "../event.generated.ts";
import { emptyList, type List } from "./list.ts";

export type SessionStatus = "idle" | "queued" | "running" | "waiting" | "closed";
export type TurnStatus = "running" | "waiting" | "completed" | "failed" | "cancelled" | "interrupted";
export type CallStatus = "writing" | "pending" | "waiting" | "running" | "completed" | "failed";
export type Totals = Required<Usage>;
export type Part = Text | Image | Audio | Document | Stored | Reasoning | CallRef;

export interface TextBlock {
  type: "text";
  text: string;
  citations?: Citation[];
}

export interface ReasoningBlock {
  type: "reasoning";
  text: string;
}

export interface CallBlock {
  type: "call";
  /** "" while the model writes the call. */
  id: string;
  name: string;
  status: CallStatus;
  /** The arguments the tool runs with: as edited by a person once that was approved. */
  arguments: JsonObject;
  /** The arguments as far as they are written, while `status` is "writing"; later only if they were not valid JSON. */
  argumentsText: string;
  /** The call of a script that made this call, or "". */
  parent: string;
  effect: string;
  attempt: number;
  deadline: string;
  started: string;
  ended: string;
  /** From the start to the result; null before, and for a call that did not run. */
  durationMs: number | null;
  result: ToolResult | null;
  /** How a person decided about the call. */
  decision: (Omit<Partial<ApprovalResolved>, "decision"> & { decision: "approve" | "reject" | "expired" }) | null;
  /** The path of the child agent that the call started. */
  child: string[] | null;
}

/** Something the conversation shows between its messages, such as a compaction or a checkpoint; `kind` is the type of its event. */
export interface NoticeBlock {
  type: "notice";
  kind: string;
  text: string;
  data: Json;
}

export type Block = TextBlock | ReasoningBlock | CallBlock | NoticeBlock | Image | Audio | Document | Stored;

export interface Message {
  /** The id of the message, for a user's message the key of the input. */
  id: string;
  role: "user" | "assistant" | "notice";
  status: "queued" | "streaming" | "complete" | "cut";
  path: string[];
  turn: string;
  step: number;
  ts: string;
  /** The place in the log; 0 and "" while the message is streamed. */
  seq: number;
  cursor: string;
  model: string;
  stop: string;
  source: string;
  blocks: Block[];
}

/** A block while it is streamed. `end` counts code points, as the offsets of deltas do. */
export interface LiveBlock {
  type: "text" | "reasoning" | "call";
  text: string;
  name: string;
  end: number;
}

export interface LiveMessage {
  id: string;
  path: string[];
  turn: string;
  step: number;
  ts: string;
  model: string;
  blocks: { [block: string]: LiveBlock };
  /** True when its agent has begun another message: the process that wrote this one was killed. */
  isOver: boolean;
}

/** The end of what a running tool has printed. */
export interface Output {
  stream: "stdout" | "stderr";
  text: string;
  end: number;
}

export interface Decision {
  id: string;
  kind: "approval" | "question" | "outcome" | "result";
  path: string[];
  turn: string;
  seq: number;
  cursor: string;
  asked: string;
  expires: string;
  agent: string;
  /** The call that waits: whole for an approval, its id alone for a question. */
  call: ToolCall | null;
  callId: string;
  reason: string;
  rule: string;
  message: string;
  effect: string;
  cwd: string;
  folder: string;
  /** The allowed ones of approve, edit and reject; all when empty. */
  decisions: string[];
  /** The rules that an approval for longer than once adds, one per line. */
  grant: string;
  /** How long an approval may count: "once", "session", "project" or "user". */
  scopes: string[];
  /** The text of a question. */
  question: string;
  options: string[];
}

export interface TurnState {
  id: string;
  agent: string;
  inputs: string[];
  status: TurnStatus;
  /** True after a person has asked the turn to stop. */
  stopping: boolean;
  text: string;
  stop: string;
  limit: string;
  note: string;
  error: { code: string; message: string } | null;
  steps: number;
  model: string;
  usage: Totals;
  started: string;
  ended: string;
  durationMs: number | null;
  seq: number;
  /** The place of its start in the log. */
  cursor: string;
  /** The place of its end in the log, "" while it runs: a fork from here has the whole turn. */
  endCursor: string;
  /** The index of its first message in `messages`. */
  first: number;
}

export interface Subagent {
  path: string[];
  agent: string;
  call: string;
  turn: string;
  status: "running" | "completed" | "failed" | "interrupted";
  text: string;
  stop: string;
  reason: string;
  usage: Totals;
  started: string;
  ended: string;
  seq: number;
  cursor: string;
}

export interface ErrorEntry {
  kind: "turn.failed" | "model.failed" | "error";
  code: string;
  message: string;
  turn: string;
  path: string[];
  ts: string;
  seq: number;
  cursor: string;
  /** True when the step was tried again. */
  retried: boolean;
}

export interface Checkpoint {
  label: string;
  seq: number;
  cursor: string;
  ts: string;
}

/** The lists as they were before a rewind, so that a later rewind may go back to what was left. */
export interface Branch {
  /** The seq of the rewind that left the branch. */
  seq: number;
  messages: List<Message>;
  turns: List<TurnState>;
  subagents: List<Subagent>;
}

export interface SessionState {
  session: string;
  /** The last durable event: its cursor, epoch and seq. Follow from here. */
  cursor: string;
  epoch: number;
  seq: number;
  status: SessionStatus;
  closed: boolean;
  agent: string;
  title: string;
  owner: string;
  tags: string[];
  metadata: JsonObject;
  folder: string;
  origin: { session: string; cursor: string } | null;
  /** The conversation in order, those of child agents included; `path` says whose a message is. */
  messages: List<Message>;
  turns: List<TurnState>;
  subagents: List<Subagent>;
  errors: List<ErrorEntry>;
  checkpoints: Checkpoint[];
  /** Inputs that no turn has taken yet, by key. */
  inputs: { [key: string]: Message };
  /** The open approvals and questions, by id, oldest first. */
  decisions: { [id: string]: Decision };
  /** Messages while they are streamed, by id. `liveMessages` returns them as messages. */
  live: { [message: string]: LiveMessage };
  /** What running calls have printed, by call and block. `outputOf` returns it as text. */
  output: { [call: string]: { [block: string]: Output } };
  /** The usage of the whole log, also of what was rewound. */
  usage: Totals;
  models: { [model: string]: Totals };
  /** The tokens of the last prompt of the root agent, and its model. */
  context: { model: string; tokens: number } | null;
  /** For the reducer: where open calls and the messages of open steps are in `messages`. */
  openCalls: { [call: string]: [message: number, block: number] };
  openMessages: { [message: string]: number };
  openAgents: { [path: string]: number };
  ended: string[];
  branches: Branch[];
}

export const NO_USAGE: Totals = { input: 0, output: 0, cache_read: 0, cache_write: 0, reasoning: 0, cost: 0 };

export function initialState(session = ""): SessionState {
  return {
    session, cursor: "", epoch: 0, seq: 0, status: "idle", closed: false, agent: "", title: "", owner: "", tags: [],
    metadata: {}, folder: "", origin: null, messages: emptyList(), turns: emptyList(), subagents: emptyList(),
    errors: emptyList(), checkpoints: [], inputs: {}, decisions: {}, live: {}, output: {}, usage: NO_USAGE, models: {},
    context: null, openCalls: {}, openMessages: {}, openAgents: {}, ended: [], branches: [],
  };
}

export type LiveEventOf = Extract<KnownEvent, { seq?: never }>;
export type DurableEventOf = Exclude<KnownEvent, LiveEventOf>;
/** Where and when an event happened. */
export type Stamp = Pick<DurableEventOf, "ts" | "seq" | "id" | "turn" | "step" | "path">;

export const isOpen = (turn: TurnState): boolean => turn.status === "running" || turn.status === "waiting";

export function newMessage(event: Stamp, id: string, role: Message["role"], blocks: Block[]): Message {
  const { path, turn, step, ts, seq, id: cursor } = event;
  return { id, role, status: "complete", path, turn, step, ts, seq, cursor, model: "", stop: "", source: "", blocks };
}

export function newCall(call: ToolCall): CallBlock {
  return {
    type: "call", id: call.id, name: call.name, status: "pending", arguments: call.arguments ?? {},
    argumentsText: call.raw ?? "", parent: "", effect: "", attempt: 0, deadline: "", started: "", ended: "",
    durationMs: null, result: null, decision: null, child: null,
  };
}

/** Ended messages and calls that are remembered, to ignore late deltas of them. */
const REMEMBERED = 128;

export function rememberEnd(state: SessionState, id: string): void {
  state.ended = [...state.ended.slice(1 - REMEMBERED), id];
}

export function without<T>(record: { [key: string]: T }, key: string): { [key: string]: T } {
  const { [key]: _, ...rest } = record;
  return rest;
}

/** The entry of a key, which may be a name from outside such as "constructor". */
export const own = <T>(record: { [key: string]: T }, key: string): T | undefined =>
  Object.hasOwn(record, key) ? record[key] : undefined;

export function isEmpty(record: object): boolean {
  for (const _ in record) return false;
  return true;
}

export const elapsed = (from: string, to: string): number => Math.max(Date.parse(to) - Date.parse(from), 0) || 0;
