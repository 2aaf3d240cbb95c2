"""Limits of a turn: a turn that reaches a limit ends with its partial answer."""

import asyncio
from collections.abc import AsyncGenerator
from itertools import accumulate
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    advance_loop_time,
    agent,
    count_commits,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    run_with_limits,
    runtime,
)
from vaka.core.ports.model import Chunk, TextChunk
from vaka.core.types.progress import MessageCompleted, ToolCalled, ToolStarted
from vaka.middleware import Continuation
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say, stall


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


@vaka.tool(effect="read", poll=True)
async def poll() -> str:
    """Ask whether it is done."""
    return "not yet"


def look_call(*, text: str = "Looking.", **more: Any) -> dict[str, Any]:
    return call("look", **more) | {"text": text}


def usage_of(tokens: int, cost: float = 0.0) -> dict[str, Any]:
    return {"usage": {"input": tokens, "output": 0, "cost": cost}}


async def test_max_steps_ends_the_turn_and_the_partial_answer_is_kept() -> None:
    model = ScriptedModel(look_call(at="a"), look_call(text="Still.", at="b"), say("never"))
    response, log = await run_with_limits(model, look, max_steps=2)
    assert (response.stop, response.limit, response.text, response.steps) == ("limit", "steps", "Still.", 2)
    assert (last_body(log).stop, last_body(log).limit) == ("limit", "steps")


async def test_max_steps_of_zero_makes_no_model_call() -> None:
    response, _ = await run_with_limits(ScriptedModel(say("never")), max_steps=0)
    assert (response.limit, response.text) == ("steps", "")


async def test_max_tokens_ends_the_turn() -> None:
    model = ScriptedModel(look_call(at="a") | usage_of(60), look_call(at="b") | usage_of(60), say("never"))
    response, _ = await run_with_limits(model, look, max_tokens=100)
    assert (response.limit, response.usage.total) == ("tokens", 120)


async def test_max_cost_ends_the_turn() -> None:
    model = ScriptedModel(look_call(at="a") | usage_of(1, 0.6), look_call(at="b") | usage_of(1, 0.6), say("never"))
    response, _ = await run_with_limits(model, look, max_cost=1.0)
    assert (response.limit, response.usage.cost) == ("cost", 1.2)


async def test_usage_of_a_child_counts_for_its_root() -> None:
    model = ScriptedModel(
        call("helper", prompt="Spend.") | usage_of(1, 0.1),
        say("never"),
        agents={"helper": [say("spent") | usage_of(1, 5.0)]},
    )
    response, _ = await run_with_limits(model, vaka.Agent("helper", model=model), max_cost=1.0)
    assert (response.limit, response.usage.cost) == ("cost", 5.1)


async def test_an_answer_in_the_last_step_is_an_answer() -> None:
    response, _ = await run_with_limits(
        ScriptedModel(look_call(at="a"), say("Yes.") | usage_of(1000)), look, max_steps=2, max_tokens=5000
    )
    assert (response.stop, response.text) == ("end", "Yes.")


async def test_the_time_limit_ends_a_model_call_and_keeps_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow:
        name = "slow"

        async def stream(self, prompt: Any) -> AsyncGenerator[Chunk]:
            yield TextChunk("Half")
            advance_loop_time(monkeypatch)
            await asyncio.Event().wait()

    response, log = await run_with_limits(Slow(), timeout=60)
    assert (response.stop, response.limit, response.text) == ("limit", "time", "Half")
    assert [event.data.cut for event in log if isinstance(event.data, MessageCompleted)] == [True]


async def test_the_time_limit_ends_a_running_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    @vaka.tool(timeout=None)
    async def hang() -> str:
        """Hang."""
        advance_loop_time(monkeypatch)
        await asyncio.Event().wait()
        return ""

    model = ScriptedModel(call("hang") | {"text": "Trying."}, say("never"))
    response, log = await run_with_limits(model, hang, timeout=60)
    assert (response.limit, response.text) == ("time", "Trying.")
    result = results_by_call(log)["call_1"]
    assert result.reason == "limit"
    assert result.text == "stopped before it was done: time; its outcome is unknown, verify before repeating it"


async def test_an_answer_at_the_length_limit_of_the_model_ends_the_turn_as_limit() -> None:
    response, _ = await run_with_limits(ScriptedModel(say("Once upon a", stop="length")), look)
    assert (response.stop, response.limit, response.text) == ("limit", "length", "Once upon a")


@pytest.mark.parametrize("stop", ["length", "refusal"])
@pytest.mark.parametrize("written", [{"at": "a"}, '{"at": "a'])
async def test_calls_of_an_incomplete_answer_do_not_run_and_their_results_give_the_reason(
    stop: str, written: dict[str, str] | str
) -> None:
    model = ScriptedModel({"tool_calls": [{"name": "look", "arguments": written}], "stop": stop}, say("Shorter."))
    response, log = await run_with_limits(model, look)
    assert (response.stop, response.text) == ("end", "Shorter.")
    result = results_by_call(log)["call_1"]
    assert (result.failed, result.reason) == (True, "invalid_arguments")
    assert "This call was not run" in result.text
    assert "tool.started" not in event_types(log)


async def test_an_equal_call_in_the_third_step_in_a_row_is_an_error_and_in_the_fifth_ends_the_turn() -> None:
    response, log = await run_with_limits(ScriptedModel(look_call(at="a") | {"repeat": True}), look)
    assert (response.stop, response.limit, response.text) == ("limit", "repeated_call", "Looking.")
    assert list(reasons_by_call(log).values()) == ["ok", "ok", "repeated", "repeated", "repeated"]
    text = "this is step 3 in a row that calls look with the same arguments; do something else"
    assert results_by_call(log)["call_3"].text == text


async def test_a_different_call_starts_the_count_again() -> None:
    lines = [look_call(at=at) for at in "aabaab"]
    response, log = await run_with_limits(ScriptedModel(*lines, say("done")), look)
    assert response.stop == "end"
    assert set(reasons_by_call(log).values()) == {"ok"}


async def test_equal_calls_of_one_step_count_once() -> None:
    thrice = calls(*[call("look", at="a")] * 3)
    response, log = await run_with_limits(ScriptedModel(thrice, thrice, say("done")), look)
    assert (response.stop, response.text) == ("end", "done")
    assert set(reasons_by_call(log).values()) == {"ok"}


async def test_each_of_several_equal_calls_is_an_error_in_the_third_step() -> None:
    both = calls(call("look", at="a"), call("look", at="a"))
    response, log = await run_with_limits(ScriptedModel(both, both, both, say("done")), look)
    assert response.text == "done"
    assert list(reasons_by_call(log).values()) == ["ok"] * 4 + ["repeated"] * 2


async def test_an_equal_call_among_others_counts_in_each_step() -> None:
    lines = [calls(call("look", at=str(step)), call("look", at="same")) for step in range(6)]
    response, log = await run_with_limits(ScriptedModel(*lines), look)
    assert (response.limit, response.steps) == ("repeated_call", 5)
    repeated = [call for call, reason in sorted(reasons_by_call(log).items()) if reason == "repeated"]
    assert repeated == ["call_10", "call_6", "call_8"]


async def test_a_step_without_calls_starts_the_count_again() -> None:
    class GoOn(vaka.Middleware, Continuation):
        async def check_answer(self, turn: Any, text: str) -> str:
            return "Go on." if text == "Wait." else ""

    lines = [look_call(at="a"), look_call(at="a"), say("Wait."), look_call(at="a"), look_call(at="a"), say("done")]
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(*lines), look, middleware=[GoOn()]), id="s")
        assert (await session.run("Go.")).text == "done"
    assert list(reasons_by_call(await read_log(store, "s")).values()) == ["ok"] * 4


async def test_tools_that_poll_are_exempt() -> None:
    response, log = await run_with_limits(ScriptedModel(*[call("poll")] * 8, say("done")), poll)
    assert (response.stop, response.steps) == ("end", 9)
    assert set(reasons_by_call(log).values()) == {"ok"}


async def test_equal_calls_with_invalid_arguments_count_as_equal() -> None:
    bad: dict[str, Any] = {"tool_calls": [{"name": "look", "arguments": "{"}], "repeat": True}
    response, log = await run_with_limits(ScriptedModel(bad), look)
    assert response.limit == "repeated_call"
    assert list(reasons_by_call(log).values())[:3] == ["invalid_arguments", "invalid_arguments", "repeated"]


def invalid_calls(*numbers: int) -> dict[str, Any]:
    """An answer whose calls all have invalid arguments, different ones."""
    return {"tool_calls": [{"name": "look", "arguments": {"at": number}} for number in numbers], "text": "Looking."}


async def test_three_answers_in_a_row_with_only_invalid_arguments_end_the_turn() -> None:
    response, log = await run_with_limits(
        ScriptedModel(invalid_calls(1), invalid_calls(2, 3), invalid_calls(4), say("never")), look
    )
    assert (response.stop, response.limit, response.text, response.steps) == ("limit", "invalid_calls", "Looking.", 3)
    assert set(reasons_by_call(log).values()) == {"invalid_arguments"}


async def test_one_valid_call_resets_the_count_of_invalid_answers() -> None:
    both = calls(call("look", at="a"), *[{"tool_calls": [{"name": "look", "arguments": {"at": 5}}]}])
    lines = [invalid_calls(1), invalid_calls(2), both, invalid_calls(6), invalid_calls(7), say("done")]
    response, _ = await run_with_limits(ScriptedModel(*lines), look)
    assert (response.stop, response.text) == ("end", "done")


async def test_several_invalid_calls_in_one_answer_count_as_one() -> None:
    response, _ = await run_with_limits(ScriptedModel(invalid_calls(1, 2, 3, 4), say("done")), look)
    assert (response.stop, response.text) == ("end", "done")


@pytest.mark.parametrize(("most", "steps"), [(1, 1), (2, 2), (0, 7)])
async def test_the_number_of_invalid_answers_in_a_row_is_a_limit(most: int, steps: int) -> None:
    lines = [invalid_calls(number) for number in range(6)]
    response, _ = await run_with_limits(ScriptedModel(*lines, say("done")), look, stop_invalid=most)
    assert (response.steps, response.limit) == (steps, "invalid_calls" if most else "")


async def test_the_count_of_invalid_answers_continues_after_a_crash() -> None:
    lines = [invalid_calls(1), invalid_calls(2), invalid_calls(3, 4), say("never")]
    whole = MemoryStore()
    commits = count_commits(whole).commits
    async with runtime(whole) as rt:
        await (await rt.open(agent(ScriptedModel(*lines), look), id="s")).run("Go.")
    log, ends = await read_log(whole, "s"), list(accumulate(map(len, commits)))[:-1]
    assert len(ends) >= 3
    for end in ends:
        store = MemoryStore()
        await log_writer(store, "s", log[:end])()
        async with runtime(store) as rt:
            session = await rt.open(agent(ScriptedModel(*lines), look), id="s")
            events = [event async for event in session.resume()]
        assert (last_body(events).stop, last_body(events).limit) == ("limit", "invalid_calls")


async def test_the_count_of_equal_calls_continues_after_a_crash() -> None:
    model = ScriptedModel(look_call(at="a") | {"repeat": True})
    _, log = await run_with_limits(model, look)
    cut = [n for n, event in enumerate(log, 1) if isinstance(event.data, ToolCalled)][3]
    for end in (cut, cut - 3):
        store = MemoryStore()
        await log_writer(store, "s", log[:end])()
        async with runtime(store) as rt:
            session = await rt.open(agent(model, look), id="s")
            events = [event async for event in session.resume()]
        assert last_body(events).limit == "repeated_call"
        assert list(reasons_by_call(await read_log(store, "s")).values()) == [
            "ok",
            "ok",
            "repeated",
            "repeated",
            "repeated",
        ]


async def test_the_call_that_ends_the_turn_is_written_with_its_end() -> None:
    """Else a crash in between would let the turn go on."""
    gate = asyncio.Event()

    @vaka.tool(effect="read")
    async def other() -> str:
        """Do something else."""
        gate.set()
        return "ok"

    last = calls(call("look", at="a"), call("other"))
    _, log = await run_with_limits(ScriptedModel(*[look_call(at="a")] * 4, last), look, other)
    assert gate.is_set()
    assert event_types(log)[-3:] == ["tool.failed", "step.completed", "turn.completed"]
    assert any(isinstance(event.data, ToolStarted) for event in log)


async def test_a_tool_concurrency_below_one_is_refused() -> None:
    with pytest.raises(vaka.VakaError, match="max_tool_concurrency 0 must be at least 1"):
        vaka.Limits(max_tool_concurrency=0)


@pytest.mark.parametrize("ttl", [0, -1.0, float("nan")])
async def test_a_time_limit_of_zero_is_refused(ttl: float) -> None:
    with pytest.raises(vaka.VakaError, match="must be seconds above zero, or None for no end"):
        vaka.Limits(grant_ttl=ttl)


async def test_a_silent_model_is_stopped_by_the_time_limit() -> None:
    response, log = await run_with_limits(ScriptedModel(stall()), timeout=0.01)
    assert (response.limit, response.text) == ("time", "")
    assert "message.completed" not in event_types(log)
