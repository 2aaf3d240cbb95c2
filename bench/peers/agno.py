"""agno without telemetry: single runs without a database, long sessions with SQLite."""
# mypy: disable-error-code="import-not-found,misc"

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent  # reads the environment on import
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse

from bench.peers.harness import Growth, Peer, SeenTurn, add, report

FUNCTION = {"name": "add", "arguments": '{"a":1,"b":2}'}
IDS = count(1)
MORE_RUNS_THAN_ANY_SESSION = 1_000_000


@dataclass
class Fake(Model):
    """Calls the tool, then answers."""

    id: str = "fake"
    name: str = "fake"
    provider: str = "fake"
    messages_seen: int = 0

    def _answer(self, messages: list[Any]) -> Any:
        self.messages_seen = len(messages)
        if messages[-1].role == "tool":
            return ModelResponse(role="assistant", content="done")
        return ModelResponse(
            role="assistant", tool_calls=[{"id": f"c{next(IDS)}", "type": "function", "function": FUNCTION}]
        )

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


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[Any]:
    """Yield an agent with a session in SQLite; each prompt holds all runs of the session instead of the last three."""
    yield Agent(
        model=MODEL,
        tools=[add],
        telemetry=False,
        db=SqliteDb(db_file=str(folder / "agno.db")),
        session_id="s",
        add_history_to_context=True,
        num_history_runs=MORE_RUNS_THAN_ANY_SESSION,
    )


async def take_turn(agent: Any) -> SeenTurn:
    """Run one turn of the session."""
    return SeenTurn(await run(agent), MODEL.messages_seen)


NAME = f"agno {version('agno')}"
report(
    [Peer(NAME, "nothing", "from agno.agent import Agent", make, run)],
    [Growth(f"{NAME}, SqliteDb, history of all runs", "power", open_session, take_turn)],
)
