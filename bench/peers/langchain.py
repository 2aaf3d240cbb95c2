"""langchain's agent on langgraph, without a checkpointer."""
# mypy: disable-error-code="import-not-found,misc"

from importlib.metadata import version
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from bench.peers.harness import Peer, add, report_peers


class Fake(BaseChatModel):
    """Calls the tool, then answers."""

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage("done")
        else:
            said = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": "c1"}])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        return self._generate(messages)


MODEL = Fake()


def make() -> Any:
    """Return an agent with one tool."""
    return create_agent(MODEL, tools=[add])


async def run(agent: Any) -> str:
    """Run it once."""
    return str((await agent.ainvoke({"messages": [("user", "hi")]}))["messages"][-1].content)


NAME = f"langchain {version('langchain')} on langgraph {version('langgraph')}"
report_peers(Peer(NAME, "nothing", "from langchain.agents import create_agent", make, run))
