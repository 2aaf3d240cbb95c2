import { signal } from "@preact/signals";

export interface Toast {
  id: number;
  text: string;
  kind: "ok" | "error";
}

export const toasts = signal<Toast[]>([]);
let next = 1;

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

export function toast(text: string, kind: Toast["kind"] = "ok"): void {
  const id = next++;
  toasts.value = [...toasts.value.slice(-3), { id, text, kind }];
  setTimeout(() => dismiss(id), kind === "error" ? 9000 : 3500);
}

export function report(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), "error");
}

export async function copy(text: string, what = "Copied"): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    toast(what);
  } catch {
    // Clipboard access needs a secure context; a selection works everywhere.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    toast(what);
  }
}
