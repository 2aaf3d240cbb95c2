"""langchain's agent on langgraph: single runs without a checkpointer, long sessions with SQLite."""
# mypy: disable-error-code="import-not-found,misc"

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from bench.peers.harness import Growth, Peer, SeenTurn, add, report

IDS = count(1)
CONFIG = {"configurable": {"thread_id": "s"}}


class Fake(BaseChatModel):
    """Calls the tool, then answers."""

    messages_seen: int = 0

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        self.messages_seen = len(messages)
        if isinstance(messages[-1], ToolMessage):
            said = AIMessage("done")
        else:
            said = AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1, "b": 2}, "id": f"c{next(IDS)}"}])
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


@asynccontextmanager
async def open_session(folder: Path) -> AsyncIterator[Any]:
    """Yield an agent that writes its checkpoints to SQLite."""
    async with AsyncSqliteSaver.from_conn_string(str(folder / "langgraph.db")) as saver:
        yield create_agent(MODEL, tools=[add], checkpointer=saver)


async def take_turn(agent: Any) -> SeenTurn:
    """Run one turn of the session."""
    state = await agent.ainvoke({"messages": [("user", "hi")]}, CONFIG)
    return SeenTurn(str(state["messages"][-1].content), MODEL.messages_seen)


NAME = f"langchain {version('langchain')} on langgraph {version('langgraph')}"
report(
    [Peer(NAME, "nothing", "from langchain.agents import create_agent", make, run)],
    [Growth(f"langgraph {version('langgraph')}, AsyncSqliteSaver", "power", open_session, take_turn)],
)
