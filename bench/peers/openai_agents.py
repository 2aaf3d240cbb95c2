"""openai-agents without tracing: single runs without a session, long sessions with SQLite."""
# mypy: disable-error-code="import-not-found,misc"

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from agents import Agent, Runner, SQLiteSession, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench.peers.harness import Growth, Peer, SeenTurn, add, report

set_tracing_disabled(True)

IDS = count(1)
DONE = ResponseOutputText(text="done", type="output_text", annotations=[])


def make_call() -> Any:
    """Return a call of the tool; like that of a real model it has an id of its own."""
    number = next(IDS)
    return ResponseFunctionToolCall(
        id=f"f{number}", call_id=f"c{number}", type="function_call", name="add", arguments='{"a":1,"b":2}'
    )


def make_answer() -> Any:
    """Return the last message of a turn."""
    return ResponseOutputMessage(
        id=f"m{next(IDS)}", type="message", role="assistant", status="completed", content=[DONE]
    )


class Fake(Model):
    """Calls the tool, then answers."""

    messages_seen = 0

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        self.messages_seen = len(input)
        called = isinstance(input, list) and input[-1].get("type") == "function_call_output"
        return ModelResponse(output=[make_answer() if called else make_call()], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


MODEL = Fake()


def make() -> Any:
    """Return an agent with one tool."""
    return Agent(name="adder", model=MODEL, tools=[function_tool(add)])


async def run(agent: Any) -> str:
    """Run it once."""
    return str((await Runner.run(agent, "hi")).final_output)


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[tuple[Any, Any]]:
    """Yield an agent and its session in SQLite."""
    session = SQLiteSession("s", folder / "agents.db")
    try:
        yield make(), session
    finally:
        session.close()


async def take_turn(opened: tuple[Any, Any]) -> SeenTurn:
    """Run one turn of the session."""
    agent, session = opened
    result = await Runner.run(agent, "hi", session=session)
    return SeenTurn(str(result.final_output), MODEL.messages_seen)


NAME = f"openai-agents {version('openai-agents')}"
report(
    [Peer(NAME, "nothing", "from agents import Agent, Runner, function_tool", make, run)],
    [Growth(f"{NAME}, SQLiteSession", "power", open_session, take_turn)],
)
