// The JSON of the native API, under /api/v1.
import type { AgentEvent, Image, Audio, Document, Text, Json, JsonObject, Usage } from "./event.generated.ts";

export interface Page<T> {
  data: T[];
  next_cursor: string | null;
  has_more: boolean;
}

export interface PageQuery {
  limit?: number;
  cursor?: string;
}

export interface Session {
  id: string;
  agent: string;
  title: string;
  status: "idle" | "queued" | "running" | "waiting" | "closed";
  owner: string;
  tags: string[];
  metadata: JsonObject;
  created: string;
  updated: string;
  /** The last event of the log. */
  cursor: string;
  /** The turn that has not ended, or "". */
  turn: string;
  inputs: number;
  pending: number;
  origin: string;
  folder: string;
}

export interface NewSession {
  id?: string;
  agent?: string;
  title?: string;
  tags?: string[];
  metadata?: JsonObject;
}

export interface SessionQuery extends PageQuery {
  agent?: string;
  status?: string;
  tag?: string;
  owner?: string;
  q?: string;
  origin?: string;
}

export type InputPart = Text | Image | Audio | Document;
export type Input = string | InputPart[];

export interface Turn {
  /** "" while the input is queued. */
  id: string;
  /** The key of the input. */
  key: string;
  session: string;
  status: "queued" | "running" | "waiting" | "completed" | "failed" | "cancelled" | "interrupted";
  /** Why it ended: "end", "limit", "failed", "cancelled" or "interrupted". */
  stop: string;
  limit: string;
  text: string;
  output?: Json;
  usage: Required<Usage> & { total: number };
  steps: number;
  /** The names of the tools that were called, and of those that were denied. */
  tool_calls: string[];
  denied: string[];
  error?: { code: string; message: string };
  started: string;
  ended: string;
  cursor: string;
  decisions: PendingDecision[];
}

export interface StoredMessage {
  id: string;
  role: "user" | "assistant" | "tool";
  content: JsonObject[];
  turn: string;
  cursor: string;
  ts: string;
  path: string[];
}

export interface PendingDecision {
  id: string;
  kind: "approval" | "question" | "result";
  session: string;
  agent: string;
  turn: string;
  path: string[];
  cursor: string;
  asked: string;
  expires: string;
  call?: { id: string; name: string; arguments: JsonObject };
  reason: string;
  rule: string;
  effect: string;
  /** The rule that `remember` adds unless it names another. */
  suggested_rule?: string;
  /** The possible values of `decision`. */
  decisions: string[];
  /** The scopes that `remember` may have; none: the approval counts for this call alone. */
  scopes: string[];
  question?: string;
  options?: string[];
}

export interface Resolution {
  decision: "approve" | "edit" | "reject" | "answer";
  edited_args?: JsonObject;
  answer?: Json;
  message?: string;
  remember?: { scope: "session" | "project" | "user"; rule?: string };
}

export interface Resolved {
  id: string;
  event: AgentEvent;
}

export interface ApprovalQuery extends PageQuery {
  session?: string;
  agent?: string;
  tool?: string;
}

/** A change of the open approvals. */
export interface ApprovalsChanged {
  count: number;
  ids: string[];
}

export interface Tool {
  name: string;
  description: string;
  parameters: JsonObject;
  effect: string;
  source: string;
}

export interface ToolRun {
  session: string;
  call: string;
  status: string;
  content: JsonObject[];
  value: Json;
  failed: boolean;
  decision?: PendingDecision;
}

export interface Agent {
  name: string;
  description: string;
  kind: string;
  model: string;
  tools: Tool[];
  source: string;
}

export interface TraceSummary {
  /** The id of the turn. */
  id: string;
  session: string;
  agent: string;
  status: string;
  started: string;
  duration_ms: number;
  tokens: { input: number; output: number; cached: number; reasoning: number; total: number };
  cost: number;
  ttft_ms: number | null;
  error?: { code: string; message: string };
}

export interface Span {
  id: string;
  parent: string | null;
  kind: "turn" | "step" | "model" | "tool" | "subagent" | "script" | "approval" | "hook";
  name: string;
  path: string[];
  /** Relative to the start of the trace. */
  start_ms: number;
  end_ms: number | null;
  status: "ok" | "error" | "running" | "waiting";
  tokens?: TraceSummary["tokens"];
  cost?: number;
  ttft_ms?: number | null;
  cursor: string;
  end_cursor: string;
  error?: { code: string; message: string };
  detail: JsonObject;
}

export interface TraceEntry extends TraceSummary {
  /** The number of spans. */
  spans: number;
}

export interface Trace extends TraceSummary {
  spans: Span[];
}

export interface SavedCheckpoint {
  label: string;
  cursor: string;
  ts: string;
}

export interface EventQuery {
  /** Events after this cursor; "now" for new ones alone. */
  after?: string | undefined;
  channels?: readonly string[];
  types?: readonly string[];
  path?: string;
  depth?: number;
}

export interface EventPage extends Page<AgentEvent> {
  head: string;
}
