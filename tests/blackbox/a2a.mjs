// Talks to a server with A2A's own JavaScript client over one binding, and prints the states and texts of its tasks.
import { SendMessageRequest, StreamResponse, Task } from "@a2a-js/sdk";
import {
  ClientFactory, ClientFactoryOptions, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory,
} from "@a2a-js/sdk/client";

const [base, token] = process.argv.slice(2);
const fetchImpl = (url, init = {}) => fetch(url, { ...init, headers: { ...init.headers, Authorization: `Bearer ${token}` } });

const make = (binding) => new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
  transports: [new JsonRpcTransportFactory({ fetchImpl }), new RestTransportFactory({ fetchImpl })],
  preferredTransports: [binding],
  cardResolver: new DefaultAgentCardResolver({ fetchImpl }),
}));
const request = (text, fields = {}) => SendMessageRequest.fromJSON({
  message: { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }], ...fields },
});
const read = async (updates, until = () => false) => {
  const found = { states: [], text: "" };
  for await (const update of updates) {
    const { task, statusUpdate, artifactUpdate } = StreamResponse.toJSON(update);
    found.task ??= task?.id;
    const state = (task ?? statusUpdate)?.status.state.replace("TASK_STATE_", "");
    if (state && found.states.at(-1) !== state) found.states.push(state);
    found.text += artifactUpdate?.artifact.parts.map(({ text }) => text).join("") ?? "";
    if (until(statusUpdate)) break;
  }
  return found;
};
const calling = (update) => update?.metadata?.tool?.status === "running";

async function talk(binding) {
  const factory = make(binding);
  const connect = (agent) => factory.createFromUrl(`${base}/a2a/${agent}/`, ".well-known/agent-card.json");
  const talker = await connect("talker");
  const sent = Task.toJSON(await talker.sendMessage(request("Hi.")));
  const streamed = await read(talker.sendMessageStream(request("And?", { contextId: sent.contextId })));

  const deployer = await connect("deployer");
  const asked = await read(deployer.sendMessageStream(request("Deploy it.")));
  const approved = await read(deployer.sendMessageStream(request("approve", { taskId: asked.task })));

  const worker = await connect("worker");
  const begun = await read(worker.sendMessageStream(request("Work.")), calling);
  const watching = read(worker.resubscribeTask({ tenant: "", id: begun.task }));
  await (await connect("finisher")).sendMessage(request("Go."));
  const watched = await watching;

  const waiter = await connect("waiter");
  const waiting = await read(waiter.sendMessageStream(request("Wait.")), calling);
  const cancelled = Task.toJSON(await waiter.cancelTask({ tenant: "", id: waiting.task }));
  const again = await waiter.cancelTask({ tenant: "", id: waiting.task }).then(() => "none", (error) => error.constructor.name.replace(/^(JsonRpc|Rest)/, ""));
  const card = await talker.getAgentCard();
  return {
    card: card.name, sent: sent.status.state, streamed: streamed.text, asked: asked.states.at(-1), approved: approved.text,
    watched: [watched.states.at(-1), watched.text], cancelled: cancelled.status.state, again,
  };
}

console.log(JSON.stringify({ JSONRPC: await talk("JSONRPC"), "HTTP+JSON": await talk("HTTP+JSON") }));
