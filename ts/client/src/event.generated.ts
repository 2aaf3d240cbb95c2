// Made from schema/events.schema.json by `python -m scripts.ts_types`.
// A field with a default is optional: the server leaves a default out.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonObject = { [key: string]: Json };

export type Channel = "progress" | "control" | "monitor";

interface Envelope<Type extends string, Of extends Channel, Data> {
  v: number;
  /** UTC, for people; the order is that of `seq`. */
  ts: string;
  session: string;
  turn: string;
  step: number;
  /** Which agent: empty for the root. */
  path: string[];
  channel: Of;
  type: Type;
  data: Data;
}

/** An event of the log. `id` is its cursor, `<epoch>.<seq>`. */
export interface DurableEvent<Type extends string, Of extends Channel, Data> extends Envelope<Type, Of, Data> {
  seq: number;
  id: string;
  /** SHA-256 of the stored bytes of the event before. */
  prev: string;
}

/** An event that is sent and not stored. */
export interface LiveEvent<Type extends string, Of extends Channel, Data> extends Envelope<Type, Of, Data> {
  seq?: never;
  id?: never;
  prev?: never;
}

/** An event of a type that this version does not know, or a frame that is not an event; `raw` is what came. */
export interface UnknownEvent extends Partial<Omit<Envelope<"unknown", Channel, unknown>, "type">> {
  type: "unknown";
  raw: unknown;
  seq?: number;
  id?: string;
  prev?: string;
}

/** A middleware did not let the agent end; the model reads `text` and goes on. */
export interface AgentContinued {
  number: number;
  text: string;
  by?: string;
}

/** No decision came in time; the call is denied. */
export interface ApprovalExpired {
  approval: string;
}

/** A call waits for a person. The answer counts for exactly this call, tool, rule and time. */
export interface ApprovalRequested {
  approval: string;
  call: ToolCall;
  digest: string;
  spec: string;
  reason?: string;
  rule?: string;
  layer?: string;
  message?: string;
  expires?: string;
  decisions?: string[];
  grant?: string;
  scopes?: string[];
  asks?: string[];
  agent?: string;
  effect?: string;
  cwd?: string;
  folder?: string;
  lasts?: number | null;
}

/** A person has decided. `edit` replaces the arguments; what `rule` says is allowed for as long as `scope`. */
export interface ApprovalResolved {
  approval: string;
  decision: "approve" | "reject";
  message?: string;
  edit?: JsonObject | null;
  scope?: "once" | "project" | "session" | "user";
  by?: string;
  rule?: string;
  source?: string;
  until?: string;
}

/** Sound. */
export interface Audio {
  type: "audio";
  media_type?: string;
  data?: string;
  url?: string;
  blob?: string | null;
}

/** A budget is nearly used up. */
export interface BudgetWarning {
  budget: string;
  used: number;
  limit: number;
}

/** A provider had cached the beginning of a conversation, and a model call did not read it from the cache. */
export interface CacheBusted {
  part: string;
  tokens?: number;
  cause?: "" | "compaction" | "expired" | "messages" | "model" | "system" | "tools";
  added?: string[];
  removed?: string[];
  changed?: string[];
  cost?: number;
  idle?: number;
  agent?: string;
  model?: string;
}

/** The place of a tool call between the other parts of an answer; the call itself is in `tool.called`. */
export interface CallRef {
  type: "call";
  id: string;
}

/** This place has a name to come back to. */
export interface CheckpointSaved {
  label: string;
  number?: number | null;
  told?: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
}

/** Where words come from. */
export interface Citation {
  url?: string;
  title?: string;
  text?: string;
  opaque?: Json;
}

/** From here on the model sees `opening`, `summary` and `inputs` in place of what came before `keep_from`. */
export interface ContextCompacted {
  summary: string;
  keep_from: number;
  before?: number;
  after?: number;
  trigger?: "auto" | "manual";
  instructions?: string;
  model?: string;
  opening?: ((Text | Image | Audio | Document | Stored | Reasoning | CallRef)[])[];
  inputs?: ((Text | Image | Audio | Document | Stored | Reasoning | CallRef)[])[];
  calls?: ShortenedCall[];
  media_from?: number;
  failure?: string;
  messages?: number;
  kept_messages?: number;
}

/** An event that an application defines; its type on the wire is `custom.<name>`. */
export interface Custom {
  name: string;
  value?: Json;
}

/** A file, such as a PDF. */
export interface Document {
  type: "document";
  media_type?: string;
  data?: string;
  url?: string;
  blob?: string | null;
  name?: string;
}

/** Something went wrong that did not end the turn. */
export interface ErrorReported {
  code: string;
  message: string;
  phase?: "lifecycle" | "model" | "system" | "tool";
}

/** What a person has allowed for the rest of a session. */
export interface Grant {
  rule: string;
  answers?: string[];
  tool?: string;
  spec?: string;
  until?: string;
}

/** Another agent takes the conversation over. */
export interface Handoff {
  source: string;
  target: string;
  reason?: string;
}

/** A shell hook has run. */
export interface HookRan {
  event: string;
  command: string;
  status: number;
  duration_ms?: number;
  output?: string;
}

/** A picture. */
export interface Image {
  type: "image";
  media_type?: string;
  data?: string;
  url?: string;
  blob?: string | null;
}

/** Someone said something to the session. `key` is unique in it: the same key again is the same input. */
export interface InputAdded {
  key: string;
  content: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  policy?: "interrupt" | "queue" | "steer";
  source?: string;
  model?: string;
  options?: JsonObject;
  metadata?: JsonObject;
}

/** An input that no turn had taken was taken back. It is not part of the conversation. */
export interface InputWithdrawn {
  input: string;
  by?: string;
}

/** Someone wants the running turn to stop. */
export interface InterruptRequested {
  key: string;
  note?: string;
  by?: string;
}

/** A line for the operator. */
export interface Logged {
  level: "debug" | "error" | "info" | "warning";
  message: string;
  detail?: Json;
}

/** An MCP server came, went, or changed its tools. */
export interface McpChanged {
  server: string;
  change: string;
  detail?: Json;
}

/** A model's answer, whole; `cut` when it ended early, which keeps its text and drops its calls. */
export interface MessageCompleted {
  message_id: string;
  content: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  model?: string;
  stop?: string;
  cut?: boolean;
  system?: string | null;
  tools?: string | null;
  metadata?: JsonObject;
}

/** What was shown of this message does not count: the model is asked again. */
export interface MessageDiscarded {
  message_id: string;
  reason?: string;
}

/** Everything an open block holds so far; `of` is the type of the deltas that go on from here. */
export interface MessageSnapshot {
  message_id: string;
  block: number;
  of: string;
  text: string;
  name?: string;
  offset?: number;
  stream?: "stderr" | "stdout";
}

/** A model begins to answer. */
export interface MessageStarted {
  message_id: string;
  model?: string;
}

/** One try at a model call failed; `retried` when the same step tries again. */
export interface ModelFailed {
  model: string;
  code: string;
  message: string;
  agent?: string;
  message_id?: string | null;
  retried?: boolean;
  call?: string | null;
  number?: number;
}

/** Which model answers, and why. */
export interface ModelSelected {
  model: string;
  tier?: string;
  reason?: string;
}

/** A turn that goes back in its own conversation and goes on: what it has done and used still counts. */
export interface Onward {
  turn: string;
  step: number;
  rewinds: number;
  usage?: Usage;
  spent?: Usage;
  total?: Usage;
  models?: { [key: string]: number };
  tools?: { [key: string]: number };
  grants?: Grant[];
  children?: number;
}

/** An answer did not fit the output type of its agent; the model reads `feedback` and answers again. */
export interface OutputRejected {
  number: number;
  feedback: string;
}

/** A person or the client has answered; `None` when there was no answer in time. */
export interface QuestionAnswered {
  question: string;
  answer?: Json;
  by?: string;
}

/** The session wants to know something from a person, or the result of a call from the client. */
export interface QuestionAsked {
  question: string;
  text: string;
  options?: string[];
  call?: string | null;
  expires?: string;
  kind?: "outcome" | "question" | "result";
}

/** What a model thought aloud. */
export interface Reasoning {
  type: "reasoning";
  text?: string;
  signature?: string;
  opaque?: Json;
  blob?: string | null;
}

/** A piece of reasoning as it arrives. */
export interface ReasoningDelta {
  message_id: string;
  block: number;
  offset: number;
  text: string;
}

/** How a session was last run from the command line; `vaka run` applies it again unless flags replace it. */
export interface RunSettings {
  agent?: string;
  model?: string;
  tools?: string[];
  digests?: { [key: string]: string };
  flags?: JsonObject;
}

/** A script was told something: the answer to request `number`, in the order it was told. */
export interface ScriptAnswered {
  number: number;
  name: string;
  digest: string;
  answer?: Json;
  error?: string;
  call?: string | null;
  blob?: string | null;
  at?: number;
}

/** A script asks for something whose beginning must be known: a tool's call, or a model's answer. */
export interface ScriptCalled {
  number: number;
  name: string;
  digest: string;
  call?: string | null;
  model?: number;
}

/** Nothing more is expected here. */
export interface SessionClosed {
  reason?: string;
}

/** The data of the events before this one were erased; their hashes stay. Nothing is appended after it. */
export interface SessionErased {
  events: number;
  blobs?: number;
  by?: string;
}

/** This log began as a copy of another one, up to `cursor`. */
export interface SessionForked {
  origin: string;
  cursor: string;
}

/** The first event of a log. */
export interface SessionOpened {
  agent?: string;
  metadata?: JsonObject;
  workspace?: SessionWorkspace | null;
  run?: RunSettings | null;
  title?: string;
  owner?: string;
  tags?: string[];
}

/** The conversation goes on from `to`; what came after it stays in the log but not in the conversation. */
export interface SessionReverted {
  to: number;
  calls?: number;
  reason?: string;
  onward?: Onward | null;
  grants?: Grant[] | null;
}

/** The session belongs to another folder, is run in another way, or is described anew; `None` changes nothing. */
export interface SessionUpdated {
  workspace?: SessionWorkspace | null;
  run?: RunSettings | null;
  title?: string | null;
  owner?: string | null;
  tags?: string[] | null;
  metadata?: JsonObject | null;
  state?: string | null;
  by?: string;
}

/** The folder a session belongs to. Its tools work there, whatever folder a later process is started in. */
export interface SessionWorkspace {
  root: string;
  directories?: string[];
  device?: number;
  inode?: number;
  host?: string;
}

/** A call and its result as the model sees them after a compaction; the events of the call have all of it. */
export interface ShortenedCall {
  call: string;
  arguments?: JsonObject | null;
  blobs?: string[];
  content?: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[] | null;
}

/** A value the session keeps has changed. */
export interface StateChanged {
  key: string;
  value?: Json;
}

/** The model's answer is in the log, and every call it made has its result. */
export interface StepCompleted {
  number: number;
}

/** A model call begins. The digests name what the model saw; the texts are blobs. */
export interface StepStarted {
  agent: string;
  number: number;
  model?: string;
  system?: string | null;
  tools?: string | null;
  inputs?: string[];
}

/** A text too large for an event: its bytes are the blob `blob`, `preview` is how it begins. */
export interface Stored {
  type: "stored";
  blob: string;
  size: number;
  preview?: string;
  media_type?: string;
  cut?: boolean;
}

/** Nothing more comes on this stream: it was read to its end, and a stream without this event was cut off. */
export interface StreamEnd {
  reason?: string;
}

/** The cursor was not one of this log: everything follows from the start. */
export interface StreamReset {
  reason?: string;
}

/** A child agent has ended. */
export interface SubagentCompleted {
  call: string;
  agent: string;
  child: string;
  text?: string;
  failed?: boolean;
  stop?: string;
  value?: Json;
  blob?: string | null;
  reason?: "" | "cancelled" | "denied" | "error" | "expired" | "interrupted" | "invalid_arguments" | "limit" | "middleware" | "outcome_unknown" | "repeated" | "sealed" | "timeout" | "unknown_tool";
  kept?: boolean;
}

/** A child agent begins; its events carry `child` as the last part of their path. */
export interface SubagentStarted {
  call: string;
  agent: string;
  child: string;
  content?: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  session?: string | null;
  after?: string;
}

/** Words. */
export interface Text {
  type: "text";
  text: string;
  citations?: Citation[];
}

/** A piece of text as it arrives; the whole text follows in `message.completed`. */
export interface TextDelta {
  message_id: string;
  block: number;
  offset: number;
  text: string;
}

/** A piece of a call's arguments as the model writes them. */
export interface ToolArgsDelta {
  message_id: string;
  block: number;
  offset: number;
  text: string;
  name?: string;
}

/** A model's wish to run a tool. `id` is ours and unique in the session; `provider_id` is the model's. */
export interface ToolCall {
  id: string;
  name: string;
  arguments?: JsonObject;
  raw?: string;
  repaired?: string;
  provider_id?: string;
  truncated?: boolean;
}

/** A model asked for a tool. */
export interface ToolCalled {
  call: ToolCall;
  message_id: string;
}

/** A tool call has its one result. */
export interface ToolCompleted {
  result: ToolResult;
}

/** A tool call has its one result: it failed, was refused, ran out of time, or was sealed. */
export interface ToolFailed {
  result: ToolResult;
}

/** A piece of what a running tool prints. `message_id` is the call's id; every stream is a block of its own. */
export interface ToolOutputDelta {
  message_id: string;
  block: number;
  offset: number;
  text: string;
  stream?: "stderr" | "stdout";
}

/** What a call came to: the one answer the model gets to it. */
export interface ToolResult {
  call: string;
  content?: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  failed?: boolean;
  reason?: "" | "cancelled" | "denied" | "error" | "expired" | "interrupted" | "invalid_arguments" | "limit" | "middleware" | "outcome_unknown" | "repeated" | "sealed" | "timeout" | "unknown_tool";
  value?: Json;
  value_in_content?: boolean;
}

/** What a tool gave back, before anything looked at it. */
export interface ToolReturned {
  result: ToolResult;
}

/** A tool is about to run with exactly these arguments. */
export interface ToolStarted {
  call: ToolCall;
  key: string;
  effect: "idempotent" | "once" | "read" | "resume";
  deadline?: string;
  attempt?: number;
}

/** The caller withdrew. */
export interface TurnCancelled {
  note?: string;
  text?: string;
  usage?: Usage;
}

/** The turn has its answer; with `stop: "limit"` it is the part that was ready when `limit` was reached. */
export interface TurnCompleted {
  text: string;
  stop?: "end" | "limit";
  limit?: string;
  usage?: Usage;
}

/** The turn ended in an error. `withdrawn`: its inputs were refused and are not part of the conversation. */
export interface TurnFailed {
  code: string;
  message: string;
  text?: string;
  withdrawn?: boolean;
  usage?: Usage;
  status?: number;
  retry_after?: number;
}

/** A person stopped the turn. `code` is `rejected` when they did so by refusing a call without a word. */
export interface TurnInterrupted {
  note?: string;
  text?: string;
  usage?: Usage;
  code?: string;
}

/** An input waits for the turn before it to end. */
export interface TurnQueued {
  input: string;
}

/** An unfinished turn goes on, in a new process or after a decision. */
export interface TurnResumed {
  agent: string;
}

/** A turn answers the inputs named here, in order. */
export interface TurnStarted {
  agent: string;
  inputs: string[];
  content?: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[] | null;
}

/** What one or several model calls cost. Adding two gives their sum. */
export interface Usage {
  input?: number;
  output?: number;
  cache_read?: number;
  cache_write?: number;
  reasoning?: number;
  cost?: number;
}

/** What one model call cost. */
export interface UsageRecorded {
  model: string;
  usage: Usage;
  agent?: string;
  call?: string | null;
  number?: number;
  first_ms?: number;
}

/** Every event by its type; the type of a custom event is `custom.<name>`. */
export interface EventTypes {
  "turn.queued": DurableEvent<"turn.queued", "progress", TurnQueued>;
  "turn.started": DurableEvent<"turn.started", "progress", TurnStarted>;
  "turn.resumed": DurableEvent<"turn.resumed", "progress", TurnResumed>;
  "turn.completed": DurableEvent<"turn.completed", "progress", TurnCompleted>;
  "turn.failed": DurableEvent<"turn.failed", "progress", TurnFailed>;
  "turn.cancelled": DurableEvent<"turn.cancelled", "progress", TurnCancelled>;
  "turn.interrupted": DurableEvent<"turn.interrupted", "progress", TurnInterrupted>;
  "step.started": DurableEvent<"step.started", "progress", StepStarted>;
  "step.completed": DurableEvent<"step.completed", "progress", StepCompleted>;
  "message.started": LiveEvent<"message.started", "progress", MessageStarted>;
  "text.delta": LiveEvent<"text.delta", "progress", TextDelta>;
  "reasoning.delta": LiveEvent<"reasoning.delta", "progress", ReasoningDelta>;
  "tool.args.delta": LiveEvent<"tool.args.delta", "progress", ToolArgsDelta>;
  "tool.output.delta": LiveEvent<"tool.output.delta", "progress", ToolOutputDelta>;
  "message.snapshot": LiveEvent<"message.snapshot", "progress", MessageSnapshot>;
  "message.completed": DurableEvent<"message.completed", "progress", MessageCompleted>;
  "message.discarded": DurableEvent<"message.discarded", "progress", MessageDiscarded>;
  "output.rejected": DurableEvent<"output.rejected", "progress", OutputRejected>;
  "agent.continued": DurableEvent<"agent.continued", "progress", AgentContinued>;
  "tool.called": DurableEvent<"tool.called", "progress", ToolCalled>;
  "tool.started": DurableEvent<"tool.started", "progress", ToolStarted>;
  "tool.returned": DurableEvent<"tool.returned", "progress", ToolReturned>;
  "tool.completed": DurableEvent<"tool.completed", "progress", ToolCompleted>;
  "tool.failed": DurableEvent<"tool.failed", "progress", ToolFailed>;
  "subagent.started": DurableEvent<"subagent.started", "progress", SubagentStarted>;
  "subagent.completed": DurableEvent<"subagent.completed", "progress", SubagentCompleted>;
  "input.added": DurableEvent<"input.added", "control", InputAdded>;
  "input.withdrawn": DurableEvent<"input.withdrawn", "control", InputWithdrawn>;
  "interrupt.requested": DurableEvent<"interrupt.requested", "control", InterruptRequested>;
  "approval.requested": DurableEvent<"approval.requested", "control", ApprovalRequested>;
  "approval.resolved": DurableEvent<"approval.resolved", "control", ApprovalResolved>;
  "approval.expired": DurableEvent<"approval.expired", "control", ApprovalExpired>;
  "question.asked": DurableEvent<"question.asked", "control", QuestionAsked>;
  "question.answered": DurableEvent<"question.answered", "control", QuestionAnswered>;
  "session.opened": DurableEvent<"session.opened", "control", SessionOpened>;
  "session.updated": DurableEvent<"session.updated", "control", SessionUpdated>;
  "session.forked": DurableEvent<"session.forked", "control", SessionForked>;
  "session.reverted": DurableEvent<"session.reverted", "control", SessionReverted>;
  "session.closed": DurableEvent<"session.closed", "control", SessionClosed>;
  "session.erased": DurableEvent<"session.erased", "control", SessionErased>;
  "handoff": DurableEvent<"handoff", "control", Handoff>;
  "state.changed": DurableEvent<"state.changed", "control", StateChanged>;
  "stream.reset": LiveEvent<"stream.reset", "control", StreamReset>;
  "stream.end": LiveEvent<"stream.end", "control", StreamEnd>;
  "context.compacted": DurableEvent<"context.compacted", "control", ContextCompacted>;
  "checkpoint.saved": DurableEvent<"checkpoint.saved", "control", CheckpointSaved>;
  "custom": DurableEvent<`custom.${string}`, "monitor", Custom>;
  "usage": DurableEvent<"usage", "monitor", UsageRecorded>;
  "model.selected": DurableEvent<"model.selected", "monitor", ModelSelected>;
  "model.failed": DurableEvent<"model.failed", "monitor", ModelFailed>;
  "hook.ran": DurableEvent<"hook.ran", "monitor", HookRan>;
  "budget.warning": DurableEvent<"budget.warning", "monitor", BudgetWarning>;
  "cache.busted": DurableEvent<"cache.busted", "monitor", CacheBusted>;
  "mcp.changed": DurableEvent<"mcp.changed", "monitor", McpChanged>;
  "log": DurableEvent<"log", "monitor", Logged>;
  "error": DurableEvent<"error", "monitor", ErrorReported>;
  "script.called": DurableEvent<"script.called", "monitor", ScriptCalled>;
  "script.answered": DurableEvent<"script.answered", "monitor", ScriptAnswered>;
}

export type KnownEvent = EventTypes[keyof EventTypes];
/** What a stream yields. */
export type AgentEvent = KnownEvent | UnknownEvent;
export type EventOf<Type extends keyof EventTypes> = EventTypes[Type];

export const EVENT_TYPES: ReadonlySet<string> = new Set([
  "turn.queued",
  "turn.started",
  "turn.resumed",
  "turn.completed",
  "turn.failed",
  "turn.cancelled",
  "turn.interrupted",
  "step.started",
  "step.completed",
  "message.started",
  "text.delta",
  "reasoning.delta",
  "tool.args.delta",
  "tool.output.delta",
  "message.snapshot",
  "message.completed",
  "message.discarded",
  "output.rejected",
  "agent.continued",
  "tool.called",
  "tool.started",
  "tool.returned",
  "tool.completed",
  "tool.failed",
  "subagent.started",
  "subagent.completed",
  "input.added",
  "input.withdrawn",
  "interrupt.requested",
  "approval.requested",
  "approval.resolved",
  "approval.expired",
  "question.asked",
  "question.answered",
  "session.opened",
  "session.updated",
  "session.forked",
  "session.reverted",
  "session.closed",
  "session.erased",
  "handoff",
  "state.changed",
  "stream.reset",
  "stream.end",
  "context.compacted",
  "checkpoint.saved",
  "usage",
  "model.selected",
  "model.failed",
  "hook.ran",
  "budget.warning",
  "cache.busted",
  "mcp.changed",
  "log",
  "error",
  "script.called",
  "script.answered",
]);
