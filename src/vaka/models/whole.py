"""A whole answer is a stream drained."""

from contextlib import aclosing
from itertools import count
from typing import Any

import msgspec

from vaka.core.loop.assemble import UNFINISHED, Assembly, WrittenCall
from vaka.core.ports.model import Model, Prompt, RetryChunk
from vaka.core.types.content import CallRef, Content, Part, Reasoning, text_of
from vaka.core.types.errors import ModelError, Truncated
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage
from vaka.core.types.usage import Usage
from vaka.models.around import cut
from vaka.models.function_calls import FunctionCall


class Whole(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that has come to its end."""

    content: Content = ()
    """Texts and reasoning in their order, and where between them the calls stand."""
    calls: tuple[FunctionCall, ...] = ()
    usage: Usage = Usage()
    """What it cost, with what tries before it cost."""
    stop: str = "end"
    model: str = ""

    @property
    def text(self) -> str:
        """The words of the answer, without reasoning."""
        return text_of(self.content)

    @property
    def reasoning(self) -> str:
        """What was thought aloud."""
        return "".join(part.text for part in self.content if isinstance(part, Reasoning))

    @property
    def data(self) -> Any:
        """The answer as JSON data. Raises ``ModelError`` when it is none."""
        try:
            return msgspec.json.decode(self.text)
        except (msgspec.DecodeError, RecursionError) as error:
            shown = self.text if len(self.text) <= 200 else f"{self.text[:200]}…"
            said = f"it ended with {self.stop!r}: {shown!r}"
            raise ModelError(f"the answer of {self.model or 'the model'} is not JSON: {error}; {said}") from error

    @property
    def message(self) -> AssistantMessage:
        """The answer as a message, to go on from in a conversation."""
        calls = tuple(call.as_tool_call(CallId(call.id or "")) for call in self.calls)
        return AssistantMessage(
            id=MessageId(""), content=self.content, calls=calls, model=self.model, stop=self.stop
        )  # fmt: skip


async def complete(model: Model, prompt: Prompt) -> Whole:
    """Ask ``model`` and return its whole answer.

    Raises ``StreamCut`` when the answer broke off, ``Truncated`` when its length limit cut a call or the data that was
    asked for, and what the model raises. An answer that was refused has no calls.
    """
    assembly, spent = Assembly(MessageId("")), Usage()
    async with aclosing(model.stream(prompt)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, RetryChunk):
                spent += assembly.usage
                assembly = Assembly(MessageId(""))
            else:
                assembly.feed(chunk)
    if assembly.stop is None:
        raise cut(model.name)
    parts = assembly.parts()
    if assembly.stop == "length":
        _check(model.name, prompt, parts)
    content, calls = _read(parts if assembly.stop not in UNFINISHED else _without_calls(parts))
    return Whole(
        content=content, calls=calls, usage=spent + assembly.usage, stop=assembly.stop,
        model=assembly.model or model.name,
    )  # fmt: skip


def _check(name: str, prompt: Prompt, parts: list[Part | WrittenCall]) -> None:
    called = [part.name for part in parts if isinstance(part, WrittenCall)]
    if called:
        raise Truncated(f"{name} reached its length limit in the call of {called[-1]!r}; raise max_tokens, or ask less")
    if prompt.options.get("output") is not None:
        raise Truncated(f"{name} reached its length limit before its data was whole; raise max_tokens, or ask less")


def _without_calls(parts: list[Part | WrittenCall]) -> list[Part | WrittenCall]:
    return [part for part in parts if not isinstance(part, WrittenCall)]


def _read(parts: list[Part | WrittenCall]) -> tuple[Content, tuple[FunctionCall, ...]]:
    content: list[Part] = []
    calls: list[FunctionCall] = []
    written = {part.provider_id for part in parts if isinstance(part, WrittenCall)}
    used: set[str] = set()
    for part in parts:
        if not isinstance(part, WrittenCall):
            content.append(part)
            continue
        id = part.provider_id
        if not id or id in used:
            id = next(made for made in map("call_{}".format, count(len(calls) + 1)) if made not in written | used)
        used.add(id)
        calls.append(FunctionCall(id=id, name=part.name, arguments=part.arguments, repaired=part.repaired))
        content.append(CallRef(id=CallId(id)))
    return tuple(content), tuple(calls)
