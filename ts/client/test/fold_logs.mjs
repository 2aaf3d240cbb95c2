// Prints the conversation of each log, as the reducer has it: node fold_logs.mjs FILE…
import { readFileSync } from "node:fs";
import { parseEvent } from "../dist/index.js";
import { textOf, toArray } from "../dist/store.js";
import { fold } from "./streams.mjs";

const describe = (message) => [
  message.role, message.id, message.path.join("/"), textOf(message.blocks),
  message.blocks.filter((block) => block.type === "call").map((call) => [call.id, call.name, call.arguments, call.status]),
];

const conversations = process.argv.slice(2).map((file) => {
  const state = fold(readFileSync(file, "utf8").trim().split("\n").map(parseEvent));
  const { title, usage, cursor } = state;
  const messages = toArray(state.messages).filter((message) => message.role !== "notice").map(describe);
  return { title, cursor, tokens: usage.input + usage.output, messages, decisions: Object.keys(state.decisions) };
});
console.log(JSON.stringify(conversations));
