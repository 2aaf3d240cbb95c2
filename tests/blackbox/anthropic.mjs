// Talks to a server with Anthropic's client and prints what it has found.
import Anthropic from "@anthropic-ai/sdk";

const [url, apiKey] = process.argv.slice(2);
const client = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
const tools = [{ name: "pick_color", input_schema: { type: "object", properties: { title: { type: "string" } } } }];
const textOf = (message) => message.content.map((block) => block.text ?? "").join("");
const found = {};

const hi = [{ role: "user", content: "Hi" }];
found.streamed = await client.messages.stream({ model: "talker", max_tokens: 99, messages: hi }).finalText();

const messages = [{ role: "user", content: "Paint" }];
let message = await client.messages.create({ model: "painter", max_tokens: 99, messages, tools });
found.call = message.content.map(({ name, input }) => ({ name, input }));
const results = message.content.map(({ id }) => ({ type: "tool_result", tool_use_id: id, content: "blue" }));
messages.push({ role: "assistant", content: message.content }, { role: "user", content: results });
message = await client.messages.create({ model: "painter", max_tokens: 99, messages, tools });
found.painted = textOf(message);

found.ran = [];
for (const stream of [false, true]) {
  const runner = client.beta.messages.toolRunner({
    model: "painter",
    max_tokens: 99,
    messages: [{ role: "user", content: "Paint" }],
    tools: [{ ...tools[0], run: async ({ title }) => `blue for ${title}`, parse: (input) => input }],
    stream,
  });
  found.ran.push(textOf(await runner.runUntilDone()));
}

const deploy = [{ role: "user", content: "Deploy" }];
const asked = await client.messages.create({ model: "deployer", max_tokens: 99, messages: deploy });
deploy.push({ role: "assistant", content: asked.content }, { role: "user", content: "approve" });
found.deployed = textOf(await client.messages.create({ model: "deployer", max_tokens: 99, messages: deploy }));

try {
  await client.messages.create({ model: "unknown", max_tokens: 99, messages });
} catch (error) {
  found.error = [error.status, error.error.error.type];
}
console.log(JSON.stringify(found));
