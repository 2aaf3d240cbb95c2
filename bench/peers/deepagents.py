"""The summarisation of deepagents and of langchain, with their defaults, over a long conversation."""
# mypy: disable-error-code="import-not-found,misc"

from importlib.metadata import version
from typing import Any

from deepagents.backends import StateBackend
from deepagents.middleware.filesystem import FilesystemMiddleware
from deepagents.middleware.summarization import create_summarization_middleware
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver

from bench.peers.harness import Memory, report
from bench.planted_facts import WINDOW, ScriptedTalk

CONFIG = {"configurable": {"thread_id": "s"}, "recursion_limit": 100}


def text_of(messages: list[Any]) -> str:
    """Return all that a model is shown of messages: texts and the arguments of calls."""
    calls = [str(call["args"]) for message in messages for call in getattr(message, "tool_calls", ())]
    return "\n".join([*[str(message.content) for message in messages], *calls])


class Fake(BaseChatModel):
    """Plays the scripted conversation, or its summary model."""

    talk: Any = None
    summarises: bool = False

    @property
    def _llm_type(self) -> str:
        return "fake"

    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self

    def _generate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        shown = text_of(messages)
        if self.summarises:
            said = AIMessage(self.talk.summarise(shown))
        else:
            argument, answer = self.talk.reply(shown, has_result=isinstance(messages[-1], ToolMessage))
            call = {"name": "look_up", "args": {"query": argument}, "id": f"c{self.talk.at}"}
            said = AIMessage(answer, tool_calls=[call] if argument else [])
        return ChatResult(generations=[ChatGeneration(message=said)])

    async def _agenerate(self, messages: list[Any], *_: Any, **__: Any) -> Any:
        return self._generate(messages)


def make_memory(name: str, make_middleware: Any) -> Memory:
    """Return an agent with a middleware that summarises."""

    async def run(talk: ScriptedTalk) -> None:
        def look_up(query: str) -> str:
            """Look something up."""
            return talk.look_up()

        model, summary = (
            Fake(talk=talk, summarises=summarises, profile={"max_input_tokens": WINDOW}) for summarises in (False, True)
        )
        agent = create_agent(model, tools=[look_up], middleware=make_middleware(summary), checkpointer=InMemorySaver())
        for _ in talk.turns:
            await agent.ainvoke({"messages": [("user", talk.next_input())]}, CONFIG)

    return Memory(name, run)


def make_deepagents(model: Any) -> list[Any]:
    """Return its summaries, and the files to which it moves what they replace."""
    return [FilesystemMiddleware(), create_summarization_middleware(model, StateBackend())]


def make_langchain(model: Any) -> list[Any]:
    """Return its summaries; it has no default for when to summarise."""
    return [SummarizationMiddleware(model, trigger=("fraction", 0.85))]


report(
    [],
    [],
    [
        make_memory(f"deepagents {version('deepagents')}", make_deepagents),
        make_memory(f"langchain {version('langchain')}, SummarizationMiddleware", make_langchain),
    ],
)
