"""The points of middleware: each gets a value and returns one."""

import asyncio
import gc
import weakref
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect_turn,
    event_types,
    last_body,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.core.ports.model import Prompt
from vaka.core.types.ending import Outcome
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import AssistantMessage, CallRef, Text, ToolCall, ToolMessage, ToolResult, UserMessage
from vaka.core.types.progress import MessageCompleted, StepStarted
from vaka.middleware import Answer, Ask, Deny, Reject
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, fail, say

POINTS = ("before_agent", "before_model", "after_model", "before_tool", "after_tool", "after_agent")


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


def recording_middleware(name: str, notes: list[str]) -> vaka.Middleware:
    def point(which: str) -> Any:
        async def function(turn: Any, *values: Any) -> Any:
            notes.append(f"{name}.{which}")
            return values[-1]

        return function

    return vaka.Middleware.from_functions(name, **{which: point(which) for which in POINTS})


def middleware_at(point: str, function: Any, name: str = "mine") -> vaka.Middleware:
    return vaka.Middleware.from_functions(name, **{point: function})


async def run_with_middleware(model: Any, *middleware: Any, tools: Any = (look,), **more: Any) -> list[Any]:
    store = MemoryStore()
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(model, *tools, middleware=middleware, **more), id="s"))
    log = await read_log(store, "s")
    check_log(log)
    return log


async def test_the_six_points_run_in_order_of_registration() -> None:
    notes: list[str] = []
    await run_with_middleware(
        ScriptedModel(call("look"), say("done")), recording_middleware("a", notes), recording_middleware("b", notes)
    )
    order = [*POINTS[:5], "before_model", "after_model", "after_agent"]
    assert notes == [f"{name}.{point}" for point in order for name in "ab"]


async def test_a_tool_result_is_recorded_before_after_tool_runs() -> None:
    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), recording_middleware("a", []))
    kinds = event_types(log)
    assert kinds.index("tool.returned") < kinds.index("tool.completed")


async def test_each_point_may_change_its_value() -> None:
    async def before_agent(turn: Any, content: Any) -> Any:
        return (*content, Text(text=" Be kind."))

    async def before_model(turn: Any, prompt: Any) -> Any:
        return msgspec.structs.replace(prompt, system="Changed.", tools=prompt.tools[:0])

    async def after_model(turn: Any, message: Any) -> Any:
        return msgspec.structs.replace(message, content=(Text(text="loud".upper()), *message.content[1:]))

    async def before_tool(turn: Any, given: Any) -> Any:
        return msgspec.structs.replace(given, arguments={"at": "moon"})

    async def after_tool(turn: Any, given: Any, result: Any) -> Any:
        return msgspec.structs.replace(result, content=(Text(text=result.text + "!"),))

    async def after_agent(turn: Any, outcome: Any) -> Any:
        return msgspec.structs.replace(outcome, text=outcome.text + "?")

    mw = vaka.Middleware.from_functions(
        "all",
        before_agent=before_agent,
        before_model=before_model,
        after_model=after_model,
        before_tool=before_tool,
        after_tool=after_tool,
        after_agent=after_agent,
    )
    model = ScriptedModel(call("look", at="sun") | {"text": "x"}, say("done"))
    store = MemoryStore()
    async with runtime(store) as rt:
        response = await (await rt.open(agent(model, look, middleware=[mw]), id="s")).run("Go.")
        texts = [await rt.store.blobs.get(digest) for digest in _digests(await read_log(store, "s"))]
    assert response.text == "LOUD?"
    assert model.prompts[0].messages[0] == UserMessage(content=(Text(text="Go."), Text(text=" Be kind.")))
    assert (model.prompts[0].system, model.prompts[0].tools) == ("Changed.", ())
    assert results_by_call(await read_log(store, "s"))["call_1"].text == "seen moon!"
    assert b"Changed." in texts
    assert b"[]" in texts


def _digests(log: list[Any]) -> list[Any]:
    kinds = (StepStarted, MessageCompleted)
    return [digest for e in log if isinstance(e.data, kinds) for digest in (e.data.system, e.data.tools) if digest]


async def test_changed_prompts_are_recorded_in_the_log() -> None:
    """Unchanged it is named by step.started, changed also by message.completed."""

    async def second_only(turn: Any, prompt: Any) -> Any:
        return prompt if prompt.number == 1 else msgspec.structs.replace(prompt, system="Other.")

    model = ScriptedModel(call("look"), say("done"))
    log = await run_with_middleware(model, middleware_at("before_model", second_only), instructions="Mine.")
    messages = [event.data for event in log if isinstance(event.data, MessageCompleted)]
    assert messages[0].system is None
    assert messages[1].system is not None
    assert messages[1].tools is None


async def test_an_answer_from_before_agent_needs_no_model() -> None:
    async def answer(turn: Any, content: Any) -> Any:
        return Answer("Cached.")

    model = ScriptedModel(say("After."))
    store = MemoryStore()
    async with runtime(store) as rt:
        who = agent(model, middleware=[middleware_at("before_agent", answer)])
        session = await rt.open(who, id="s")
        assert (await session.run("One.")).text == "Cached."
        who.middleware = ()
        await session.run("Two.")
    check_log(await read_log(store, "s"))
    assert [type(m).__name__ for m in model.prompts[0].messages] == ["UserMessage", "AssistantMessage", "UserMessage"]


async def test_a_blocked_input_leaves_no_trace_in_later_prompts() -> None:
    async def guard(turn: Any, content: Any) -> Any:
        return Reject("not here") if "secret" in content[0].text else content

    model = ScriptedModel(say("a"), say("b"))
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=[middleware_at("before_agent", guard)]), id="s")
        await session.run("One.")
        with pytest.raises(vaka.VakaError, match="not here") as caught:
            await session.run("A secret.")
        await session.run("Two.")
        assert "secret" not in str(await session.messages())
    assert caught.value.code == "blocked"
    assert "secret" not in str(model.prompts)
    check_log(await read_log(store, "s"))


async def test_a_message_from_before_model_is_the_answer_and_may_make_calls() -> None:
    async def instead(turn: Any, prompt: Any) -> Any:
        if len(prompt.messages) > 1:
            return AssistantMessage(id=MessageId("x"), content=(Text(text="done"),))
        made = ToolCall(id=CallId("mine"), name="look", arguments={"at": "sun"})
        return AssistantMessage(id=MessageId("x"), content=(CallRef(id=CallId("mine")),), calls=(made,))

    notes: list[str] = []
    log = await run_with_middleware(
        ScriptedModel(), middleware_at("before_model", instead), recording_middleware("n", notes)
    )
    assert results_by_call(log)["call_1"].text == "seen sun"
    assert last_body(log).text == "done"
    assert "n.after_model" not in notes


@pytest.mark.parametrize("point", ["before_model", "after_model"])
async def test_calls_that_middleware_makes_are_validated_like_a_models(point: str) -> None:
    async def adds(turn: Any, value: Any) -> Any:
        if turn.state.calls:
            return value
        bad = ToolCall(id=CallId("z"), name="look", arguments={"at": 7, "nonsense": True})
        good = ToolCall(id=CallId("z"), name="look", arguments={"at": "ok"})
        if isinstance(value, Prompt):
            return AssistantMessage(id=MessageId("x"), calls=(bad, good))
        return msgspec.structs.replace(value, calls=(bad, *value.calls, good))

    log = await run_with_middleware(
        ScriptedModel(call("look", at="mine"), say("done"), say("done")), middleware_at(point, adds)
    )
    assert reasons_by_call(log)["call_1"] == "invalid_arguments"
    assert set(reasons_by_call(log).values()) == {"invalid_arguments", "ok"}


async def test_after_model_may_remove_calls() -> None:
    async def drops(turn: Any, message: Any) -> Any:
        return msgspec.structs.replace(message, calls=message.calls[1:])

    model = ScriptedModel(calls(call("look", at="a"), call("look", at="b")), say("done"))
    log = await run_with_middleware(model, middleware_at("after_model", drops))
    assert {call: result.text for call, result in results_by_call(log).items()} == {"call_1": "seen b"}
    shown = next(event.data for event in log if isinstance(event.data, MessageCompleted))
    assert shown.content == (CallRef(id=CallId("call_1")),)


async def test_before_tool_may_answer_refuse_or_ask() -> None:
    async def decide(turn: Any, given: Any) -> Any:
        answers: dict[str, Any] = {
            "a": ToolResult(call=CallId("?"), content=(Text(text="cached"),)),
            "b": Deny("no b"),
            "c": Deny(),
            "d": Ask("sure?"),
        }
        return answers.get(given.arguments["at"], given)

    store = MemoryStore()
    model = ScriptedModel(calls(*(call("look", at=name) for name in "abcde")), say("done"))
    async with runtime(store, permissions=vaka.Permissions(ask="deny")) as rt:
        response = await (
            await rt.open(agent(model, look, middleware=[middleware_at("before_tool", decide)]), id="s")
        ).run("Go.")
    found = {call: result.text for call, result in results_by_call(await read_log(store, "s")).items()}
    assert found == {
        "call_1": "cached",
        "call_2": "no b",
        "call_3": "a middleware refused this call",
        "call_4": "sure?; no person can be asked here, so it was not run",
        "call_5": "seen e",
    }
    assert response.denied == ("call_2", "call_3", "call_4")


async def test_an_error_before_a_tool_keeps_it_from_running() -> None:
    ran: list[str] = []

    @vaka.tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return ""

    async def fails(turn: Any, given: Any) -> Any:
        raise ValueError("nope")

    log = await run_with_middleware(
        ScriptedModel(call("act"), say("sorry")), middleware_at("before_tool", fails), tools=[act]
    )
    assert ran == []
    assert results_by_call(log)["call_1"].reason == "middleware"
    assert results_by_call(log)["call_1"].text == "middleware 'mine': ValueError: nope"
    assert last_body(log).text == "sorry"


@pytest.mark.parametrize("point", ["before_agent", "before_model", "after_model", "after_tool", "after_agent"])
async def test_an_error_elsewhere_fails_the_turn_and_names_the_middleware(point: str) -> None:
    async def fails(*_: Any) -> Any:
        raise ValueError("nope")

    log = await run_with_middleware(
        ScriptedModel(call("look"), say("done")), recording_middleware("fine", []), middleware_at(point, fails)
    )
    assert (last_body(log).type, last_body(log).code) == ("turn.failed", "middleware")
    assert last_body(log).message == "middleware 'mine': ValueError: nope"


@pytest.mark.parametrize("point", POINTS)
async def test_middleware_that_returns_none_raises_a_clear_error(point: str) -> None:
    async def forgets(*_: Any) -> Any:
        return None

    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at(point, forgets))
    said_so = results_by_call(log)["call_1"].text if point == "before_tool" else last_body(log).message
    assert said_so.startswith(f"{point} of middleware 'mine' returned None, expected ")
    assert said_so.endswith("; end it with a return statement")


async def test_an_after_agent_that_returns_none_is_reported_by_a_turn_that_fails_for_another_reason() -> None:
    async def forgets(*_: Any) -> Any:
        return None

    log = await run_with_middleware(ScriptedModel(fail(400, "too hot")), middleware_at("after_agent", forgets))
    assert last_body(log).code == "model_refused"
    assert last_body(log).message == (
        "too hot (status 400); after_agent failed: after_agent of middleware 'mine' returned None, expected Outcome; "
        "end it with a return statement"
    )


@pytest.mark.parametrize("point", POINTS)
async def test_a_middleware_function_that_is_not_async_raises_a_clear_error(point: str) -> None:
    def returns(*given: Any) -> Any:
        return given[-1]

    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at(point, returns))
    said_so = results_by_call(log)["call_1"].text if point == "before_tool" else last_body(log).message
    assert said_so == f"{point} of middleware 'mine' must be an async function"


@pytest.mark.parametrize("point", POINTS)
async def test_each_call_of_a_middleware_has_a_time_limit(point: str) -> None:
    async def waits(*_: Any) -> Any:
        await asyncio.Event().wait()

    limits = vaka.Limits(middleware_timeout=0.01)
    log = await run_with_middleware(
        ScriptedModel(call("look"), say("done")), middleware_at(point, waits), limits=limits
    )
    said_so = results_by_call(log)["call_1"].text if point == "before_tool" else last_body(log).message
    assert said_so == "middleware 'mine' timed out after 0.01 s"


async def test_a_timeout_error_that_middleware_raises_is_an_ordinary_error() -> None:
    async def waits(*_: Any) -> Any:
        async with asyncio.timeout(0.001):
            await asyncio.Event().wait()

    log = await run_with_middleware(ScriptedModel(say("done")), middleware_at("before_model", waits))
    assert last_body(log).message.startswith("middleware 'mine': TimeoutError")


async def test_middleware_may_not_swap_the_tool() -> None:
    async def swaps(turn: Any, given: Any) -> Any:
        return msgspec.structs.replace(given, name="other")

    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at("before_tool", swaps))
    assert results_by_call(log)["call_1"].text == "middleware 'mine' may not turn 'look' into 'other'"


async def test_arguments_that_middleware_changed_are_validated_again() -> None:
    async def breaks(turn: Any, given: Any) -> Any:
        return msgspec.structs.replace(given, arguments={"at": 7})

    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at("before_tool", breaks))
    assert reasons_by_call(log) == {"call_1": "invalid_arguments"}


async def test_a_result_that_cannot_be_encoded_fails_the_turn_not_the_log() -> None:
    async def breaks(turn: Any, given: Any, result: Any) -> Any:
        return msgspec.structs.replace(result, value=object())

    log = await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at("after_tool", breaks))
    assert last_body(log).type == "turn.failed"


@pytest.mark.parametrize("ending", ["failure", "interrupt", "cancel", "answer", "block", "limit"])
async def test_after_agent_always_runs(ending: str) -> None:
    seen: list[Outcome] = []

    async def notes(turn: Any, outcome: Any) -> Any:
        seen.append(outcome)
        return outcome

    async def before_agent(turn: Any, content: Any) -> Any:
        return {"answer": Answer("a"), "block": Reject("b")}.get(ending, content)

    async def before_model(turn: Any, prompt: Any) -> Any:
        if ending == "failure":
            raise ValueError("x")
        if ending in {"interrupt", "cancel"}:
            turn.stop.trigger("interrupted" if ending == "interrupt" else "cancelled", "now")
        return prompt

    mw = vaka.Middleware.from_functions("n", before_agent=before_agent, before_model=before_model, after_agent=notes)
    limits = vaka.Limits(max_steps=0 if ending == "limit" else 5)
    await run_with_middleware(ScriptedModel(say("done")), mw, limits=limits)
    stops = {"failure": "failed", "interrupt": "interrupted", "cancel": "cancelled", "block": "failed"}
    assert [outcome.stop for outcome in seen] == [stops.get(ending, "completed")]
    assert seen[0].limit == ("steps" if ending == "limit" else "")


async def test_every_after_agent_runs_whatever_the_others_do() -> None:
    notes: list[str] = []

    async def fails(turn: Any, outcome: Any) -> Any:
        raise ValueError("first")

    async def fails_too(turn: Any, outcome: Any) -> Any:
        raise ValueError("second")

    middle = middleware_at("after_agent", fails_too, "other")
    log = await run_with_middleware(
        ScriptedModel(say("done")), middleware_at("after_agent", fails), middle, recording_middleware("n", notes)
    )
    assert "n.after_agent" in notes
    assert last_body(log).message == "middleware 'mine': ValueError: first"
    assert last_body(log).text == "done"


async def test_tools_of_middleware_reach_the_model_and_run() -> None:
    class Brings(vaka.Middleware):
        def tools(self) -> Any:
            return [vaka.tool(peek)]

    async def peek() -> str:
        """Peek."""
        return "boo"

    model = ScriptedModel(call("peek"), say("done"))
    log = await run_with_middleware(model, Brings())
    assert [spec.name for spec in model.prompts[0].tools] == ["look", "peek"]
    assert results_by_call(log)["call_1"].text == "boo"
    assert Brings().name == "Brings"


async def test_middleware_added_during_a_turn_applies_to_later_turns() -> None:
    notes: list[str] = []
    who = agent(ScriptedModel(call("add"), say("one"), say("two")))

    @vaka.tool
    async def add() -> str:
        """Add a middleware."""
        who.use(recording_middleware("late", notes))
        return "added"

    who.tools = (add,)
    async with runtime() as rt:
        session = await rt.open(who, id="s")
        await session.run("One.")
        assert notes == []
        await session.run("Two.")
    assert notes == ["late.before_agent", "late.before_model", "late.after_model", "late.after_agent"]


async def test_a_point_that_does_not_exist_is_refused() -> None:
    with pytest.raises(vaka.VakaError, match="middleware 'x': no such point 'before_lunch', expected one of before_a"):
        vaka.Middleware.from_functions("x", before_lunch=recording_middleware)  # type: ignore[arg-type]  # what people do


async def test_the_conversation_contains_results_as_middleware_changed_them() -> None:
    async def hides(turn: Any, given: Any, result: Any) -> Any:
        return msgspec.structs.replace(result, content=(Text(text="[hidden]"),))

    model = ScriptedModel(call("look"), say("done"))
    await run_with_middleware(model, middleware_at("after_tool", hides))
    shown = model.prompts[1].messages[-1]
    assert isinstance(shown, ToolMessage)
    assert shown.results[0].text == "[hidden]"


async def test_turn_count_returns_the_calls_of_a_tool() -> None:
    async def limits(turn: Any, given: Any) -> Any:
        return given if turn.count("look") < 2 else Deny("enough")

    model = ScriptedModel(calls(*(call("look", at=name) for name in "abc")), say("done"))
    log = await run_with_middleware(model, middleware_at("before_tool", limits))
    assert reasons_by_call(log) == {"call_3": "denied", "call_1": "ok", "call_2": "ok"}


async def test_a_finished_turn_is_freed_without_the_garbage_collector() -> None:
    turns: list[weakref.ref[Any]] = []

    async def note(turn: Any, message: Any) -> Any:
        turns.append(weakref.ref(turn))
        return message

    gc.disable()
    try:
        await run_with_middleware(ScriptedModel(call("look"), say("done")), middleware_at("after_model", note))
        assert [turn() for turn in turns] == [None, None]
    finally:
        gc.enable()


async def test_the_base_methods_return_their_values_unchanged() -> None:
    class Plain(vaka.Middleware):
        async def before_agent(self, turn: Any, content: Any) -> Any:
            return await super().before_agent(turn, content)

        async def before_model(self, turn: Any, prompt: Any) -> Any:
            return await super().before_model(turn, prompt)

        async def after_model(self, turn: Any, message: Any) -> Any:
            return await super().after_model(turn, message)

        async def before_tool(self, turn: Any, call: Any) -> Any:
            return await super().before_tool(turn, call)

        async def after_tool(self, turn: Any, call: Any, result: Any) -> Any:
            return await super().after_tool(turn, call, result)

        async def after_agent(self, turn: Any, outcome: Any) -> Any:
            return await super().after_agent(turn, outcome)

    log = await run_with_middleware(ScriptedModel(call("look", at="a"), say("done")), Plain())
    assert (results_by_call(log)["call_1"].text, last_body(log).text) == ("seen a", "done")


async def test_middleware_that_stops_the_turn_and_waits_is_cancelled() -> None:
    async def stops(turn: Any, prompt: Any) -> Any:
        turn.stop.trigger("interrupted", "by a middleware")
        await asyncio.Event().wait()

    log = await run_with_middleware(ScriptedModel(say("never")), middleware_at("before_model", stops))
    assert (last_body(log).type, last_body(log).note) == ("turn.interrupted", "by a middleware")


async def test_middleware_can_read_the_usage_of_its_turn() -> None:
    used: list[int] = []

    async def notes(turn: Any, outcome: Any) -> Any:
        used.append(turn.usage.input)
        return outcome

    model = ScriptedModel(call("look") | {"usage": {"input": 3}}, say("done"))
    await run_with_middleware(model, middleware_at("after_agent", notes))
    assert used == [3]
