// The page of the browser test: streams that are cut and resumed, and a view made with the hook.
import { createElement } from "react";
import { createRoot } from "react-dom/client";
import { AgentClient } from "../dist/index.js";
import { useSession } from "../dist/react.js";
import { initialState, last, reduce } from "../dist/store.js";
import { fetchCutAt, streamOf } from "./replay.mjs";

const client = new AgentClient({ retry: { random: () => 0 } });

async function read(id) {
  let state = initialState("s");
  for await (const event of client.session(id).subscribe()) state = reduce(state, event);
  return JSON.stringify(state);
}

/** Read each stream whole and cut at each of `cuts`; return the cuts whose state differs. */
globalThis.readCut = async (streams) => {
  const failed = [];
  let count = 0;
  for (const { name, cuts } of streams) {
    const whole = await read(name);
    for (const cut of cuts) {
      count++;
      if ((await read(`${name}~${cut}`)) !== whole) failed.push([name, cut]);
    }
  }
  return { count, failed };
};

/** Read each stream cut at every `step`-th byte, without a network; return the cuts whose state differs. */
globalThis.readEvery = async (streams, step) => {
  const failed = [];
  let count = 0;
  for (const [name, events] of Object.entries(streams)) {
    const bytes = streamOf(events);
    const whole = JSON.stringify(events.reduce(reduce, initialState("s")));
    for (let size = 0; size < bytes.length; size += step) {
      count++;
      const cut = new AgentClient({ retry: { random: () => 0 }, fetch: fetchCutAt(events, bytes, size) });
      let state = initialState("s");
      for await (const event of cut.session("s").subscribe()) state = reduce(state, event);
      if (JSON.stringify(state) !== whole) failed.push([name, size]);
    }
  }
  return { count, failed };
};

/** Lose a connection whose next try is far away, and come back online or to the page: it is tried at once. */
globalThis.wakeUp = async (id, type) => {
  const patient = new AgentClient({ retry: { minMs: 3_600_000, maxMs: 3_600_000, random: () => 1 } });
  const subscription = patient.session(id).subscribe();
  subscription.onStatus((status, attempt) => {
    if (attempt === 1) setTimeout(() => (type === "online" ? globalThis : document).dispatchEvent(new Event(type)));
  });
  const types = [];
  for await (const event of subscription) types.push(event.type);
  return types.at(-1);
};

/** Run a turn, and follow it over a socket at the same time; return what both have read. */
globalThis.runOverSocket = async (apiKey) => {
  const agents = new AgentClient({ apiKey, transport: "auto" });
  await agents.sessions.create({ id: "socket", agent: "guide" });
  const subscription = agents.session("socket").subscribe();
  let followed = initialState("s");
  const reading = (async () => {
    for await (const event of subscription) {
      followed = reduce(followed, event);
      if (event.type === "turn.completed") break;
    }
  })();
  let read = initialState("s");
  for await (const event of agents.session("socket").run("Hi.")) read = reduce(read, event);
  await reading;
  agents.close();
  const { cursor } = await agents.session("socket").get();
  return { texts: [read, followed].map((state) => last(state.turns).text), same: followed.cursor === read.cursor && read.cursor === cursor };
};

const OPTIONS = { send: { model: "y" }, approve: { message: "y" } };

function View({ id }) {
  const session = useSession(client, id, { agent: "guide" });
  const texts = session.messages.flatMap((message) => message.blocks.map((block) => block.text ?? `${block.name} ${block.status}`));
  return createElement(
    "main",
    null,
    createElement("h1", null, session.state.title),
    createElement("p", { id: "status" }, `${session.status} ${session.connection} ${session.turn?.status ?? ""} ${session.error?.code ?? ""}`),
    createElement("ol", null, ...texts.map((text, index) => createElement("li", { key: index }, text))),
    ...["send", "steer", "stop", "approve", "reject", "answer", "branch"].map((name) =>
      createElement("button", { key: name, onClick: () => session[name]("x", OPTIONS[name] ?? "y") }, name),
    ),
  );
}

const root = createRoot(document.getElementById("view") ?? document.createElement("div"));
globalThis.show = (id) => root.render(createElement(View, { id, key: id }));
