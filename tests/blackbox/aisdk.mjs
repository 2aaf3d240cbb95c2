// Talks to a server with the chat of the AI SDK, and prints what the chat has at the end of each conversation.
import {
  AbstractChat, DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from "ai";

const [base, token] = process.argv.slice(2);

class State {
  status = "ready";
  error = undefined;
  messages = [];
  pushMessage = (message) => void (this.messages = [...this.messages, message]);
  popMessage = () => void (this.messages = this.messages.slice(0, -1));
  replaceMessage = (index, message) => void (this.messages = this.messages.with(index, structuredClone(message)));
  snapshot = (value) => structuredClone(value);
}

class Chat extends AbstractChat {
  constructor(agent, { body, ...options } = {}) {
    const headers = { Authorization: `Bearer ${token}` };
    const transport = new DefaultChatTransport({ api: `${base}/ai-sdk/${agent}`, headers, body });
    super({ ...options, transport, state: new State() });
  }
}

const shown = (chat) => chat.messages.map(({ role, parts }) => [
  role, ...parts.filter(({ type }) => type !== "step-start").map(({ type, text, state, output }) => text ?? [type, state, output]),
]);
const settled = async (chat, count) => {
  while (chat.status !== "ready" || chat.messages.at(-1).parts.filter(({ type }) => type === "text").length < count) {
    if (chat.error) throw chat.error;
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

async function talk() {
  const chat = new Chat("talker");
  await chat.sendMessage({ text: "Hi." });
  await chat.sendMessage({ text: "And?" });
  const before = shown(chat);
  await chat.regenerate();
  return { before, after: shown(chat), usage: chat.messages.at(-1).metadata.usage.totalTokens > 0 };
}

async function approve(approved) {
  const chat = new Chat("deployer", { sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses });
  await chat.sendMessage({ text: "Deploy it." });
  const part = chat.messages.at(-1).parts.find(({ state }) => state === "approval-requested");
  await chat.addToolApprovalResponse({ id: part.approval.id, approved });
  await settled(chat, 1);
  return { name: part.toolName, messages: shown(chat) };
}

async function runTools() {
  const chat = new Chat("painter", {
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithToolCalls,
    onToolCall: ({ toolCall }) =>
      void chat.addToolOutput({ tool: toolCall.toolName, toolCallId: toolCall.toolCallId, output: "blue" }),
  });
  await chat.sendMessage({ text: "Paint it." });
  await settled(chat, 1);
  return shown(chat);
}

const calling = async (chat) => {
  while (!chat.messages.at(-1)?.parts.some(({ type }) => type === "dynamic-tool")) {
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

async function resume() {
  const chat = new Chat("worker");
  const sent = chat.sendMessage({ text: "Work." });
  await calling(chat);
  await chat.stop();
  await sent;
  const other = new Chat("worker", { id: chat.id });
  const resumed = other.resumeStream();
  await calling(other);
  await new Chat("finisher").sendMessage({ text: "Go." });
  await resumed;
  await other.resumeStream();
  return { before: shown(chat), after: shown(other) };
}

async function abort() {
  const chat = new Chat("waiter", { body: { onDisconnect: "cancel" } });
  const sent = chat.sendMessage({ text: "Wait." });
  await calling(chat);
  await chat.stop();
  await sent;
  return { chat: chat.id, status: chat.status };
}

async function fail() {
  const chat = new Chat("nothing");
  await chat.sendMessage({ text: "Hi." });
  return { status: chat.error.statusCode, code: JSON.parse(chat.error.message).code };
}

console.log(JSON.stringify({
  talk: await talk(), approved: await approve(true), rejected: await approve(false), runTools: await runTools(),
  resume: await resume(), abort: await abort(), fail: await fail(),
}));
