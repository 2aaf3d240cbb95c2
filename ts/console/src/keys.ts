import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

export interface Shortcut {
  /** As shown and as matched: "j", "?", "Ctrl+K", "g s". */
  keys: string;
  label: string;
  group: string;
  run: () => void;
  /** Also while a text field has the focus. */
  always?: boolean;
}

/** Every shortcut that works on the page as it is now; the help dialog lists them. */
export const shortcuts = signal<Shortcut[]>([]);

let prefix = "";
let prefixTimer = 0;

function nameOf(event: KeyboardEvent): string {
  const held = event.ctrlKey || event.metaKey ? "Ctrl+" : "";
  const key = event.key.length === 1 && held ? event.key.toUpperCase() : event.key;
  return held + (event.altKey ? "Alt+" : "") + key;
}

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element?.closest?.("input:not([type=checkbox]):not([type=range]), textarea, select, [contenteditable]");
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing) return;
  const name = nameOf(event);
  const typing = isTyping(event.target);
  const inDialog = !!document.querySelector("dialog[open]");
  const sequence = prefix ? `${prefix} ${name}` : name;
  const all = shortcuts.value;
  const found = all.findLast((each) => each.keys === sequence && (each.always || !(typing || inDialog)));
  prefix = "";
  clearTimeout(prefixTimer);
  if (found) {
    event.preventDefault();
    found.run();
  } else if (!typing && !inDialog && all.some((each) => each.keys.startsWith(`${name} `))) {
    prefix = name;
    prefixTimer = window.setTimeout(() => { prefix = ""; }, 1200);
  }
}

export function startKeys(): void {
  addEventListener("keydown", onKey);
}

/** Shortcuts that work while the component is on the page; the last one mounted wins. A key acts on what is drawn now. */
export function useShortcuts(list: Shortcut[]): void {
  const latest = useRef(list);
  latest.current = list;
  useEffect(() => {
    const mine = list.map((each, index) => ({ ...each, run: () => latest.current[index]?.run() }));
    shortcuts.value = [...shortcuts.value, ...mine];
    return () => { shortcuts.value = shortcuts.value.filter((each) => !mine.includes(each)); };
  }, []);
}
