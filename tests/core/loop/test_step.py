"""Model calls that fail, are cut, are retried, or raise unexpected exceptions."""

from collections.abc import AsyncGenerator
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, collect_turn, event_types, last_body, read_log, runtime
from vaka.config.options import Storage
from vaka.core.ports.model import CallChunk, Chunk, Prompt, ReasoningChunk, RetryChunk, StopChunk, TextChunk, UsageChunk
from vaka.core.types.errors import ModelRefused, ModelUnavailable, TurnError
from vaka.core.types.message import AssistantMessage, Reasoning, Text, Usage
from vaka.core.types.monitor import ModelFailed
from vaka.core.types.progress import MessageCompleted, MessageDiscarded, StepStarted
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ChaosModel, ScriptedModel, call, fail, say


class ChunkModel:
    """A model that says these chunks, then raises."""

    name = "says"

    def __init__(self, *chunks: Chunk, error: BaseException | None = None) -> None:
        self.chunks, self.error = chunks, error
        self.prompts: list[Any] = []

    async def stream(self, prompt: Any) -> AsyncGenerator[Chunk]:
        self.prompts.append(prompt)
        for chunk in self.chunks:
            yield chunk
        if self.error is not None:
            raise self.error


async def run_failing_model(model: Any) -> tuple[TurnError, list[Any]]:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        with pytest.raises(TurnError) as caught:
            await session.run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    return caught.value, log


async def test_an_error_before_the_first_text_fails_the_turn() -> None:
    error, log = await run_failing_model(ScriptedModel(fail(529, "overloaded")))
    assert (error.code, str(error)) == ("model_unavailable", "overloaded (status 529)")
    assert [event.data.retried for event in log if isinstance(event.data, ModelFailed)] == [False]
    assert "message.completed" not in event_types(log)


async def test_an_error_during_an_answer_discards_the_streamed_text() -> None:
    model = ChunkModel(TextChunk("Half"), UsageChunk(Usage(input=9)), error=ModelUnavailable("line broke"))
    error, log = await run_failing_model(model)
    assert error.result.text == ""
    assert [event.data.reason for event in log if isinstance(event.data, MessageDiscarded)] == ["line broke"]
    assert "message.completed" not in event_types(log)
    assert last_body(log).usage.input == 9


async def test_a_stream_without_its_end_marker_was_cut() -> None:
    error, log = await run_failing_model(ChunkModel(TextChunk("All of it?"), CallChunk(0, "look", "{}")))
    assert str(error) == "the answer of says was cut: it ended without its end marker"
    assert "tool.called" not in event_types(log)


@pytest.mark.parametrize("error", [ValueError("bug"), KeyError("x"), RuntimeError("oh")])
async def test_an_exception_of_a_model_fails_the_turn(error: Exception) -> None:
    caught, log = await run_failing_model(ChunkModel(TextChunk("Half"), error=error))
    assert caught.code == "internal"
    assert str(caught) == f"{type(error).__name__}: {error}"
    assert [event.data.code for event in log if isinstance(event.data, ModelFailed)] == ["internal"]
    assert "message.discarded" in event_types(log)


async def test_the_session_continues_after_a_failed_turn() -> None:
    model = ScriptedModel(fail(), say("Better."))
    async with runtime() as rt:
        session = await rt.open(agent(model), id="s")
        with pytest.raises(TurnError):
            await session.run("One.")
        assert (await session.run("Two.")).text == "Better."
    assert model.prompts[1].number == 2


async def test_a_wrapper_that_retries_starts_a_new_message() -> None:
    model = ChunkModel(
        TextChunk("Wro"),
        UsageChunk(Usage(input=2)),
        RetryChunk("model_unavailable", "reset", "tier-1"),
        TextChunk("Right."),
        UsageChunk(Usage(input=3), "tier-2"),
        StopChunk(),
    )
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        events = await collect_turn(session)
        again = await collect_turn(session)
    assert last_body(events).text == "Right."
    assert last_body(events).usage.input == 5
    shown = [event.data.message_id for event in events if event.type == "message.started"]  # type: ignore[attr-defined]  # started
    assert len(set(shown)) == 2
    log = await read_log(store, "s")
    assert [e.data.message_id for e in events if isinstance(e.data, MessageDiscarded)] == shown[:1]
    assert [e.data.message_id for e in events if isinstance(e.data, MessageCompleted)] == shown[1:]
    failed = next(event.data for event in log if isinstance(event.data, ModelFailed))
    assert (failed.retried, failed.model, failed.code, failed.message_id) == (
        True,
        "tier-1",
        "model_unavailable",
        shown[0],
    )
    assert again
    assert [prompt.number for prompt in model.prompts] == [1, 3]  # the try in between took a number


async def test_reasoning_is_stored_unchanged_and_sent_back() -> None:
    model = ChunkModel(
        ReasoningChunk("Hmm "),
        ReasoningChunk("so."),
        ReasoningChunk(signature="sig", opaque={"k": 1}),
        ReasoningChunk("More."),
        TextChunk("Yes"),
        TextChunk(""),
        TextChunk("."),
        StopChunk("end"),
        UsageChunk(Usage()),
    )
    async with runtime() as rt:
        session = await rt.open(agent(model), id="s")
        assert (await session.run("One.")).text == "Yes."
        await session.run("Two.")
    answer = model.prompts[1].messages[1]
    assert isinstance(answer, AssistantMessage)
    assert answer.content == (
        Reasoning(text="Hmm so.", signature="sig", opaque={"k": 1}),
        Reasoning(text="More."),
        Text(text="Yes."),
    )


async def test_deltas_carry_their_message_block_and_offset() -> None:
    model = ChunkModel(
        TextChunk("é\ud800"), TextChunk("b"), CallChunk(0, "x", "{"), CallChunk(0, "", "}"), CallChunk(0), StopChunk()
    )
    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(model, limits=vaka.Limits(max_steps=1)), id="s"))
    deltas = [e.data for e in events if e.type.endswith(".delta")]
    assert [(d.block, d.offset, d.text) for d in deltas] == [  # type: ignore[attr-defined]  # deltas
        (0, 0, "é\ufffd"),
        (0, 2, "b"),
        (1, 0, "{"),
        (1, 1, "}"),
    ]


async def test_a_refused_answer_ends_the_turn_with_its_reason() -> None:
    error, _ = await run_failing_model(ChunkModel(error=ModelRefused("no such model")))
    assert (error.code, error.exit_code) == ("model_refused", 6)


@pytest.mark.parametrize("seed", range(30))
async def test_the_log_stays_valid_for_any_scripted_line(seed: int) -> None:
    @vaka.tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return at

    store = MemoryStore()
    model = ChaosModel(
        ScriptedModel(call("look", at="a"), call("look", at="b"), say("done now", repeat=True)), seed=seed
    )
    async with runtime(store) as rt:
        session = await rt.open(agent(model, look), id="s")
        for _ in range(3):
            await collect_turn(session)
    check_log(await read_log(store, "s"))


@vaka.tool(effect="read")
def glance() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize("choice", ["required", "glance"])
async def test_a_required_tool_call_is_required_only_once(choice: str) -> None:
    model = ScriptedModel(call("glance"), say("Done."), call("glance"), say("Again."))
    async with runtime() as rt:
        session = await rt.open(agent(model, glance, tool_choice=choice))
        assert (await session.run("Look.")).text == "Done."
        await session.run("And now?")
    assert [prompt.tool_choice for prompt in model.prompts] == [choice, "auto", choice, "auto"]


@pytest.mark.parametrize(
    ("choice", "answer", "message"),
    [
        ("required", say("I would rather not."), "the model called no tool, although tool_choice is 'required'"),
        ("glance", say("I would rather not."), "the model called no tool, although tool_choice is 'glance'"),
        ("glance", call("other"), "the model called 'other', although tool_choice is 'glance'"),
        ("none", call("glance"), "the model called 'glance', although tool_choice is 'none'"),
    ],
)
async def test_a_tool_choice_that_the_server_ignores_is_an_error(choice: str, answer: Any, message: str) -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(answer, say("Done.")), glance, tool_choice=choice))
        with pytest.raises(TurnError) as caught:
            await session.run("Look.")
    assert (str(caught.value), caught.value.code, caught.value.exit_code) == (message, "model", 6)


async def test_a_model_that_may_call_no_tool_keeps_that_choice() -> None:
    model = ScriptedModel(say("Done."), say("Again."))
    async with runtime() as rt:
        session = await rt.open(agent(model, glance, tool_choice="none"))
        for prompt in ("Look.", "And now?"):
            await session.run(prompt)
    assert [prompt.tool_choice for prompt in model.prompts] == ["none", "none"]


async def test_a_prompt_is_stored_redacted_before_the_model_is_asked() -> None:
    secret, stored = "key-of-the-river", list[bytes]()
    store = MemoryStore()

    class WatchingModel(ScriptedModel):
        async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
            (started,) = [event.data for event in await read_log(store, "s") if isinstance(event.data, StepStarted)]
            assert started.system is not None
            stored.append(await store.blobs.get(started.system))
            async for chunk in super().stream(prompt):
                yield chunk

    async with runtime(store, storage=Storage(secrets=(secret,))) as rt:
        session = await rt.open(agent(WatchingModel(say("Done.")), instructions=f"Use {secret}."), id="s")
        assert (await session.run("Go.")).text == "Done."
    assert stored == [b"Use [redacted]."]
