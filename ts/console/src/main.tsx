import { render } from "preact";
import { useEffect } from "preact/hooks";
import { signedIn, signIn } from "./api.ts";
import { Empty } from "./components/basics.tsx";
import { startKeys } from "./keys.ts";
import { followInbox } from "./live.ts";
import { AgentsPage } from "./pages/Agents.tsx";
import { ApprovalsPage } from "./pages/Approvals.tsx";
import { ChatPage } from "./pages/Chat.tsx";
import { ComparePage } from "./pages/Compare.tsx";
import { LoginPage } from "./pages/Login.tsx";
import { SessionPage } from "./pages/Session.tsx";
import { SessionsPage } from "./pages/Sessions.tsx";
import { SettingsPage } from "./pages/Settings.tsx";
import { TracesPage } from "./pages/Traces.tsx";
import { UsagePage } from "./pages/Usage.tsx";
import { path, type Route, route, startRouter } from "./router.ts";
import { openApprovals, recent, startRefreshing } from "./shared.ts";
import { PLACES, Shell } from "./shell.tsx";
import { startTheme } from "./theme.ts";
import { report } from "./toast.ts";
import "./styles/base.css";
import "./styles/shell.css";
import "./styles/chat.css";
import "./styles/data.css";

function Page({ at }: { at: Route }) {
  switch (at.page) {
    case "chat": case "login": return <ChatPage />;
    case "sessions": return at.rest.length ? <SessionPage /> : <SessionsPage />;
    case "traces": return <TracesPage />;
    case "approvals": return <ApprovalsPage />;
    case "compare": return <ComparePage />;
    case "usage": return <UsagePage />;
    case "agents": return <AgentsPage />;
    case "settings": return <SettingsPage />;
    default: return <Empty icon="search" title="There is no such page"><a href={path("chat")}>To the chat</a></Empty>;
  }
}

function crumbsOf(at: Route) {
  const label = PLACES.find((place) => place.page === at.page)?.label ?? "Chat";
  if (!at.rest.length) return [label];
  const title = recent.value.find((session) => session.id === at.rest[0])?.title || at.rest[0]!;
  const isSession = at.page === "chat" || at.page === "sessions" || at.page === "traces";
  return [<a href={path(at.page)}>{label}</a>, isSession ? title : at.rest.join(" / ")];
}

function Console() {
  const at = route.value;
  const crumbs = crumbsOf(at);
  useEffect(startRefreshing, []);
  useEffect(() => {
    // A browser opens few connections to one server: a page out of sight must not hold one.
    let stop = followInbox();
    const onVisible = () => { stop(); if (!document.hidden) stop = followInbox(); };
    document.addEventListener("visibilitychange", onVisible);
    return () => { document.removeEventListener("visibilitychange", onVisible); stop(); };
  }, []);
  const last = crumbs.at(-1);
  const open = openApprovals.value;
  useEffect(() => { document.title = `${open ? `(${open}) ` : ""}${typeof last === "string" ? last : "Chat"} · vaka`; }, [last, open]);
  return <Shell crumbs={crumbs}><Page at={at} /></Shell>;
}

function App() {
  const known = signedIn.value;
  useEffect(() => { signIn().catch((error: unknown) => { signedIn.value = true; report(error); }); }, []);
  if (known === null) return <div class="login" role="status"><span class="spinner" /><span class="sr">Loading</span></div>;
  return known ? <Console /> : <LoginPage />;
}

startTheme();
startRouter();
startKeys();
render(<App />, document.getElementById("app")!);
