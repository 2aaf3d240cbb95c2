"""A server in a program of your own: the agent, an API key, and a client that streams a turn and resumes a stream."""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import uvicorn
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import vaka
from vaka.server.app import create_app, open_service
from vaka.server.auth.api_keys import KeyOptions, open_api_keys
from vaka.testing import ScriptedModel, call, say


@vaka.tool(effect="read")
def tide(harbour: str) -> str:
    """Return the time of the next high water."""
    return f"High water in {harbour} is at 14:00."


def make_agent() -> vaka.Agent:
    model = ScriptedModel(call("tide", harbour="Hilo"), {"chunks": ["High water ", "is at ", "14:00."]}, say("Bye."))
    return vaka.Agent("pilot", model=model, instructions="Answer in one sentence.", tools=[tide])


def add_page(app: ASGIApp) -> ASGIApp:
    """Return an application with a page at /page, beside what a server of agents has."""
    here = Path(__file__).parent
    built = Path(os.environ.get("VAKA_CLIENT_DIST") or here.parents[1] / "ts" / "client" / "dist")
    page: Response = FileResponse(here / "page.html")
    if not built.exists():
        page = PlainTextResponse("build the client first: make ts", 503)

    async def serve(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == "/page":
            await page(scope, receive, send)
        elif path.startswith("/client/"):
            await StaticFiles(directory=built)({**scope, "path": path.removeprefix("/client")}, receive, send)
        else:
            await app(scope, receive, send)

    return serve


async def stream_turn(client: httpx2.AsyncClient, prompt: str) -> str:
    """Start a turn and print its text as it arrives; return the cursor of its first event."""
    first = ""
    body = {"input": prompt, "agent": "pilot", "stream": True}
    async with client.stream("POST", "/api/v1/sessions/demo/turns", json=body) as response:
        async for event in read_events(response):
            first = first or event.get("id", "")
            if event["type"] == "text.delta":
                print(event["data"]["text"], end="", flush=True)
    print()
    return first


async def read_again(client: httpx2.AsyncClient, after: str) -> None:
    """Print what came after a cursor, as a client does that has lost its connection."""
    page = (await client.get("/api/v1/sessions/demo/events", params={"after": after})).json()
    print(f"after {after}: {', '.join(event['type'] for event in page['data'])}")


async def read_events(response: httpx2.Response) -> AsyncGenerator[dict[str, Any]]:
    async for line in response.aiter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


async def visit(url: str, key: str) -> None:
    """Be a client: everything below could as well be written in another language."""
    headers = {"Authorization": f"Bearer {key}"}
    async with httpx2.AsyncClient(base_url=url, headers=headers) as client:
        refused = await client.get("/api/v1/sessions", headers={"Authorization": "Bearer wrong"})
        print(f"without a valid key: {refused.status_code} {refused.json()['code']}")
        cursor = await stream_turn(client, "When is high water in Hilo?")
        await read_again(client, cursor)


async def main(folder: Path, port: int, *, stay: bool) -> None:
    listener = socket.create_server(("127.0.0.1", port))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    async with vaka.Runtime(store=f"sqlite:///{folder}/server.db", permissions=vaka.Permissions(ask="wait")) as runtime:
        service = await open_service(runtime, [make_agent()])
        keys = await open_api_keys(runtime.store.values, os.environ, runtime.env.clock)
        _, key = await keys.create(KeyOptions(name="example"))
        server = uvicorn.Server(
            uvicorn.Config(add_page(create_app(service)), log_level="warning", ws="websockets-sansio")
        )
        serving = asyncio.create_task(server.serve([listener]))
        if stay:
            print(f"{url}/page#key={key} (Ctrl-C ends it)", flush=True)
        else:
            await visit(url, key)
            server.should_exit = True
        await serving


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        stay = "--stay" in sys.argv
        asyncio.run(main(Path(folder), int(os.environ.get("PORT", "8321")) if stay else 0, stay=stay))
