// The client against a real server: node server.mjs URL KEY. Prints what it found as JSON.
import { createServer, connect as connectTcp } from "node:net";
import { WebSocket } from "ws";
import { AgentClient, parseEvent } from "../dist/index.js";
import { openDecisions, toArray, transcript } from "../dist/store.js";
import { fold } from "./streams.mjs";

const [url, apiKey] = process.argv.slice(2);
const client = new AgentClient({ baseUrl: url, apiKey, WebSocket });
const overSocket = new AgentClient({ baseUrl: url, apiKey, WebSocket, transport: "ws" });
const found = {};

const lines = (state) => transcript(state).map((message) => [message.role, ...message.blocks.map((block) => (block.type === "call" ? `${block.name} ${block.status}` : block.text))]);

/** The state that the whole log gives. */
const stored = async (id) => fold((await client.sessions.export(id)).trim().split("\n").map(parseEvent));

/** The state of a subscriber that has read up to the head of the log. */
async function followed(agents, id) {
  const { cursor } = await agents.sessions.get(id);
  const events = [];
  for await (const event of agents.session(id).subscribe()) {
    events.push(event);
    if (event.id === cursor) break;
  }
  return fold(events);
}

async function talk() {
  const run = client.session("talk").run("Hi.", { agent: "guide" });
  let text = "";
  for await (const event of run) if (event.type === "text.delta") text += event.data.text;
  const result = await run.result();
  const again = await client.session("talk").run("Hi.", { agent: "guide", idempotencyKey: run.key }).result();
  const messages = await client.messages.list("talk");
  const page = await client.sessions.events("talk", { types: ["turn.completed"] });
  return {
    text, status: result.status, same: again.turnId === result.turnId && again.text === result.text,
    messages: messages.data.map((message) => message.role), completed: page.data.length,
    turn: (await client.turns.get("talk", run.key)).status, session: (await client.session("talk").get()).status,
    found: (await client.messages.search("talk", "tide")).data.length > 0,
  };
}

async function decide() {
  const run = client.session("decide").run("Go.", { agent: "decider" });
  const asked = [];
  for await (const event of run) {
    if (event.type === "approval.requested") {
      const open = await client.approvals.list({ session: "decide" });
      asked.push([open.data[0].kind, open.data[0].call.arguments, await client.approvals.count()]);
      await run.approve(event.data.approval, { edit: { place: "there" } });
    }
    if (event.type === "question.asked" && event.data.kind === "result") await run.answerCall(event.data.call, { path: "map.png" });
    else if (event.type === "question.asked") await run.answer(event.data.question, "east");
  }
  const state = await stored("decide");
  const [call] = toArray(state.messages)[1].blocks;
  return { asked, status: (await run.result()).status, edited: call.arguments, decision: call.decision.decision, lines: lines(state), open: openDecisions(state).length };
}

async function cancel() {
  const run = client.session("cancel").run("Wait.", { agent: "waiter" });
  for await (const event of run) if (event.type === "tool.started") await run.cancel("enough");
  return (await run.result()).status;
}

async function steer() {
  const run = client.session("steer").run("Work.", { agent: "worker" });
  for await (const event of run) {
    if (event.type !== "tool.started") continue;
    await run.steer("Also this.");
    await client.session("finish").run("Finish.", { agent: "finisher" }).result();
  }
  return lines(await stored("steer"));
}

async function background() {
  const run = client.session("back").run("Hi.", { agent: "guide" });
  const started = await run.start();
  const waited = await client.turns.wait("back", started.key, 10);
  return [waited.status, (await run.result()).text === waited.text];
}

async function branches() {
  const [turn] = (await client.turns.list("talk")).data;
  await client.sessions.saveCheckpoint("talk", "here");
  const fork = await client.sessions.fork("talk", { at: "here" });
  await client.session(fork.id).run("And on.").result();
  await client.sessions.rewind(fork.id, "here");
  const state = await stored(fork.id);
  const deleted = await client.sessions.create({ agent: "guide", title: "Gone" });
  await client.sessions.update(deleted.id, { tags: ["x"] });
  const listed = (await client.sessions.list({ tag: "x" })).data.length;
  await client.sessions.delete(deleted.id);
  const missing = await client.sessions.get(deleted.id).catch((error) => [error.status, error.code, error.retryable]);
  return {
    origin: state.origin.session, back: lines(state).at(-1)[0], size: transcript(state).length, listed, missing, turns: turn.status,
    checkpoints: (await client.sessions.checkpoints("talk")).data.map((checkpoint) => checkpoint.label),
  };
}

async function rest() {
  const traces = await client.traces.list({ session: "talk" });
  const trace = await client.traces.get("talk", traces.data[0].id);
  return {
    agents: (await client.agents.list()).data.map((agent) => agent.name).sort(),
    tools: (await client.tools.list({ agent: "decider" })).data.map((tool) => tool.name).sort(),
    executed: (await client.tools.execute("greet", { name: "Ann" }, { agent: "decider" })).content[0].text,
    trace: trace.spans.map((span) => span.kind), me: (await client.me()).id, version: (await client.version()).name,
    stats: Object.keys(await client.stats.get()).length > 0, usage: Object.keys(await client.stats.usage(1)).length > 0,
  };
}

/** A proxy that closes its connections after `size` bytes of answers, `cuts` times. */
async function proxyOf(size, cuts) {
  const { hostname, port } = new URL(url);
  let left = cuts;
  const server = createServer((inside) => {
    const outside = connectTcp(Number(port), hostname);
    let passed = 0;
    const drop = () => {
      inside.destroy();
      outside.destroy();
    };
    inside.on("data", (data) => outside.write(data)).on("close", drop).on("error", drop);
    outside.on("close", drop).on("error", drop).on("data", (data) => {
      passed += data.length;
      inside.write(left > 0 ? data.subarray(0, Math.max(data.length - Math.max(passed - size, 0), 0)) : data);
      if (left > 0 && passed >= size) {
        left--;
        inside.end();
        outside.destroy();
      }
    });
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { address: `http://127.0.0.1:${server.address().port}`, left: () => left, close: () => server.close() };
}

async function cut() {
  const outcomes = [];
  for (const size of [300, 450, 900, 1300, 2100]) {
    const proxy = await proxyOf(size, 3);
    const agents = new AgentClient({ baseUrl: proxy.address, apiKey, retry: { random: () => 0 } });
    const run = agents.session(`cut-${size}`).run("Hi.", { agent: "guide" });
    const events = [];
    for await (const event of run) events.push(event);
    const log = await stored(`cut-${size}`);
    const texts = events.filter((event) => event.type === "text.delta").map((event) => event.data.text).join("");
    outcomes.push([(await run.result()).text === texts || texts.length < 40, JSON.stringify(lines(fold(events))) === JSON.stringify(lines(log)), toArray(log.turns).length]);
    proxy.close();
  }
  return outcomes;
}

found.talk = await talk();
const feed = client.approvals.watch()[Symbol.asyncIterator]();
found.feed = [(await feed.next()).value.count];
found.decide = await decide();
await feed.return();
found.cancel = await cancel();
found.steer = await steer();
found.background = await background();
found.branches = await branches();
found.rest = await rest();
found.cut = await cut();
found.same = [];
for (const id of ["talk", "decide", "cancel", "steer"]) {
  const [sse, ws, log] = [await followed(client, id), await followed(overSocket, id), await stored(id)].map((state) => JSON.stringify(state));
  found.same.push([id, sse === log, ws === log]);
}
found.missing = await followed(overSocket, "nowhere").catch((error) => [error.status, error.code]);
overSocket.close();
console.log(JSON.stringify(found));
process.exit(0);
