import type { Choice, Decision } from "@vaka/client/api.generated.ts";
import { AgentError } from "@vaka/client/errors.ts";
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

interface Props {
  decision: Decision;
  /** Show which session asks; the inbox does. */
  withSession?: boolean;
  selected?: boolean;
  /** What the keyboard asked for: "edit", "reject" or "remember". */
  wish?: string;
  onDone?: () => void;
}

/** A decision that is open in the log of a session, with the words of the server; nothing once it is decided. */
export function OpenDecision({ id }: { id: string }) {
  const [decision, setDecision] = useState<Decision | null>(null);
  useEffect(() => { api.approval(id).then(setDecision, (error: unknown) => { if (!(error instanceof AgentError && error.status === 404)) report(error); }); }, [id]);
  return decision && <DecisionCard decision={decision} />;
}

export function DecisionCard({ decision, withSession, selected, wish, onDone }: Props) {
  const now = useNow();
  const box = useRef<HTMLElement>(null);
  useEffect(() => { if (selected) box.current?.scrollIntoView({ block: "nearest" }); }, [selected]);
  const { kind, text } = decision;
  return (
    <article ref={box} class={`decision ${selected ? "selected" : ""}`} aria-label={text.title} data-decision={decision.id}>
      <header>
        <Icon name={ICONS[kind]} />
        <span class="title">{text.title}</span>
        {text.facts.map((fact) => <span class="chip" key={fact}>{fact}</span>)}
        <span class="small">{`asked ${ago(decision.asked, now)}`}</span>
        {decision.expires && <span class="small">{until(decision.expires, now)}</span>}
        {withSession && <a class="small mono ellipsis" style={{ marginLeft: "auto" }} href={path("chat", decision.session)}>{`${decision.agent ? `${decision.agent} · ` : ""}${decision.session}`}</a>}
      </header>
      <div class="inside">
        <ScopeNotice scope={scopeOf(decision)}>You can read this, but not decide</ScopeNotice>
        {kind === "approval" ? <Approval decision={decision} wish={wish} onDone={onDone} /> : <Question decision={decision} onDone={onDone} />}
      </div>
    </article>
  );
}

const ICONS = { approval: "alert", question: "question", result: "clock" } as const;

/** The scope that a decision needs; the result of a client's tool is no decision. */
export const scopeOf = (decision: Decision): Scope => (decision.kind === "result" ? "runs:write" : "approvals:write");

export async function approve(decision: Decision): Promise<void> {
  await api.resolve(decision.id, { decision: "approve" });
  toast(`Approved ${decision.call?.name}`);
}

function Approval({ decision, wish, onDone }: { decision: Decision; wish: string | undefined; onDone: (() => void) | undefined }) {
  const [mode, setMode] = useState<"" | "edit" | "reject" | "remember">("");
  const [busy, setBusy] = useState(false);
  const [message, setMessage] = useState("");
  const [args, setArgs] = useState<{ value: unknown; valid: boolean }>({ value: decision.call?.arguments ?? {}, valid: true });
  const scopes = longerChoices(decision);
  const [scope, setScope] = useState<string>(scopes[0]?.scope ?? "session");
  const [rule, setRule] = useState(decision.suggested_rule ?? "");
  const field = useRef<HTMLTextAreaElement>(null);
  useEffect(() => { if ((wish === "edit" || wish === "reject" || (wish === "remember" && scopes.length > 0)) && !missing(scopeOf(decision))) setMode(wish); }, [wish]);
  useEffect(() => { if (mode === "reject") field.current?.focus(); }, [mode]);
  const labelOf = (id: string) => decision.text.choices.find((each) => each.id === id)?.label;

  const send = async (body: Record<string, unknown>, done: string) => {
    setBusy(true);
    try {
      await api.resolve(decision.id, body);
      toast(done);
      onDone?.();
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
    }
  };
  const name = decision.call?.name ?? "the call";
  return (
    <>
      {mode === "edit" ? <JsonField value={args.value} rows={6} label="Edited arguments" onChange={(value) => setArgs({ value, valid: typeof value === "object" && value !== null })} onInvalid={() => setArgs({ ...args, valid: false })} />
        : <Arguments name={name} args={decision.call?.arguments ?? {}} />}
      {[decision.text.folder, ...decision.text.details].filter(Boolean).map((line) => <p class="muted small" key={line}>{line}</p>)}
      {mode === "remember" && (
        <div class="rule-box">
          <label class="field"><span>This rule will be stored, exactly as it is here</span><textarea class="mono" rows={Math.max(1, rule.split("\n").length)} value={rule} onInput={(event) => setRule(event.currentTarget.value)} spellcheck={false} /></label>
          <label class="field">
            <span>For</span>
            <select value={scope} onChange={(event) => setScope(event.currentTarget.value)}>
              {scopes.map((each) => <option key={each.scope} value={each.scope}>{each.lasts}</option>)}
            </select>
          </label>
        </div>
      )}
      {mode === "reject" && <label class="field"><span>What the model reads as the reason (may be empty)</span><textarea ref={field} rows={2} value={message} onInput={(event) => setMessage(event.currentTarget.value)} /></label>}
      <div class="buttons">
        {mode === "" && (
          <>
            {labelOf("approve") && <ScopedButton scope="approvals:write" class="primary" disabled={busy} onClick={() => send({ decision: "approve" }, `Approved ${name}`)}><Icon name="check" />{labelOf("approve")}</ScopedButton>}
            {scopes.length > 0 && <ScopedButton scope="approvals:write" disabled={busy} onClick={() => setMode("remember")}>Approve &amp; remember…</ScopedButton>}
            {labelOf("edit") && <ScopedButton scope="approvals:write" disabled={busy} onClick={() => setMode("edit")}><Icon name="edit" />{`${labelOf("edit")}…`}</ScopedButton>}
            <ScopedButton scope="approvals:write" class="danger" disabled={busy} onClick={() => setMode("reject")}><Icon name="cross" />{`${labelOf("reject")}…`}</ScopedButton>
          </>
        )}
        {mode === "edit" && <button type="button" class="primary" disabled={busy || !args.valid} onClick={() => send({ decision: "edit", edited_args: args.value }, `Approved ${name} with edited arguments`)}>Approve with these arguments</button>}
        {mode === "remember" && <button type="button" class="primary" disabled={busy || !rule.trim()} onClick={() => send({ decision: "approve", remember: rule.trim() === (decision.suggested_rule ?? "").trim() ? { scope } : { scope, rule: rule.trim() } }, `Approved ${name}, rule stored`)}>Approve and store the rule</button>}
        {mode === "reject" && <button type="button" class="danger" disabled={busy} onClick={() => send({ decision: "reject", message }, `Rejected ${name}`)}>Reject the call</button>}
        {mode !== "" && <button type="button" class="plain" disabled={busy} onClick={() => setMode("")}>Back</button>}
      </div>
    </>
  );
}

/** The ways to approve for longer than once. A rule for the sessions of another owner needs the scope admin. */
function longerChoices(decision: Decision): Choice[] {
  const owner = recent.value.find((each) => each.id === decision.session)?.owner;
  const forOwner = owner === me.value?.id || !missing("admin");
  return decision.text.choices.filter((each) => each.scope === "session" || (each.scope !== "once" && forOwner));
}

function Question({ decision, onDone }: { decision: Decision; onDone: (() => void) | undefined }) {
  const [answer, setAnswer] = useState("");
  const [busy, setBusy] = useState(false);
  const isResult = decision.kind === "result";
  const { choices } = decision.text;
  const mayNot = missing(scopeOf(decision)) !== "";
  const send = async (value: unknown) => {
    setBusy(true);
    try {
      if (isResult) await api.giveResult(decision.session, decision.call?.id ?? "", value);
      else await api.resolve(decision.id, { decision: "answer", answer: value });
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
      {(isResult ? decision.text.details : [decision.text.question]).map((line) => <p key={line} style={{ whiteSpace: "pre-wrap", overflowWrap: "anywhere" }}>{line}</p>)}
      {isResult && decision.call && <Arguments name={decision.call.name} args={decision.call.arguments} />}
      {choices.length > 0 && (
        <div class="options">{choices.map(({ id, label }) => <ScopedButton scope={scopeOf(decision)} key={id} disabled={busy} onClick={() => send(label)}>{label}</ScopedButton>)}</div>
      )}
      <form class="row" onSubmit={(event) => { event.preventDefault(); if (answer.trim() && !mayNot) void send(answer); }}>
        <input class="grow" value={answer} readOnly={mayNot} aria-label={isResult ? "The result" : "Your answer"} placeholder={isResult ? "The result" : choices.length ? "or an answer of your own" : "Your answer"} onInput={(event) => setAnswer(event.currentTarget.value)} />
        <button type="submit" class="primary" disabled={busy || mayNot || !answer.trim()}>{isResult ? "Send the result" : "Answer"}</button>
      </form>
    </>
  );
}
