import { useEffect, useRef, useState } from "preact/hooks";
import { api, me } from "../api.ts";
import { ago, until } from "../format.ts";
import { Icon } from "../icons.tsx";
import { path } from "../router.ts";
import { missing, type Scope, ScopedButton, ScopeNotice } from "../scopes.tsx";
import { recent } from "../shared.ts";
import { report, toast } from "../toast.ts";
import { useNow } from "./basics.tsx";
import { JsonField } from "./SchemaForm.tsx";
import { Arguments } from "./ToolCard.tsx";

/** An approval or a question, from the inbox or from the log of a session. */
export interface Pending {
  id: string;
  kind: string;
  session: string;
  agent: string;
  asked: string;
  expires: string;
  call: { id: string; name: string; arguments: Record<string, unknown> } | null;
  callId: string;
  reason: string;
  rule: string;
  message: string;
  effect: string;
  /** The rules that "remember" would store, one per line. */
  grant: string;
  scopes: string[];
  decisions: string[];
  question: string;
  options: string[];
}

interface Props {
  pending: Pending;
  /** Show which session asks; the inbox does. */
  withSession?: boolean;
  selected?: boolean;
  /** What the keyboard asked for: "edit", "reject" or "remember". */
  wish?: string;
  onDone?: () => void;
}

export function DecisionCard({ pending, withSession, selected, wish, onDone }: Props) {
  const now = useNow();
  const box = useRef<HTMLElement>(null);
  useEffect(() => { if (selected) box.current?.scrollIntoView({ block: "nearest" }); }, [selected]);
  const isApproval = pending.kind === "approval";
  return (
    <article ref={box} class={`decision ${selected ? "selected" : ""}`} aria-label={isApproval ? `Approval of ${pending.call?.name}` : pending.kind === "result" ? "Waiting for a client" : "Question"} data-decision={pending.id}>
      <header>
        <Icon name={isApproval ? "alert" : pending.kind === "result" ? "clock" : "question"} />
        <span class="title">{isApproval ? <>Run <code>{pending.call?.name}</code>?</> : pending.kind === "result" ? "Waiting for a client" : "A question for you"}</span>
        {pending.effect && <span class="chip" title="What a second run would do">{`effect ${pending.effect}`}</span>}
        <span class="small">{`asked ${ago(pending.asked, now)}`}</span>
        {pending.expires && <span class="small">{until(pending.expires, now)}</span>}
        {withSession && <a class="small mono ellipsis" style={{ marginLeft: "auto" }} href={path("chat", pending.session)}>{`${pending.agent ? `${pending.agent} · ` : ""}${pending.session}`}</a>}
      </header>
      <div class="inside">
        <ScopeNotice scope={scopeOf(pending)}>You can read this, but not decide</ScopeNotice>
        {isApproval ? <Approval pending={pending} wish={wish} onDone={onDone} /> : <Question pending={pending} onDone={onDone} />}
      </div>
    </article>
  );
}

/** The scope that a decision needs; the result of a client's tool is no decision. */
export const scopeOf = (pending: Pending): Scope => (pending.kind === "result" ? "runs:write" : "approvals:write");

export async function approve(pending: Pending): Promise<void> {
  await api.resolve(pending.id, { decision: "approve" });
  toast(`Approved ${pending.call?.name}`);
}

function Approval({ pending, wish, onDone }: { pending: Pending; wish: string | undefined; onDone: (() => void) | undefined }) {
  const [mode, setMode] = useState<"" | "edit" | "reject" | "remember">("");
  const [busy, setBusy] = useState(false);
  const [message, setMessage] = useState("");
  const [args, setArgs] = useState<{ value: unknown; valid: boolean }>({ value: pending.call?.arguments ?? {}, valid: true });
  const scopes = rememberScopes(pending);
  const [scope, setScope] = useState(scopes[0] ?? "session");
  const [rule, setRule] = useState(pending.grant);
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => { if ((wish === "edit" || wish === "reject" || (wish === "remember" && scopes.length > 0)) && !missing(scopeOf(pending))) setMode(wish); }, [wish]);
  useEffect(() => { if (mode === "reject") field.current?.focus(); }, [mode]);
  const may = (decision: string) => pending.decisions.length === 0 || pending.decisions.includes(decision);

  const send = async (body: Record<string, unknown>, done: string) => {
    setBusy(true);
    try {
      await api.resolve(pending.id, body);
      toast(done);
      onDone?.();
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
    }
  };
  const name = pending.call?.name ?? "the call";
  return (
    <>
      {(pending.reason || pending.message) && <p>{pending.message || pending.reason}</p>}
      {mode === "edit" ? <JsonField value={args.value} rows={6} label="Edited arguments" onChange={(value) => setArgs({ value, valid: typeof value === "object" && value !== null })} onInvalid={() => setArgs({ ...args, valid: false })} />
        : <Arguments name={name} args={pending.call?.arguments ?? {}} />}
      {pending.rule && <p class="muted small">Asked by the rule <code>{pending.rule}</code></p>}
      {mode === "remember" && (
        <div class="rule-box">
          <label class="field"><span>This rule will be stored, exactly as it is here</span><textarea class="mono" rows={Math.max(1, rule.split("\n").length)} value={rule} onInput={(event) => setRule(event.currentTarget.value)} spellcheck={false} /></label>
          <label class="field">
            <span>For</span>
            <select value={scope} onChange={(event) => setScope(event.currentTarget.value)}>
              {(scopes.length ? scopes : ["session"]).map((each) => <option key={each} value={each}>{SCOPES[each] ?? each}</option>)}
            </select>
          </label>
        </div>
      )}
      {mode === "reject" && <label class="field"><span>What the model reads as the reason (may be empty)</span><textarea ref={field} rows={2} value={message} onInput={(event) => setMessage(event.currentTarget.value)} /></label>}
      <div class="buttons">
        {mode === "" && (
          <>
            {may("approve") && <ScopedButton scope="approvals:write" class="primary" disabled={busy} onClick={() => send({ decision: "approve" }, `Approved ${name}`)}><Icon name="check" />Approve</ScopedButton>}
            {may("approve") && scopes.length > 0 && <ScopedButton scope="approvals:write" disabled={busy} onClick={() => setMode("remember")}>Approve &amp; remember…</ScopedButton>}
            {may("edit") && <ScopedButton scope="approvals:write" disabled={busy} onClick={() => setMode("edit")}><Icon name="edit" />Edit…</ScopedButton>}
            {may("reject") && <ScopedButton scope="approvals:write" class="danger" disabled={busy} onClick={() => setMode("reject")}><Icon name="cross" />Reject…</ScopedButton>}
          </>
        )}
        {mode === "edit" && <button type="button" class="primary" disabled={busy || !args.valid} onClick={() => send({ decision: "edit", edited_args: args.value }, `Approved ${name} with edited arguments`)}>Approve with these arguments</button>}
        {mode === "remember" && <button type="button" class="primary" disabled={busy || !rule.trim()} onClick={() => send({ decision: "approve", remember: rule.trim() === pending.grant.trim() ? { scope } : { scope, rule: rule.trim() } }, `Approved ${name}, rule stored`)}>Approve and store the rule</button>}
        {mode === "reject" && <button type="button" class="danger" disabled={busy} onClick={() => send({ decision: "reject", message }, `Rejected ${name}`)}>Reject the call</button>}
        {mode !== "" && <button type="button" class="plain" disabled={busy} onClick={() => setMode("")}>Back</button>}
      </div>
    </>
  );
}

const SCOPES: Record<string, string> = { session: "this session", project: "all sessions of its owner in this folder", user: "all sessions of its owner" };

/** How long an approval may count. A rule for the sessions of another owner needs the scope admin. */
function rememberScopes(pending: Pending): string[] {
  const owner = recent.value.find((each) => each.id === pending.session)?.owner;
  const forOwner = owner === me.value?.id || !missing("admin");
  return pending.scopes.filter((each) => each === "session" || (each !== "once" && forOwner));
}

function Question({ pending, onDone }: { pending: Pending; onDone: (() => void) | undefined }) {
  const [answer, setAnswer] = useState("");
  const [busy, setBusy] = useState(false);
  const isResult = pending.kind === "result";
  const mayNot = missing(scopeOf(pending)) !== "";
  const send = async (value: unknown) => {
    setBusy(true);
    try {
      if (isResult) await api.giveResult(pending.session, pending.callId, value);
      else await api.resolve(pending.id, { decision: "answer", answer: value });
      toast("Answered");
      onDone?.();
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      <p style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{isResult ? `The program that offers ${pending.call?.name || "this tool"} runs it and sends the result. If that program is gone, stop the turn or write the result here.` : pending.question || pending.reason}</p>
      {isResult && pending.call && <Arguments name={pending.call.name} args={pending.call.arguments} />}
      {pending.options.length > 0 && (
        <div class="options">{pending.options.map((option) => <ScopedButton scope={scopeOf(pending)} key={option} disabled={busy} onClick={() => send(option)}>{option}</ScopedButton>)}</div>
      )}
      <form class="row" onSubmit={(event) => { event.preventDefault(); if (answer.trim() && !mayNot) void send(answer); }}>
        <input class="grow" value={answer} readOnly={mayNot} aria-label={isResult ? "The result" : "Your answer"} placeholder={isResult ? "The result" : pending.options.length ? "or an answer of your own" : "Your answer"} onInput={(event) => setAnswer(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={busy || mayNot || !answer.trim()}>{isResult ? "Send the result" : "Answer"}</button>
      </form>
    </>
  );
}
