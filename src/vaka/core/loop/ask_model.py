"""A model call inside a turn that is not a step of its agent: a tool or a middleware asks a model."""

from contextlib import aclosing

import msgspec

from vaka.core.loop.budget import Budget, Reservation, estimate_partial_usage
from vaka.core.loop.stop import TurnStopped
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
from vaka.core.types.errors import ModelError, ModelRefused, StreamCut, Truncated, describe_failure
from vaka.core.types.ids import CallId
from vaka.core.types.message import Usage, replace_surrogates
from vaka.core.types.monitor import ModelFailed, UsageRecorded
from vaka.core.types.state import OpenCall


async def ask_model(
    budget: Budget, model: Model, prompt: Prompt, *, call: OpenCall | None = None, ordinal: int = 1
) -> str:
    """Return the complete answer to ``prompt``, paid by ``budget`` under ``prompt.agent`` or the name of the tool.

    ``call`` is the tool call that asks, for the ``ordinal``-th time: when it runs again after a crash, its model calls
    keep their numbers.
    Raises ``ModelError``, and ``TurnStopped`` when a budget of the turn cannot pay for it.
    """
    limit = budget.exhausted_limit()
    if limit:
        raise TurnStopped("limit", limit)
    agent = prompt.agent or (call.call.name if call is not None else budget.agent)
    reservation = await budget.reserve(
        model, msgspec.structs.replace(prompt, agent=agent, path=(*budget.scope.path, agent))
    )
    recorded = call.asked[ordinal - 1 : ordinal] if call is not None else ()
    number = recorded[0] if recorded else _next_call_number(budget, agent)
    try:
        call_id = call.call.id if call is not None else None
        return await _ModelQuestion(budget, model, reservation, number, call_id).answer()
    finally:
        reservation.release()


class _ModelQuestion:
    """One model call, its retries included."""

    def __init__(
        self, budget: Budget, model: Model, reservation: Reservation, number: int, call: CallId | None
    ) -> None:
        self._budget = budget
        self._log = budget.log
        self._model = model
        self._reservation = reservation
        self._number = number
        self._call = call
        self._agent = reservation.prompt.agent
        self._text_parts: list[str] = []
        self._reasoning_chars = 0
        """Characters of reasoning, which are billed as output."""
        self._last_usage = UsageChunk(Usage())
        self._stop: str | None = None

    async def answer(self) -> str:
        try:
            await self._read_stream(msgspec.structs.replace(self._reservation.prompt, number=self._number))
            return self._complete_text()
        except ModelError as error:
            code, message = describe_failure(error)
            self._log.defer(self._budget.scope, self._failure_event(code, message))
            raise
        finally:
            self._record_usage()

    async def _read_stream(self, prompt: Prompt) -> None:
        async with aclosing(self._model.stream(prompt)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, TextChunk):
                    self._text_parts.append(chunk.text)
                elif isinstance(chunk, ReasoningChunk):
                    self._reasoning_chars += len(chunk.text)
                elif isinstance(chunk, RetryChunk):
                    await self._restart(chunk)
                elif isinstance(chunk, UsageChunk):
                    self._last_usage = chunk  # usage chunks are cumulative
                elif isinstance(chunk, StopChunk):
                    self._stop = chunk.reason
                elif isinstance(chunk, NoticeChunk):
                    self._log.defer(self._budget.scope, chunk.event)

    async def _restart(self, chunk: RetryChunk) -> None:
        """Drop the text for the retry of a model wrapper; the usage of the failed attempt is recorded."""
        self._record_usage()
        failed = self._failure_event(chunk.code, chunk.message, chunk.model, retried=True)
        self._text_parts.clear()
        self._reasoning_chars = 0
        self._number += 1
        self._budget.reservations.model_calls[self._agent] = max(
            self._number, self._budget.reservations.model_calls.get(self._agent, 0)
        )
        await self._log.append(self._budget.scope, failed)
        self._budget.check_retry(self._model, self._reservation)

    def _complete_text(self) -> str:
        name = self._model.name
        if self._stop is None:
            raise StreamCut(f"the answer of {name} was cut: it ended without its end marker")
        if self._stop == "refusal":
            raise ModelRefused(f"{name} refused to answer")
        if self._stop == "calls" and not self._reservation.prompt.tools:
            raise ModelError(f"{name} called a tool, although it was given none")
        if self._stop == "length":
            raise Truncated(f"the answer of {name} reached its length limit before it was whole")
        return replace_surrogates("".join(self._text_parts))

    def _failure_event(self, code: str, message: str, model: str = "", *, retried: bool = False) -> ModelFailed:
        return ModelFailed(
            model=model or self._model.name,
            code=code,
            message=message,
            agent=self._agent,
            retried=retried,
            call=self._call,
            number=self._number,
        )

    def _record_usage(self) -> None:
        usage, model = self._last_usage.usage, self._last_usage.counted_as or self._model.name
        self._last_usage = UsageChunk(Usage())
        if self._stop is None:
            written = sum(map(len, self._text_parts)) + self._reasoning_chars
            usage = estimate_partial_usage(self._model, self._reservation.prompt, usage, written)
        if self._stop is not None or usage != Usage():
            body = UsageRecorded(model=model, usage=usage, agent=self._agent, call=self._call, number=self._number)
            self._budget.defer_usage(body)


def _next_call_number(budget: Budget, agent: str) -> int:
    """Return the number of the agent's next model call. A number that is not in the log after a crash is used again."""
    numbers = budget.reservations.model_calls
    numbers[agent] = max(budget.log.state.models.get(agent, 0), numbers.get(agent, 0)) + 1
    return numbers[agent]
