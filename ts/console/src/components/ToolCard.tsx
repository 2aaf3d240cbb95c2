import type { CallBlock } from "@vaka/client/store.ts";
import { memo } from "preact/compat";
import { useState } from "preact/hooks";
import { cut, duration, pretty } from "../format.ts";
import { Icon } from "../icons.tsx";
import { BUILTIN_TRAITS, type ToolTraits } from "../traits.generated.ts";
import { CopyButton, useNow } from "./basics.tsx";
import { DiffView } from "./DiffView.tsx";
import { JsonView } from "./JsonView.tsx";

export interface Edit {
  file: string;
  before: string;
  after: string;
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");

/** The edits that the arguments of a tool describe: by its traits if it is built in, else by the names of arguments. */
export function editsOf(name: string, args: Record<string, unknown>): Edit[] {
  const traits = BUILTIN_TRAITS[name];
  return traits ? declaredEdits(traits, args) : guessedEdits(name, args);
}

function declaredEdits(traits: ToolTraits, args: Record<string, unknown>): Edit[] {
  const file = firstText(args, traits.paths ?? []);
  const content = traits.content && args[traits.content];
  if (typeof content === "string") return [{ file, before: "", after: content }];
  if (!traits.replacement) return [];
  const [before, after] = traits.replacement;
  const listed = traits.replacements ? args[traits.replacements] : [args];
  return (Array.isArray(listed) ? listed : [])
    .filter((each): each is Record<string, unknown> => typeof each === "object" && each !== null)
    .filter((each) => typeof each[before] === "string" && typeof each[after] === "string")
    .map((each) => ({ file, before: text(each[before]), after: text(each[after]) }));
}

function guessedEdits(name: string, args: Record<string, unknown>): Edit[] {
  const file = String(args.file_path ?? args.path ?? args.notebook_path ?? "");
  if (typeof args.old_string === "string" && typeof args.new_string === "string") return [{ file, before: args.old_string, after: args.new_string }];
  if (Array.isArray(args.edits)) {
    return args.edits.filter((each): each is Record<string, unknown> => typeof each === "object" && each !== null && "old_string" in each)
      .map((each) => ({ file, before: text(each.old_string), after: text(each.new_string) }));
  }
  if (/write/i.test(name) && file && typeof args.content === "string") return [{ file, before: "", after: args.content }];
  return [];
}

const GUESSED = ["command", "file_path", "path", "pattern", "query", "url", "prompt", "description", "question"];

/** One line that says what a call is about. */
export function briefOf(name: string, args: Record<string, unknown>): string {
  const main = firstText(args, [...mainArguments(BUILTIN_TRAITS[name] ?? {}), ...GUESSED]);
  if (main) return cut(main.split("\n")[0]!, 160);
  const shown = JSON.stringify(args);
  return shown === "{}" ? "" : cut(shown, 160);
}

function mainArguments(traits: ToolTraits): string[] {
  const named = [traits.command, traits.url].filter((each) => each !== undefined);
  return traits.summary ?? (named.length ? named : traits.paths ?? traits.folders ?? []);
}

function firstText(args: Record<string, unknown>, names: readonly string[]): string {
  return names.map((name) => text(args[name])).find((value) => value) ?? "";
}

function commandOf(name: string): string {
  return BUILTIN_TRAITS[name]?.command ?? "command";
}

/** Exact arguments: a command as a command, an edit as a diff, everything else as a tree. */
export function Arguments({ name, args }: { name: string; args: Record<string, unknown> }) {
  const edits = editsOf(name, args);
  const { [commandOf(name)]: given, ...rest } = args;
  const command = text(given);
  if (edits.length) return <div class="column">{edits.map((edit, index) => <DiffView key={index} before={edit.before} after={edit.after} title={edit.file} />)}</div>;
  if (command) {
    return (
      <div class="column">
        <pre class="block" tabIndex={0}>{command}</pre>
        {Object.keys(rest).length > 0 && <JsonView value={rest} open={2} />}
      </div>
    );
  }
  return <JsonView value={args} open={2} />;
}

interface Props {
  call: CallBlock;
  /** Whom the call waits for, in words. */
  waiting?: string;
  output: { stdout: string; stderr: string } | null;
}

function stateOf(call: CallBlock, waiting: string): { icon: "check" | "cross" | "clock" | "tool"; text: string; kind: string } {
  if (call.status === "completed") return { icon: "check", text: "completed", kind: "ok" };
  if (call.status === "failed") {
    const reason = (call.result as { reason?: string } | null)?.reason || (call.decision?.decision === "reject" ? "rejected" : "failed");
    return { icon: "cross", text: reason, kind: "error" };
  }
  if (call.status === "waiting") return { icon: "clock", text: waiting, kind: "warn" };
  return { icon: "tool", text: call.status === "writing" ? "writing" : call.status, kind: "accent" };
}

export const ToolCard = memo(({ call, waiting, output }: Props) => {
  const [opened, setOpened] = useState<boolean | null>(null);
  const state = stateOf(call, waiting || "waiting");
  const busy = call.status === "running" || call.status === "writing" || call.status === "pending";
  const edits = editsOf(call.name, call.arguments);
  const open = opened ?? (call.status === "failed" || (call.status === "running" && !!output) || (edits.length > 0 && call.status === "completed"));
  return (
    <details class={`tool ${call.status}`} open={open} onToggle={(event) => { if (event.currentTarget.open !== open) setOpened(event.currentTarget.open); }}>
      <summary>
        <span class="caret faint"><Icon name="caret" /></span>
        <span class="kind-tool"><Icon name={call.child ? "subagent" : "tool"} /></span>
        <span class="name mono ellipsis" title={call.name}>{call.name || "tool"}</span>
        <span class="brief mono ellipsis">{briefOf(call.name, call.arguments)}</span>
        <span class="time">{busy && call.started ? <Elapsed since={call.started} /> : call.durationMs !== null ? duration(call.durationMs) : ""}</span>
        <span class={`chip ${state.kind}`}>{busy ? <span class="dot pulse" /> : <Icon name={state.icon} />}{state.text}</span>
      </summary>
      {open && <Inside call={call} output={output} />}
    </details>
  );
});

function Elapsed({ since }: { since: string }) {
  const now = useNow();
  return <>{duration(Math.max(0, Math.floor((now - Date.parse(since)) / 1000) * 1000))}</>;
}

function Inside({ call, output }: Props) {
  return (
    <div class="inside">
      {call.status === "writing" ? <pre class="block">{call.argumentsText}</pre> : (
        <section>
          <div class="label"><span>arguments</span><CopyButton text={() => pretty(call.arguments)} label="Copy the arguments" /></div>
          <Arguments name={call.name} args={call.arguments} />
          {call.argumentsText && call.status !== "running" && <pre class="block" tabIndex={0}>{call.argumentsText}</pre>}
        </section>
      )}
      {call.decision && (
        <div class="muted small">
          {`${{ approve: "Approved", reject: "Rejected", expired: "Expired" }[call.decision.decision]}${call.decision.by ? ` by ${call.decision.by}` : ""}${call.decision.edit ? ", with edited arguments" : ""}${call.decision.message ? `: ${call.decision.message}` : ""}`}
        </div>
      )}
      {output && (output.stdout || output.stderr) && (
        <section>
          <div class="label">output so far</div>
          <pre class="stdout" tabIndex={0}>{tail(output.stdout)}{output.stderr && <span class="err">{tail(output.stderr)}</span>}</pre>
        </section>
      )}
      {call.result && <Result call={call} />}
    </div>
  );
}

const TAIL = 20_000;
const tail = (text: string): string => (text.length > TAIL ? `…${text.slice(-TAIL)}` : text);

interface ResultPart { type: string; text?: string; preview?: string; size?: number; url?: string; media_type?: string }

function Result({ call }: { call: CallBlock }) {
  const result = call.result as unknown as { content?: ResultPart[]; value?: unknown; failed?: boolean; value_in_content?: boolean };
  const text = (result.content ?? []).map((part) => part.text ?? part.preview ?? `[${part.type}${part.media_type ? ` ${part.media_type}` : ""}]`).join("\n");
  const structured = structuredOf(result.value, text);
  const looksPrinted = typeof call.arguments[commandOf(call.name)] === "string";
  return (
    <section>
      <div class="label"><span>{result.failed ? "error" : "result"}</span><CopyButton text={() => text || pretty(result.value)} label="Copy the result" /></div>
      {structured !== undefined ? <JsonView value={structured} open={2} searchable={text.length > 2000} />
        : <LongText text={text} class={looksPrinted ? "stdout" : `block ${result.failed ? "is-error" : ""}`} />}
    </section>
  );
}

function structuredOf(value: unknown, text: string): unknown {
  if (typeof value === "object" && value !== null) return value;
  if (!/^\s*[[{]/.test(text) || text.length > 500_000) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function LongText({ text, class: name }: { text: string; class: string }) {
  const [whole, setWhole] = useState(false);
  const long = text.length > TAIL && !whole;
  return (
    <>
      <pre class={name} tabIndex={0}>{(long ? text.slice(0, TAIL) : text) || "(nothing)"}</pre>
      {long && <button type="button" class="small plain" onClick={() => setWhole(true)}>{`Show all ${text.length} characters`}</button>}
    </>
  );
}
