// Talks to a server with the AI SDK and its providers for OpenAI's APIs, and prints what it has found.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const references = [];
const counted = async (url, options) => {
  const { input } = JSON.parse(options.body);
  if (Array.isArray(input)) references.push(...input.filter((item) => item.type === "item_reference"));
  return fetch(url, options);
};
const openai = createOpenAI({ baseURL, apiKey, fetch: counted });
const compatible = createOpenAICompatible({ name: "vaka", baseURL, apiKey });
const models = { openai, responses: openai.responses, chat: openai.chat, compatible };
const inputSchema = jsonSchema({ type: "object", properties: { title: { type: "string" } } });
const pick_color = tool({ description: "Pick.", inputSchema, execute: async ({ title }) => `blue for ${title}` });
const found = {};

for (const [name, model] of Object.entries(models)) {
  const stream = streamText({ model: model("talker"), prompt: "Hi", maxRetries: 0 });
  const text = await stream.text;
  const stopWhen = isStepCount(3);
  const painted = await generateText({ model: model("painter"), prompt: "Paint", tools: { pick_color }, stopWhen, maxRetries: 0 });
  found[name] = [text, painted.text, painted.steps[0].toolResults[0].output];
}

// An answer with a text, reasoning and a call: the second step refers to its items by their ids.
references.length = 0;
const sketch = { model: openai("sketcher"), prompt: "Sketch", tools: { pick_color }, stopWhen: isStepCount(3), maxRetries: 0 };
const generated = await generateText(sketch);
const streamed = streamText(sketch);
found.sketches = [generated.text, await streamed.text, (await streamed.steps).length, references.length > 0];
console.log(JSON.stringify(found));
