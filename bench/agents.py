"""The agents that are measured: a model in the process that calls a tool once and then answers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import vaka
from vaka.core.ports.model import CallChunk, Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.message import ToolMessage

ARGUMENTS = '{"a":1,"b":2}'


class AddingModel:
    """Calls a tool once, then answers in ``words`` pieces, ``burst`` of them in one tick of the event loop."""

    name = "fake"

    def __init__(self, words: int = 1, burst: int = 0, *, tool: str = "add", arguments: str = ARGUMENTS) -> None:
        self._words = words
        self._burst = burst
        self._tool = tool
        self._arguments = arguments
        self.messages_seen = 0
        """The number of messages in the last prompt."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        self.messages_seen = len(prompt.messages)
        if not isinstance(prompt.messages[-1], ToolMessage):
            yield CallChunk(0, name=self._tool, arguments=self._arguments, id="c1")
            yield StopChunk("calls")
            return
        for number in range(self._words):
            if self._burst and number % self._burst == 0:
                await asyncio.sleep(0)
            yield TextChunk("done")
        yield StopChunk("end")


class TalkingModel(AddingModel):
    """Answers without a call."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        for number in range(self._words):
            if self._burst and number % self._burst == 0:
                await asyncio.sleep(0)
            yield TextChunk("a word or two ")
        yield StopChunk("end")


async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_agent(model: Any = None) -> vaka.Agent:
    """Return an agent with one tool, as a user writes it."""
    return vaka.Agent("adder", model=model or _MODEL, tools=[add])


_MODEL = AddingModel()
