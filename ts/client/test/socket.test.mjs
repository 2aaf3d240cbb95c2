import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { WebSocket, WebSocketServer } from "ws";
import { AgentClient } from "../dist/index.js";
import { closeError, MAX_QUEUED } from "../dist/socket.js";
import { resumed } from "./replay.mjs";
import { serve } from "./replay_server.mjs";
import { eventsOf, fold } from "./streams.mjs";

const QUICK = { random: () => 0 };

let server;
let sockets;
let script;
let urls;
let frames;

/** A server of the protocol that answers as `script` says; `script.subscribe(send, params, count)` sends events. */
before(async () => {
  server = await serve((request, response) => {
    const { status = 201, body = { ticket: `t${urls.length}`, expires_in: 30 } } = script.ticket ?? {};
    response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
  });
  sockets = new WebSocketServer({ noServer: true, handleProtocols: (offered) => [...offered][0] });
  server.http.on("upgrade", (request, stream, head) => {
    urls.push(request.url);
    sockets.handleUpgrade(request, stream, head, (socket) => {
      const log = frames; // a client that was closed may still send
      script.open?.(socket, urls.length);
      socket.on("message", (data) => answer(socket, JSON.parse(data), log));
    });
  });
});
after(async () => {
  sockets.close();
  for (const socket of sockets.clients) socket.terminate();
  await server.close();
});

let subscriptions = 0;

function answer(socket, { id, method, params }, log) {
  log.push([method, params]);
  const send = (frame) => socket.send(JSON.stringify(frame));
  if (script.silent?.includes(method)) return;
  const refusal = script.refuse?.[method];
  if (refusal) return send({ id, error: refusal });
  if (method === "hello") return send({ id, result: { server: "test", version: 1, heartbeat_ms: script.heartbeatMs ?? 20_000 } });
  if (method !== "subscribe") return send({ id, result: {} });
  const sub = `s${++subscriptions}`;
  send({ id, result: { sub, cursor: "1.1", replayed: 0 } });
  script.subscribe?.((event) => send({ sub, event }), params, socket, sub);
}

function connect(next, options = {}) {
  script = next;
  urls = [];
  frames = [];
  subscriptions = 0;
  return new AgentClient({ baseUrl: server.url, apiKey: "k", transport: "ws", WebSocket, retry: QUICK, ...options });
}

async function read(client, options = {}) {
  const events = [];
  for await (const event of client.session("s").subscribe(options)) events.push(event);
  client.close();
  return events;
}

test("a subscription over a socket uses a ticket, greets and subscribes", async () => {
  const events = eventsOf("conversation");
  const client = connect({ subscribe: (send) => events.forEach(send) });
  assert.deepEqual(fold(await read(client, { after: "1.0", channels: ["progress"], path: "a/b", depth: 0 })), fold(events));
  assert.deepEqual(urls, ["/api/v1/ws?ticket=t0"]);
  assert.deepEqual(frames.slice(0, 2), [
    ["hello", { client: "@vaka/client" }],
    ["subscribe", { session: "s", channels: ["progress"], path: ["a", "b"], depth: 0, after: "1.0" }],
  ]);
});

test("two subscriptions share one socket", async () => {
  const events = eventsOf("tools");
  const client = connect({ subscribe: (send) => events.forEach(send) });
  const both = [client.session("s").subscribe(), client.session("other").subscribe()].map(async (subscription) => {
    const got = [];
    for await (const event of subscription) got.push(event);
    return fold(got);
  });
  assert.deepEqual(await Promise.all(both), [fold(events), fold(events)]);
  assert.equal(urls.length, 1);
  client.close();
});

test("a reader that leaves ends its subscription at the server", async () => {
  const client = connect({ subscribe: (send) => eventsOf("tools").slice(0, -1).forEach(send) });
  for await (const event of client.session("s").subscribe()) if (event.seq === 3) break;
  while (!frames.some(([method]) => method === "unsubscribe")) await new Promise(setImmediate);
  const subscription = client.session("s").subscribe();
  for await (const event of subscription) if (event.seq === 22) subscription.close();
  while (frames.filter(([method]) => method === "unsubscribe").length < 2) await new Promise(setImmediate);
  assert.equal(urls.length, 1);
  client.close();
});

test("without tickets the token is the first frame", async () => {
  const events = eventsOf("retry");
  const client = connect({ ticket: { status: 404, body: { code: "not_found" } }, subscribe: (send) => events.forEach(send) });
  await read(client);
  assert.deepEqual([urls[0], frames[0]], ["/api/v1/ws", ["auth", { token: "k" }]]);
});

test("a connection that is closed is opened again where it was, except after 44xx", async () => {
  const events = eventsOf("conversation");
  for (const code of [4100, 4108, 4200, 4201, 1011]) {
    const client = connect({
      subscribe: (send, params, socket) => {
        const happened = params.after ? events.length - 1 : 40;
        const sent = params.after ? resumed(events, params.after, happened) : events.slice(0, happened);
        sent.forEach(send);
        if (!params.after) {
          if (code === 4200) socket.send(JSON.stringify({ ctl: "drain", reconnect_after_ms: 1 }));
          socket.close(code, "later");
        }
      },
    });
    assert.deepEqual(fold(await read(client)), fold(events), `closed with ${code}`);
    assert.equal(urls.length, 2, `closed with ${code}`);
  }
  for (const [code, status] of [[4400, 400], [4401, 401], [4403, 403], [4404, 404], [4429, 429]]) {
    const client = connect({ open: (socket) => socket.close(code, "no") });
    await assert.rejects(read(client), { code: `ws_${code}`, status, retryable: false, message: "no" });
    assert.equal(urls.length, 1);
  }
});

test("a socket that is lost after any event is opened again without a gap or a repetition", async () => {
  for (const name of ["conversation", "decisions", "retry"]) {
    const events = eventsOf(name);
    const whole = JSON.stringify(fold(events));
    for (let sent = 0; sent < events.length - 1; sent += name === "conversation" ? 9 : 3) {
      const client = connect({
        subscribe: (send, params, socket) => {
          if (subscriptions > 1) return resumed(events, params.after, sent).forEach(send);
          events.slice(0, sent).forEach(send);
          socket.terminate();
        },
      });
      assert.equal(JSON.stringify(fold(await read(client))), whole, `${name}, lost after ${sent}`);
    }
  }
});

test("close codes say when to come back", () => {
  assert.deepEqual([4100, 4200, 4404, 1006].map((code) => [closeError(code, "").retryable, closeError(code, "", 700).retryAfterMs]), [
    [true, undefined], [true, 700], [false, undefined], [true, undefined],
  ]);
});

test("a session that does not exist is final, an overloaded server is not", async () => {
  const missing = connect({ refuse: { subscribe: { code: "not_found", message: "no session", retryable: false, data: { status: 404 } } } });
  await assert.rejects(read(missing), { status: 404, code: "not_found" });
  missing.close();
  const events = eventsOf("retry");
  const busy = connect({ subscribe: (send) => events.forEach(send) });
  script.refuse = { subscribe: { code: "overloaded", message: "later", retryable: true, data: { status: 503, retry_after: 0 } } };
  const reading = read(busy);
  while (!frames.some(([method]) => method === "subscribe")) await new Promise(setImmediate);
  script.refuse = undefined;
  assert.deepEqual(fold(await reading), fold(events));
});

test("a subscription that the server ends begins again, unless it may not", async () => {
  const events = eventsOf("tools");
  const ended = (code) => ({
    subscribe: (send, params, socket, sub) => {
      if (params.after) return resumed(events, params.after, events.length - 1).forEach(send);
      events.slice(0, 5).forEach(send);
      socket.send(JSON.stringify({ ctl: "ended", sub, cursor: "1.4", code, message: "ended" }));
    },
  });
  assert.deepEqual(fold(await read(connect(ended("closed")))), fold(events));
  const refused = connect(ended("forbidden"));
  await assert.rejects(read(refused), { code: "forbidden" });
  refused.close();
});

test("a server that answers no ping is left for a new connection", async () => {
  const events = eventsOf("tools");
  const client = connect(
    {
      silent: ["ping"], heartbeatMs: 100,
      subscribe: (send, params) => (params.after ? resumed(events, params.after, events.length - 1) : events.slice(0, 5)).forEach(send),
    },
    { retry: { ...QUICK, heartbeatMs: 10_000 } },
  );
  assert.deepEqual(fold(await read(client)), fold(events));
  assert.ok(urls.length >= 2); // more on a busy machine
});

test("a ping of the server is answered, and a frame that is not JSON ends the connection", async () => {
  const events = eventsOf("tools");
  const client = connect({
    subscribe: (send, params, socket) => {
      if (params.after) return resumed(events, params.after, events.length - 1).forEach(send);
      socket.send(JSON.stringify({ ctl: "ping" }));
      socket.send(JSON.stringify({ ctl: "pressure", active: true }));
      events.slice(0, 5).forEach(send);
      socket.send("{");
    },
  });
  await read(client);
  assert.ok(frames.some(([method]) => method === "ping"));
  assert.equal(urls.length, 2);
});

test("the queue of a slow reader is bounded: it goes on where it is, and acknowledges what it has", async () => {
  const template = { ...eventsOf("tools")[0], type: "log", data: { level: "info", message: "x" } };
  const total = 3 * MAX_QUEUED;
  const end = eventsOf("tools").at(-1);
  const client = connect({
    subscribe: (send, params) => {
      const from = Number((params.after ?? "1.0").split(".")[1]) + 1;
      for (let seq = from; seq <= total; seq++) send({ ...template, seq, id: `1.${seq}` });
      send(end);
    },
  });
  const seqs = [];
  for await (const event of client.session("s").subscribe()) {
    if (event.seq) seqs.push(event.seq);
    if (event.seq === 1) while (!frames.some(([method]) => method === "unsubscribe")) await new Promise(setImmediate);
  }
  client.close();
  assert.deepEqual(seqs, Array.from({ length: total }, (_, index) => index + 1));
  assert.ok(frames.filter(([method]) => method === "subscribe").length >= 2);
  assert.ok(frames.some(([method, params]) => method === "ack" && params.cursor.startsWith("1.")));
});

test("methods are called over the socket, and a platform without one says what to do", async () => {
  const client = connect({});
  assert.deepEqual(await client.socket.call("turn.start", { session: "s", input: "Hi" }), {});
  client.close();
  const bare = new AgentClient({ baseUrl: server.url, transport: "ws", WebSocket: null, retry: QUICK });
  if (globalThis.WebSocket === undefined) await assert.rejects(read(bare), { code: "no_websocket" });
  const nowhere = new AgentClient({ baseUrl: "http://127.0.0.1:9", transport: "ws", WebSocket, retry: QUICK });
  await assert.rejects(nowhere.socket.call("ping"), { code: "network" });
});
