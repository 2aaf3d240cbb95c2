// Follows a session over both transports until it is closed: node restart.mjs URL KEY. Prints a line for each durable event.
import { WebSocket } from "ws";
import { AgentClient } from "../dist/index.js";

const [baseUrl, apiKey] = process.argv.slice(2);

async function read(transport) {
  const client = new AgentClient({ baseUrl, apiKey, transport, WebSocket, retry: { minMs: 20, maxMs: 200 } });
  const subscription = client.session("s").subscribe();
  const lost = [];
  subscription.onStatus((status) => status === "reconnecting" && lost.push(status));
  for await (const event of subscription) {
    if (event.seq) console.log(JSON.stringify([transport, event.seq, event.type]));
    if (event.type === "session.closed") break;
  }
  client.close();
  return lost.length > 0;
}

console.log(JSON.stringify(await Promise.all([read("sse"), read("ws")])));
process.exit(0);
