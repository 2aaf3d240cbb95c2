"""agno without telemetry and without a database."""
# mypy: disable-error-code="import-not-found,misc"

import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent  # reads the environment on import
from agno.models.base import Model
from agno.models.response import ModelResponse

from bench.peers.harness import Peer, add, report_peers

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":2}'}}


@dataclass
class Fake(Model):
    """Calls the tool, then answers."""

    id: str = "fake"
    name: str = "fake"
    provider: str = "fake"

    def _answer(self, messages: list[Any]) -> Any:
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content="done")
        return ModelResponse(role="assistant", tool_calls=[CALL])

    def invoke(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        return self._answer(messages)

    async def ainvoke(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        return self._answer(messages)

    def invoke_stream(self, *_: Any, **__: Any) -> Iterator[Any]:
        raise NotImplementedError

    def ainvoke_stream(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **_: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


MODEL = Fake()


def make() -> Any:
    """Return an agent with one tool."""
    return Agent(model=MODEL, tools=[add], telemetry=False)


async def run(agent: Any) -> str:
    """Run it once."""
    return str((await agent.arun("hi")).content)


report_peers(Peer(f"agno {version('agno')}", "nothing", "from agno.agent import Agent", make, run))
