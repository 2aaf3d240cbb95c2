/** The JSON of the native API under /api/v1 that the pages read. */
export interface Page<T> {
  data: T[];
  next_cursor: string | null;
  has_more: boolean;
}

export interface Session {
  id: string;
  agent: string;
  title: string;
  status: string;
  owner: string;
  tags: string[];
  metadata: Record<string, unknown>;
  created: string;
  updated: string;
  cursor: string;
  turn: string;
  inputs?: number;
  pending: number;
  origin: string;
  folder: string;
}

export interface Usage {
  input?: number;
  output?: number;
  cache_read?: number;
  cache_write?: number;
  reasoning?: number;
  cost?: number;
}

export interface Turn {
  id: string;
  key: string;
  session: string;
  status: string;
  stop: string;
  text: string;
  usage: Usage;
  steps: number;
  tool_calls: number;
  error?: { code: string; message: string } | null;
  started: string;
  ended: string;
  cursor: string;
}

export interface Call {
  id: string;
  name: string;
  arguments: Record<string, unknown>;
}

export interface ToolInfo {
  name: string;
  description: string;
  parameters: object;
  effect: string;
  source: string;
}

export interface Agent {
  name: string;
  description: string;
  kind: string;
  model: string;
  tools: ToolInfo[];
  source: string;
}

export interface Tokens {
  input?: number;
  output?: number;
  cached?: number;
  reasoning?: number;
  total?: number;
}

export interface Span {
  id: string;
  parent: string | null;
  kind: string;
  name: string;
  path: string[] | string;
  start_ms: number;
  end_ms: number | null;
  status: string;
  tokens?: Tokens | null;
  cost?: number | null;
  ttft_ms?: number | null;
  cursor: string;
  end_cursor: string;
  error?: string | { code?: string; message?: string } | null;
  detail: Record<string, unknown>;
}

export interface TraceSummary {
  id: string;
  session: string;
  agent: string;
  status: string;
  started: string;
  duration_ms: number;
  tokens: Tokens;
  cost: number;
  ttft_ms: number | null;
  spans: number;
  error?: string | { code?: string; message?: string } | null;
}

export interface Trace extends Omit<TraceSummary, "spans"> {
  spans: Span[];
}

export interface Checkpoint {
  label: string;
  cursor: string;
  ts: string;
}

export interface Rule {
  id: string;
  rule: string;
  scope: "project" | "user";
  cwd: string;
  by: string;
  created: string;
}

export interface Setting {
  key: string;
  value: unknown;
  origin: string;
  layer: string;
}

export interface Me {
  id: string;
  namespace: string;
  /** Every scope that the caller has, those that another one includes as well. */
  scopes: string[];
}

/** A stored event as it is on the wire. */
export interface Envelope {
  v?: number;
  seq?: number;
  id?: string;
  ts: string;
  session: string;
  turn?: string;
  step?: string;
  path?: string[] | string;
  channel?: string;
  type: string;
  data: Record<string, unknown>;
}
