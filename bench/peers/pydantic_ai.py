"""pydantic-ai with its function model."""
# mypy: disable-error-code="import-not-found,misc"

from importlib.metadata import version
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel

from bench.peers.harness import Peer, add, report_peers


async def answer(messages: list[Any], _: Any) -> Any:
    """Call the tool, then answer."""
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


report_peers(Peer(f"pydantic-ai {version('pydantic-ai-slim')}", "nothing", "from pydantic_ai import Agent", make, run))
