"""A server of the demo agents: python -m tests.e2e.demo_server PORT STORE GATE."""

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

import uvicorn

import vaka
from tests.e2e.demo_agents import GatedModel, make_agents
from tests.server.conftest import KnownTokens, NoLimits
from vaka.models import MeteredModel, PriceList
from vaka.runtime.runtime import Runtime
from vaka.server.app import create_app
from vaka.server.kit.guard import Guard
from vaka.server.kit.service import AgentService
from vaka.server.settings import ServerSettings
from vaka.testing import ScriptedModel, call, say

FIRST, REST = "The tide is rising. " * 12, "It will fall at six. " * 12
SETTINGS: list[dict[str, Any]] = [
    {"key": "store", "value": "sqlite", "origin": "vaka.toml:3", "layer": "project"},
    {"key": "server.hosts", "value": ["localhost"], "origin": "default", "layer": "default"},
    {"key": "models.anthropic.key", "value": "***", "origin": "ANTHROPIC_API_KEY", "layer": "environment"},
]


async def main(port: int, store: str, gate: Path) -> None:
    """Serve until the process is killed; print a line once the port is open."""
    if not gate.exists():
        os.mkfifo(gate)
    model = MeteredModel(GatedModel(gate, FIRST, REST), PriceList())
    gated = vaka.Agent("tides", description="Knows the tide.", model=model)
    fetch = call("WebFetch", url="http://127.0.0.1:9/", prompt="What is there?")
    fetcher = vaka.Agent(
        "fetcher", description="Reads a page.", model=ScriptedModel(fetch, say("Done.")), tools=["WebFetch"]
    )
    agents = {agent.name: agent for agent in [*make_agents(), gated, fetcher]}
    async with Runtime(store=store, permissions=vaka.Permissions(ask="wait", confirm=("deploy",))) as runtime:
        guard = Guard(ServerSettings(), KnownTokens(), NoLimits())
        service = AgentService(runtime, agents, guard, default_agent="guide", describe_settings=lambda: SETTINGS)
        server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning", ws="websockets-sansio"))
        with socket.create_server(("127.0.0.1", port)) as listener:
            sys.stdout.write("listening\n")
            sys.stdout.flush()
            await server.serve([listener])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
