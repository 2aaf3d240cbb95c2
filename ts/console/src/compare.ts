import { type Message, type SessionState, textOf, toArray } from "@vaka/client/store.ts";

/** One thing that was said or done, as a row of a comparison. */
export interface Item {
  kind: "user" | "assistant" | "tool";
  name: string;
  text: string;
  status: string;
  ms: number | null;
  cursor: string;
}

export function itemsOf(state: SessionState): Item[] {
  return toArray(state.messages).flatMap(itemsOfMessage);
}

function itemsOfMessage(message: Message): Item[] {
  if (message.role === "notice") return [];
  const items: Item[] = [];
  const text = textOf(message.blocks);
  const who = message.path.join("/");
  if (text) items.push({ kind: message.role, name: who, text, status: message.status, ms: null, cursor: message.cursor });
  for (const block of message.blocks) {
    if (block.type !== "call") continue;
    const result = block.result as { content?: { text?: string; preview?: string }[] } | null;
    const said = (result?.content ?? []).map((part) => part.text ?? part.preview ?? "").join("\n");
    items.push({ kind: "tool", name: block.name, text: `${JSON.stringify(block.arguments, null, 1)}\n${said}`, status: block.status, ms: block.durationMs, cursor: message.cursor });
  }
  return items;
}

export interface Pair {
  a: Item | null;
  b: Item | null;
  same: boolean;
}

const MOST = 1500;
const sameItem = (a: Item, b: Item): boolean => a.kind === b.kind && a.name === b.name && a.text === b.text;

/** How alike two items are: equal ones pair first, then those of one kind and name. */
function likeness(a: Item, b: Item): number {
  if (a.kind !== b.kind || a.name !== b.name) return 0;
  return a.text === b.text ? 3 : 1;
}

/** Align two lists: the longest common way through, after the equal beginning and end are set aside. */
export function align(a: Item[], b: Item[]): Pair[] {
  let start = 0;
  while (start < a.length && start < b.length && sameItem(a[start]!, b[start]!)) start++;
  const head = a.slice(0, start).map((item, index): Pair => ({ a: item, b: b[index]!, same: true }));
  return [...head, ...alignRest(a.slice(start, start + MOST), b.slice(start, start + MOST))];
}

function alignRest(a: Item[], b: Item[]): Pair[] {
  const width = b.length + 1;
  const best = new Float64Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      const like = likeness(a[i]!, b[j]!);
      const paired = like ? like + best[(i + 1) * width + j + 1]! : 0;
      best[i * width + j] = Math.max(paired, best[(i + 1) * width + j]!, best[i * width + j + 1]!);
    }
  }
  const pairs: Pair[] = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    const like = i < a.length && j < b.length ? likeness(a[i]!, b[j]!) : 0;
    if (like && best[i * width + j] === like + best[(i + 1) * width + j + 1]!) {
      pairs.push({ a: a[i]!, b: b[j]!, same: like === 3 });
      i++; j++;
    } else if (j >= b.length || (i < a.length && best[(i + 1) * width + j]! >= best[i * width + j + 1]!)) pairs.push({ a: a[i++]!, b: null, same: false });
    else pairs.push({ a: null, b: b[j++]!, same: false });
  }
  return pairs;
}

export interface Figures {
  turns: number;
  steps: number;
  calls: number;
  input: number;
  output: number;
  cost: number;
  ms: number;
}

export function figuresOf(state: SessionState, items: Item[]): Figures {
  const turns = toArray(state.turns);
  const sum = (value: (turn: (typeof turns)[number]) => number) => turns.reduce((total, turn) => total + value(turn), 0);
  return {
    turns: turns.length, steps: sum((turn) => turn.steps), calls: items.filter((item) => item.kind === "tool").length,
    input: state.usage.input, output: state.usage.output, cost: state.usage.cost, ms: sum((turn) => turn.durationMs ?? 0),
  };
}
