import { EVENT_TYPES, type AgentEvent, type KnownEvent, type UnknownEvent } from "./event.generated.ts";

const isObject = (value: unknown): value is { [key: string]: unknown } =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** The event that parsed JSON stands for. Never throws: what is not known, or was erased, comes as `{type: "unknown", raw}`. */
export function toEvent(raw: unknown): AgentEvent {
  if (!isObject(raw)) return { type: "unknown", raw };
  const { type, data, path } = raw;
  const isErased = typeof raw.erased === "string" && data === undefined;
  const isEnvelope = typeof type === "string" && (isObject(data) || isErased) && Array.isArray(path);
  if (isEnvelope && !isErased && (EVENT_TYPES.has(type) || type.startsWith("custom."))) return raw as unknown as KnownEvent;
  return { ...(isEnvelope ? raw : {}), type: "unknown", raw } as UnknownEvent;
}

/** The event of a line or frame of JSON. Never throws. */
export function parseEvent(text: string): AgentEvent {
  try {
    return toEvent(JSON.parse(text));
  } catch {
    return { type: "unknown", raw: text };
  }
}
