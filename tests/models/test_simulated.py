"""A stream for those that cannot stream."""

import pytest

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.content import CallRef, Citation, Image, Part, Reasoning, Text
from vaka.core.types.errors import ConfigError, ModelError, ModelUnavailable, RateLimited
from vaka.core.types.ids import CallId
from vaka.core.types.monitor import ModelSelected
from vaka.core.types.usage import Usage
from vaka.models.function_calls import FunctionCall
from vaka.models.simulated import Simulated
from vaka.models.whole import Whole
from vaka.testing.models import PROMPT, drain

TOLD = NoticeChunk(ModelSelected(model="whole", reason="simulated"))


async def chunks(answer: Whole, piece: int = 4) -> list[Chunk]:
    async def complete(prompt: Prompt) -> Whole:
        assert prompt is PROMPT
        return answer

    return await drain(Simulated(complete, name="whole", piece=piece))


async def test_an_answer_comes_in_pieces_and_says_that_it_is_no_stream() -> None:
    source = Citation(url="https://hilo.example")
    answer = Whole(
        content=(
            Reasoning(text="Wet side", signature="sig"), Text(text="It rains.", citations=(source,)),
            CallRef(id=CallId("a1")), Text(text="And?"),
        ),
        calls=(
            FunctionCall(id="a1", name="look", arguments='{"a": 1}'), FunctionCall(name="time", arguments=""),
        ),
        usage=Usage(input=3), stop="calls", model="m-1",
    )  # fmt: skip
    assert await chunks(answer) == [
        TOLD,
        ReasoningChunk("Wet "), ReasoningChunk("side", "sig"),
        TextChunk("It r"), TextChunk("ains"), TextChunk("."), CitationChunk(source),
        CallChunk(0, "look", '{"a"', "a1"), CallChunk(0, "", ": 1}"),
        TextChunk("And?"),
        CallChunk(1, "time", "", "call_2"),
        UsageChunk(Usage(input=3), "m-1"), StopChunk("calls"),
    ]  # fmt: skip


async def test_a_place_that_names_no_call_or_one_twice_is_passed_over() -> None:
    places: tuple[Part, ...] = (CallRef(id=CallId("x")), CallRef(id=CallId("a1")), CallRef(id=CallId("a1")))
    answer = Whole(content=places, calls=(FunctionCall(id="a1", name="look"),), stop="calls")
    assert await chunks(answer) == [
        TOLD, CallChunk(0, "look", "{}", "a1"), UsageChunk(Usage()), StopChunk("calls"),
    ]  # fmt: skip


async def test_an_empty_answer_is_an_answer() -> None:
    assert await chunks(Whole()) == [TOLD, UsageChunk(Usage()), StopChunk()]


async def test_what_cannot_be_streamed_is_refused() -> None:
    with pytest.raises(ModelError, match="not 'Image'"):
        await chunks(Whole(content=(Image(url="https://x"),)))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ConnectionResetError("reset by peer"), ModelUnavailable, "whole cannot be reached: reset by peer"),
        (TimeoutError(), ModelUnavailable, "whole cannot be reached: TimeoutError"),
        (RateLimited("slow down"), RateLimited, "slow down"),
    ],
)
async def test_a_connection_that_fails_is_a_model_that_is_unavailable(
    error: Exception, kind: type[ModelError], said: str
) -> None:
    async def complete(prompt: Prompt) -> Whole:
        raise error

    with pytest.raises(kind) as caught:
        await drain(Simulated(complete, name="whole"))
    assert str(caught.value) == said


def test_it_can_be_told_from_a_real_stream() -> None:
    async def complete(prompt: Prompt) -> Whole:
        return Whole()

    assert Simulated(complete, name="whole").simulated
    with pytest.raises(ConfigError, match="at least 1 character"):
        Simulated(complete, name="whole", piece=0)
