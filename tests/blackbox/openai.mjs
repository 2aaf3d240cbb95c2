// Talks to a server with OpenAI's client and prints what it has found.
import OpenAI from "openai";

const [url, apiKey] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const parameters = { type: "object", properties: { title: { type: "string" } } };
const found = {};

const models = [];
for await (const model of client.models.list()) models.push(model.id);
found.models = models.includes("talker");

const messages = [{ role: "user", content: "Hi" }];
const stream = client.chat.completions.stream({ model: "talker", messages });
const first = await stream.finalMessage();
messages.push(first, { role: "user", content: "And?" });
const second = await client.chat.completions.create({ model: "talker", messages });
found.text = [first.content, second.choices[0].message.content];

const runner = client.chat.completions.runTools({
  model: "painter",
  messages: [{ role: "user", content: "Paint" }],
  tools: [{ type: "function", function: { name: "pick_color", parameters, parse: JSON.parse, function: () => "blue" } }],
});
found.painted = await runner.finalContent();

const deploy = [{ role: "user", content: "Deploy" }];
const asked = await client.chat.completions.create({ model: "deployer", messages: deploy });
deploy.push(asked.choices[0].message, { role: "user", content: "approve" });
found.deployed = (await client.chat.completions.create({ model: "deployer", messages: deploy })).choices[0].message.content;

const events = client.responses.stream({ model: "talker", input: "Hi" });
const response = await events.finalResponse();
found.response = response.output_text;
let last;
for await (const event of await client.responses.retrieve(response.id, { stream: true, starting_after: 1 })) last = event;
found.resumed = last.type;

const waiting = await client.responses.create({ model: "deployer", input: "Deploy" });
const reply = { type: "mcp_approval_response", approval_request_id: waiting.output[0].id, approve: true };
const done = await client.responses.create({ model: "deployer", input: [reply], previous_response_id: waiting.id });
found.approved = done.output_text;

const endless = await client.responses.create({ model: "waiter", input: "Wait", background: true });
found.cancelled = (await client.responses.cancel(endless.id)).status;

try {
  await client.chat.completions.create({ model: "unknown", messages });
} catch (error) {
  found.error = { status: error.status, code: error.code };
}
console.log(JSON.stringify(found));
