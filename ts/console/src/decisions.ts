import type { Decision as LoggedDecision } from "@vaka/client/store.ts";
import type { Pending } from "./components/DecisionCard.tsx";
import type { Decision } from "./types.ts";

/** A decision of the log of a session, as the cards show it. */
export function pendingOf(decision: LoggedDecision, session: string): Pending {
  const call = decision.call ? { id: decision.call.id, name: decision.call.name, arguments: (decision.call.arguments ?? {}) as Record<string, unknown> } : null;
  const { id, kind, agent, asked, expires, callId, reason, rule, message, effect, grant, scopes, decisions, question, options } = decision;
  return { id, kind, session, agent, asked, expires, call, callId, reason, rule, message, effect, grant, scopes, decisions, question, options };
}

/** A decision of the inbox, as the cards show it. */
export function pendingFromInbox(decision: Decision): Pending {
  return {
    id: decision.id, kind: decision.kind, session: decision.session, agent: decision.agent ?? "", asked: decision.asked, expires: decision.expires ?? "",
    call: decision.call ?? null, callId: decision.call?.id ?? "", reason: decision.reason ?? "", rule: decision.rule ?? "", message: decision.message ?? "", effect: decision.effect ?? "",
    grant: decision.suggested_rule ?? "", scopes: decision.scopes ?? (decision.suggested_rule ? ["session", "project", "user"] : []), decisions: (decision.decisions ?? []).filter((each) => each !== "answer"),
    question: decision.question ?? "", options: decision.options ?? [],
  };
}
