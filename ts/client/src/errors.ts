import type { JsonObject } from "./event.generated.ts";

export interface ErrorDetails {
  /** The HTTP status; 0 when there was no answer. */
  status?: number;
  code?: string;
  requestId?: string;
  retryable?: boolean;
  /** Milliseconds that the server asked to wait before the next try. */
  retryAfterMs?: number | undefined;
  /** The problem document of the server. */
  problem?: JsonObject;
  cause?: unknown;
}

/** What every method of the client throws. `retryable`: the same request may succeed later. */
export class AgentError extends Error {
  override readonly name = "AgentError";
  readonly status: number;
  readonly code: string;
  readonly requestId: string;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  readonly problem: JsonObject;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? {} : { cause: details.cause });
    this.status = details.status ?? 0;
    this.code = details.code ?? "error";
    this.requestId = details.requestId ?? "";
    this.retryable = details.retryable ?? false;
    this.retryAfterMs = details.retryAfterMs;
    this.problem = details.problem ?? {};
  }
}

/** Whether a request with this status may succeed later: not a 4xx, except those that ask to come again. */
export const isRetryable = (status: number): boolean =>
  status < 400 || status >= 500 || status === 408 || status === 425 || status === 429;

/** The error that a response stands for. */
export async function errorOf(response: Response): Promise<AgentError> {
  const { status } = response;
  const text = await response.text().catch(() => "");
  let problem: JsonObject = {};
  try {
    const parsed: unknown = JSON.parse(text);
    if (typeof parsed === "object" && parsed !== null && !Array.isArray(parsed)) problem = parsed as JsonObject;
  } catch {
    // not a problem document: a proxy answered
  }
  const said = problem.detail ?? problem.title;
  const retryAfterMs = retryAfter(response.headers.get("retry-after"));
  return new AgentError(typeof said === "string" && said ? said : `the server answered ${status} ${response.statusText}`.trim(), {
    status,
    code: typeof problem.code === "string" ? problem.code : `http_${status}`,
    requestId: response.headers.get("x-request-id") ?? "",
    retryable: isRetryable(status) || (status === 409 && retryAfterMs !== undefined), // the same request is being answered
    retryAfterMs,
    problem,
  });
}

/** An error of the connection as an `AgentError`; an `AgentError` stays as it is. */
export function connectionError(error: unknown): AgentError {
  if (error instanceof AgentError) return error;
  const message = error instanceof Error ? error.message : String(error);
  return new AgentError(`the connection failed: ${message}`, { code: "network", retryable: true, cause: error });
}

/** `Retry-After` in milliseconds: seconds or a date. */
export function retryAfter(header: string | null): number | undefined {
  if (!header) return undefined;
  const ms = /^\d+$/.test(header.trim()) ? Number(header) * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) ? Math.max(ms, 0) : undefined;
}
