import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { Modal, useNow } from "./components/basics.tsx";
import { CommandPalette, paletteOpen } from "./components/CommandPalette.tsx";
import { duration } from "./format.ts";
import { Icon, type IconName, Mark } from "./icons.tsx";
import { shortcuts, useShortcuts } from "./keys.ts";
import { connection } from "./live.ts";
import { navigate, path, route } from "./router.ts";
import { openApprovals } from "./shared.ts";
import { isDark, toggleTheme } from "./theme.ts";
import { dismiss, toasts } from "./toast.ts";

interface Place {
  page: string;
  label: string;
  icon: IconName;
  key: string;
  wide?: boolean;
}

export const PLACES: Place[] = [
  { page: "chat", label: "Chat", icon: "chat", key: "c" },
  { page: "sessions", label: "Sessions", icon: "list", key: "s" },
  { page: "traces", label: "Traces", icon: "trace", key: "t" },
  { page: "approvals", label: "Approvals", icon: "inbox", key: "a" },
  { page: "compare", label: "Compare", icon: "compare", key: "d", wide: true },
  { page: "usage", label: "Usage", icon: "chart", key: "u" },
  { page: "agents", label: "Agents and tools", icon: "agent", key: "g" },
  { page: "settings", label: "Settings", icon: "settings", key: "," },
];

const helpOpen = signal(false);
const detailsOpen = signal(false);

export function Shell({ crumbs, children }: { crumbs: ComponentChildren[]; children: ComponentChildren }) {
  const main = useRef<HTMLElement>(null);
  useShortcuts([
    { keys: "Ctrl+K", label: "Search and commands", group: "Everywhere", always: true, run: () => { paletteOpen.value = !paletteOpen.value; } },
    { keys: "?", label: "Keyboard shortcuts", group: "Everywhere", run: () => { helpOpen.value = true; } },
    ...PLACES.map((place) => ({ keys: `g ${place.key}`, label: place.label, group: "Go to", run: () => navigate(path(place.page)) })),
  ]);
  useEffect(() => { detailsOpen.value = false; }, [route.value]);
  return (
    <div class="shell">
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); main.current?.focus(); }}>Skip to the content</a>
      <Rail />
      <div class="topbar" role="banner">
        <nav class="crumbs" aria-label="Where you are">
          {crumbs.map((crumb, index) => index === crumbs.length - 1
            ? <h1 key={index}>{crumb}</h1>
            : <span key={index} class="row" style={{ gap: "6px" }}>{crumb}<span class="sep" aria-hidden="true">/</span></span>)}
        </nav>
        <button type="button" class="plain search-open small" onClick={() => { paletteOpen.value = true; }} title="Search and commands (Ctrl+K)">
          <Icon name="search" /><span class="text">Search</span><kbd aria-hidden="true">Ctrl K</kbd>
        </button>
        <ConnPill />
      </div>
      <main id="main" ref={main} tabIndex={-1}>
        {children}
        {detailsOpen.value && <ConnDetails />}
      </main>
      {paletteOpen.value && <CommandPalette />}
      {helpOpen.value && <Help />}
      <div class="toasts" aria-live="polite">
        {toasts.value.map((each) => (
          <div key={each.id} class={`toast ${each.kind}`} role={each.kind === "error" ? "alert" : "status"}>
            <span class="grow">{each.text}</span>
            <button type="button" class="plain small" aria-label="Dismiss" onClick={() => dismiss(each.id)}><Icon name="cross" /></button>
          </div>
        ))}
      </div>
    </div>
  );
}

function Rail() {
  const current = route.value.page;
  return (
    <nav class="rail" aria-label="Pages">
      <span class="mark"><Mark /></span>
      {PLACES.map((place) => (
        <a
          key={place.page} class={`item ${place.wide ? "wide" : ""}`} href={path(place.page)} data-label={place.label} aria-current={current === place.page ? "page" : undefined}
          aria-label={place.page === "approvals" && openApprovals.value ? `${place.label}, ${openApprovals.value} open` : place.label}
        >
          <Icon name={place.icon} />
          {place.page === "approvals" && openApprovals.value > 0 && <span class="count">{openApprovals.value > 99 ? "99+" : openApprovals.value}</span>}
        </a>
      ))}
      <span class="space" />
      <button type="button" class="item wide" onClick={() => { helpOpen.value = true; }} data-label="Shortcuts (?)" aria-label="Keyboard shortcuts"><Icon name="question" /></button>
      <button type="button" class="item wide" onClick={toggleTheme} data-label={isDark() ? "Light" : "Dark"} aria-label={isDark() ? "Use the light theme" : "Use the dark theme"}><Icon name={isDark() ? "sun" : "moon"} /></button>
    </nav>
  );
}

function ConnPill() {
  const { link, attempts } = connection.value;
  return (
    <button type="button" class={`pill ${link}`} aria-expanded={detailsOpen.value} onClick={() => { detailsOpen.value = !detailsOpen.value; }} data-link={link}>
      <span class={`dot ${link === "live" ? "" : "pulse"}`} /><span role="status">{link}{link === "reconnecting" && attempts > 1 ? ` (${attempts})` : ""}</span>
    </button>
  );
}

function ConnDetails() {
  const now = useNow();
  const { link, of, cursor, attempts, since } = connection.value;
  return (
    <div class="popover" role="dialog" aria-label="Connection">
      <dl>
        <dt>state</dt><dd>{link}</dd>
        <dt>for</dt><dd>{duration(Math.max(1000, now - since))}</dd>
        <dt>follows</dt><dd class="mono">{of || "approvals"}</dd>
        <dt>cursor</dt><dd class="mono">{cursor || "–"}</dd>
        {attempts > 0 && <><dt>attempts</dt><dd>{attempts}</dd></>}
      </dl>
      <p class="muted small" style={{ marginTop: "8px" }}>After a break the stream goes on at the cursor; nothing is lost or shown twice.</p>
    </div>
  );
}

function Help() {
  const groups = new Map<string, { keys: string; label: string }[]>();
  for (const each of shortcuts.value) groups.set(each.group, [...(groups.get(each.group) ?? []), each]);
  return (
    <Modal title="Keyboard shortcuts" onClose={() => { helpOpen.value = false; }}>
      <div class="shortcuts">
        {[...groups].map(([group, list]) => (
          <section key={group}>
            <h3>{group}</h3>
            <ul>{list.map((each) => <li key={each.keys + each.label}><span>{each.label}</span><span>{each.keys.split(" ").map((key) => <kbd key={key}>{key}</kbd>)}</span></li>)}</ul>
          </section>
        ))}
      </div>
    </Modal>
  );
}
