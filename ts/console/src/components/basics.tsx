import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { Icon, type IconName } from "../icons.tsx";
import { copy } from "../toast.ts";

export function CopyButton({ text, label = "Copy" }: { text: string | (() => string); label?: string }) {
  return (
    <button type="button" class="plain small" onClick={() => copy(typeof text === "string" ? text : text())} aria-label={label} title={label}>
      <Icon name="copy" />
    </button>
  );
}

/** A command of the terminal, ready to be copied. */
export function Command({ text }: { text: string }) {
  return (
    <span class="command">
      <code tabIndex={0}>{text}</code>
      <CopyButton text={text} label={`Copy the command: ${text}`} />
    </span>
  );
}

export function Empty({ icon, title, children, command }: { icon: IconName; title: string; children?: ComponentChildren; command?: string }) {
  return (
    <div class="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
      {command && <Command text={command} />}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return <div class="empty" role="status"><span class="spinner" /> {`Loading ${what}`}</div>;
}

export function Failure({ error, retry }: { error: Error; retry?: () => void }) {
  return (
    <div class="pad column">
      <div class="notice" role="alert"><Icon name="alert" /><span class="grow">{error.message}</span></div>
      {retry && <div><button type="button" onClick={retry}>Try again</button></div>}
    </div>
  );
}

export function Status({ status }: { status: string }) {
  const kind = { running: "accent", queued: "", waiting: "warn", failed: "error", error: "error", completed: "ok", ok: "ok" }[status] ?? "";
  return (
    <span class={`chip ${kind}`}>
      <span class={`dot ${status === "running" ? "pulse" : ""}`} />{status || "unknown"}
    </span>
  );
}

/** Data of the server: loading, failed or here. `load` runs again when `deps` change and when `reload` is called. */
export function useLoaded<T>(load: () => Promise<T>, deps: unknown[]): { data: T | undefined; error: Error | undefined; reload: () => void } {
  const [state, setState] = useState<{ data?: T; error?: Error }>({});
  const [round, setRound] = useState(0);
  const first = useRef(true);
  useEffect(() => {
    let current = true;
    if (!first.current && round === 0) setState({});
    first.current = false;
    load().then(
      (data) => { if (current) setState({ data }); },
      (error: unknown) => { if (current) setState((now) => ({ ...now, error: error instanceof Error ? error : new Error(String(error)) })); },
    );
    return () => { current = false; };
  }, [...deps, round]);
  return { data: state.data, error: state.error, reload: () => setRound((now) => now + 1) };
}

/** The time, again each second, for ages and expiries. */
export function useNow(every = 1000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), every);
    return () => clearInterval(timer);
  }, [every]);
  return now;
}

export function Modal({ title, onClose, children, top }: { title: string; onClose: () => void; children: ComponentChildren; top?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const element = dialog.current;
    if (element && !element.open) element.showModal();
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog} class={top ? "top" : ""} aria-label={title}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => { if (event.target === dialog.current) onClose(); }}
    >
      <header>
        <h2>{title}</h2>
        <button type="button" class="plain square" onClick={onClose} aria-label="Close"><Icon name="cross" /></button>
      </header>
      <div class="body">{children}</div>
    </dialog>
  );
}

export function download(name: string, text: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}
