import assert from "node:assert/strict";
import { after, before, mock, test } from "node:test";
import { AgentClient } from "../dist/index.js";
import { retryAfter } from "../dist/errors.js";
import { backoff, follow } from "../dist/follow.js";
import { AgentError } from "../dist/errors.js";
import { reduce, initialState } from "../dist/store.js";
import { borders, countWhole, fetchCutAt, frameOf, OPENING, resumed, streamOf } from "./replay.mjs";
import { cursorOf, serve, startStream } from "./replay_server.mjs";
import { eventsOf, fold, NAMES } from "./streams.mjs";

const EXHAUSTIVE = Boolean(process.env.VAKA_EXHAUSTIVE);
const QUICK = { random: () => 0, heartbeatMs: 10_000 };

let answer;
let requests = [];
let server;

before(async () => {
  server = await serve((request, response) => {
    requests.push(request);
    answer(request, response, requests.length);
  });
});
after(() => server.close());

/** Read a session to the end of its stream; return the events. */
async function read(handle, { retry = QUICK, options = {}, client = {} } = {}) {
  answer = handle;
  requests = [];
  const events = [];
  const agents = new AgentClient({ baseUrl: server.url, retry, ...client });
  for await (const event of agents.session("s").subscribe(options)) events.push(event);
  return events;
}

const textsOf = (events) => {
  const texts = {};
  for (const { type, data } of events) if (type === "text.delta") texts[data.message_id] = (texts[data.message_id] ?? "") + data.text;
  return texts;
};

/** Cut the first connection after `size` bytes, and answer the second as a server does that went on meanwhile. */
const cutAt = (events, bytes, size, missed = 0) => (request, response, count) => {
  startStream(response);
  if (count === 1) {
    response.write(bytes.subarray(0, size), () => response.destroy());
    return;
  }
  const happened = Math.min(countWhole(events, size) + missed, events.length - 1);
  response.end(streamOf(resumed(events, cursorOf(request), happened)));
};

function cutsOf(events, bytes) {
  const sampled = Array.from({ length: Math.ceil(bytes.length / 293) }, (_, index) => index * 293);
  const nearBorders = borders(events).filter((_, index) => index % 3 === 0).flatMap((border) => [border - 1, border, border + 1]);
  return [...new Set([...sampled, ...nearBorders])].filter((size) => size >= 0 && size < bytes.length);
}

const summaryOf = (some) => JSON.stringify([textsOf(some), some.filter((event) => event.seq).map((event) => event.seq), fold(some)]);

for (const name of EXHAUSTIVE ? NAMES : []) {
  test(`the stream ${name}, cut at every byte and resumed, gives the state of the whole stream`, async () => {
    const events = eventsOf(name);
    const bytes = streamOf(events);
    const whole = summaryOf(events);
    for (let size = 0; size < bytes.length; size++) {
      const summary = summaryOf(await read(undefined, { client: { fetch: fetchCutAt(events, bytes, size) } }));
      if (summary !== whole) assert.deepEqual(JSON.parse(summary), JSON.parse(whole), `cut at ${size}`);
    }
  });
}

for (const name of NAMES) {
  test(`the stream ${name}, cut by a server and resumed, gives the state of the whole stream`, async () => {
    const events = eventsOf(name);
    const bytes = streamOf(events);
    const whole = summaryOf(events);
    for (const size of cutsOf(events, bytes)) {
      const summary = summaryOf(await read(cutAt(events, bytes, size)));
      if (summary !== whole) assert.deepEqual(JSON.parse(summary), JSON.parse(whole), `cut at ${size}`);
      assert.equal(requests.length, 2, `cut at ${size}`);
    }
  });
}

test("events that happen while the connection is lost are not missed", async () => {
  const events = eventsOf("conversation");
  const bytes = streamOf(events);
  for (let size = 0; size < bytes.length; size += EXHAUSTIVE ? 61 : 1777) {
    for (const missed of [1, 7, 40, 1000]) {
      assert.deepEqual(fold(await read(cutAt(events, bytes, size, missed))), fold(events), `cut at ${size}, missed ${missed}`);
    }
  }
});

test("a stream that is cut again and again arrives whole", async () => {
  const events = eventsOf("conversation");
  let happened = 0;
  const got = await read((request, response) => {
    startStream(response);
    const rest = streamOf(resumed(events, cursorOf(request), happened));
    const left = events.length - happened;
    happened = Math.min(happened + 5, events.length - 1);
    if (left <= 5) response.end(rest);
    else response.write(rest.subarray(0, Math.floor(rest.length / 2)), () => response.destroy());
  });
  assert.deepEqual(fold(got), fold(events));
  assert.ok(requests.length > 10);
});

test("frames that come twice, or a byte at a time, are yielded once", async () => {
  const events = eventsOf("conversation");
  const twice = await read((_, response) => {
    startStream(response);
    response.end(Buffer.concat([OPENING, ...events.slice(0, -1).flatMap((event) => [frameOf(event), frameOf(event)]), frameOf(events.at(-1))]));
  });
  assert.deepEqual(fold(twice), fold(events));
  assert.deepEqual(twice.filter((event) => event.type !== "message.started"), events.filter((event) => event.type !== "message.started"));
  const small = eventsOf("retry");
  const slow = await read(async (_, response) => {
    startStream(response);
    for (const byte of streamOf(small)) {
      response.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    response.end();
  });
  assert.deepEqual(slow, small);
});

test("a proxy that answers 502, drops the connection or ends the stream early is tried again", async () => {
  const events = eventsOf("tools");
  const statuses = [];
  answer = (_, response, count) => {
    if (count === 1) return response.writeHead(502).end("<html>bad gateway</html>");
    if (count === 2) return response.destroy();
    if (count === 3) return response.writeHead(429, { "retry-after": "0" }).end();
    startStream(response);
    response.end(count === 4 ? OPENING : streamOf(events));
  };
  requests = [];
  const subscription = new AgentClient({ baseUrl: server.url, retry: QUICK }).session("s").subscribe();
  assert.equal(subscription.status, "idle");
  subscription.onStatus((status, attempt) => statuses.push(attempt ? `${status} ${attempt}` : status));
  const got = [];
  for await (const event of subscription) got.push(event);
  assert.deepEqual(got, events);
  assert.equal(subscription.cursor, "1.22");
  assert.deepEqual(statuses, [
    "connecting", "reconnecting 1", "reconnecting 2", "reconnecting 3", "live", "reconnecting 4", "live", "closed",
  ]);
});

test("a half-open connection is dropped when the server shows no sign of life", async () => {
  const events = eventsOf("tools");
  const got = await read(
    (_, response, count) => {
      startStream(response);
      if (count === 1) response.write(streamOf(events).subarray(0, 700));
      else response.end(streamOf(resumed(events, "", events.length - 1)));
    },
    { retry: { ...QUICK, heartbeatMs: 100 } },
  );
  assert.ok(requests.length >= 2); // more on a busy machine
  assert.deepEqual(fold(got), fold(events));
});

test("a client error is final, with the code and request id of the server", async () => {
  const problem = { type: "about:blank", title: "Not found", status: 404, detail: "there is no session 's'", code: "not_found" };
  const reading = read((_, response) => response.writeHead(404, { "content-type": "application/problem+json", "x-request-id": "req_1" }).end(JSON.stringify(problem)));
  await assert.rejects(reading, (error) => {
    assert.ok(error instanceof AgentError);
    const { status, code, requestId, retryable, message } = error;
    assert.deepEqual({ status, code, requestId, retryable, message }, { status: 404, code: "not_found", requestId: "req_1", retryable: false, message: "there is no session 's'" });
    return true;
  });
  assert.equal(requests.length, 1);
});

test("an answer that is not a stream is final", async () => {
  const reading = read((_, response) => response.writeHead(200, { "content-type": "text/html" }).end("<html>"));
  await assert.rejects(reading, { code: "not_a_stream", retryable: false });
});

test("a reset begins anew, and the stream ends with an unknown reason alone", async () => {
  const events = eventsOf("retry");
  const reset = { v: 1, ts: "", session: "s", turn: "", step: 0, path: [], channel: "control", type: "stream.reset", data: {} };
  const restart = { ...events.at(-1), data: { reason: "closed" } };
  const got = await read(
    (request, response, count) => {
      startStream(response);
      if (count > 1) return response.end(streamOf(resumed(events, cursorOf(request), events.length - 1)));
      response.end(streamOf([reset, ...events.slice(0, 4), restart]));
    },
    { options: { after: "7.5" } },
  );
  assert.deepEqual(requests.map((request) => cursorOf(request)), ["7.5", "1.4"]);
  assert.equal(got[0].type, "stream.reset");
  assert.deepEqual(fold(got), fold(events));
});

test("a missing delta is asked for once, with a new connection", async () => {
  const events = eventsOf("conversation");
  const index = events.findIndex((event) => event.type === "text.delta") + 1;
  const got = await read((request, response, count) => {
    startStream(response);
    const damaged = events.filter((_, position) => position !== index);
    response.end(streamOf(count === 1 ? damaged : resumed(events, cursorOf(request), index + 2)));
  });
  assert.equal(requests.length, 2);
  assert.deepEqual(textsOf(got), textsOf(events));
  assert.deepEqual(fold(got), fold(events));
});

test("after=now begins at the head, also when the first connection is lost before an event", async () => {
  const events = eventsOf("tools");
  const got = await read(
    (request, response) => {
      if (!request.url.includes("/events")) return response.writeHead(200).end(JSON.stringify({ id: "s", cursor: "1.3" }));
      startStream(response);
      if (requests.filter((other) => other.url.includes("/events")).length === 1) return response.end(OPENING);
      response.end(streamOf(resumed(events, cursorOf(request), events.length - 1)));
    },
    { options: { after: "now" } },
  );
  assert.deepEqual(requests.map((request) => cursorOf(request)), ["", "1.3", "1.3"]);
  assert.equal(got[0].seq, 4);
});

test("deltas alone are yielded once also when the ends of their messages are filtered out", async () => {
  const [first] = eventsOf("tools").filter((event) => event.type === "text.delta");
  const deltas = Array.from({ length: 300 }, (_, index) => ({ ...first, data: { ...first.data, message_id: `m${index}` } }));
  const end = eventsOf("tools").at(-1);
  const got = await read((_, response) => startStream(response).end(streamOf([...deltas, ...deltas.slice(-5), end])), { options: { types: ["text.delta"] } });
  assert.deepEqual(got, [...deltas, end]);
});

test("closing ends the iteration and the connection", async () => {
  const events = eventsOf("tools");
  let left;
  const hasLeft = new Promise((resolve) => (left = resolve));
  answer = (request, response) => {
    startStream(response);
    response.write(streamOf(events).subarray(0, 900));
    request.on("close", left);
  };
  const subscription = new AgentClient({ baseUrl: server.url, retry: QUICK }).session("s").subscribe();
  const got = [];
  for await (const event of subscription) {
    got.push(event);
    setImmediate(() => subscription.close());
  }
  await hasLeft;
  assert.equal(subscription.status, "closed");
  assert.ok(got.length > 0);
  const aborted = AbortSignal.abort();
  for await (const _ of new AgentClient({ baseUrl: server.url }).session("s").subscribe({ signal: aborted })) assert.fail("it was aborted");
});

test("a slow reader holds the connection back instead of memory", async () => {
  const long = { ...eventsOf("tools")[0], type: "log", data: { level: "info", message: "x".repeat(100_000) } };
  let written = 0;
  answer = async (_, response) => {
    startStream(response);
    for (let seq = 1; seq <= 2000 && !response.destroyed; seq++) {
      written++;
      const isFree = response.write(frameOf({ ...long, seq, id: `1.${seq}` }));
      if (!isFree) await Promise.race([new Promise((resolve) => response.once("drain", resolve)), new Promise((resolve) => response.once("close", resolve))]);
    }
  };
  const subscription = new AgentClient({ baseUrl: server.url, retry: QUICK }).session("s").subscribe();
  for await (const event of subscription) {
    if (event.seq < 3) {
      for (let turn = 0; turn < 300; turn++) await new Promise(setImmediate); // the server writes as much as it can
    } else break;
  }
  assert.ok(written < 500, `${written} of 2000 events were taken from the server`);
});

test("delays grow up to their limit, and are random", () => {
  const options = { minMs: 250, maxMs: 10_000, random: () => 0.999999, heartbeatMs: 1 };
  assert.deepEqual([1, 2, 3, 6, 7, 50].map((attempt) => Math.round(backoff(attempt, options.minMs, options))), [250, 500, 1000, 8000, 10_000, 10_000]);
  assert.equal(backoff(5, 250, { ...options, random: () => 0 }), 0);
});

test("Retry-After is seconds or a date", () => {
  assert.deepEqual([retryAfter("3"), retryAfter(null), retryAfter("soon"), retryAfter("Thu, 01 Jan 1970 00:00:00 GMT")], [3000, undefined, undefined, 0]);
});

test("the delay is that of Retry-After or of the stream, whichever the server has set", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const opened = [];
  const failure = new AgentError("busy", { status: 503, retryable: true, retryAfterMs: 7000 });
  const source = async function* () {
    opened.push(opened.length);
    if (opened.length === 1) throw failure;
    yield { events: [], retryMs: 4000 };
    if (opened.length < 3) return;
    yield { events: eventsOf("retry") };
  };
  const isLast = (event) => event.type === "stream.end";
  const reading = (async () => {
    const got = [];
    for await (const event of follow(source, { isLast, retry: { random: () => 0.5 } })) got.push(event);
    return got;
  })();
  const settle = async () => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };
  await settle();
  context.mock.timers.tick(6999);
  await settle();
  assert.equal(opened.length, 1);
  context.mock.timers.tick(1);
  await settle();
  assert.equal(opened.length, 2);
  context.mock.timers.tick(3999); // the second try in a row: up to twice 4000, half of it by chance
  await settle();
  assert.equal(opened.length, 2);
  context.mock.timers.tick(1);
  await settle();
  assert.equal(opened.length, 3);
  assert.deepEqual(await reading, eventsOf("retry"));
});

test("a connection that was idle for long and then lost is tried again as if it were the first", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout", "Date"] });
  const attempts = [];
  const source = async function* () {
    yield { events: [] };
    await new Promise((resolve) => setTimeout(resolve, 10_001));
  };
  const stop = new AbortController();
  const onStatus = (status, attempt) => status === "reconnecting" && attempts.push(attempt);
  const reading = (async () => {
    for await (const _ of follow(source, { onStatus, signal: stop.signal, retry: { random: () => 1 } })) assert.fail("there are no events");
  })();
  for (let turn = 0; turn < 60; turn++) {
    for (let tick = 0; tick < 20; tick++) await Promise.resolve();
    context.mock.timers.tick(1000);
  }
  stop.abort();
  for (let tick = 0; tick < 20; tick++) await Promise.resolve();
  await reading;
  assert.ok(attempts.length >= 4);
  assert.deepEqual([...new Set(attempts)], [1]);
});
