"""A model that makes the tool calls which a person has given; no language model is asked."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, Prompt, StopChunk, TextChunk
from vaka.core.types.errors import ModelRefused
from vaka.core.types.message import AssistantMessage, ToolMessage
from vaka.core.types.progress import GIVEN_CALLS

CALLS_OPTION = "calls"
"""The option of a turn that has the calls."""
END_TEXT = "(run by the user)"
"""The answer after the calls: later turns show the model who made them."""


class GivenCall(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A tool call. If the arguments are a text, they are parsed like the arguments of a model's call."""

    name: str
    arguments: dict[str, Any] | str = {}


class GivenCalls:
    """Makes one call in each step, in order, and ends the turn after the last call or after a failed call.

    The calls come from the option ``calls`` of the turn, so the log has them and an unfinished turn goes on with
    them in another process.
    """

    name = GIVEN_CALLS

    def __init__(self, calls: Sequence[GivenCall] = ()) -> None:
        self._calls = tuple(calls)
        """The calls of a turn that has no option."""

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Yield the next call. Raises ``ModelRefused`` for an option that does not describe calls."""
        calls, results = self._calls_of(prompt), _results_of_turn(prompt)
        if len(results) >= len(calls) or any(result.failed for message in results for result in message.results):
            yield TextChunk(END_TEXT)
            yield StopChunk("end")
            return
        call = calls[len(results)]
        arguments = call.arguments
        text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
        yield CallChunk(index=0, name=call.name, arguments=text)
        yield StopChunk("calls")

    def _calls_of(self, prompt: Prompt) -> tuple[GivenCall, ...]:
        if CALLS_OPTION not in prompt.options:
            return self._calls
        try:
            return msgspec.convert(prompt.options[CALLS_OPTION], tuple[GivenCall, ...])
        except msgspec.ValidationError as error:
            raise ModelRefused(f"the option {CALLS_OPTION!r} must be a list of tool calls: {error}") from error


def _results_of_turn(prompt: Prompt) -> list[ToolMessage]:
    """Return the results of the calls that the turn has made so far."""
    results: list[ToolMessage] = []
    for message in reversed(prompt.messages):
        if isinstance(message, ToolMessage):
            results.append(message)
        elif not (isinstance(message, AssistantMessage) and message.model == GIVEN_CALLS and message.calls):
            break
    return results
