// Serves the page of the browser test and recorded streams: node browser_server.mjs BUNDLE. Prints its address.
// The session NAME~BYTES is the stream NAME, whose first connection is cut after BYTES.
import { readFileSync } from "node:fs";
import { borders, countWhole, resumed, streamOf } from "./replay.mjs";
import { cursorOf, serve, startStream } from "./replay_server.mjs";
import { eventsOf, NAMES } from "./streams.mjs";

const bundle = readFileSync(process.argv[2]);
const PAGE = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><div id="view"></div><script src="/bundle.js"></script>';
const streams = new Map(NAMES.map((name) => [name, eventsOf(name)]));
const visits = new Map();
const requests = [];

const json = (response, body) => response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));

const server = await serve(async (request, response) => {
  const { pathname } = new URL(request.url, "http://x");
  if (pathname === "/") return response.writeHead(200, { "content-type": "text/html" }).end(PAGE);
  if (pathname === "/bundle.js") return response.writeHead(200, { "content-type": "text/javascript" }).end(bundle);
  if (pathname === "/requests") return json(response, requests);
  if (pathname === "/events") return json(response, Object.fromEntries(NAMES.map((name) => [name, eventsOf(name)])));
  if (pathname === "/streams") {
    const step = 997;
    const cuts = [...streams].map(([name, events]) => {
      const size = streamOf(events).length;
      const sampled = Array.from({ length: Math.ceil(size / step) }, (_, index) => index * step);
      return { name, cuts: [...sampled, ...borders(events).filter((_, index) => index % 9 === 0)].filter((cut) => cut < size) };
    });
    return json(response, cuts);
  }
  if (request.method === "POST") {
    let body = "";
    for await (const chunk of request) body += chunk;
    requests.push([pathname, JSON.parse(body)]);
    if (pathname.includes("/tools~later/")) streams.set("tools~later", streams.get("tools"));
    return json(response, { id: "copy" });
  }
  const id = decodeURIComponent(pathname.split("/")[4]);
  if (id === "tools~later") {
    if (!streams.has(id)) return response.writeHead(404, { "content-type": "application/json" }).end('{"code": "not_found"}');
    return startStream(response).end(streamOf(streams.get(id)));
  }
  const [name, cut] = id.split("~");
  const events = streams.get(name);
  const visit = (visits.get(id) ?? 0) + 1;
  visits.set(id, visit);
  startStream(response);
  if (cut === undefined) return response.end(streamOf(events));
  if (visit === 1) return response.write(streamOf(events).subarray(0, Number(cut)), () => response.destroy());
  response.end(streamOf(resumed(events, cursorOf(request), Math.min(countWhole(events, Number(cut)), events.length - 1))));
});
console.log(server.url);
