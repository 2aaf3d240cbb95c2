"""The models of ``vaka.testing``, beyond the contract of every model."""

import asyncio

import pytest

from vaka.core.ports.model import Chunk, Model, Prompt, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import ConfigError, ModelError, ModelRefused, ModelUnavailable
from vaka.core.types.message import Usage
from vaka.testing.clock import FakeClock
from vaka.testing.models import (
    PROMPT,
    ChaosModel,
    FunctionModel,
    ModelContract,
    RecordingModel,
    ScriptedModel,
    StreamContent,
    call,
    calls,
    collect_stream,
    drain_stream,
    fail,
    join_chunks,
    say,
    stall,
)


def prompt_at(number: int, agent: str = "root", *path: str) -> Prompt:
    return Prompt(messages=(), number=number, agent=agent, path=path)


def test_helpers_make_lines_of_the_scripted_model() -> None:
    assert say("Hi.", reasoning="h", stop="end") == {"text": "Hi.", "reasoning": "h", "stop": "end"}
    assert call("fly", to="Hilo") == {"tool_calls": [{"name": "fly", "arguments": {"to": "Hilo"}}]}
    assert call("fly", name="x") == {"tool_calls": [{"name": "fly", "arguments": {"name": "x"}}]}
    assert calls(call("a"), call("b"), text="Both.") == {
        "tool_calls": [{"name": "a", "arguments": {}}, {"name": "b", "arguments": {}}],
        "text": "Both.",
    }
    assert fail(429, "slow", retry_after=2) == {"error": {"status": 429, "message": "slow", "retry_after": 2}}
    assert fail() == {"error": {"status": 500, "message": "the model failed"}}
    assert stall(3, text="Sorry.") == {"stall": 3, "text": "Sorry."}


async def test_answers_come_in_order_and_prompts_are_recorded() -> None:
    model = ScriptedModel(call("fly"), say("I cannot."))
    first, second = prompt_at(1), prompt_at(2)
    assert (await collect_stream(model, first)).calls == [("fly", "{}")]
    assert (await collect_stream(model, second)).text == "I cannot."
    assert model.prompts == [first, second]


async def test_other_agents_have_their_own_answers() -> None:
    model = ScriptedModel(say("root"), agents={"child": [say("one"), say("two")]})
    assert (await collect_stream(model, prompt_at(1))).text == "root"
    assert (await collect_stream(model, prompt_at(2, "child", "agent-1"))).text == "two"


async def test_a_model_without_answers_refuses() -> None:
    with pytest.raises(ModelRefused, match="has 0 lines"):
        await drain_stream(ScriptedModel(), prompt_at(1))


def test_an_invalid_answer_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="unknown key 'txt'"):
        ScriptedModel({"txt": "Hi."})


async def test_a_stall_waits_for_the_given_clock() -> None:
    clock = FakeClock()
    task = asyncio.create_task(collect_stream(ScriptedModel(stall(60, text="Sorry."), clock=clock), prompt_at(1)))
    await clock.wait_for_sleeps()
    clock.advance(60)
    assert (await task).text == "Sorry."


async def test_a_recording_model_has_the_prompts_and_the_name() -> None:
    model = RecordingModel(ScriptedModel(say("Hi."), name="inner"))
    assert (await collect_stream(model, prompt_at(1))).text == "Hi."
    assert (model.name, model.prompts) == ("inner", [prompt_at(1)])


async def test_a_function_can_answer_with_text_an_answer_or_chunks() -> None:
    async def echo(prompt: Prompt) -> "str | dict[str, object] | list[Chunk]":
        answers: list[str | dict[str, object] | list[Chunk]] = ["one", call("two"), [TextChunk("three"), StopChunk()]]
        return answers[prompt.number - 1]

    model = FunctionModel(echo, name="echo")
    assert (await collect_stream(model, prompt_at(1, "child", "agent-1"))).text == "one"
    assert (await collect_stream(model, prompt_at(2))).calls == [("two", "{}")]
    assert await drain_stream(model, prompt_at(3)) == [TextChunk("three"), StopChunk()]
    assert model.name == "echo"


async def test_an_error_of_the_function_is_raised() -> None:
    async def broken(prompt: Prompt) -> str:
        raise ModelUnavailable("down", status=503)

    with pytest.raises(ModelUnavailable, match="down"):
        await drain_stream(FunctionModel(broken))


# -------------------------------------------------------------------------------- chaos

FULL_ANSWER = calls(
    call("weather", city="Hilo"), call("weather", city="Kona"), text="Let me look.", reasoning="Wet side."
)


async def stream_outcome(model: Model, prompt: Prompt) -> "list[Chunk] | str":
    try:
        return await drain_stream(model, prompt)
    except ModelError as error:
        return f"{error.code}: {error}"


async def test_the_disturbance_depends_only_on_the_seed() -> None:
    async def run(seed: int) -> "list[list[Chunk] | str]":
        model = ChaosModel(ScriptedModel(FULL_ANSWER | {"repeat": True}), seed=seed)
        return [await stream_outcome(model, prompt_at(n)) for n in range(1, 30)]

    assert await run(1) == await run(1)
    assert await run(1) != await run(2)


async def test_chaos_without_cuts_changes_only_the_pieces() -> None:
    whole = await collect_stream(ScriptedModel(FULL_ANSWER), PROMPT)
    sizes: set[int] = set()
    for seed in range(50):
        chunks = await drain_stream(ChaosModel(ScriptedModel(FULL_ANSWER), seed=seed, cut=0, error=0), PROMPT)
        assert join_chunks(chunks) == whole
        sizes.add(len(chunks))
    assert len(sizes) > 5


async def test_chaos_cuts_and_fails_with_the_given_probabilities() -> None:
    inner = ScriptedModel(FULL_ANSWER | {"repeat": True})
    cut = [await stream_outcome(ChaosModel(inner, cut=1, error=0), prompt_at(n)) for n in range(1, 40)]
    assert all(isinstance(one, list) and not join_chunks(one).stops for one in cut)
    assert len({len(one) for one in cut}) > 3
    broken = [await stream_outcome(ChaosModel(inner, cut=0, error=1), prompt_at(n)) for n in range(1, 40)]
    assert set(map(str, broken)) == {"model_unavailable: the connection broke (chaos)"}


async def test_chaos_ends_even_a_short_answer_before_its_end_marker() -> None:
    for number in range(1, 40):
        chunks = await stream_outcome(
            ChaosModel(ScriptedModel(say("", repeat=True)), cut=1, error=0), prompt_at(number)
        )
        assert isinstance(chunks, list)
        assert join_chunks(chunks).stops == []


# -------------------------------------------------------------------------------- the contract finds faults


def test_call_chunks_are_joined_by_their_index() -> None:
    assert join_chunks([]) == StreamContent("", "", [], [], Usage(), [])
    assert join_chunks([UsageChunk(Usage(input=1)), UsageChunk(Usage(input=2))]).usage == Usage(input=2)


async def test_the_contract_fails_a_model_that_stops_twice() -> None:
    async def twice(prompt: Prompt) -> list[Chunk]:
        return [*await drain_stream(ScriptedModel({"chunks": ["a"]})), StopChunk()]

    with pytest.raises(AssertionError):
        await ModelContract().test_text_arrives_whole_and_ends_with_exactly_one_stop(lambda _: FunctionModel(twice))


async def test_the_contract_fails_a_model_that_hides_errors() -> None:
    async def fine(prompt: Prompt) -> str:
        return "All is well."

    for promise in (
        ModelContract().test_a_transient_error_is_model_unavailable,
        ModelContract().test_a_permanent_error_is_model_refused,
    ):
        with pytest.raises(AssertionError, match="expected an error"):
            await promise(lambda _: FunctionModel(fine))


async def test_the_contract_accepts_an_error_for_a_cut() -> None:
    async def cut(prompt: Prompt) -> str:
        raise ModelUnavailable("connection lost")

    await ModelContract().test_a_stream_that_was_cut_has_no_end_marker(lambda _: FunctionModel(cut))
