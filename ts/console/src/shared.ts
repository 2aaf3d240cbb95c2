import { signal } from "@preact/signals";
import { api, signedIn } from "./api.ts";
import type { Agent, Session } from "./types.ts";

/** Recent sessions and the agents, which several pages show. */
export const recent = signal<Session[]>([]);
export const agents = signal<Agent[]>([]);
export const openApprovals = signal(0);

let loading = false;

export async function refreshSessions(): Promise<void> {
  if (loading || !signedIn.value) return;
  loading = true;
  try {
    recent.value = (await api.sessions({ limit: "60" })).data;
  } catch {
    // The list stays as it was; the connection pill says that the server is away.
  } finally {
    loading = false;
  }
}

export async function refreshAgents(): Promise<void> {
  try {
    agents.value = (await api.agents()).data;
  } catch {
    // as above
  }
}

const REFRESH_MS = 15_000;

/** Keep the lists fresh while the page is in sight. */
export function startRefreshing(): () => void {
  const refresh = () => { if (!document.hidden) void refreshSessions(); };
  void refreshSessions();
  void refreshAgents();
  const timer = setInterval(refresh, REFRESH_MS);
  document.addEventListener("visibilitychange", refresh);
  return () => {
    clearInterval(timer);
    document.removeEventListener("visibilitychange", refresh);
  };
}
