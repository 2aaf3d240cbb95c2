// A client with the TypeScript SDK: prints what it has seen of `vaka acp`, whose command line is in the arguments.
import { spawn } from "node:child_process";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";

const [folder, ...command] = process.argv.slice(2);
const { agent: methods, client: own } = acp.methods;

async function withAgent(op) {
  const child = spawn(command[0], command.slice(1), { cwd: folder, stdio: ["pipe", "pipe", "inherit"] });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  const seen = { updates: [], asked: [], onUpdate: () => {} };
  const client = acp
    .client({ name: "test" })
    .onRequest(own.session.requestPermission, ({ params }) => {
      seen.asked.push(params.options.map((option) => option.kind));
      const allowed = params.options.find((option) => option.kind === "allow_once");
      return { outcome: { outcome: "selected", optionId: allowed.optionId } };
    })
    .onNotification(own.session.update, ({ params }) => {
      seen.updates.push(params.update);
      seen.onUpdate(params.update);
    });
  const stream = acp.ndJsonStream(Writable.toWeb(child.stdin), Readable.toWeb(child.stdout));
  const result = await client.connectWith(stream, async (agent) => {
    const hello = await agent.request(methods.initialize, {
      protocolVersion: acp.PROTOCOL_VERSION,
      clientCapabilities: {},
      clientInfo: { name: "test", version: "1" },
    });
    return op(agent, seen, hello);
  });
  child.stdin.end();
  return { ...result, exit: await ended };
}

const texts = (seen, kind) =>
  seen.updates.filter((update) => update.sessionUpdate === kind).map((update) => update.content.text).join("");
const prompt = (agent, sessionId, text) =>
  agent.request(methods.session.prompt, { sessionId, prompt: [{ type: "text", text }] });

const first = await withAgent(async (agent, seen, hello) => {
  const { sessionId, modes } = await agent.request(methods.session.new, { cwd: folder, mcpServers: [] });
  const stops = [(await prompt(agent, sessionId, "Pay.")).stopReason];
  const calls = seen.updates.filter((update) => update.status).map((update) => update.status);
  const running = new Promise((resolve) => {
    seen.onUpdate = (update) => update.status === "in_progress" && resolve();
  });
  const turn = prompt(agent, sessionId, "Hang.");
  await running;
  await agent.notify(methods.session.cancel, { sessionId });
  stops.push((await turn).stopReason);
  const refused = await agent.request("session/unknown", {}).catch((error) => error.code);
  return {
    sessionId, stops, calls, refused, asked: seen.asked, mode: modes.currentModeId, version: hello.protocolVersion,
    text: texts(seen, "agent_message_chunk"),
  };
});

const second = await withAgent(async (agent, seen) => {
  const { sessionId } = first;
  await agent.request(methods.session.load, { sessionId, cwd: folder, mcpServers: [] });
  const replayed = [texts(seen, "user_message_chunk"), texts(seen, "agent_message_chunk")];
  const { stopReason } = await prompt(agent, sessionId, "Again.");
  await agent.request(methods.session.close, { sessionId });
  await agent.request(methods.session.delete, { sessionId });
  const { sessions } = await agent.request(methods.session.list, {});
  return { replayed, stopReason, text: texts(seen, "agent_message_chunk"), left: sessions.length };
});

console.log(JSON.stringify({ first, second }));
