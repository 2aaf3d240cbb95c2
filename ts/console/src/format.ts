const NUMBER = new Intl.NumberFormat("en-US");
const COMPACT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });

export const count = (value: number | undefined | null): string => NUMBER.format(value ?? 0);
export const compact = (value: number | undefined | null): string => COMPACT.format(value ?? 0);

export function duration(ms: number | undefined | null): string {
  if (ms === undefined || ms === null || !Number.isFinite(ms)) return "–";
  if (ms < 1) return "<1 ms";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 2 : 1)} s`;
  const minutes = Math.floor(ms / 60_000);
  if (minutes < 60) return `${minutes} min ${Math.round((ms % 60_000) / 1000)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

export function cost(value: number | undefined | null): string {
  if (!value) return "$0";
  return value < 0.01 ? `$${value.toFixed(4)}` : value < 10 ? `$${value.toFixed(3)}` : `$${NUMBER.format(Number(value.toFixed(2)))}`;
}

export const clock = (ts: string | undefined): string => (ts ? CLOCK.format(new Date(ts)) : "");
export const date = (ts: string | undefined): string => (ts ? DATE.format(new Date(ts)) : "");

/** "just now", "5 min ago", "3 d ago". */
export function ago(ts: string | undefined | null, now = Date.now()): string {
  if (!ts) return "";
  const seconds = Math.max(0, (now - Date.parse(ts)) / 1000);
  if (seconds < 10) return "just now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86_400)} d ago`;
}

/** The time left until a moment: "in 4 min 3 s", or "expired". */
export function until(ts: string | undefined | null, now = Date.now()): string {
  if (!ts) return "";
  const left = Date.parse(ts) - now;
  return left <= 0 ? "expired" : `expires in ${duration(left)}`;
}

export const plural = (value: number, noun: string): string => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export function cut(text: string, length: number): string {
  return text.length > length ? `${text.slice(0, length - 1)}…` : text;
}

export function pretty(value: unknown): string {
  return typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
}
