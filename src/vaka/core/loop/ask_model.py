"""A model call inside a turn that is not a step of its agent: a tool or a middleware asks a model."""

from contextlib import aclosing

import msgspec

from vaka.core.loop.assemble import MessageAssembly
from vaka.core.loop.budget import Budget, Reservation, estimate_partial_usage
from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.model import Model, NoticeChunk, Prompt, RetryChunk
from vaka.core.types.errors import ModelError, ModelRefused, StreamCut, Truncated, describe_failure
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import Usage, text_of
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
        self._assembly = self._start_assembly()

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

    def _start_assembly(self) -> MessageAssembly:
        return MessageAssembly(MessageId(""), self._model.name)

    async def _read_stream(self, prompt: Prompt) -> None:
        async with aclosing(self._model.stream(prompt)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, RetryChunk):
                    await self._restart(chunk)
                elif isinstance(chunk, NoticeChunk):
                    self._log.defer(self._budget.scope, chunk.event)
                else:
                    self._assembly.feed(chunk)

    async def _restart(self, chunk: RetryChunk) -> None:
        """Drop the text for the retry of a model wrapper; the usage of the failed attempt is recorded."""
        self._record_usage()
        failed = self._failure_event(chunk.code, chunk.message, chunk.model, retried=True)
        self._number += 1
        calls = self._budget.reservations.model_calls
        calls[self._agent] = max(self._number, calls.get(self._agent, 0))
        await self._log.append(self._budget.scope, failed)
        self._budget.check_retry(self._model, self._reservation)

    def _complete_text(self) -> str:
        name, stop = self._model.name, self._assembly.stop
        if stop is None:
            raise StreamCut(f"the answer of {name} was cut: it ended without its end marker")
        if stop == "refusal":
            raise ModelRefused(f"{name} refused to answer")
        if stop == "calls" and not self._reservation.prompt.tools:
            raise ModelError(f"{name} called a tool, although it was given none")
        if stop == "length":
            raise Truncated(f"the answer of {name} reached its length limit before it was whole")
        return text_of(self._assembly.text_parts())

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
        """Record the usage of the attempt that has ended, and begin another one."""
        ended, self._assembly = self._assembly, self._start_assembly()
        usage = ended.usage
        if ended.stop is None:
            usage = estimate_partial_usage(self._model, self._reservation.prompt, usage, ended.character_count)
        if ended.stop is not None or usage != Usage():
            model, agent = ended.called_model, self._agent
            body = UsageRecorded(model=model, usage=usage, agent=agent, call=self._call, number=self._number)
            self._budget.defer_usage(body)


def _next_call_number(budget: Budget, agent: str) -> int:
    """Return the number of the agent's next model call. A number that is not in the log after a crash is used again."""
    numbers = budget.reservations.model_calls
    numbers[agent] = max(budget.log.state.models.get(agent, 0), numbers.get(agent, 0)) + 1
    return numbers[agent]
