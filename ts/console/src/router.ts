import { signal } from "@preact/signals";

/** The folder of the server under which the console lives. */
export const BASE = "/console";

export interface Route {
  page: string;
  /** Decoded parts of the path after the page. */
  rest: string[];
  query: URLSearchParams;
}

function read(): Route {
  const parts = location.pathname.slice(BASE.length).split("/").filter(Boolean).map(decodePart);
  return { page: parts[0] ?? "chat", rest: parts.slice(1), query: new URLSearchParams(location.search) };
}

function decodePart(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

export const route = signal<Route>(read());

/** The address of a page: `path("sessions", id, "trace")`. */
export function path(...parts: string[]): string {
  return [BASE, ...parts.map(encodeURIComponent)].join("/");
}

export function navigate(address: string, replace = false): void {
  if (replace) history.replaceState(null, "", address);
  else history.pushState(null, "", address);
  route.value = read();
}

/** Change the query of the current page without a new entry in the history. */
export function setQuery(changes: Record<string, string | null>): void {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  const text = query.toString();
  navigate(location.pathname + (text ? `?${text}` : ""), true);
}

function onClick(event: MouseEvent): void {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname !== BASE && !link.pathname.startsWith(`${BASE}/`)) return;
  event.preventDefault();
  navigate(link.pathname + link.search);
}

export function startRouter(): void {
  addEventListener("popstate", () => { route.value = read(); });
  document.addEventListener("click", onClick);
}
