import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon } from "../icons.tsx";
import { useShortcuts } from "../keys.ts";
import { missing, ScopedButton, ScopeNotice } from "../scopes.tsx";
import { agents } from "../shared.ts";
import { report } from "../toast.ts";

interface Props {
  /** Under which name an unsent text is kept, so that a reload does not lose it. */
  draft: string;
  running: boolean;
  agent: string;
  onAgent?: (agent: string) => void;
  onSend: (input: string, key: string, steer: boolean) => Promise<void>;
  onStop?: () => void;
}

export function Composer({ draft, running, agent, onAgent, onSend, onStop }: Props) {
  const store = `vaka.draft.${draft}`;
  const [text, setText] = useState(sessionStorage.getItem(store) ?? "");
  const [busy, setBusy] = useState(false);
  const area = useRef<HTMLTextAreaElement>(null);
  const key = useRef(newKey());
  const readOnly = missing("runs:write") !== "";
  const notice = useId();
  useEffect(() => { if (matchMedia("(hover: hover)").matches) area.current?.focus(); }, [draft]);
  useEffect(() => { if (text) sessionStorage.setItem(store, text); else sessionStorage.removeItem(store); }, [text, store]);
  useLayoutEffect(() => {
    const element = area.current;
    if (!element) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);
  useShortcuts([{ keys: "/", label: "Write a message", group: "Chat", run: () => area.current?.focus() }]);

  const send = async (steer: boolean) => {
    const input = text.trim();
    if (!input || busy || readOnly) return;
    setBusy(true);
    try {
      // The key stays the same until the server has the message: sending again after an error cannot send it twice.
      await onSend(input, key.current, steer);
      key.current = newKey();
      setText("");
      sessionStorage.removeItem(store);
    } catch (error) {
      report(error);
    } finally {
      setBusy(false);
      area.current?.focus();
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      void send(running && (event.ctrlKey || event.metaKey));
    } else if (event.key === "Escape") area.current?.blur();
  };
  return (
    <div class="composer">
      <div class="inner column">
        <ScopeNotice scope="runs:write" id={notice}>You can read this, but not write</ScopeNotice>
        <div class="box">
          <textarea
            ref={area} rows={1} value={text} readOnly={readOnly} aria-label="Message" aria-describedby={readOnly ? notice : undefined}
            placeholder={readOnly ? "Read only" : running ? "Add a message; it waits for the turn, or steer it now" : "Message"}
            onInput={(event) => setText(event.currentTarget.value)} onKeyDown={onKeyDown}
          />
          <div class="bar">
            {onAgent ? (
              <select aria-label="Agent" value={agent} onChange={(event) => onAgent(event.currentTarget.value)}>
                {agents.value.map((each) => <option key={each.name} value={each.name}>{each.name}</option>)}
              </select>
            ) : <span class="chip ellipsis"><Icon name="agent" />{agent || "agent"}</span>}
            <span class="grow faint small hint ellipsis">{readOnly ? "" : running ? "Enter queues · Ctrl+Enter steers · Esc, Esc stops" : "Enter sends · Shift+Enter breaks the line"}</span>
            {running && <ScopedButton scope="runs:write" disabled={busy || !text.trim()} onClick={() => send(true)}><Icon name="steer" />Steer</ScopedButton>}
            {running && onStop && <ScopedButton scope="runs:write" class="danger" onClick={onStop}><Icon name="stop" />Stop</ScopedButton>}
            <ScopedButton scope="runs:write" class="primary" disabled={busy || !text.trim()} onClick={() => send(false)} aria-label={running ? "Queue the message" : "Send the message"}><Icon name="send" />{running ? "Queue" : "Send"}</ScopedButton>
          </div>
        </div>
      </div>
    </div>
  );
}

const newKey = (): string => `console-${Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
