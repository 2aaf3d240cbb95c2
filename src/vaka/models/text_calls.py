"""Tool calls for models that have none: told in words, and read from the answer's text."""

import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Estimate,
    Estimates,
    Model,
    Prompt,
    RetryChunk,
    StopChunk,
    TextChunk,
)
from vaka.core.types.errors import BadRequest, ModelUnavailable
from vaka.core.types.tool import ToolSpec
from vaka.models.around import Around
from vaka.models.function_calls import FunctionCall, FunctionDefinition
from vaka.models.text_prompt import in_words, instructions, render_tools
from vaka.models.text_scanner import Found, Scanner

__all__ = ["TextCalls", "parse_tool_calls", "render_tools"]

WHOLE = ("end", "calls")
"""Ends of an answer from which calls may be read."""

_log = logging.getLogger(__name__)


def parse_tool_calls(
    text: str, tools: Iterable[ToolSpec | FunctionDefinition | str], *, function_calling: bool = False
) -> list[FunctionCall]:
    """Return the calls in a whole answer, in order; never raises, whatever the text.

    Three forms are read: fenced JSON blocks with ``tool`` and ``parameters``; ``Using the tool 'NAME' with parameters:
    {…}``; ``NAME(…)`` for the names of ``tools``, with a JSON object or ``key=value`` in the parentheses. Where a text
    has calls of several forms, only those of the first are meant. ``repaired`` of a call says what was mended.

    With ``function_calling`` the model calls tools by itself: then nothing in its text is a call, and nothing is
    returned, with a warning.
    """
    if function_calling:
        _log.warning("function calling is active: calls are not read from text")
        return []
    scanner = Scanner(tool if isinstance(tool, str) else tool.name for tool in tools)
    scanner.feed(text)
    scanner.end()
    return [
        FunctionCall(id=f"call_{number}", name=found.name, arguments=found.arguments, repaired=found.repaired)
        for number, found in enumerate(scanner.calls(), start=1)
    ]


class TextCalls(Around):
    """A model without function calling that can call tools all the same.

    The system prompt says which tools there are and how to call them; earlier calls and results become words. Of the
    answer, text is shown as it arrives, except what may be the beginning of a call; calls are read when the answer is
    whole, never from one that reached its length limit, was refused or was cut. If a call is required and there is
    none, ``ModelUnavailable`` is raised: another try may do better.
    """

    def __init__(
        self, inner: Model, *, include_parameters: bool = True, include_examples: bool = True, markdown: bool = True,
        group_by_category: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(inner)
        self._parameters, self._examples = include_parameters, include_examples
        self._markdown, self._grouped = markdown, group_by_category
        if isinstance(inner, Estimates):
            estimate = inner.estimate
            self.estimate: Callable[[Prompt], Estimate] = lambda prompt: estimate(self.rewrite(prompt))

    def rewrite(self, prompt: Prompt) -> Prompt:
        """Return ``prompt`` as the model inside sees it: everything in words. Raises ``BadRequest``."""
        tools, must = _choice(prompt)
        system = prompt.system
        if tools:
            told = instructions(
                tools, self._rendered(tools), must=must, one=prompt.options.get("parallel_calls") is False
            )
            system = f"{system}\n\n{told}" if system else told
        return msgspec.structs.replace(
            prompt, messages=in_words(prompt.messages), system=system, tools=(), tool_choice="auto",
            options={name: value for name, value in prompt.options.items() if name != "parallel_calls"},
        )  # fmt: skip

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does, with the calls that its text holds."""
        tools, must = _choice(prompt)
        reading = _Reading(tools, prompt.number)
        async with aclosing(self._inner.stream(self.rewrite(prompt))) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    shown = reading.feed(chunk.text)
                    if shown:
                        yield chunk if shown == chunk.text else TextChunk(shown)
                elif isinstance(chunk, StopChunk):
                    for read in reading.end(chunk):
                        yield read
                    if must and chunk.reason in WHOLE and not reading.called:
                        raise ModelUnavailable(f"{self.name} had to call {must} and called none")
                    yield StopChunk("calls") if reading.called and chunk.reason in WHOLE else chunk
                    return
                else:
                    reading = reading.seen(chunk)
                    yield chunk
        rest = reading.rest()
        if rest:
            yield TextChunk(rest)

    def _rendered(self, tools: tuple[ToolSpec, ...]) -> str:
        return render_tools(
            tools, include_parameters=self._parameters, include_examples=self._examples, markdown=self._markdown,
            group_by_category=self._grouped,
        )  # fmt: skip


def _choice(prompt: Prompt) -> tuple[tuple[ToolSpec, ...], str]:
    """Return the tools that may be called, and what must be."""
    choice = prompt.tool_choice
    if choice == "none" or (not prompt.tools and choice == "auto"):
        return (), ""
    if choice == "auto":
        return prompt.tools, ""
    chosen = prompt.tools if choice == "required" else tuple(tool for tool in prompt.tools if tool.name == choice)
    if not chosen:
        there = ", ".join(tool.name for tool in prompt.tools) or "none"
        raise BadRequest(f"tool_choice {choice!r} needs a tool to call; there are {there}")
    return chosen, "a tool" if choice == "required" else repr(choice)


class _Reading:
    """One answer as it comes in."""

    def __init__(self, tools: tuple[ToolSpec, ...], number: int) -> None:
        self._tools, self._number = tools, number
        self._scanner = Scanner(tool.name for tool in tools) if tools else None
        self._shown = self._index = 0
        self.called = False
        """Whether the answer has a call."""

    def feed(self, text: str) -> str:
        """Take more text; return what can be shown of all that has come."""
        scanner = self._scanner
        if scanner is None:
            return text
        scanner.feed(text)
        start, self._shown = self._shown, scanner.sure
        return scanner.text(start, self._shown)

    def seen(self, chunk: Chunk) -> "_Reading":
        """Take what is no text: calls the model made by itself, or the news that everything begins anew."""
        if isinstance(chunk, RetryChunk):
            return _Reading(self._tools, self._number + 1)
        if isinstance(chunk, CallChunk):
            self.called, self._index = True, max(self._index, chunk.index + 1)
        return self

    def rest(self) -> str:
        """Return what was not shown yet."""
        return self._scanner.text(self._shown) if self._scanner is not None else ""

    def end(self, stop: StopChunk) -> Iterator[Chunk]:
        """Yield what is left of the text, then the calls, if the answer is whole."""
        scanner = self._scanner
        if scanner is None:
            return
        calls: list[Found] = []
        if stop.reason in WHOLE:
            scanner.end()
            calls = scanner.calls()
        text = _without(scanner, self._shown, calls)
        if text:
            yield TextChunk(text)
        for at, found in enumerate(calls, start=self._index):
            id = f"call_{self._number}_{at + 1}"
            yield CallChunk(at, found.name, found.arguments, id, found.repaired)
        self.called = self.called or bool(calls)


def _without(scanner: Scanner, start: int, calls: list[Found]) -> str:
    """Return the text from ``start`` on without the calls, each with the blanks before it."""
    texts: list[str] = []
    for found in calls:
        texts.append(scanner.text(start, found.start).rstrip(" \t\r\n\f\v"))
        start = found.end
    last = scanner.text(start)
    return "".join(texts) + (last if last.strip() or not calls else "")
