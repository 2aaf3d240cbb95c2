// Talks to a server with the AI SDK and its providers for OpenAI's APIs, and prints what it has found.
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, isStepCount, jsonSchema, streamText, tool } from "ai";

const [url, apiKey] = process.argv.slice(2);
const baseURL = `${url}/v1`;
const openai = createOpenAI({ baseURL, apiKey });
const compatible = createOpenAICompatible({ name: "vaka", baseURL, apiKey });
const models = { responses: openai.responses, chat: openai.chat, compatible };
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
console.log(JSON.stringify(found));
