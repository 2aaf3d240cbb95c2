// A server that replays a recorded stream as the real one would: a client that comes back gets the durable events after
// its cursor, one snapshot for each open block, and then what happens next. It also behaves as badly as proxies do.
import { createServer } from "node:http";
import { countPoints } from "../dist/code_points.js";

const encoder = new TextEncoder();

const frames = new WeakMap();

export function frameOf(event) {
  let frame = frames.get(event);
  if (!frame) {
    frame = encoder.encode(`${event.id ? `id: ${event.id}\n` : ""}event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`);
    frames.set(event, frame);
  }
  return frame;
}

export const OPENING = encoder.encode(": open\nretry: 1000\n\n");

const seqOf = (cursor) => Number(String(cursor ?? "").split(".")[1] ?? 0);

const DELTAS = new Set(["text.delta", "reasoning.delta", "tool.args.delta", "tool.output.delta"]);

/** Snapshots of the blocks that are open after these events. */
export function snapshotsOf(events) {
  const blocks = new Map();
  for (const event of events) {
    const { data } = event;
    if (DELTAS.has(event.type)) {
      const key = `${data.message_id} ${data.block}`;
      const old = blocks.get(key);
      const { offset: _, ...rest } = data;
      blocks.set(key, { ...event, type: "message.snapshot", data: { ...rest, of: event.type, text: (old?.data.text ?? "") + data.text } });
    }
    const ended = data?.message_id ?? data?.result?.call;
    const isEnd = ["message.completed", "message.discarded", "tool.completed", "tool.failed"].includes(event.type);
    if (isEnd) for (const key of [...blocks.keys()]) if (key.startsWith(`${ended} `)) blocks.delete(key);
    if (/^turn\.(resumed|completed|failed|cancelled|interrupted)$/.test(event.type)) blocks.clear();
  }
  return [...blocks.values()];
}

/** What a client with a cursor is sent after `happened` of the events have happened. */
export function resumed(events, cursor, happened) {
  const past = events.slice(0, happened);
  const missed = past.filter((event) => event.seq > seqOf(cursor));
  return [...missed, ...snapshotsOf(past), ...events.slice(happened)];
}

export const concat = (parts) => new Uint8Array(Buffer.concat(parts));

/** The stream of a client that connects anew, as bytes. */
export const streamOf = (events) => concat([OPENING, ...events.map(frameOf)]);

/** How many of the events are whole in the first `size` bytes of their stream. */
export function countWhole(events, size) {
  let end = OPENING.length;
  let count = 0;
  for (const event of events) {
    end += frameOf(event).length;
    if (end > size) break;
    count++;
  }
  return count;
}

/** The borders of the frames of a stream, in bytes. */
export function borders(events) {
  let end = OPENING.length;
  return [0, end, ...events.map((event) => (end += frameOf(event).length))];
}

/** Start a server; `handle(request, response)` answers. Returns its address and how to stop it. */
export async function serve(handle) {
  const server = createServer(handle);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () =>
    new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    });
  return { url: `http://127.0.0.1:${server.address().port}`, http: server, close };
}

export const startStream = (response) =>
  response.writeHead(200, { "content-type": "text/event-stream", "access-control-allow-origin": "*" });

/** The cursor that a request names. */
export const cursorOf = (request) =>
  request.headers["last-event-id"] ?? new URL(request.url, "http://x").searchParams.get("after") ?? "";

export { countPoints, seqOf };
