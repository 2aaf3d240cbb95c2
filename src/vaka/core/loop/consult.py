"""A model call in the middle of a turn that is not a step of an agent: a tool or a middleware asks something.

It is written down as any other: what it cost, who made it, each try that failed; and not made when no budget pays it.
"""

from contextlib import aclosing

import msgspec

from vaka.core.loop.budget import afford, broken_off, check, exhausted
from vaka.core.loop.middleware import describe
from vaka.core.loop.purse import Hold
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.ports.model import (
    Model,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.session.state import OpenCall
from vaka.core.types.errors import ModelError, ModelRefused, StreamCut, Truncated
from vaka.core.types.ids import CallId
from vaka.core.types.monitor import ModelFailed, UsageRecorded
from vaka.core.types.usage import Usage


async def consult(turn: Turn, model: Model, prompt: Prompt, *, call: OpenCall | None = None, ordinal: int = 1) -> str:
    """Return a model's whole answer to ``prompt``, which is counted under its agent's name or that of the tool.

    ``call`` is the tool call that asks, for the ``ordinal``-th time: run again after a crash, it asks the same thing.
    Raises ``ModelError``, and ``Stopped`` when a budget of the turn cannot pay for it.
    """
    limit = exhausted(turn)
    if limit:
        raise Stopped("limit", limit)
    agent = prompt.agent or (call.call.name if call is not None else turn.agent)
    hold = await afford(turn, model, msgspec.structs.replace(prompt, agent=agent, path=(*turn.path, agent)))
    known = call.asked[ordinal - 1 : ordinal] if call is not None else ()
    number = known[0] if known else _next(turn, agent)
    try:
        return await _Inquiry(turn, model, hold, number, call.call.id if call is not None else None).answer()
    finally:
        hold.release()


class _Inquiry:
    """One question on its way to its answer."""

    def __init__(self, turn: Turn, model: Model, hold: Hold, number: int, call: CallId | None) -> None:
        self._turn, self._model, self._hold, self._number, self._call = turn, model, hold, number, call
        self._agent = hold.prompt.agent
        self._said: list[str] = []
        self._thought = 0
        """Characters of thoughts, which cost as much as words."""
        self._cost = UsageChunk(Usage())
        self._stop: str | None = None

    async def answer(self) -> str:
        try:
            await self._read(msgspec.structs.replace(self._hold.prompt, number=self._number))
            return self._whole()
        except ModelError as error:
            code, message = describe(error)
            self._turn.log.later(self._turn.at, self._failed(code, message))
            raise
        finally:
            self._spent()

    async def _read(self, prompt: Prompt) -> None:
        async with aclosing(self._model.stream(prompt)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    self._said.append(chunk.text)
                elif isinstance(chunk, ReasoningChunk):
                    self._thought += len(chunk.text)
                elif isinstance(chunk, RetryChunk):
                    await self._again(chunk)
                elif isinstance(chunk, UsageChunk):
                    self._cost = chunk  # the last one counts
                elif isinstance(chunk, StopChunk):
                    self._stop = chunk.reason
                elif isinstance(chunk, NoticeChunk):
                    self._turn.log.later(self._turn.at, chunk.event)

    async def _again(self, chunk: RetryChunk) -> None:
        """A wrapper tries once more: what was said does not count, but what it cost does."""
        self._spent()
        failed = self._failed(chunk.code, chunk.message, chunk.model, retried=True)
        self._said.clear()
        self._thought = 0
        self._number += 1
        self._turn.purse.asked[self._agent] = max(self._number, self._turn.purse.asked.get(self._agent, 0))
        await self._turn.log.append(self._turn.at, failed)
        check(self._turn, self._model, self._hold)

    def _whole(self) -> str:
        name = self._model.name
        if self._stop is None:
            raise StreamCut(f"the answer of {name} was cut: it ended without its end marker")
        if self._stop == "refusal":
            raise ModelRefused(f"{name} refused to answer")
        if self._stop == "length":
            raise Truncated(f"the answer of {name} reached its length limit before it was whole")
        return "".join(self._said)

    def _failed(self, code: str, message: str, model: str = "", *, retried: bool = False) -> ModelFailed:
        return ModelFailed(
            model=model or self._model.name, code=code, message=message, agent=self._agent, retried=retried,
            call=self._call, number=self._number,
        )  # fmt: skip

    def _spent(self) -> None:
        usage, model = self._cost.usage, self._cost.model or self._model.name
        self._cost = UsageChunk(Usage())
        if self._stop is None:
            written = sum(map(len, self._said)) + self._thought
            usage = broken_off(self._model, self._hold.prompt, usage, written)
        if self._stop is not None or usage != Usage():
            body = UsageRecorded(model=model, usage=usage, agent=self._agent, call=self._call, number=self._number)
            self._turn.log.later(self._turn.at, body)


def _next(turn: Turn, agent: str) -> int:
    """Return which model call of its agent comes next; one that was lost with its process is made again."""
    asked = turn.purse.asked
    asked[agent] = max(turn.state.models.get(agent, 0), asked.get(agent, 0)) + 1
    return asked[agent]
