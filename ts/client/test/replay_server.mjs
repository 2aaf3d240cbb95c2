// An HTTP server for recorded streams, which behaves as badly as proxies do.
import { createServer } from "node:http";

/** Start a server; `handle(request, response)` answers. Returns its address and how to stop it. */
export async function serve(handle) {
  const server = createServer(handle);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const close = () =>
    new Promise((resolve) => {
      server.closeAllConnections();
      server.close(resolve);
    });
  return { url: `http://127.0.0.1:${server.address().port}`, http: server, close };
}

export const startStream = (response) =>
  response.writeHead(200, { "content-type": "text/event-stream", "access-control-allow-origin": "*" });

/** The cursor that a request names. */
export const cursorOf = (request) =>
  request.headers["last-event-id"] ?? new URL(request.url, "http://x").searchParams.get("after") ?? "";
