"""Drain a stream into a Completion, and stream a Completion."""

import pytest

from tests.models.wrappers.test_retry import FailingModel
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ModelError, ModelUnavailable, RateLimited, StreamCut, Truncated
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Citation,
    Image,
    Part,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    UserMessage,
)
from vaka.core.types.monitor import ModelSelected
from vaka.models.completion import Completion, SimulatedStream, complete
from vaka.models.function_calls import FunctionCall
from vaka.testing.models import PROMPT, ScriptedModel, call, calls, drain_stream, say


async def complete_answer(*chunks: Chunk) -> Completion:
    return await complete(FailingModel(list(chunks)), PROMPT)


async def test_an_answer_has_its_parts_calls_and_cost_in_order() -> None:
    answer = await complete_answer(
        NoticeChunk(ModelSelected(model="m")),
        ReasoningChunk("Wet "),
        ReasoningChunk("side.", "sig"),
        TextChunk("Let me "),
        TextChunk("look."),
        CallChunk(0, "weather", '{"city":', "a1"),
        CallChunk(0, "", ' "Hilo"}'),
        CallChunk(1, "time"),
        UsageChunk(Usage(input=1)),
        UsageChunk(Usage(input=9, output=2), "m-1"),
        StopChunk("calls"),
    )
    assert answer == Completion(
        content=(
            Reasoning(text="Wet side.", signature="sig"),
            Text(text="Let me look."),
            CallRef(id=CallId("a1")),
            CallRef(id=CallId("call_2")),
        ),
        calls=(
            FunctionCall(id="a1", name="weather", arguments='{"city": "Hilo"}'),
            FunctionCall(id="call_2", name="time", arguments=""),
        ),
        usage=Usage(input=9, output=2),
        stop="calls",
        model="m-1",
    )
    assert (answer.text, answer.reasoning) == ("Let me look.", "Wet side.")


async def test_a_retry_starts_a_new_answer_and_the_usage_of_both_counts() -> None:
    answer = await complete_answer(
        TextChunk("Ha"),
        CallChunk(0, "weather", "{"),
        UsageChunk(Usage(input=5)),
        RetryChunk("stream_cut", "cut"),
        TextChunk("Yes."),
        UsageChunk(Usage(input=5, output=1)),
        StopChunk(),
    )
    assert answer == Completion(content=(Text(text="Yes."),), usage=Usage(input=10, output=1), model="trying")


async def test_missing_and_duplicate_call_ids_are_replaced() -> None:
    chunks = [CallChunk(at, "look", "{}", id) for at, id in enumerate(["call_2", "", "call_2", ""])]
    answer = await complete_answer(*chunks, StopChunk("calls"))
    assert [made.id for made in answer.calls] == ["call_2", "call_3", "call_4", "call_5"]
    assert [part.id for part in answer.content if isinstance(part, CallRef)] == [made.id for made in answer.calls]


async def test_a_stream_without_its_end_marker_is_cut() -> None:
    with pytest.raises(StreamCut, match="the answer of trying was cut"):
        await complete_answer(TextChunk("Yes"))


async def test_errors_of_the_model_are_raised() -> None:
    with pytest.raises(ModelUnavailable, match="busy"):
        await complete(FailingModel(ModelUnavailable("busy")), PROMPT)


async def test_a_length_limit_may_cut_a_text_but_no_call_and_no_data() -> None:
    assert (await complete(ScriptedModel(say("Once upon", stop="length")), PROMPT)).stop == "length"
    with pytest.raises(Truncated, match="length limit in the call of 'b'"):
        await complete(ScriptedModel(calls(call("a"), call("b"), stop="length")), PROMPT)
    prompt = type(PROMPT)(messages=PROMPT.messages, options={"output": {"type": "object"}})
    with pytest.raises(Truncated, match="before its data was complete"):
        await complete(ScriptedModel(say('{"a": 1', stop="length")), prompt)
    assert (await complete(ScriptedModel(say('{"a": 1}')), prompt)).data == {"a": 1}


async def test_a_refused_answer_has_no_calls() -> None:
    answer = await complete_answer(TextChunk("No."), CallChunk(0, "weather", "{}", "a1"), StopChunk("refusal"))
    assert (answer.content, answer.calls) == ((Text(text="No."),), ())


@pytest.mark.parametrize("text", ["", "Sure: {}", "{", "[" * 100_000])
def test_data_of_an_answer_that_is_not_json_is_an_error(text: str) -> None:
    with pytest.raises(ModelError, match="the answer of m is not JSON"):
        _ = Completion(content=(Text(text=text),), model="m").data


async def test_an_answer_can_be_continued() -> None:
    first = await complete_answer(
        TextChunk("So."),
        CallChunk(0, "weather", '{"city": "Hilo"}', "a1"),
        CallChunk(1, "time", "{oh", "a2"),
        UsageChunk(Usage(), "m-1"),
        StopChunk("calls"),
    )
    assert first.message == AssistantMessage(
        id=MessageId(""),
        content=(Text(text="So."), CallRef(id=CallId("a1")), CallRef(id=CallId("a2"))),
        calls=(
            ToolCall(id=CallId("a1"), name="weather", arguments={"city": "Hilo"}, provider_id="a1"),
            ToolCall(id=CallId("a2"), name="time", raw="{oh", provider_id="a2"),
        ),
        model="m-1",
        stop="calls",
    )
    model = ScriptedModel(say("Yes."))
    prompt = type(PROMPT)(messages=(UserMessage(content=(Text(text="Hi."),)), first.message))
    assert (await complete(model, prompt)).text == "Yes."
    assert model.prompts == [prompt]


SIMULATED_NOTICE = NoticeChunk(ModelSelected(model="whole", reason="simulated"))


async def chunks_of(answer: Completion, piece: int = 4) -> list[Chunk]:
    async def complete(prompt: Prompt) -> Completion:
        assert prompt is PROMPT
        return answer

    return await drain_stream(SimulatedStream(complete, name="whole", piece=piece))


async def test_a_simulated_stream_has_pieces_and_a_notice() -> None:
    source = Citation(url="https://hilo.example")
    answer = Completion(
        content=(
            Reasoning(text="Wet side", signature="sig"),
            Text(text="It rains.", citations=(source,)),
            CallRef(id=CallId("a1")),
            Text(text="And?"),
        ),
        calls=(
            FunctionCall(id="a1", name="look", arguments='{"a": 1}'),
            FunctionCall(name="time", arguments=""),
        ),
        usage=Usage(input=3),
        stop="calls",
        model="m-1",
    )
    assert await chunks_of(answer) == [
        SIMULATED_NOTICE,
        ReasoningChunk("Wet "),
        ReasoningChunk("side", "sig"),
        TextChunk("It r"),
        TextChunk("ains"),
        TextChunk("."),
        CitationChunk(source),
        CallChunk(0, "look", '{"a"', "a1"),
        CallChunk(0, "", ": 1}"),
        TextChunk("And?"),
        CallChunk(1, "time", "", "call_2"),
        UsageChunk(Usage(input=3), "m-1"),
        StopChunk("calls"),
    ]


async def test_a_reference_to_an_unknown_or_repeated_call_is_skipped() -> None:
    places: tuple[Part, ...] = (CallRef(id=CallId("x")), CallRef(id=CallId("a1")), CallRef(id=CallId("a1")))
    answer = Completion(content=places, calls=(FunctionCall(id="a1", name="look"),), stop="calls")
    assert await chunks_of(answer) == [
        SIMULATED_NOTICE,
        CallChunk(0, "look", "{}", "a1"),
        UsageChunk(Usage()),
        StopChunk("calls"),
    ]


async def test_an_empty_answer_ends_with_a_stop() -> None:
    assert await chunks_of(Completion()) == [SIMULATED_NOTICE, UsageChunk(Usage()), StopChunk()]


async def test_content_that_cannot_be_streamed_is_refused() -> None:
    with pytest.raises(ModelError, match="not 'Image'"):
        await chunks_of(Completion(content=(Image(url="https://x"),)))


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (ConnectionResetError("reset by peer"), ModelUnavailable, "whole cannot be reached: reset by peer"),
        (TimeoutError(), ModelUnavailable, "whole cannot be reached: TimeoutError"),
        (RateLimited("slow down"), RateLimited, "slow down"),
    ],
)
async def test_an_os_error_is_model_unavailable(error: Exception, kind: type[ModelError], said: str) -> None:
    async def complete(prompt: Prompt) -> Completion:
        raise error

    with pytest.raises(kind) as caught:
        await drain_stream(SimulatedStream(complete, name="whole"))
    assert str(caught.value) == said


def test_a_simulated_stream_is_marked_as_simulated() -> None:
    async def complete(prompt: Prompt) -> Completion:
        return Completion()

    assert SimulatedStream(complete, name="whole").simulated
    with pytest.raises(ConfigError, match="at least 1 character"):
        SimulatedStream(complete, name="whole", piece=0)
