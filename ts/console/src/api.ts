import { AgentError } from "@vaka/client/errors.ts";
import { Http, pathOf, type RequestOptions } from "@vaka/client/http.ts";
import { signal } from "@preact/signals";
import type { Decision } from "@vaka/client/api.generated.ts";
import type { Agent, Checkpoint, Envelope, Me, Page, Rule, Session, Setting, ToolInfo, Trace, TraceSummary, Turn } from "./types.ts";

const KEY = "vaka.key";

/** False after the server has refused the credentials; null until it was asked. */
export const signedIn = signal<boolean | null>(null);
export const me = signal<Me | null>(null);
/** Why the server has refused the last key or login; "" when none was refused. */
export const refusal = signal("");

/** The console's requests: with its cookie, or with a key that this tab keeps. */
export const http = new Http({
  baseUrl: "",
  headers: { "x-vaka-console": "1" },
  getToken: () => sessionStorage.getItem(KEY) ?? "",
});

async function send<T>(method: string, path: string, options: RequestOptions = {}): Promise<T> {
  try {
    return await http.json<T>(method, path, options);
  } catch (error) {
    if (error instanceof AgentError && error.status === 401) {
      if (signedIn.value) refusal.value = error.message;
      signedIn.value = false;
    }
    throw error;
  }
}

const get = <T>(path: string, query: Record<string, string> = {}): Promise<T> => send<T>("GET", path, { query });
const post = <T>(path: string, body: unknown = {}, headers: Record<string, string> = {}): Promise<T> => send<T>("POST", path, { body, headers });

/** Ask the server who this is, with a key or with what the browser has. Afterwards `refusal` says why the answer was no. */
export async function signIn(key?: string): Promise<void> {
  if (key !== undefined) sessionStorage.setItem(KEY, key);
  refusal.value = "";
  try {
    const who = await send<Me>("GET", "/me");
    if (!who.scopes.includes("runs:read")) throw new AgentError("the key does not have the scope runs:read, which every page needs", { status: 403 });
    me.value = who;
    signedIn.value = true;
  } catch (error) {
    if (!(error instanceof AgentError) || (error.status !== 401 && error.status !== 403)) throw error;
    // A key that was refused must not hide a login that is good.
    const hadKey = sessionStorage.getItem(KEY) !== null;
    sessionStorage.removeItem(KEY);
    if (key === undefined && hadKey) await signIn();
    if (hadKey && !signedIn.value) refusal.value = error.message;
    signedIn.value ??= false;
  }
}

/** Forget the key of this tab, and end the login of the cookie. */
export async function signOut(): Promise<void> {
  const answer = await fetch("/console/logout", { method: "POST", headers: { "x-vaka-console": "1" } }).catch(() => null);
  sessionStorage.removeItem(KEY);
  me.value = null;
  refusal.value = "";
  signedIn.value = false;
  if (answer && !answer.ok && answer.status !== 401) throw new Error(`the server answered ${answer.status} to the logout`);
}

export interface NewTurn {
  input: string;
  agent?: string;
  background?: boolean;
  on_conflict?: "enqueue" | "steer";
}

export interface ToolRun {
  session: string;
  call: string;
  status: string;
  content: unknown;
  value: unknown;
  failed: boolean;
  decision?: Decision | null;
}

export interface UsageRow {
  day: string;
  model: string;
  input: number;
  output: number;
  cache_read?: number;
  cache_write?: number;
  reasoning?: number;
  cost: number;
  calls?: number;
}

const before = (cursor: string): string => {
  const [epoch, seq] = cursor.split(".");
  return `${epoch}.${Math.max(0, Number(seq) - 1)}`;
};
const seqOf = (cursor: string): number => Number(cursor.split(".")[1] ?? 0);

export const api = {
  sessions: (query: Record<string, string>) => get<Page<Session>>("/sessions", query),
  session: (id: string) => get<Session>(pathOf("sessions", id)),
  updateSession: (id: string, body: { title?: string; tags?: string[] }) => send<Session>("PATCH", pathOf("sessions", id), { body }),
  deleteSession: (id: string) => send<void>("DELETE", pathOf("sessions", id)),
  compact: (id: string) => post<{ compacted: boolean; skipped: string }>(pathOf("sessions", id, "compact")),
  fork: (id: string, body: { at?: string; title?: string }) => post<Session>(pathOf("sessions", id, "fork"), body),
  export: async (id: string): Promise<string> => (await http.send("GET", pathOf("sessions", id, "export"))).text(),

  startTurn: (id: string, body: NewTurn, key: string) => post<Turn>(pathOf("sessions", id, "turns"), body, { "idempotency-key": key }),
  turns: (id: string, query: Record<string, string>) => get<Page<Turn>>(pathOf("sessions", id, "turns"), query),
  cancel: (id: string) => post<unknown>(pathOf("sessions", id, "turns", "current", "cancel")),

  events: (id: string, query: Record<string, string>) => get<Page<Envelope> & { head: string }>(pathOf("sessions", id, "events"), query),
  /** The events of a span, both ends included. */
  async eventsBetween(id: string, from: string, to: string, limit: number): Promise<Envelope[]> {
    const wanted = to ? seqOf(to) - seqOf(from) + 1 : limit;
    const page = await api.events(id, { after: before(from), limit: String(Math.min(limit, Math.max(1, wanted))) });
    return page.data;
  },

  checkpoints: (id: string) => get<Page<Checkpoint>>(pathOf("sessions", id, "checkpoints")),
  saveCheckpoint: (id: string, label: string) => post<Checkpoint>(pathOf("sessions", id, "checkpoints"), { label }),
  restore: (id: string, label: string) => post<unknown>(pathOf("sessions", id, "checkpoints", label, "restore")),

  approvals: () => get<Page<Decision>>("/approvals", { limit: "200" }),
  approval: (id: string) => get<Decision>(pathOf("approvals", id)),
  resolve: (id: string, body: Record<string, unknown>) => post<unknown>(pathOf("approvals", id, "resolve"), body),
  giveResult: (session: string, call: string, result: unknown) => post<unknown>(pathOf("sessions", session, "calls", call, "result"), { result }),
  rules: (owner: string) => get<Page<Rule>>("/rules", { owner }),
  removeRule: (id: string, owner: string) => send<void>("DELETE", pathOf("rules", id), { query: { owner } }),

  agents: () => get<Page<Agent>>("/agents"),
  agent: (name: string) => get<Agent>(pathOf("agents", name)),
  reloadAgents: () => post<unknown>("/agents/reload"),
  tools: (query: Record<string, string> = {}) => get<Page<ToolInfo>>("/tools", query),
  runTool: (name: string, body: { agent?: string; arguments: object }) => post<ToolRun>(pathOf("tools", name, "execute"), body),

  traces: (query: Record<string, string>) => get<Page<TraceSummary>>("/traces", query),
  trace: (session: string, turn?: string) => get<Trace>(turn ? pathOf("traces", session, turn) : pathOf("traces", session)),

  /** The trace in the JSON of OTLP, for other tools. */
  otlp: (session: string, turn?: string) => get<unknown>(turn ? pathOf("traces", session, turn) : pathOf("traces", session), { format: "otlp" }),

  usage: (days: number) => get<{ data: UsageRow[] }>("/usage", { days: String(days) }),
  config: () => get<{ data: Setting[] } | Setting[]>("/debug/config"),
  version: () => get<Record<string, unknown>>("/version"),
  ready: () => get<Record<string, unknown>>("/readyz"),
};

