// Talks to a server with AG-UI's own client, and prints what the client has at the end of each conversation.
import { HttpAgent } from "@ag-ui/client";

const [base, token] = process.argv.slice(2);
const connect = (agent) => new HttpAgent({ url: `${base}/agui/${agent}`, headers: { Authorization: `Bearer ${token}` } });
const ask = (agent, content) => agent.addMessage({ id: crypto.randomUUID(), role: "user", content });
const shown = (agent) => agent.messages.map(({ role, content, toolCalls }) => [role, content ?? toolCalls?.map((call) => call.function)]);

async function talk() {
  const agent = connect("talker");
  ask(agent, "Hi.");
  const { result } = await agent.runAgent();
  ask(agent, "And?");
  await agent.runAgent();
  return { result, messages: shown(agent) };
}

async function approve() {
  const agent = connect("deployer");
  ask(agent, "Deploy it.");
  await agent.runAgent();
  const [interrupt] = agent.pendingInterrupts;
  ask(agent, "Hurry.");
  const refusal = await agent.runAgent().then(() => "none", (error) => error.constructor.name);
  agent.messages.pop();
  const resume = [{ interruptId: interrupt.id, status: "resolved", payload: { approved: true } }];
  await agent.runAgent({ resume });
  const open = agent.pendingInterrupts.length;
  return { reason: interrupt.reason, refusal, open, state: agent.state, messages: shown(agent) };
}

async function runTools() {
  const agent = connect("painter");
  const parameters = { type: "object", properties: { title: { type: "string" } } };
  const tools = [{ name: "pick_color", description: "Ask for a color.", parameters }];
  ask(agent, "Paint it.");
  let pending;
  await agent.runAgent({ tools }, { onRunFinishedEvent: ({ event }) => void (pending = event.outcome.pendingToolCallIds) });
  agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId: pending[0], content: "blue" });
  await agent.runAgent({ tools });
  return { messages: shown(agent) };
}

async function abort() {
  const agent = connect("waiter");
  ask(agent, "Wait.");
  await agent.runAgent({}, { onToolCallEndEvent: () => agent.abortRun() });
  return { thread: agent.threadId };
}

async function fail() {
  const agent = connect("nothing");
  ask(agent, "Hi.");
  return agent.runAgent().then(() => "none", (error) => ({ status: error.status, code: error.payload.code }));
}

console.log(JSON.stringify({
  talk: await talk(), approve: await approve(), runTools: await runTools(), abort: await abort(), fail: await fail(),
}));
