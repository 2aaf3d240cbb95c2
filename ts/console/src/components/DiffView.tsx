import { diffLines, diffWordsWithSpace } from "diff";
import type { ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";

interface Line {
  kind: "same" | "add" | "del";
  before: number | null;
  after: number | null;
  text: ComponentChildren;
}

const CONTEXT = 3;
const LIMIT = 200_000;

/** Two texts as one list of lines; equal stretches are folded, changed lines show which words changed. */
export function DiffView({ before, after, title }: { before: string; after: string; title?: string }) {
  const { lines, added, removed } = useMemo(() => compare(before, after), [before, after]);
  const [opened, setOpened] = useState<Set<number>>(new Set());
  const rows: ComponentChildren[] = [];
  for (const stretch of fold(lines)) {
    if (stretch.folded && !opened.has(stretch.first)) {
      rows.push(
        <button type="button" class="skip-lines" key={`f${stretch.first}`} onClick={() => setOpened(new Set([...opened, stretch.first]))}>
          {`${stretch.last - stretch.first} equal lines`}
        </button>,
      );
      continue;
    }
    for (let index = stretch.first; index < stretch.last; index++) rows.push(<Row key={index} line={lines[index]!} />);
  }
  return (
    <div class="diff">
      <header>
        <span class="mono ellipsis grow" title={title}>{title ?? "changes"}</span>
        <span class="plus">+{added}</span><span class="minus">−{removed}</span>
      </header>
      <div class="lines" tabIndex={0} role="region" aria-label={`Changes of ${title ?? "a text"}`}>{rows}</div>
    </div>
  );
}

function Row({ line }: { line: Line }) {
  return (
    <div class={`line ${line.kind}`}>
      <span class="n">{line.before ?? ""}</span>
      <span class="n">{line.after ?? ""}</span>
      <span class="s">{line.kind === "add" ? "+" : line.kind === "del" ? "−" : " "}</span>
      <span>{line.text}</span>
    </div>
  );
}

function compare(before: string, after: string): { lines: Line[]; added: number; removed: number } {
  const lines: Line[] = [];
  let left = 1;
  let right = 1;
  const tooLong = before.length + after.length > LIMIT;
  const parts = tooLong
    ? [{ value: before, removed: true, added: false }, { value: after, added: true, removed: false }]
    : diffLines(before, after);
  let added = 0;
  let removed = 0;
  parts.forEach((part, index) => {
    const texts = part.value.replace(/\n$/, "").split("\n");
    if (part.value === "") return;
    const previous = parts[index - 1];
    const next = parts[index + 1];
    const partner = part.removed && next?.added ? next : part.added && previous?.removed ? previous : undefined;
    const others = partner?.value.replace(/\n$/, "").split("\n");
    texts.forEach((text, at) => {
      const other = others?.[at];
      const shown = other === undefined || tooLong || text.length > 2000 ? text : words(part.removed ? text : other, part.removed ? other : text, !!part.removed);
      if (part.removed) { removed++; lines.push({ kind: "del", before: left++, after: null, text: shown }); }
      else if (part.added) { added++; lines.push({ kind: "add", before: null, after: right++, text: shown }); }
      else lines.push({ kind: "same", before: left++, after: right++, text });
    });
  });
  return { lines, added, removed };
}

function words(before: string, after: string, removed: boolean): ComponentChildren {
  return diffWordsWithSpace(before, after).map((part, index) => {
    if (part.added) return removed ? null : <ins key={index}>{part.value}</ins>;
    if (part.removed) return removed ? <del key={index}>{part.value}</del> : null;
    return part.value;
  });
}

function fold(lines: Line[]): { first: number; last: number; folded: boolean }[] {
  const stretches: { first: number; last: number; folded: boolean }[] = [];
  let index = 0;
  while (index < lines.length) {
    const same = lines[index]!.kind === "same";
    let end = index;
    while (end < lines.length && (lines[end]!.kind === "same") === same) end++;
    const first = index === 0 ? index : index + CONTEXT;
    const last = end === lines.length ? end : end - CONTEXT;
    if (same && last - first > 2) {
      if (first > index) stretches.push({ first: index, last: first, folded: false });
      stretches.push({ first, last, folded: true });
      if (last < end) stretches.push({ first: last, last: end, folded: false });
    } else stretches.push({ first: index, last: end, folded: false });
    index = end;
  }
  return stretches;
}

/** Two texts in running prose, with the words that changed. */
export function WordDiff({ before, after, side }: { before: string; after: string; side: "before" | "after" }) {
  const parts = useMemo(() => (before.length + after.length > LIMIT ? null : diffWordsWithSpace(before, after)), [before, after]);
  if (!parts) return <div class="words">{side === "before" ? before : after}</div>;
  return (
    <div class="words">
      {parts.map((part, index) => {
        if (part.added) return side === "after" ? <ins key={index}>{part.value}</ins> : null;
        if (part.removed) return side === "before" ? <del key={index}>{part.value}</del> : null;
        return part.value;
      })}
    </div>
  );
}
