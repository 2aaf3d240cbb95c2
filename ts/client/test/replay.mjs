// Replays a recorded stream as the server would: a client that comes back gets the durable events after its cursor, one
// snapshot for each open block, and then what happens next.

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

export function concat(parts) {
  const joined = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let end = 0;
  for (const part of parts) {
    joined.set(part, end);
    end += part.length;
  }
  return joined;
}

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

/** A `fetch` without a network, whose first answer fails after `size` bytes: fast enough to cut at every byte. */
export function fetchCutAt(events, bytes, size) {
  let count = 0;
  return async (url, init) => {
    const isFirst = ++count === 1;
    const cursor = new Headers(init.headers).get("last-event-id") ?? new URL(url, "http://x").searchParams.get("after");
    const happened = Math.min(countWhole(events, size), events.length - 1);
    const sent = isFirst ? bytes.subarray(0, size) : streamOf(resumed(events, cursor, happened));
    const left = sent.length ? [sent] : [];
    const body = new ReadableStream({
      pull(controller) {
        if (left.length) controller.enqueue(left.pop());
        else if (isFirst) controller.error(new TypeError("terminated"));
        else controller.close();
      },
    });
    return new Response(body, { headers: { "content-type": "text/event-stream" } });
  };
}

