import { useState } from "preact/hooks";
import { refusal, signIn } from "../api.ts";
import { Command } from "../components/basics.tsx";
import { Mark } from "../icons.tsx";
import { route } from "../router.ts";

const USED_LINK = "This link has been used, or it is too old.";

export function LoginPage() {
  const [key, setKey] = useState("");
  const [failure, setFailure] = useState("");
  const [busy, setBusy] = useState(false);
  const send = async () => {
    setBusy(true);
    setFailure("");
    try {
      await signIn(key.trim());
    } catch (error) {
      setFailure((error as Error).message);
    } finally {
      setBusy(false);
    }
  };
  const refused = refusal.value && `Not signed in: ${refusal.value}`;
  const problem = failure || refused || (route.value.query.get("link") === "refused" && !busy ? USED_LINK : "");
  return (
    <main class="login" id="main">
      <div class="panel card">
        <span class="mark"><Mark /></span>
        <h1>Sign in to vaka</h1>
        <p class="muted">The link that the server prints opens this console. Each link works once; this command prints a new one while the server runs:</p>
        <div><Command text="vaka keys link" /></div>
        <form class="column" onSubmit={(event) => { event.preventDefault(); void send(); }}>
          <label class="field">
            <span>Or use an API key; it stays in this tab</span>
            <input type="password" autocomplete="off" spellcheck={false} placeholder="ak_…" value={key} onInput={(event) => setKey(event.currentTarget.value)} />
          </label>
          {problem && <div class="notice" role="alert">{problem}</div>}
          <div><button type="submit" class="primary" disabled={busy || !key.trim()}>Sign in</button></div>
        </form>
        <p class="faint small">A key is made with <code>vaka keys create</code>.</p>
      </div>
    </main>
  );
}
