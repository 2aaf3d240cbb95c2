"""agno without telemetry: single runs without a database, long sessions with SQLite."""
# mypy: disable-error-code="import-not-found,misc"

import json
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

os.environ["AGNO_TELEMETRY"] = "false"

from agno.agent import Agent  # reads the environment on import
from agno.compaction import Compaction
from agno.db.sqlite import SqliteDb
from agno.models.base import Model
from agno.models.response import ModelResponse

from bench.peers.harness import Growth, Memory, Peer, SeenTurn, add, report
from bench.planted_facts import WINDOW, ScriptedTalk

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


@dataclass
class Talking(Fake):
    """Plays the scripted conversation, or its summary model."""

    talk: Any = None
    summarises: bool = False

    def _answer(self, messages: list[Any]) -> Any:
        calls = [str(call) for message in messages for call in message.tool_calls or ()]
        shown = "\n".join([*[str(message.content) for message in messages], *calls])
        if self.summarises:
            return ModelResponse(role="assistant", content=self.talk.summarise(shown))
        argument, answer = self.talk.reply(shown, has_result=messages[-1].role == "tool")
        if not argument:
            return ModelResponse(role="assistant", content=answer)
        function = {"name": "look_up", "arguments": json.dumps({"query": argument})}
        return ModelResponse(
            role="assistant", tool_calls=[{"id": f"c{next(IDS)}", "type": "function", "function": function}]
        )


async def remember(talk: ScriptedTalk) -> None:
    """Run the scripted conversation with compaction."""

    def look_up(query: str) -> str:
        """Look something up."""
        return talk.look_up()

    compaction = Compaction(model=Talking(talk=talk, summarises=True), compact_at_tokens=WINDOW * 85 // 100)
    with tempfile.TemporaryDirectory(prefix="vaka-bench-") as folder:
        agent = Agent(
            model=Talking(talk=talk),
            tools=[look_up],
            db=SqliteDb(db_file=str(Path(folder) / "agno.db")),
            session_id="s",
            add_history_to_context=True,
            compaction=compaction,
            telemetry=False,
        )
        for _ in talk.turns:
            await agent.arun(talk.next_input())


report(
    [Peer(NAME, "nothing", "from agno.agent import Agent", make, run)],
    [Growth(f"{NAME}, SqliteDb, history of all runs", "power", open_session, take_turn)],
    [Memory(f"{NAME}, Compaction", remember)],
)
