"""pydantic-ai with its function model; long sessions read and write their messages as JSON in a file."""
# mypy: disable-error-code="import-not-found,misc"

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from bench.peers.harness import Growth, Peer, SeenTurn, add, report

MESSAGES_SEEN = [0]
"""The number of messages in the last prompt."""


async def answer(messages: list[Any], _: Any) -> Any:
    """Call the tool, then answer."""
    MESSAGES_SEEN[0] = len(messages)
    if any(isinstance(part, ToolReturnPart) for part in messages[-1].parts):
        return ModelResponse(parts=[TextPart("done")])
    return ModelResponse(parts=[ToolCallPart("add", {"a": 1, "b": 2})])


MODEL = FunctionModel(answer)


def make() -> Any:
    """Return an agent with one tool."""
    return Agent(MODEL, tools=[add])


async def run(agent: Any) -> str:
    """Run it once."""
    return str((await agent.run("hi")).output)


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[tuple[Any, Path]]:
    """Yield an agent and the file of its messages."""
    file = folder / "messages.json"
    file.write_bytes(b"[]")
    yield make(), file


async def take_turn(opened: tuple[Any, Path]) -> SeenTurn:
    """Read the messages, run one turn, and replace the file with all messages."""
    agent, file = opened
    history = ModelMessagesTypeAdapter.validate_json(file.read_bytes())
    result = await agent.run("hi", message_history=history)
    written = file.with_suffix(".new")
    written.write_bytes(result.all_messages_json())
    written.replace(file)
    return SeenTurn(str(result.output), MESSAGES_SEEN[0])


NAME = f"pydantic-ai {version('pydantic-ai-slim')}"
report(
    [Peer(NAME, "nothing", "from pydantic_ai import Agent", make, run)],
    [Growth(f"{NAME}, messages in a JSON file", "process", open_session, take_turn)],
)
