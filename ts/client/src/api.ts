// The JSON of the native API, under /api/v1: what the server sends and reads, with the names that the client exports.
import type {
  Checkpoint, ClientToolSpec, CreateSession, CreateTurn, Decision, EventPage as RawEventPage, ForkSession, Message,
  ResolveApproval, ResolvedDecision, ToolCall, UpdateSession,
} from "./api.generated.ts";
import type { AgentEvent } from "./event.generated.ts";

export type {
  Agent, Caller, Compaction, ProblemDetails, Session, Span, Stats, Tool, Trace, TraceSummary, TraceTokens, Turn, UsageRow,
} from "./api.generated.ts";

export type NewSession = CreateSession;
export type SessionChange = UpdateSession;
export type ForkOptions = ForkSession;
export type Input = CreateTurn["input"];
export type ConflictPolicy = NonNullable<CreateTurn["on_conflict"]>;
export type ClientTool = ClientToolSpec;
export type StoredMessage = Message;
export type SavedCheckpoint = Checkpoint;
/** An open approval or question as the server lists it; the state of a session has its own in `decisions`. */
export type PendingDecision = Decision;
export type Resolution = ResolveApproval;
export type Remember = NonNullable<ResolveApproval["remember"]>;
export type ToolRun = ToolCall;

export interface Resolved extends Omit<ResolvedDecision, "event"> {
  event: AgentEvent;
}

export interface Page<T> {
  data: T[];
  next_cursor: string | null;
  has_more: boolean;
}

export interface EventPage extends Omit<RawEventPage, "data"> {
  data: AgentEvent[];
}

export interface PageQuery {
  limit?: number;
  cursor?: string;
}

export interface SessionQuery extends PageQuery {
  agent?: string;
  status?: string;
  tag?: string;
  owner?: string;
  q?: string;
  origin?: string;
}

export interface ApprovalQuery extends PageQuery {
  session?: string;
  agent?: string;
  tool?: string;
  /** "result": calls that wait for the client that offers the tool; by default only what a person decides. */
  kind?: "approval" | "question" | "result";
}

/** A change of the open approvals. */
export interface ApprovalsChanged {
  count: number;
  ids: string[];
}

export interface EventQuery {
  /** Events after this cursor; "now" for new ones alone. */
  after?: string | undefined;
  channels?: readonly string[];
  types?: readonly string[];
  path?: string;
  depth?: number;
}
