import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AgentClient } from "../dist/index.js";
import { resumed, streamOf } from "./replay.mjs";
import { cursorOf, serve, startStream } from "./replay_server.mjs";
import { eventsOf, fold } from "./streams.mjs";

const QUICK = { random: () => 0 };

let answer;
let requests = [];
let server;

async function bodyOf(request) {
  let text = "";
  for await (const chunk of request) text += chunk;
  return text ? JSON.parse(text) : undefined;
}

before(async () => {
  server = await serve(async (request, response) => {
    const seen = { method: request.method, url: request.url, headers: request.headers, body: await bodyOf(request) };
    requests.push(seen);
    answer(seen, response, requests.length);
  });
});
after(() => server.close());

function connect(handle, options = {}) {
  answer = handle;
  requests = [];
  return new AgentClient({ baseUrl: server.url, retry: QUICK, ...options });
}

const reply = (response, body, status = 200) => response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));

test("each method sends the request that the server documents", async () => {
  const client = connect((_, response) => reply(response, { data: [], count: 3, next_cursor: null, has_more: false }));
  const session = client.session("a/b");
  await client.sessions.create({ agent: "guide", tags: ["x"] });
  await client.sessions.list({ status: "idle", limit: 5 });
  await client.sessions.get("a/b");
  await client.sessions.update("s", { title: "T" });
  await client.sessions.delete("s");
  await client.sessions.fork("s", { at: "1.4" });
  await client.sessions.rewind("s", "label", { interrupt: true });
  await client.sessions.compact("s", { instructions: "Keep the names." });
  await client.sessions.close("s");
  await client.sessions.export("s");
  await client.sessions.stats("s");
  await client.sessions.events("s", { after: "1.2", types: ["usage", "log"], limit: 10 });
  await client.sessions.checkpoints("s");
  await client.sessions.saveCheckpoint("s", "here");
  await client.sessions.restoreCheckpoint("s", "here & there");
  await client.messages.list("s", { order: "desc" });
  await client.messages.search("s", "a b");
  await client.turns.list("s");
  await client.turns.get("s", "t");
  await client.turns.cancel("s");
  await client.turns.steer("s", "also");
  await client.turns.wait("s", "t", 5);
  await client.approvals.list({ session: "s" });
  assert.equal(await client.approvals.count(), 3);
  await client.approvals.get("d");
  await client.approvals.approve("d", { remember: { scope: "session" } });
  await client.approvals.approve("d", { edit: { x: 1 } });
  await client.approvals.reject("d", "no");
  await client.approvals.answer("d", "east");
  await client.agents.list();
  await client.agents.get("guide");
  await client.agents.reload();
  await client.tools.list({ agent: "guide" });
  await client.tools.get("weather");
  await client.tools.execute("weather", { city: "Hilo" }, { agent: "guide" });
  await client.traces.list({ session: "s" });
  await client.traces.get("s");
  await client.traces.get("s", "t");
  await client.stats.get();
  await client.stats.usage(7);
  await client.me();
  await client.version();
  await session.get();
  await session.cancel("stop");
  await session.steer([{ type: "text", text: "hi" }]);
  await session.answerCall("call_1", { path: "x" });
  const sent = requests.map(({ method, url, body }) => [`${method} ${url.replace("/api/v1", "")}`, ...(body === undefined ? [] : [body])]);
  assert.deepEqual(sent, [
    ["POST /sessions", { agent: "guide", tags: ["x"] }],
    ["GET /sessions?status=idle&limit=5"],
    ["GET /sessions/a%2Fb"],
    ["PATCH /sessions/s", { title: "T" }],
    ["DELETE /sessions/s"],
    ["POST /sessions/s/fork", { at: "1.4" }],
    ["POST /sessions/s/rewind", { to: "label", interrupt: true }],
    ["POST /sessions/s/compact", { instructions: "Keep the names." }],
    ["POST /sessions/s/close", {}],
    ["GET /sessions/s/export"],
    ["GET /sessions/s/stats"],
    ["GET /sessions/s/events?after=1.2&types=usage%2Clog&limit=10"],
    ["GET /sessions/s/checkpoints"],
    ["POST /sessions/s/checkpoints", { label: "here" }],
    ["POST /sessions/s/checkpoints/here%20%26%20there/restore", {}],
    ["GET /sessions/s/messages?order=desc"],
    ["GET /sessions/s/messages/search?q=a+b"],
    ["GET /sessions/s/turns"],
    ["GET /sessions/s/turns/t"],
    ["POST /sessions/s/turns/current/cancel", { note: "" }],
    ["POST /sessions/s/turns/current/steer", { input: "also" }],
    ["POST /sessions/s/turns/t/wait?timeout=5"],
    ["GET /approvals?session=s"],
    ["GET /approvals/count"],
    ["GET /approvals/d"],
    ["POST /approvals/d/resolve", { decision: "approve", remember: { scope: "session" } }],
    ["POST /approvals/d/resolve", { decision: "edit", edited_args: { x: 1 } }],
    ["POST /approvals/d/resolve", { decision: "reject", message: "no" }],
    ["POST /approvals/d/resolve", { decision: "answer", answer: "east" }],
    ["GET /agents"],
    ["GET /agents/guide"],
    ["POST /agents/reload", {}],
    ["GET /tools?agent=guide"],
    ["GET /tools/weather"],
    ["POST /tools/weather/execute", { agent: "guide", arguments: { city: "Hilo" } }],
    ["GET /traces?session=s"],
    ["GET /traces/s"],
    ["GET /traces/s/t"],
    ["GET /stats"],
    ["GET /usage?days=7"],
    ["GET /me"],
    ["GET /version"],
    ["GET /sessions/a%2Fb"],
    ["POST /sessions/a%2Fb/turns/current/cancel", { note: "stop" }],
    ["POST /sessions/a%2Fb/turns/current/steer", { input: [{ type: "text", text: "hi" }] }],
    ["POST /sessions/a%2Fb/calls/call_1/result", { result: { path: "x" } }],
  ]);
});

test("a key or token is sent with each request, and a token is asked for again after 401", async () => {
  const keyed = connect((_, response) => reply(response, {}), { apiKey: "k", headers: { "x-vaka-console": "1" } });
  await keyed.me();
  assert.deepEqual([requests[0].headers.authorization, requests[0].headers["x-vaka-console"]], ["Bearer k", "1"]);
  const tokens = ["old", "new"];
  const renewing = connect((request, response) => reply(response, {}, request.headers.authorization === "Bearer new" ? 200 : 401), { getToken: () => tokens.shift() ?? "new" });
  await renewing.me();
  assert.deepEqual(requests.map((request) => request.headers.authorization), ["Bearer old", "Bearer new"]);
  const refused = connect((_, response) => reply(response, {}, 401), { getToken: async () => "bad" });
  await assert.rejects(refused.me(), { status: 401, code: "http_401", retryable: false });
  assert.equal(requests.length, 2);
});

test("a read is tried again after a failure of the server, a write is not", async () => {
  const reading = connect((_, response, count) => (count < 3 ? response.writeHead(503).end() : reply(response, { id: "s" })));
  assert.equal((await reading.sessions.get("s")).id, "s");
  const writing = connect((_, response) => response.writeHead(503, { "retry-after": "2" }).end());
  await assert.rejects(writing.sessions.create(), { status: 503, retryable: true, retryAfterMs: 2000 });
  assert.equal(requests.length, 1);
  const nowhere = new AgentClient({ baseUrl: "http://127.0.0.1:9", retry: QUICK });
  await assert.rejects(nowhere.me(), { status: 0, code: "network", retryable: true });
});

test("a run starts when it is read, and its result is that of its turn", async () => {
  const events = eventsOf("tools");
  const client = connect((_, response) => startStream(response).end(streamOf(events)));
  const run = client.session("s").run("Go.", { agent: "guide", onConflict: "reject", idempotencyKey: "inp_1" });
  assert.equal(requests.length, 0);
  const got = [];
  for await (const event of run) got.push(event);
  assert.deepEqual(got, events.slice(0, -1));
  const [{ method, url, headers, body }] = requests;
  assert.deepEqual([method, url, headers["idempotency-key"], body], [
    "POST", "/api/v1/sessions/s/turns", "inp_1", { input: "Go.", agent: "guide", on_conflict: "reject", stream: true },
  ]);
  const { status, text, message, stop, turnId, cursor } = await run.result();
  assert.deepEqual([status, text, stop, turnId, cursor], ["completed", "Grüße, 世界.", "end", "trn_1", "1.22"]);
  assert.deepEqual(message, [{ type: "text", text }]);
  assert.equal(requests.length, 1);
});

test("a run that loses its connection sends its input again with the same key, then follows its turn", async () => {
  const events = eventsOf("tools");
  const bytes = streamOf(events);
  const client = connect((request, response, count) => {
    if (count === 1) return response.destroy();
    startStream(response);
    if (count === 2) return response.write(bytes.subarray(0, 3000), () => response.destroy());
    const happened = events.findIndex((event) => event.id === cursorOf(request)) + 4;
    response.end(streamOf(resumed(events, cursorOf(request), happened)));
  });
  const run = client.session("s").run("Go.");
  const got = [];
  for await (const event of run) got.push(event);
  assert.deepEqual(fold(got), fold(events));
  assert.deepEqual(requests.map(({ method, url }) => `${method} ${url}`), [
    "POST /api/v1/sessions/s/turns", "POST /api/v1/sessions/s/turns", "GET /api/v1/sessions/s/turns/trn_1",
  ]);
  assert.equal(requests[0].headers["idempotency-key"], run.key);
  assert.equal(requests[1].headers["idempotency-key"], run.key);
});

test("after break the rest of a run is read from where it was left", async () => {
  const events = eventsOf("interrupt");
  const client = connect((request, response) => {
    startStream(response);
    const cursor = cursorOf(request);
    response.end(streamOf(cursor ? resumed(events, cursor, events.length - 3) : events));
  });
  const run = client.session("s").run("Go.");
  const got = [];
  for await (const event of run) {
    got.push(event);
    if (event.type === "text.delta") break;
  }
  const { status, text } = await run.result();
  assert.deepEqual([status, text], ["interrupted", "I am count"]);
  assert.equal((await run.result()).status, "interrupted");
});

test("the result of a run can be awaited beside the loop that reads it, and in the loop at its last event", async () => {
  const client = connect((_, response) => startStream(response).end(streamOf(eventsOf("tools"))));
  const run = client.session("s").run("Go.");
  const texts = [];
  const reading = (async () => {
    for await (const event of run) if (event.type === "turn.completed") texts.push((await run.result()).text);
  })();
  await Promise.resolve();
  texts.push((await run.result()).text);
  await reading;
  assert.deepEqual(texts, ["Grüße, 世界.", "Grüße, 世界."]);
  assert.equal(requests.length, 1);
});

test("a run that was started without reading is followed by its key", async () => {
  const events = eventsOf("tools");
  const client = connect((request, response) => (request.method === "POST" ? reply(response, { id: "", key: "k" }, 202) : startStream(response).end(streamOf(events))));
  const run = client.session("s").run("Go.", { idempotencyKey: "k" });
  await run.start();
  assert.equal((await run.result()).text, "Grüße, 世界.");
  assert.deepEqual(requests.map(({ method, url, body }) => [method, url, body?.background]), [
    ["POST", "/api/v1/sessions/s/turns", true], ["GET", "/api/v1/sessions/s/turns/k", undefined],
  ]);
});

test("a request that the server still answers is sent again", async () => {
  const client = connect((_, response, count) => (count === 1 ? response.writeHead(409, { "retry-after": "0" }).end("{}") : startStream(response).end(streamOf(eventsOf("tools")))));
  assert.equal((await client.session("s").run("Go.").result()).status, "completed");
  assert.equal(requests.length, 2);
});

test("a run that fails, and one whose input is withdrawn, say so", async () => {
  const client = connect((_, response) => startStream(response).end(streamOf(eventsOf("failure"))));
  const failed = await client.session("s").run("Go.").result();
  assert.equal(failed.status, "failed");
  assert.match(failed.error.message, /no such model/);
  const added = eventsOf("failure").slice(0, 2);
  const withdrawn = { ...added[1], seq: 3, id: "1.3", type: "input.withdrawn", data: { input: "inp_1" } };
  const queued = connect((_, response) => startStream(response).end(streamOf([...added, withdrawn])));
  assert.equal((await queued.session("s").run("Go.", { idempotencyKey: "inp_1" }).result()).status, "withdrawn");
});

test("a run refused by the server throws, and one that is closed has no result", async () => {
  const refused = connect((_, response) => reply(response, { code: "busy", detail: "a turn is running" }, 409));
  await assert.rejects(refused.session("s").run("Go.", { onConflict: "reject" }).result(), { status: 409, code: "busy" });
  const client = connect((_, response) => startStream(response).write(streamOf(eventsOf("tools").slice(0, 4))));
  const run = client.session("s").run("Go.");
  for await (const event of run) if (event.type === "step.started") run.close();
  await assert.rejects(run.result(), { code: "closed" });
});

test("a run is steered, cancelled and decided through its own methods", async () => {
  const client = connect((request, response) => (request.url.endsWith("/turns") ? startStream(response).end(streamOf(eventsOf("tools"))) : reply(response, { decisions: [] })));
  const run = client.session("s").run("Go.", { idempotencyKey: "key" });
  await run.cancel();
  await run.result();
  await run.steer("also");
  await run.cancel("enough");
  await run.approve("d", { edit: { a: 1 } });
  await run.reject("d", "no");
  await run.answer("q", 1);
  await run.answerCall("call_1", "x", { failed: true });
  await run.decisions();
  assert.deepEqual(requests.map(({ url }) => url.replace("/api/v1", "")), [
    "/sessions/s/turns/key/cancel", "/sessions/s/turns", "/sessions/s/turns/trn_1/steer", "/sessions/s/turns/trn_1/cancel",
    "/approvals/d/resolve", "/approvals/d/resolve", "/approvals/q/resolve", "/sessions/s/calls/call_1/result", "/sessions/s/turns/trn_1",
  ]);
});

test("the feed of approvals yields each change and survives its connections", async () => {
  const frame = (ids) => `event: approvals.changed\ndata: ${JSON.stringify({ count: ids.length, ids })}\n\n`;
  const client = connect((_, response, count) => startStream(response).end(count === 1 ? frame(["a"]) : frame(["a", "b"])));
  const got = [];
  for await (const change of client.approvals.watch()) {
    got.push(change);
    if (change.count === 2) break;
  }
  assert.deepEqual(got, [{ count: 1, ids: ["a"] }, { count: 2, ids: ["a", "b"] }]);
});
