"""openai-agents without tracing and without a session."""
# mypy: disable-error-code="import-not-found,misc"

from collections.abc import AsyncIterator
from importlib.metadata import version
from typing import Any

from agents import Agent, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from bench.peers.harness import Peer, add, report_peers

set_tracing_disabled(True)

CALL = ResponseFunctionToolCall(
    id="f1", call_id="c1", type="function_call", name="add", arguments='{"a":1,"b":2}'
)  # fmt: skip
DONE = ResponseOutputText(text="done", type="output_text", annotations=[])
ANSWER = ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[DONE])


class Fake(Model):
    """Calls the tool, then answers."""

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> Any:
        called = isinstance(input, list) and any(item.get("type") == "function_call_output" for item in input)
        return ModelResponse(output=[ANSWER if called else CALL], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


MODEL = Fake()


def make() -> Any:
    """Return an agent with one tool."""
    return Agent(name="adder", model=MODEL, tools=[function_tool(add)])


async def run(agent: Any) -> str:
    """Run it once."""
    return str((await Runner.run(agent, "hi")).final_output)


STATEMENT = "from agents import Agent, Runner, function_tool"
report_peers(Peer(f"openai-agents {version('openai-agents')}", "nothing", STATEMENT, make, run))
