import { type Block, type CallBlock, type Decision, type EventOf, type Message, liveMessages, openDecisions, outputOf, type SessionState, textOf, toArray, type TurnState } from "@vaka/client/store.ts";
import { memo } from "preact/compat";
import { useMemo } from "preact/hooks";
import { clock, compact, cost, count, duration } from "../format.ts";
import { Icon } from "../icons.tsx";
import { path } from "../router.ts";
import { ScopedButton } from "../scopes.tsx";
import { CopyButton } from "./basics.tsx";
import { OpenDecision } from "./DecisionCard.tsx";
import { Markdown } from "./Markdown.tsx";
import { ToolCard } from "./ToolCard.tsx";

type Outputs = SessionState["output"];

interface Group {
  turn: TurnState | undefined;
  messages: Message[];
  key: string;
}

/** The messages of each turn; what came before any turn is a group of its own. */
export function groupsOf(state: SessionState): Group[] {
  const turns = new Map(toArray(state.turns).map((turn) => [turn.id, turn]));
  const groups: Group[] = [];
  for (const message of [...toArray(state.messages), ...newestLive(state), ...Object.values(state.inputs)]) {
    const last = groups.at(-1);
    const key = message.status === "queued" ? "queued" : message.turn;
    if (last && last.key === key) last.messages.push(message);
    else groups.push({ turn: turns.get(message.turn), messages: [message], key });
  }
  return groups;
}

/** An agent writes one message at a time. A server that was killed could not discard its half message; the new one takes its place. */
function newestLive(state: SessionState): Message[] {
  return [...new Map(liveMessages(state).map((message) => [message.path.join("/"), message])).values()];
}

interface Props {
  state: SessionState;
  /** Leave out everything that acts: replays and comparisons only show. */
  passive?: boolean;
  onFork?: (cursor: string) => void;
}

export function Transcript({ state, passive, onFork }: Props) {
  const groups = useMemo(() => groupsOf(state), [state]);
  const decisions = useMemo(() => (passive ? [] : openDecisions(state)), [state.decisions, passive]);
  const inline = new Set<string>();
  for (const group of groups) for (const message of group.messages) for (const block of message.blocks) if (block.type === "call" && block.id) inline.add(block.id);
  const loose = decisions.filter((each) => !inline.has(each.callId));
  const names = useMemo(() => new Map(toArray(state.subagents).map((child) => [child.path.join("/"), child.agent])), [state.subagents]);
  return (
    <div class="transcript">
      {groups.map((group, index) => (
        <TurnView
          key={`${group.key}-${index}`} group={group} last={index === groups.length - 1} decisions={decisions} names={names} session={state.session} onFork={passive ? undefined : onFork}
          outputs={group.turn && !group.turn.ended ? state.output : NO_OUTPUT}
        />
      ))}
      {loose.map((each) => <OpenDecision key={each.id} id={each.id} />)}
      {!passive && isThinking(state) && <div class="row muted small" role="status"><span class="dot pulse kind-model" />working</div>}
    </div>
  );
}

const NO_OUTPUT: Outputs = {};

function isThinking(state: SessionState): boolean {
  return state.status === "running" && Object.values(state.live).every((message) => Object.keys(message.blocks).length === 0) && Object.keys(state.openCalls).length === 0;
}

/** Messages in a row of one agent belong together; the root has an empty path. */
function byAgent(messages: Message[]): { path: string[]; messages: Message[] }[] {
  const runs: { path: string[]; messages: Message[] }[] = [];
  for (const message of messages) {
    const last = runs.at(-1);
    if (last?.path.join("/") === message.path.join("/")) last.messages.push(message);
    else runs.push({ path: message.path, messages: [message] });
  }
  return runs;
}

/** The names of the agents on a path, from the outermost child on. */
function namesOf(path: string[], names: AgentNames): string {
  return path.map((part, index) => names.get(path.slice(0, index + 1).join("/")) ?? part).join(" / ");
}

/** The name of each child agent, by its path. */
type AgentNames = Map<string, string>;

interface TurnProps {
  group: Group;
  last: boolean;
  decisions: Decision[];
  /** Not compared: a child has its name before its first message. */
  names: AgentNames;
  session: string;
  outputs: Outputs;
  onFork: ((cursor: string) => void) | undefined;
}

const TurnView = memo(({ group, last, decisions, names, session, outputs, onFork }: TurnProps) => (
  <section class={`turn ${last ? "last" : ""}`} data-turn={group.turn?.id}>
    {byAgent(group.messages).map(({ path: of, messages }) => {
      const views = messages.map((message) => <MessageView key={message.id} message={message} decisions={decisions} outputs={outputs} />);
      return of.length ? <div class="subagent" key={messages[0]!.id}><div class="row small kind-subagent" title={of.join(" / ")}><Icon name="subagent" />{namesOf(of, names)}</div>{views}</div> : views;
    })}
    {group.turn && <TurnFoot turn={group.turn} waiting={group.turn.ended ? "" : waitingFor(decisions)} session={session} text={() => group.messages.filter((each) => each.role === "assistant").map((each) => textOf(each.blocks)).filter(Boolean).join("\n\n")} onFork={onFork} />}
  </section>
), isSameTurn);

/** Whom open decisions wait for, "" when there is none: a call of a client's tool waits for a program. */
function waitingFor(decisions: Decision[]): string {
  if (decisions.some((each) => each.kind !== "result")) return "waiting for you";
  return decisions.length ? "waiting for a client" : "";
}

/** A turn is drawn again when one of its messages, its own state, or what its running calls printed has changed. */
function isSameTurn(before: Readonly<TurnProps>, after: Readonly<TurnProps>): boolean {
  return before.last === after.last && before.group.turn === after.group.turn && before.decisions === after.decisions && before.outputs === after.outputs &&
    before.onFork === after.onFork && before.group.messages.length === after.group.messages.length &&
    before.group.messages.every((message, index) => message === after.group.messages[index]);
}

interface MessageProps {
  message: Message;
  decisions: Decision[];
  outputs: Outputs;
}

/** While a message streams, the others of its turn stay as they are; only calls that run show what they print. */
const MessageView = memo(MessageBody, (before, after) =>
  before.message === after.message && before.decisions === after.decisions && (before.outputs === after.outputs || !after.message.blocks.some((block) => block.type === "call" && block.status === "running")));

function MessageBody({ message, decisions, outputs }: MessageProps) {
  if (message.role === "notice") return <Notice message={message} />;
  if (message.role === "user" && message.path.length === 0) {
    return (
      <div class={`message user ${message.status === "queued" ? "queued" : ""}`}>
        {message.status === "queued" && <div class="who">queued</div>}
        {message.source && message.status !== "queued" && message.source !== "user" && <div class="who">{message.source}</div>}
        <Parts blocks={message.blocks} plain />
      </div>
    );
  }
  const streaming = message.status === "streaming";
  return (
    <div class={`message ${message.path.length ? "" : message.role}`}>
      {message.path.length > 0 && message.role === "user" && <div class="who">asked</div>}
      <div class="column">
        {message.blocks.map((block, index) => <BlockView key={index} block={block} live={streaming && index === message.blocks.length - 1} decisions={decisions} outputs={outputs} />)}
      </div>
      {message.status === "cut" && <div class="small faint">cut short</div>}
    </div>
  );
}

interface BlockProps {
  block: Block;
  live: boolean;
  decisions: Decision[];
  outputs: Outputs;
}

function BlockView({ block, live, decisions, outputs }: BlockProps) {
  switch (block.type) {
    case "text":
      return block.text ? <Markdown text={block.text} live={live} /> : null;
    case "reasoning":
      return block.text ? (
        <details class="reasoning" open={live}>
          <summary><span class="caret"><Icon name="caret" /></span><span class="kind-model"><Icon name="brain" /></span>{live ? "Reasoning" : `Reasoned in ${compact(block.text.length)} characters`}</summary>
          <div class="text" tabIndex={0}>{block.text}</div>
        </details>
      ) : null;
    case "call":
      return <CallView call={block} decisions={decisions} outputs={outputs} />;
    case "notice":
      return <span class="muted small">{block.text}</span>;
    default:
      return <Parts blocks={[block]} />;
  }
}

function CallView({ call, decisions, outputs }: { call: CallBlock; decisions: Decision[]; outputs: Outputs }) {
  const open = decisions.filter((each) => call.id && each.callId === call.id);
  const output = call.status === "running" ? outputOf({ output: outputs } as SessionState, call.id) : null;
  return (
    <div class="column">
      <ToolCard call={call} waiting={waitingFor(open)} output={output?.stdout || output?.stderr ? output : null} />
      {open.map((each) => <OpenDecision key={each.id} id={each.id} />)}
    </div>
  );
}

/** Texts, and what stands beside them: a file or picture is named with its address, never loaded. */
function Parts({ blocks, plain }: { blocks: Block[]; plain?: boolean }) {
  return (
    <>
      {blocks.map((block, index) => {
        if (block.type === "text") return plain ? <span key={index}>{block.text}</span> : <Markdown key={index} text={block.text} />;
        if (block.type === "stored") return <span key={index}>{block.preview}<span class="faint">{` … ${count(block.size)} bytes`}</span></span>;
        if (block.type === "image" || block.type === "audio" || block.type === "document") {
          return <span key={index} class="chip"><Icon name="file" />{`${block.type} ${block.media_type ?? ""} ${"url" in block ? (block.url ?? "") : ""}`}</span>;
        }
        return null;
      })}
    </>
  );
}

function Notice({ message }: { message: Message }) {
  const block = message.blocks[0];
  if (block?.type !== "notice") return null;
  if (block.kind === "context.compacted") return <Compaction text={block.text} data={block.data as unknown as EventOf<"context.compacted">["data"]} />;
  return <div class="row faint small"><Icon name="flag" /><span class="mono">{block.kind}</span><span class="grow" style={{ overflowWrap: "anywhere" }}>{block.text}</span></div>;
}

/** What the model sees from here on; everything above is still in the log. */
function Compaction({ text, data }: { text: string; data: EventOf<"context.compacted">["data"] }) {
  return (
    <details class="fold faint small">
      <summary>
        <span class="caret"><Icon name="caret" /></span>
        {`context compacted${data.trigger === "manual" ? " on request" : ""}`}
        {data.before ? `: ${compact(data.before)} → ${compact(data.after ?? 0)} tokens` : ""}
        {data.failure ? `, without a summary: ${data.failure}` : ""}
      </summary>
      <Markdown text={text} />
    </details>
  );
}

function TurnFoot({ turn, waiting, session, text, onFork }: { turn: TurnState; waiting: string; session: string; text: () => string; onFork: ((cursor: string) => void) | undefined }) {
  const usage = turn.usage;
  const bad = turn.status === "failed";
  return (
    <>
      {turn.error && <div class="notice" role="alert"><Icon name="alert" /><span><b>{turn.error.code}</b>: {turn.error.message}</span></div>}
      <div class="turn-foot">
        {turn.ended ? <span class={bad ? "is-error" : ""}>{turn.status}{turn.limit ? ` (limit: ${turn.limit})` : ""}{turn.note ? `: ${turn.note}` : ""}</span> : <span>{waiting || turn.status}</span>}
        <span>{clock(turn.started)}</span>
        {turn.durationMs !== null && <span>{duration(turn.durationMs)}</span>}
        {usage.input + usage.output > 0 && <span title={`input ${count(usage.input)}, output ${count(usage.output)}, cached ${count(usage.cache_read)}, reasoning ${count(usage.reasoning)}`}>{`${compact(usage.input)} in · ${compact(usage.output)} out`}</span>}
        {usage.cost > 0 && <span>{cost(usage.cost)}</span>}
        <span class="actions">
          {turn.ended && <CopyButton text={text} label="Copy the answer" />}
          <a class="button plain small" href={path("traces", session, turn.id)} title="Trace of this turn" aria-label="Trace of this turn"><Icon name="trace" /></a>
          {turn.ended && onFork && <ScopedButton scope="runs:write" class="plain small" title="Fork here" aria-label={`Fork after this turn, at ${turn.endCursor}`} onClick={() => onFork(turn.endCursor)}><Icon name="fork" /></ScopedButton>}
        </span>
      </div>
    </>
  );
}
