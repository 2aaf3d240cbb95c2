// Made from schema/openapi.json by `python -m scripts.ts_types`.
import type { Audio, CallRef, Document, Image, Json, JsonObject, Reasoning, Stored, Text } from "./event.generated.ts";

/** Messages to add in one transaction. A message with an id that the thread already has is not added. */
export interface AddMessages {
  messages: NewMessage[];
}

/** The id of a message that was added, or was there already. */
export interface AddedMessage {
  id: string;
  added: boolean;
}

/** An agent, as the server would run it now. */
export interface Agent {
  name: string;
  description: string;
  kind: string;
  model: string;
  tools: Tool[];
  source: string;
  error?: string;
}

/** The names of all agents. */
export interface AgentNames {
  data: string[];
}

/** The model calls that did not read what a provider had cached. */
export interface CacheLoss {
  count: number;
  tokens: number;
  cost: number;
}

/** The tool call that a decision is about, or that a message has made. */
export interface Call {
  id: string;
  name: string;
  arguments: JsonObject;
}

/** The result of a call that the client has run. */
export interface CallResult {
  result: Json;
  failed?: boolean;
}

/** The caller of the request. */
export interface Caller {
  id: string;
  namespace: string;
  scopes: string[];
}

/** Why a turn is stopped. */
export interface CancelTurn {
  note?: string;
}

/** A checkpoint. */
export interface Checkpoint {
  label: string;
  cursor: string;
  ts: string;
}

/** One way to decide. */
export interface Choice {
  id: string;
  label: string;
  brief: string;
  scope: "once" | "project" | "session" | "user";
  lasts: string;
}

/** A tool that the client runs; `parameters` is the JSON Schema of its arguments. */
export interface ClientToolSpec {
  name: string;
  description?: string;
  parameters?: JsonObject | null;
}

/** Why a session is closed. */
export interface CloseSession {
  reason?: string;
}

/** How the older messages of a session are summarized. */
export interface CompactSession {
  instructions?: string;
  interrupt?: boolean;
}

/** The result of a compaction. */
export interface Compaction {
  session: string;
  compacted: boolean;
  before: number;
  after: number;
  summary: string;
  cursor: string;
  skipped: string;
}

/** The open streams and sockets of this process. */
export interface Connections {
  open: number;
  max_streams: number;
  draining: boolean;
}

/** The usage of a model or an agent. */
export interface CountedUsage {
  usage: Usage;
  calls: number;
}

/** A new session. */
export interface CreateSession {
  id?: string;
  agent?: string;
  title?: string | null;
  tags?: string[] | null;
  metadata?: JsonObject | null;
  resource_id?: string;
}

/** The input of a turn, and how it is answered. */
export interface CreateTurn {
  input: string | (Text | Image | Audio | Document)[];
  agent?: string;
  if_not_exists?: "create" | "reject";
  model?: string;
  options?: JsonObject;
  on_conflict?: "enqueue" | "interrupt" | "reject" | "rollback" | "steer";
  on_disconnect?: "cancel" | "continue";
  stream?: boolean;
  background?: boolean;
  client_tools?: ClientToolSpec[];
}

/** An approval or a question that a turn waits for, or the result of a client's tool. */
export interface Decision {
  id: string;
  kind: "approval" | "question" | "result";
  session: string;
  agent: string;
  turn: string;
  path: string[];
  cursor: string;
  asked: string;
  expires: string;
  call?: Call;
  reason: string;
  rule: string;
  effect: string;
  suggested_rule?: string;
  decisions: string[];
  scopes: string[];
  question?: string;
  options?: string[];
  text: DecisionText;
}

/** The number of open decisions. */
export interface DecisionCount {
  count: number;
}

/** What a person reads before deciding. */
export interface DecisionText {
  kind: "approval" | "question" | "result";
  title: string;
  question: string;
  call: string;
  reason: string;
  risk: string;
  facts: string[];
  folder: string;
  details: string[];
  choices: Choice[];
}

/** The messages to delete, by their ids. */
export interface DeleteMessages {
  ids: string[];
}

/** How many messages were deleted; `error_message` names those that were not. */
export interface DeletedMessages {
  affected_count: number;
  success: boolean;
  error_message: string | null;
}

/** Why a turn has no answer. */
export interface Error {
  code: string;
  message: string;
  status?: number;
  retry_after?: number;
}

/** A page of a log. `next_cursor` is the `after` of the next page; `head` the last event there is. */
export interface EventPage {
  data: JsonObject[];
  next_cursor: string;
  has_more: boolean;
  head: string;
}

/** A call; `agent` is the agent whose rules hold. */
export interface ExecuteTool {
  agent?: string;
  arguments?: JsonObject;
}

/** The error of a field of a request. */
export interface FieldError {
  field: string;
  message: string;
}

/** The effect of a rewind on the files. */
export interface FileRewind {
  restored: string[];
  removed: string[];
  changed: string[];
  unclear: string[];
  lost: string[];
  unnamed: number;
  ran: number;
  commands: number;
  reasons: string[];
}

/** Where a copy of a session ends; default: at its end. */
export interface ForkSession {
  at?: string;
  turn?: string;
  id?: string;
  title?: string | null;
}

/** A message that was found, best first. */
export interface Hit {
  session: string;
  id: string;
  role: string;
  turn: string;
  cursor: string;
  ts: string;
  path: string[];
  name: string;
  snippet: string;
  matches: number[][];
  score: number;
}

/** A message: of the user, of a model with its tool calls, or the result of one call. */
export interface Message {
  id: string;
  role: "assistant" | "tool" | "user";
  content: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  turn: string;
  cursor: string;
  ts: string;
  path: string[];
  tool_calls?: Call[];
  failed?: boolean;
  metadata?: JsonObject;
}

/** A message to add to a thread. The results of calls directly follow the answer that made the calls. */
export interface NewMessage {
  role: "assistant" | "tool" | "user";
  content?: string | (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  id?: string;
  tool_calls?: ToolCall[];
  tool_call_id?: string;
  failed?: boolean;
  metadata?: JsonObject;
  ts?: string;
}

/** A trace as an export request of the OpenTelemetry protocol, with `format=otlp`. */
export interface OtlpTrace {
  resourceSpans: JsonObject[];
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfAddedMessage {
  data: AddedMessage[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfAgent {
  data: Agent[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfCheckpoint {
  data: Checkpoint[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfDecision {
  data: Decision[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfHit {
  data: Hit[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfMessage {
  data: Message[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfRememberedRule {
  data: RememberedRule[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfSession {
  data: Session[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfSetting {
  data: Setting[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfTool {
  data: Tool[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfTraceSummary {
  data: TraceSummary[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfTurn {
  data: Turn[];
  next_cursor: string | null;
  has_more: boolean;
}

/** A page of a list; `next_cursor` is the `cursor` of the next one. */
export interface PageOfUsageRow {
  data: UsageRow[];
  next_cursor: string | null;
  has_more: boolean;
}

/** Why a request was not answered; `code` is stable and meant for programs. */
export interface ProblemDetails {
  type: string;
  title: string;
  status: number;
  detail: string;
  code: string;
  request_id: string;
  errors: FieldError[];
}

/** How long an approval counts. `rule` may replace the suggested rule. */
export interface RememberDecision {
  scope: "project" | "session" | "user";
  rule?: string;
}

/** Rules, one per line, that allow calls in all sessions of one owner. */
export interface RememberedRule {
  id: string;
  rule: string;
  scope: "project" | "user";
  cwd: string;
  approval: string;
  by: string;
  created: string;
}

/** A decision. */
export interface ResolveApproval {
  decision: "answer" | "approve" | "edit" | "reject";
  edited_args?: JsonObject | null;
  answer?: Json;
  message?: string;
  remember?: RememberDecision | null;
}

/** The event of the decision that counts, the first one. */
export interface ResolvedDecision {
  id: string;
  event: JsonObject;
}

/** How a session returns to a checkpoint, as for a rewind. */
export interface RestoreCheckpoint {
  interrupt?: boolean;
  files?: boolean;
  force?: boolean;
}

/** Where a session continues. */
export interface RewindSession {
  to: string;
  interrupt?: boolean;
  files?: boolean;
  force?: boolean;
}

/** A session after a rewind. */
export interface RewoundSession {
  id: string;
  agent: string;
  title: string;
  status: "closed" | "idle" | "queued" | "running" | "waiting";
  owner: string;
  tags: string[];
  metadata: JsonObject;
  state: string;
  version: number;
  created: string;
  updated: string;
  cursor: string;
  turn: string;
  inputs: number;
  pending: number;
  origin: string;
  folder: string;
  files: FileRewind | null;
}

/** A name for the current position. A name that exists moves here. */
export interface SaveCheckpoint {
  label: string;
}

/** A session, from its row in the index. */
export interface Session {
  id: string;
  agent: string;
  title: string;
  status: "closed" | "idle" | "queued" | "running" | "waiting";
  owner: string;
  tags: string[];
  metadata: JsonObject;
  state: string;
  version: number;
  created: string;
  updated: string;
  cursor: string;
  turn: string;
  inputs: number;
  pending: number;
  origin: string;
  folder: string;
}

/** The next state of a thread. */
export interface SetState {
  state: "active" | "archived" | "ended" | "paused" | "terminated";
  version?: number | null;
}

/** A setting; secrets are redacted. `origin` is the file, variable or flag that sets it. */
export interface Setting {
  key: string;
  value: Json;
  origin: string;
  layer: string;
}

/** A span as JSON; times are milliseconds after the start of the trace, `end_ms` is null while it runs. */
export interface Span {
  id: string;
  parent: string;
  kind: "approval" | "compaction" | "hook" | "model" | "script" | "step" | "subagent" | "tool" | "turn";
  name: string;
  path: string[];
  start_ms: number;
  end_ms: number | null;
  status: "error" | "ok" | "running" | "waiting";
  cursor: string;
  end_cursor: string;
  detail: JsonObject;
  tokens?: TraceTokens;
  cost?: number;
  ttft_ms?: number;
  error?: SpanError;
}

/** Why a span failed. */
export interface SpanError {
  code: string;
  message: string;
}

/** The usage of a session, or of all sessions that the caller sees. */
export interface Stats {
  sessions: number;
  calls: number;
  usage: Usage;
  first_day: string;
  last_day: string;
  by_model: { [key: string]: CountedUsage };
  by_agent: { [key: string]: CountedUsage };
  cache_hit_ratio: number;
  cache_busts: { [key: string]: CacheLoss };
  cache_loss: CacheLoss;
  compactions: number;
}

/** An input that joins the running turn. */
export interface SteerTurn {
  input: string | (Text | Image | Audio | Document)[];
}

/** How much was said in a thread, and for how long. */
export interface ThreadStats {
  message_count: number;
  user_message_count: number;
  assistant_message_count: number;
  tool_message_count: number;
  created_at: string;
  last_message_at: string;
  size_bytes: number;
  duration: number;
  average_response_seconds: number | null;
  topic: string;
  open_action_items: number;
  completed_action_items: number;
}

/** A ticket. It works once, from the origin of the page that asked for it. */
export interface Ticket {
  ticket: string;
  expires_in: number;
}

/** A tool as models see it. */
export interface Tool {
  name: string;
  description: string;
  parameters: JsonObject;
  effect: string;
  source: string;
  agents: string[];
}

/** The outcome of a tool call. While it waits for a person, `decision` is the open decision. */
export interface ToolCall {
  session: string;
  turn: string;
  call: string;
  status: "completed" | "denied" | "failed" | "waiting";
  content: (Text | Image | Audio | Document | Stored | Reasoning | CallRef)[];
  value: Json;
  failed: boolean;
  reason: string;
  decision?: Decision;
}

/** A trace with its spans, each after its parent. */
export interface Trace {
  id: string;
  session: string;
  agent: string;
  status: "error" | "ok" | "running" | "waiting";
  started: string;
  duration_ms: number;
  tokens: TraceTokens;
  cost: number;
  ttft_ms: number | null;
  error?: SpanError;
  spans: Span[];
}

/** A trace with the number of its spans. */
export interface TraceSummary {
  id: string;
  session: string;
  agent: string;
  status: "error" | "ok" | "running" | "waiting";
  started: string;
  duration_ms: number;
  tokens: TraceTokens;
  cost: number;
  ttft_ms: number | null;
  error?: SpanError;
  spans: number;
}

/** Tokens of model calls. `input` includes cached tokens, `output` tokens of reasoning. */
export interface TraceTokens {
  input: number;
  output: number;
  cached: number;
  reasoning: number;
  total: number;
}

/** A turn, or an input that waits for one. */
export interface Turn {
  id: string;
  key: string;
  session: string;
  status: "cancelled" | "completed" | "failed" | "interrupted" | "queued" | "running" | "waiting";
  stop: string;
  limit: string;
  text: string;
  output?: Json;
  usage: Usage;
  steps: number;
  tool_calls: string[];
  denied: string[];
  error?: Error;
  started: string;
  ended: string;
  cursor: string;
  decisions: Decision[];
}

/** Changes to a session. A key of `metadata` with the value null is removed. */
export interface UpdateSession {
  title?: string | null;
  tags?: string[] | null;
  metadata?: JsonObject | null;
  version?: number | null;
}

/** Tokens and cost of model calls; `total` is input and output together. */
export interface Usage {
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  reasoning: number;
  total: number;
  cost: number;
}

/** The usage of one model on one day (UTC). */
export interface UsageRow {
  day: string;
  model: string;
  calls: number;
  input: number;
  output: number;
  cache_read: number;
  cache_write: number;
  reasoning: number;
  total: number;
  cost: number;
}
