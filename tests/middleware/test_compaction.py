"""Compaction by itself: when, what is kept, what happens when the summary fails, and what is never lost."""

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.config.options import Models, Storage
from vaka.core.ports.model import Prompt
from vaka.core.types.context import Compaction, CompactionRequest, ContextCompacted
from vaka.core.types.errors import InvalidInput, TurnError
from vaka.core.types.event import Body, Event
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, UserMessage, text_of
from vaka.core.types.monitor import Logged, ModelFailed
from vaka.core.types.progress import MessageCompleted
from vaka.core.types.tokens import estimate_message_tokens
from vaka.middleware import ContextPolicy
from vaka.stores.memory import MemoryStore
from vaka.testing import FunctionModel, RecordingModel, ScriptedModel, call, fail, say, stall

B = TypeVar("B", bound=Body)
WINDOW = 2_000
LINE = "The quick brown fox jumps over the lazy dog. "


def summaries(*lines: Any) -> dict[str, Sequence[Any]]:
    return {"summary": lines or (say("<analysis>hm</analysis><summary>They talk.</summary>", repeat=True),)}


def bodies(events: Sequence[Event], kind: type[B]) -> list[B]:
    return [event.data for event in events if isinstance(event.data, kind)]


def compactions(events: Sequence[Event]) -> list[ContextCompacted]:
    return [event.data for event in events if isinstance(event.data, ContextCompacted)]


def texts(prompt: Prompt) -> list[str]:
    return [text_of(m.content) for m in prompt.messages if not isinstance(m, ToolMessage)]


def own_prompts(model: ScriptedModel) -> list[Prompt]:
    return [prompt for prompt in model.prompts if prompt.agent != "summary"]


def check_pairs(messages: Sequence[Message]) -> None:
    """Every call is directly followed by its result, and every result follows its call."""
    open_calls: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            assert [result.call for result in message.results] == open_calls
            open_calls = []
            continue
        assert open_calls == []
        open_calls = [one.id for one in message.calls] if isinstance(message, AssistantMessage) else []
    assert open_calls == []


async def talk(rt: vaka.Runtime, who: vaka.Agent, turns: int, text: str = LINE * 20) -> vaka.Session:
    session = await rt.open(who, id="s")
    for number in range(1, turns + 1):
        await session.run(f"question {number}: {text}")
    return session


async def test_a_long_conversation_stays_within_the_window_and_keeps_opening_summary_and_last_turns() -> None:
    model = ScriptedModel(say("Yes. " + LINE * 10, repeat=True), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await talk(rt, agent(model), 30)
        seen = await session.messages()
    events = await read_log(store, "s")
    done = compactions(events)
    assert len(done) > 2
    assert {(one.trigger, one.model, one.failure) for one in done} == {("auto", "scripted", "")}
    assert all(0 < one.after < one.before for one in done)
    assert [event for event in events if event.type == "turn.failed"] == []
    last = texts(own_prompts(model)[-1])
    assert last[0].startswith("question 1: ")
    assert last[1] == (
        "Summary of the conversation so far. The messages before it were removed to save space.\n\nThey talk."
    )
    assert last[-1].startswith("question 30: ")
    assert all(isinstance(m, UserMessage) for m in own_prompts(model)[-1].messages[:2])
    check_pairs(seen)
    asked = [prompt for prompt in model.prompts if prompt.agent == "summary"]
    assert len(asked) == len(done)
    assert all(prompt.tools == () and len(prompt.messages) == 1 for prompt in asked)
    assert "They talk." in text_of(asked[1].messages[0].content)  # type: ignore[union-attr]  # a user message
    assert all(estimate_message_tokens(prompt.messages) < WINDOW for prompt in asked)


async def test_a_later_summary_follows_the_earlier_one_until_both_are_too_long() -> None:
    lines = [say(f"## Facts\nThe code of gate {number} is {number * 111}. {LINE}\n## Now") for number in range(1, 40)]
    model = ScriptedModel(say("Yes. " + LINE * 10, repeat=True), agents=summaries(*lines), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        await talk(rt, agent(model), 40)
    first, second, *others = [one.summary for one in compactions(await read_log(store, "s"))]
    assert first.endswith(f"\n\n## Facts\nThe code of gate 1 is 111. {LINE}\n## Now")
    assert second == f"{first}\n\n# Later\n## Facts\nThe code of gate 2 is 222. {LINE}"
    merged = next(at for at, text in enumerate(others, start=3) if "gate 1 is" not in text)
    assert merged > 4
    assert others[merged - 3].endswith(f"\n\n## Facts\nThe code of gate {merged} is {merged * 111}. {LINE}\n## Now")
    requests = [text_of(prompt.messages[0].content) for prompt in model.prompts if prompt.agent == "summary"]  # type: ignore[union-attr]  # a user message
    kept = ["keeps the summary at the beginning" in text for text in requests]
    assert (kept[0], kept[1], kept[merged - 1]) == (False, True, False)


async def test_the_compaction_is_written_with_the_step_and_the_originals_stay_and_can_be_forked() -> None:
    model = ScriptedModel(say(LINE * 10, repeat=True), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await talk(rt, agent(model), 12)
        events = await read_log(store, "s")
        at = next(at for at, event in enumerate(events) if event.type == "context.compacted")
        assert events[at + 1].type == "step.started"
        before = next(event for event in reversed(events[: at - 4]) if event.type == "turn.completed")
        early = await session.fork(before.id, id="early")
        assert texts_of_messages(await early.messages())[0].startswith("question 1: ")
        assert not any("Summary of" in text for text in texts_of_messages(await early.messages()))
        await early.run("and now?")
        await session.rewind(before.id)
        assert (await session.messages())[: len(await early.messages()) - 2] == (await early.messages())[:-2]
        await session.run("go on")


def texts_of_messages(messages: Sequence[Message]) -> list[str]:
    return [text_of(m.content) for m in messages if not isinstance(m, ToolMessage)]


async def test_long_old_calls_become_references_before_a_summary_is_asked_for() -> None:
    async def look(what: str, notes: list[str]) -> str:
        """Look at something."""
        return f"{what[:5]} " + "result " * 500

    answers = [call("look", what=f"n{number} " + "x" * 3_000, notes=["y" * 3_000, "short"]) for number in range(1, 6)]
    model = ScriptedModel(*answers, say("Done.", repeat=True), context_window=15_000)
    store = MemoryStore()
    who = agent(model, look, compaction=Compaction(keep_tokens=2_000))
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        await session.run("Look five times.")
        seen = await session.messages()
    [first, *others] = compactions(await read_log(store, "s"))
    assert (first.summary, first.model) == ("", "")
    assert others == []
    assert {one.call for one in first.calls} <= {f"call_{number}" for number in range(1, 6)}
    check_pairs(seen)
    prompt = own_prompts(model)[-1]
    calls = [one for m in prompt.messages if isinstance(m, AssistantMessage) for one in m.calls]
    assert len(calls) == 5
    assert "left out; to see them call read_output with output:" in calls[0].arguments["what"]
    assert "left out; to see them" in calls[0].arguments["notes"][0]
    assert calls[0].arguments["notes"][1] == "short"
    assert calls[-1].arguments["what"] == "n5 " + "x" * 3_000
    assert "read_output" in [tool.name for tool in prompt.tools]
    digest = first.calls[0].blobs[0]
    assert (await store.blobs.get(digest)).decode() == "n1 " + "x" * 3_000


async def test_a_turn_longer_than_the_window_is_cut_between_its_steps_and_keeps_its_input() -> None:
    async def look(what: str) -> str:
        """Look at something."""
        return "seen " * 150

    answers = [call("look", what=f"part {number} " + "y" * 300) for number in range(40)]
    model = ScriptedModel(*answers, say("Done."), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, look, limits=vaka.Limits(max_steps=60)), id="s")
        response = await session.run("Look forty times, please.")
    assert response.text == "Done."
    done = compactions(await read_log(store, "s"))
    assert len(done) > 2
    for prompt in own_prompts(model):
        check_pairs(prompt.messages)
        assert "Look forty times, please." in texts(prompt)
    assert len(own_prompts(model)) == 41


async def test_one_input_larger_than_the_window_is_shown_in_part() -> None:
    model = ScriptedModel(say("I see.", repeat=True), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")
        assert (await session.run("Read this: " + LINE * 1_000)).text == "I see."
        assert (await session.run("And now?")).text == "I see."
        whole = [event for event in await read_log(store, "s") if event.type == "input.added"]
    prompt = own_prompts(model)[0]
    assert "left out; to see them call read_output with output:" in texts(prompt)[-1]
    assert texts(prompt)[-1].startswith("Read this: ")
    assert len(whole) == 2


FAILURES: dict[str, tuple[list[Any], str]] = {
    "fails": ([{**fail(500, "down"), "repeat": True}], "down"),
    "empty": ([say("<analysis>only thoughts</analysis>", repeat=True)], "the summary is empty"),
    "calls": ([{**call("look"), "repeat": True}], "called a tool, although it was given none"),
    "longer": ([say("word " * 9_000, repeat=True)], "tokens, what it summarises"),
    "silent": ([stall(1_000, repeat=True)], "no answer within"),
}


@pytest.mark.parametrize("why", FAILURES)
async def test_a_summary_that_fails_leaves_a_trimmed_context_and_a_living_turn(why: str) -> None:
    lines, message = FAILURES[why]
    model = ScriptedModel(say(LINE * 10, repeat=True), agents=summaries(*lines), context_window=WINDOW)
    store = MemoryStore()
    settings = Compaction(timeout=0.01 if why == "silent" else 60.0, max_retries=1)
    limits = vaka.Limits(middleware_timeout=600)  # the attempts end before it
    async with runtime(store) as rt:
        await talk(rt, agent(model, compaction=settings, limits=limits), 10)
    events = await read_log(store, "s")
    done = compactions(events)
    assert len(done) > 1
    assert all(message in one.failure and one.model == "" for one in done)
    assert not any("BadSummary" in one.failure for one in done)
    assert "earlier messages of this conversation were left out to save space, without a summary" in done[0].summary
    assert [event.type for event in events if event.type == "turn.failed"] == []
    assert [body.level for body in bodies(events, Logged)] == ["warning"] * len(done)
    assert texts(own_prompts(model)[-1])[-1].startswith("question 10: ")


async def test_a_failed_summary_is_asked_for_again_from_the_fallback_model() -> None:
    low = ScriptedModel(agents=summaries({**fail(503, "busy"), "repeat": True}), name="low")
    backup = ScriptedModel(agents=summaries(), name="backup")
    model = ScriptedModel(say(LINE * 10, repeat=True), context_window=WINDOW)
    store = MemoryStore()
    settings = Compaction(max_retries=2, fallback_model="high", retry_delay=0.001)
    async with runtime(store, models=Models(tiers={"low": low, "high": backup}, compaction=settings)) as rt:
        await talk(rt, agent(model), 6)
    [done, *_] = compactions(await read_log(store, "s"))
    assert (done.model, done.failure) == ("backup", "")
    assert len(low.prompts) >= 1


async def test_a_prompt_that_the_provider_refuses_for_its_length_is_compacted_and_sent_once_more() -> None:
    model = ScriptedModel(
        *[say(f"answer {number} {LINE * 10}") for number in range(1, 12)], agents=summaries(), context_window=WINDOW
    )
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await talk(rt, agent(RecordingModel(model)), 8)  # its window is not known here
        events = await read_log(store, "s")
        done = compactions(events)
        failed = bodies(events, ModelFailed)
        assert {one.code for one in failed} == {"context_too_long"}
        assert len(done) == len(failed) > 0
        assert [event for event in events if event.type == "turn.failed"] == []
        answers = [text_of(body.content) for body in bodies(events, MessageCompleted)]
        assert len(answers) == 8
        assert len(set(answers)) == 8  # a call that is made again has the next number
        with pytest.raises(TurnError, match="the window of scripted 2000") as caught:
            await session.run("x" * 200_000)
        assert caught.value.code == "context_too_long"


async def test_without_compaction_a_prompt_that_is_too_long_fails_the_turn() -> None:
    model = ScriptedModel(say(LINE * 10, repeat=True), context_window=WINDOW)
    async with runtime() as rt:
        with pytest.raises(TurnError, match="tokens, the window of scripted 2000"):
            await talk(rt, agent(model, compaction=False), 20)


async def test_middleware_sees_changes_and_skips_compactions() -> None:
    seen: list[Any] = []

    class Watch(vaka.Middleware, ContextPolicy):
        async def before_compaction(self, turn: Any, request: CompactionRequest) -> CompactionRequest:
            seen.append((request.trigger, request.tokens, request.window))
            return msgspec.structs.replace(request, instructions="the colour of the boat") if seen else request

        async def after_compaction(self, turn: Any, event: ContextCompacted) -> None:
            seen.append(event)

    model = ScriptedModel(say(LINE * 10, repeat=True), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        await talk(rt, agent(model, middleware=[Watch()]), 6)
    [done, *_] = compactions(await read_log(store, "s"))
    assert seen[0][0] == "auto"
    assert seen[0][2] == WINDOW
    assert seen[1] == done
    assert done.instructions == "the colour of the boat"
    asked = next(prompt for prompt in model.prompts if prompt.agent == "summary")
    assert "keep in particular: the colour of the boat" in texts(asked)[0]


async def test_a_skipped_compaction_is_logged_once_in_a_turn_and_not_asked_about_in_each_step() -> None:
    asked: list[int] = []

    class Refusal(vaka.Middleware, ContextPolicy):
        async def before_compaction(self, turn: Any, request: CompactionRequest) -> CompactionRequest:
            asked.append(request.tokens)
            return CompactionRequest(skip="not now")

    async def look(what: int) -> str:
        """Look at something."""
        return "sea"

    steps = [call("look", what=number) for number in range(20)]
    model = ScriptedModel(
        say(LINE * 25), say(LINE * 25), say(LINE * 25), *steps, say("Done.", repeat=True), context_window=WINDOW
    )
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await talk(rt, agent(model, look, middleware=[Refusal()]), 3)
        asked.clear()
        assert (await session.run("Look.")).text == "Done."
        events = await read_log(store, "s")
        assert compactions(events) == []
        assert 0 < len(asked) < 10
        logged = [body.message for body in bodies(events, Logged)]
        assert set(logged) == {"the context was not compacted: not now"}
        with pytest.raises(TurnError, match="the window of scripted 2000"):
            await session.run(LINE * 200)
    failed = [body for body in bodies(await read_log(store, "s"), ModelFailed) if body.code == "context_too_long"]
    assert len(failed) == 1  # the same prompt is not sent again


async def test_child_agents_compact_their_own_conversations() -> None:
    async def look(what: str) -> str:
        """Look at something."""
        return "seen " * 150

    answers = [call("look", what=f"part {number}") for number in range(20)]
    model = ScriptedModel(
        call("helper", prompt="Look twenty times."),
        say("All done."),
        agents={"helper": [*answers, say("Looked.")], **summaries()},
        context_window=WINDOW,
    )
    helper = agent(model, look, name="helper")
    store = MemoryStore()
    async with runtime(store) as rt:
        response = await (await rt.open(agent(model, helper), id="s")).run("Go.")
    assert response.text == "All done."
    done = [event for event in await read_log(store, "s") if event.type == "context.compacted"]
    assert done
    assert {event.path for event in done} == {("agent-1",)}
    below = [prompt for prompt in model.prompts if prompt.agent == "helper"]
    assert all("Look twenty times." in texts(prompt) for prompt in below)


async def test_trimming_leaves_out_whole_turns_without_a_model() -> None:
    model = ScriptedModel(say(LINE * 10, repeat=True), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        await talk(rt, agent(model, middleware=[vaka.middleware.Trimming()]), 12)
    events = await read_log(store, "s")
    done = compactions(events)
    assert done
    assert {(one.model, one.failure) for one in done} == {("", "")}
    assert "without a summary: summaries are turned off" in done[0].summary
    assert len(model.prompts) == 12
    assert texts(model.prompts[-1])[-1].startswith("question 12: ")
    assert [event for event in events if event.type == "log"] == []


async def test_a_compaction_is_also_a_file_if_there_is_a_folder_for_it(tmp_path: Path) -> None:
    model = ScriptedModel(say(LINE * 10, repeat=True), agents=summaries(), context_window=WINDOW)
    folder = tmp_path / "rollouts"
    async with runtime(models=Models(compaction=Compaction(rollout_dir=str(folder)))) as rt:
        await talk(rt, agent(model), 6)
    [file, *_] = folder.iterdir()
    record = json.loads(file.read_text())
    assert file.stat().st_mode & 0o777 == 0o600
    assert record["session_id"] == "s"
    assert record["estimated_tokens_after"] < record["estimated_tokens_before"]
    blocked = tmp_path / "blocked"
    blocked.write_text("a file")
    store = MemoryStore()
    async with runtime(store, models=Models(compaction=Compaction(rollout_dir=str(blocked)))) as rt:
        await talk(rt, agent(model), 6)
    assert any("the compaction is not in" in body.message for body in bodies(await read_log(store, "s"), Logged))


async def test_an_interrupt_during_a_summary_ends_the_turn_and_nothing_is_compacted() -> None:
    reached = asyncio.Event()

    async def answer(prompt: Prompt) -> Any:
        if prompt.agent == "summary":
            reached.set()
            await asyncio.Event().wait()
        return say(LINE * 10)

    model = FunctionModel(answer)
    model.context_window = WINDOW  # type: ignore[attr-defined]  # an attribute that models may have
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model), id="s")

        async def go() -> None:
            for number in range(20):
                await session.run(f"question {number} {LINE * 20}")

        task = asyncio.create_task(go())
        await reached.wait()
        await session.interrupt()
        with pytest.raises(TurnError):
            await task
    assert compactions(await read_log(store, "s")) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"ratio": 0}, "ratio 0 must be above 0"),
        ({"ratio": 2}, "at most 1"),
        ({"keep_turns": 0}, "at least 1"),
        ({"reserved": -1}, "reserved -1 must be at least 0"),
        ({"timeout": 0}, "seconds above zero"),
    ],
)
def test_settings_out_of_range_are_an_error(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Compaction(**wrong)
    with pytest.raises(TypeError, match="compaction must be a Compaction or a bool"):
        vaka.Agent("a", compaction="yes")  # type: ignore[call-overload]  # wrong on purpose


def test_a_context_is_due_at_its_ratio_or_when_the_reserve_is_not_free() -> None:
    settings = Compaction()
    assert not settings.is_due(84_999, 100_000) or settings.reserved_in(100_000) > 15_000
    assert [settings.reserved_in(window) for window in (8_000, 100_000, 1_000_000)] == [2_000, 25_000, 50_000]
    assert settings.is_due(850_000, 1_000_000)
    assert not settings.is_due(849_999, 1_000_000)
    assert Compaction(reserved=200_000).is_due(800_000, 1_000_000)
    small = [Compaction(reserved=50_000).is_due(tokens, 8_000) for tokens in (3_999, 4_000)]
    assert small == [False, True]  # settings for a large model do not compact a small one in each step


async def test_the_tokens_that_the_provider_reports_count_more_than_the_estimate() -> None:
    lines = [say(f"answer {n}", usage={"input": 300 * n, "output": 10, "cache_read": 250 * n}) for n in range(1, 9)]
    model = ScriptedModel(*lines, agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        await talk(rt, agent(model), 6, text="short")
    [done] = compactions(await read_log(store, "s"))
    assert done.before > 1_500  # 5 * 300 + 10, and the new question


async def test_images_beyond_the_number_to_keep_become_a_note() -> None:
    async def draw(number: int) -> vaka.Image:
        """Draw a picture."""
        return vaka.Image(data="AAAA", media_type="image/png")

    used = [{**call("draw", number=n), "usage": {"input": 20_000 * n, "output": 10}} for n in range(1, 7)]
    model = ScriptedModel(*used, say("Done."), agents=summaries(), context_window=100_000)
    store = MemoryStore()
    who = agent(model, draw, compaction=Compaction(keep_media=0))
    async with runtime(store) as rt:
        await (await rt.open(who, id="s")).run("Draw six.")
    [done, *_] = compactions(await read_log(store, "s"))
    assert done.media_from > 0
    shown = [[one.text for m in p.messages if isinstance(m, ToolMessage) for one in m.results] for p in model.prompts]
    note = "[image left out: it was shown earlier in the conversation]"
    assert [texts for texts in shown if note in texts]
    assert [texts[-1] for texts in shown if texts] == [""] * 6  # an image that the model has not seen yet stays


async def test_instructions_that_fill_the_window_do_not_cause_a_summary_in_every_step() -> None:
    model = ScriptedModel(say("Yes.", repeat=True), agents=summaries(), context_window=WINDOW)
    store = MemoryStore()
    async with runtime(store) as rt:
        await talk(rt, agent(model, instructions="i" * 6_000), 60, text=LINE)
    events = await read_log(store, "s")
    assert [event for event in events if event.type == "turn.failed"] == []
    assert 0 < len(compactions(events)) < 15


async def test_no_secret_reaches_a_blob_or_the_summary_model() -> None:
    secret = "hunter2-hunter2"

    async def look(what: str) -> str:
        """Look at something."""
        return f"{secret} " * 300

    model = ScriptedModel(
        *[call("look", what=f"{n} {secret} " * 200) for n in range(4)],
        say(LINE, repeat=True),
        agents=summaries(),
        context_window=6_000,
    )
    store = MemoryStore()
    async with runtime(store, storage=Storage(secrets=(secret,))) as rt:
        session = await rt.open(agent(model, look), id="s")
        await session.run(f"Look. {secret}")
        await session.run("And again.")
        await session.compact(f"keep {secret}")
    events = await read_log(store, "s")
    assert len(compactions(events)) >= 2
    kept = b"".join(data for data, _ in store.hub.shared.blobs.values())
    assert secret.encode() not in kept + b"".join(event.stored for event in events)
    asked = [text_of(m.content) for p in model.prompts if p.agent == "summary" for m in p.messages[:1]]  # type: ignore[union-attr]  # user messages
    assert asked
    assert not any(secret in text.partition("</conversation>")[0] for text in asked)
