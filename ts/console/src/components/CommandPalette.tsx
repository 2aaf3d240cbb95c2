import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { api } from "../api.ts";
import { ago } from "../format.ts";
import { Icon, type IconName } from "../icons.tsx";
import { navigate, path } from "../router.ts";
import { agents, recent } from "../shared.ts";
import { PLACES } from "../shell.tsx";
import { toggleTheme } from "../theme.ts";
import type { Session } from "../types.ts";

export const paletteOpen = signal(false);

interface Entry {
  id: string;
  label: string;
  hint: string;
  icon: IconName;
  run: () => void;
}

/** How well the letters of a query appear in a text, in order; 0: not at all. */
export function score(query: string, text: string): number {
  const wanted = query.toLowerCase();
  const inside = text.toLowerCase();
  const whole = inside.indexOf(wanted);
  if (whole >= 0) return 1000 - whole - inside.length / 100;
  let at = -1;
  let gaps = 0;
  for (const letter of wanted) {
    const next = inside.indexOf(letter, at + 1);
    if (next < 0) return 0;
    gaps += next - at - 1;
    at = next;
  }
  return Math.max(1, 400 - gaps);
}

function sessionEntry(session: Session): Entry {
  return { id: `s-${session.id}`, label: session.title || session.id, hint: `${session.agent} · ${ago(session.updated)}`, icon: "chat", run: () => navigate(path("chat", session.id)) };
}

export function CommandPalette() {
  const dialog = useRef<HTMLDialogElement>(null);
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const [found, setFound] = useState<Session[]>([]);
  useLayoutEffect(() => { dialog.current?.showModal(); }, []);

  useEffect(() => {
    if (query.trim().length < 2) return setFound([]);
    const timer = setTimeout(() => api.sessions({ q: query.trim(), limit: "20" }).then((page) => setFound(page.data), () => setFound([])), 150);
    return () => clearTimeout(timer);
  }, [query]);

  const entries = useMemo<Entry[]>(() => {
    const known = new Map([...recent.value, ...found].map((session) => [session.id, session]));
    return [
      { id: "new", label: "New chat", hint: "", icon: "plus", run: () => navigate(path("chat")) },
      ...PLACES.map((place): Entry => ({ id: place.page, label: place.label, hint: `g ${place.key}`, icon: place.icon, run: () => navigate(path(place.page)) })),
      { id: "theme", label: "Switch between light and dark", hint: "", icon: "moon", run: toggleTheme },
      ...agents.value.map((agent): Entry => ({ id: `a-${agent.name}`, label: `New chat with ${agent.name}`, hint: agent.model, icon: "agent", run: () => navigate(`${path("chat")}?agent=${encodeURIComponent(agent.name)}`) })),
      ...[...known.values()].map(sessionEntry),
    ];
  }, [recent.value, agents.value, found]);
  const shown = query.trim()
    ? entries.map((entry) => ({ entry, rank: score(query.trim(), `${entry.label} ${entry.hint}`) })).filter((each) => each.rank > 0).sort((a, b) => b.rank - a.rank).slice(0, 40).map((each) => each.entry)
    : entries.slice(0, 30);
  const chosen = Math.min(at, shown.length - 1);
  const close = () => { dialog.current?.close(); paletteOpen.value = false; };
  const run = (entry: Entry | undefined) => { if (entry) { close(); entry.run(); } };

  return (
    <dialog
      ref={dialog} class="palette top" aria-label="Search and commands" onCancel={(event) => { event.preventDefault(); close(); }}
      onClick={(event) => { if (event.target === dialog.current) close(); }}
      onKeyDown={(event) => {
        if (event.key === "ArrowDown") setAt(Math.min(shown.length - 1, chosen + 1));
        else if (event.key === "ArrowUp") setAt(Math.max(0, chosen - 1));
        else if (event.key === "Enter") run(shown[chosen]);
        else return;
        event.preventDefault();
      }}
    >
      <input
        autofocus role="combobox" aria-expanded="true" aria-controls="palette-list" aria-activedescendant={shown[chosen] ? `palette-${chosen}` : undefined} aria-label="Search pages, agents and sessions"
        placeholder="Search pages, agents and sessions" value={query} onInput={(event) => { setQuery(event.currentTarget.value); setAt(0); }}
      />
      <ul id="palette-list" role="listbox" aria-label="Results">
        {shown.map((entry, index) => (
          <li key={entry.id} id={`palette-${index}`} role="option" aria-selected={index === chosen} onClick={() => run(entry)} onPointerMove={() => setAt(index)} ref={index === chosen ? (element) => element?.scrollIntoView?.({ block: "nearest" }) : undefined}>
            <Icon name={entry.icon} /><span class="ellipsis">{entry.label}</span><span class="hint ellipsis">{entry.hint}</span>
          </li>
        ))}
        {shown.length === 0 && <li role="option" aria-selected="false">Nothing found</li>}
      </ul>
      <footer><span><kbd>↑</kbd> <kbd>↓</kbd> choose</span><span><kbd>Enter</kbd> open</span><span><kbd>Esc</kbd> close</span></footer>
    </dialog>
  );
}
