"""A tool written in Luau that asks a web service; the service is a stand-in on this machine."""

import asyncio
import json
from pathlib import Path

import vaka
from vaka.events import TextDelta, ToolCompleted, ToolFailed
from vaka.models import Scripted
from vaka.net import Connector, NetworkRules

HERE = Path(__file__).parent
SKY = {"Hilo": {"celsius": 24, "rain": True}, "Lima": {"celsius": 19, "rain": False}}

MODEL = Scripted(
    [
        {"tool_calls": [{"name": "weather", "arguments": {"city": city}} for city in ("Hilo", "Lima", "Atlantis")]},
        {"text": "Take a jacket to Hilo, none to Lima, and no trip to Atlantis."},
    ]
)
WEATHER = vaka.LuauTool(HERE / "weather.luau", params={"city": {"type": "string", "description": "Name of the city."}})
AGENT = vaka.Agent("guide", model=MODEL, instructions="Be brief.", tools=[WEATHER])


async def service(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer one request for the weather."""
    head = await reader.readuntil(b"\r\n\r\n")
    found = SKY.get(head.split(b" ")[1].decode().rpartition("=")[2])
    body = json.dumps(found).encode()
    status = "200 OK" if found else "404 Not Found"
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode() + body)
    await writer.drain()
    writer.close()


async def main() -> None:
    """Start the service, and let an agent use the tool. Scripts reach this machine only because the rules allow it."""
    server = await asyncio.start_server(service, "127.0.0.1", 0)
    address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with (
        server,
        Connector(NetworkRules(trusted=(address,))) as network,
        vaka.Runtime(
            network=vaka.NetworkAccess(client=network), scripts=vaka.Scripts(env={"WEATHER_URL": f"http://{address}"})
        ) as runtime,
    ):
        session = await runtime.open(AGENT)
        async for event in session.stream("What should I wear in Hilo, Lima and Atlantis?"):
            if isinstance(event.data, ToolCompleted | ToolFailed) and not event.path:
                print(event.data.result.text)
            elif isinstance(event.data, TextDelta):
                print(event.data.text, end="", flush=True)
        print()


if __name__ == "__main__":
    asyncio.run(main())
