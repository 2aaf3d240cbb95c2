/** Inline drawings on a 16 by 16 grid; each is one path, so that no font and no request is needed. */
const PATHS = {
  chat: "M2.5 3.5h11v7h-6l-3 2.5V10.500h-2z",
  list: "M5.500 4h8M5.500 8h8M5.500 12h8M2.500 4h.01M2.500 8h.01M2.500 12h.01",
  trace: "M2 3.500h6M5 6.500h6M7 9.500h3M9 12.500h5",
  inbox: "M2.500 9.500l1.800-6h7.400l1.800 6v3.500h-11zM2.500 9.500h3l1 1.500h3l1-1.500h3",
  chart: "M2.500 13.500h11M4.500 11V8M8 11V3.500M11.500 11V6",
  agent: "M5 6.500h6v6H5zM8 6.500V4M8 3.500h.01M3 8.500v2M13 8.500v2M6.800 9h.01M9.200 9h.01",
  tool: "M9.500 3a3 3 0 0 0-2.800 4L2.500 11.200l2.300 2.300L9 9.300a3 3 0 0 0 4-2.800l-1.800 1.300-2-.300-.300-2L10.500 3.300z",
  settings: "M2.500 4.500h6M11.500 4.500h2M2.500 11.500h2M7.500 11.500h6M10 3v3M6 10v3",
  compare: "M5.500 2.500v11M10.500 2.500v11M2 5h1.500M2 8h1.500M12.500 5H14M12.500 8H14",
  fork: "M4.500 4.500v7M4.500 8c4 0 7 0 7-3.500M4.500 3.500h.01M11.500 3.500h.01M4.500 12.500h.01",
  play: "M5 3.500v9l7-4.500z",
  pause: "M5.500 3.500v9M10.500 3.500v9",
  stop: "M4.500 4.500h7v7h-7z",
  send: "M8 13V3.500M4 7.500l4-4 4 4",
  steer: "M3 13c0-5 3-6.500 9-6.500M9 3.500l3 3-3 3",
  check: "M3 8.500l3.500 3.500L13 4.500",
  cross: "M4 4l8 8M12 4l-8 8",
  caret: "M6 3.500l4.500 4.500L6 12.500",
  down: "M3.500 6l4.500 4.500L12.500 6",
  back: "M10 3.500L5.500 8l4.500 4.500",
  plus: "M8 3v10M3 8h10",
  search: "M7 11.500a4.500 4.500 0 1 0 0-9 4.500 4.500 0 0 0 0 9zM10.500 10.500l3 3",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  edit: "M3 13l.500-2.500 7-7 2 2-7 7z",
  alert: "M8 2.500l6 11H2zM8 6.500v3.500M8 11.800h.01",
  clock: "M8 14A6 6 0 1 0 8 2a6 6 0 0 0 0 12zM8 4.500V8l2.500 1.500",
  question: "M6 6a2 2 0 1 1 2.700 1.900c-.500.200-.700.600-.700 1.100v.500M8 12h.01M8 14.500a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13z",
  brain: "M8 3.500v9M8 4.500a2 2 0 0 0-3.800.600A2.200 2.200 0 0 0 3.500 9a2 2 0 0 0 2.300 3 1.500 1.500 0 0 0 2.200-.500M8 4.500a2 2 0 0 1 3.800.600A2.200 2.200 0 0 1 12.500 9a2 2 0 0 1-2.300 3 1.500 1.500 0 0 1-2.200-.500",
  model: "M8 2l1.500 4.500L14 8l-4.500 1.500L8 14l-1.500-4.500L2 8l4.500-1.500z",
  step: "M3 5h10M3 11h10M3 8h6",
  turn: "M12.500 6A5 5 0 1 0 13 9.500M13 3v3.500H9.500",
  script: "M5.500 5L2.500 8l3 3M10.500 5l3 3-3 3",
  subagent: "M8 5.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM4 13.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM12 13.500a1.500 1.500 0 1 0 0-3 1.500 1.500 0 0 0 0 3zM8 5.500V8M4 10.500V8h8v2.500",
  hook: "M10.500 3v6a3 3 0 0 1-6 0V7.500M10.500 3h.01",
  flag: "M4 14V2.500h8l-2 3 2 3H4",
  download: "M8 2.500v8M4.500 7.500L8 11l3.500-3.500M3 13.500h10",
  sun: "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.500v1M8 13.500v1M1.500 8h1M13.500 8h1M3.400 3.400l.7.7M11.900 11.900l.7.7M3.400 12.600l.7-.7M11.900 4.100l.7-.7",
  moon: "M13 9.500A5.500 5.500 0 0 1 6.500 3a5.500 5.500 0 1 0 6.500 6.500z",
  plug: "M6 2.500v3M10 2.500v3M4.500 5.500h7V8a3.500 3.500 0 0 1-7 0zM8 11.500v2.500",
  file: "M4 2.500h5l3 3v8H4zM9 2.500v3h3",
  lock: "M4 7.500h8v6H4zM5.500 7.500V5a2.500 2.500 0 0 1 5 0v2.500",
  panel: "M2.500 3.500h11v9h-11zM9.500 3.500v9",
  trash: "M3 4.500h10M6 4.500v-2h4v2M4.500 4.500l.5 9h6l.5-9",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, label }: { name: IconName; label?: string }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" role={label ? "img" : undefined} aria-label={label} aria-hidden={label ? undefined : true}>
      <path d={PATHS[name]} />
    </svg>
  );
}

export function Mark() {
  return (
    <svg viewBox="0 0 32 32" aria-hidden="true">
      <path d="M5 18c4 4 18 4 22 0-2 6-6 8-11 8S7 24 5 18z" />
      <path d="M15 15V5l8 10z" opacity=".85" />
    </svg>
  );
}

export const KIND_ICONS: Record<string, IconName> = {
  turn: "turn", step: "step", model: "model", tool: "tool", subagent: "subagent", script: "script", approval: "clock", hook: "hook", compaction: "flag",
};
