"""The methods of middleware that are no points of a turn, and the classes that would never be called."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect_turn,
    event_types,
    last_body,
    read_log,
    results_by_call,
    runtime,
)
from vaka.core.ports.model import StopChunk, TextChunk
from vaka.core.types.context import ContextCompacted
from vaka.core.types.errors import ContextTooLong, InvalidInput
from vaka.core.types.event import Body
from vaka.core.types.monitor import Logged
from vaka.middleware import Allow, Approver, ContextPolicy, Continuation, Deny, ToolSource
from vaka.stores.memory import MemoryStore
from vaka.testing import FunctionModel
from vaka.testing.models import ScriptedModel, call, say

METHODS = (
    "before_step",
    "after_step",
    "tools_for_step",
    "prompt_for_step",
    "shorten_context",
    "check_answer",
    "decide_approval",
)


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


def middleware_with(method: str, function: Any, name: str = "mine", **more: Any) -> vaka.Middleware:
    """Return a middleware with one method of any kind."""
    made: vaka.Middleware = type(name, (vaka.Middleware,), {method: staticmethod(function), "name": name, **more})()
    return made


async def run_with(*middleware: Any, model: Any = None, tools: Any = (look,), **more: Any) -> list[Any]:
    store, permissions = MemoryStore(), vaka.Permissions(confirm=("look",), ask="deny")
    model = model or ScriptedModel(call("look"), say("done", repeat=True))
    async with runtime(store, permissions=permissions) as rt:
        await collect_turn(await rt.open(agent(model, *tools, middleware=middleware, **more), id="s"))
    log = await read_log(store, "s")
    check_log(log)
    return log


@pytest.mark.parametrize(
    ("method", "hint"),
    [
        ("befor_tool", "did you mean 'before_tool'"),
        ("prompt_of_step", "did you mean 'prompt_for_step'"),
        ("refresh", "expected one of before_agent, after_agent"),
    ],
)
def test_a_class_with_a_coroutine_that_no_turn_calls_is_an_error_that_names_the_near_point(
    method: str, hint: str
) -> None:
    async def never(self: Any, turn: Any) -> None: ...

    with pytest.raises(InvalidInput, match=f"middleware 'Guard': no such point {method!r}; {hint}"):
        type("Guard", (vaka.Middleware, ToolSource), {method: never})


def test_a_class_that_hands_down_a_method_that_there_is_not_is_an_error() -> None:
    with pytest.raises(
        InvalidInput, match="middleware 'Guard': no such point 'before_tol'; did you mean 'before_tool'"
    ):
        type("Guard", (vaka.Middleware,), {"inherited": ("before_tol",)})


def test_helpers_of_a_middleware_are_private_or_belong_to_another_base_class() -> None:
    class Cache:
        async def refresh(self) -> None: ...

    class Guard(Cache, vaka.Middleware):
        def count(self) -> int:
            return 0

        async def _load(self) -> None: ...

        async def refresh(self) -> None: ...

    class Changed(Guard):
        async def before_tool(self, turn: Any, call: Any) -> Any:
            return call

    assert (Guard().name, Changed().name) == ("Guard", "Changed")


def test_functions_are_for_the_points_only() -> None:
    async def judge(turn: Any, request: Any) -> Any:
        return Allow()

    with pytest.raises(InvalidInput, match="middleware 'x': no such point 'decide_approval', expected one of before_a"):
        vaka.Middleware.from_functions("x", decide_approval=judge)


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_that_fails_is_named_whatever_its_kind(method: str) -> None:
    async def fails(*_: Any, **more: Any) -> Any:
        raise ValueError("nope")

    log = await run_with(middleware_with(method, fails))
    assert (last_body(log).type, last_body(log).message) == ("turn.failed", "middleware 'mine': ValueError: nope")


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_that_returns_the_wrong_value_is_named(method: str) -> None:
    async def forgets(*_: Any, **more: Any) -> Any:
        return 1

    log = await run_with(middleware_with(method, forgets))
    assert last_body(log).message.startswith(f"{method} of middleware 'mine' returned 1, expected ")


@pytest.mark.parametrize("method", METHODS)
async def test_a_method_that_is_not_async_is_named(method: str) -> None:
    def returns(*_: Any, **more: Any) -> Any:
        return ()

    log = await run_with(middleware_with(method, returns))
    assert last_body(log).message == f"{method} of middleware 'mine' must be an async function"


@pytest.mark.parametrize("method", METHODS)
async def test_each_call_of_a_method_has_a_time_limit(method: str) -> None:
    async def waits(*_: Any, **more: Any) -> Any:
        await asyncio.Event().wait()

    log = await run_with(middleware_with(method, waits), limits=vaka.Limits(middleware_timeout=0.01))
    assert last_body(log).message == "middleware 'mine' timed out after 0.01 s"


@pytest.mark.parametrize("method", ["tools_for_step", "prompt_for_step", "check_answer", "decide_approval"])
async def test_a_stop_cancels_sources_checks_and_approvers(method: str) -> None:
    ended: list[str] = []

    async def waits(turn: Any, *_: Any) -> Any:
        turn.stop.trigger("interrupted", "enough")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(method)

    log = await run_with(middleware_with(method, waits))
    assert ended == [method]
    assert last_body(log).type == "turn.interrupted"


@pytest.mark.parametrize(("method", "value"), [("before_step", ()), ("after_step", ""), ("shorten_context", ())])
async def test_a_stop_lets_methods_that_may_write_to_the_log_end(method: str, value: Any) -> None:
    ended: list[str] = []

    async def goes_on(turn: Any, **_: Any) -> Any:
        turn.stop.trigger("interrupted", "enough")
        await asyncio.wait([asyncio.create_task(asyncio.sleep(0))])
        ended.append(method)
        return value

    log = await run_with(middleware_with(method, goes_on))
    assert ended == [method]
    assert last_body(log).type == "turn.interrupted"


async def test_the_events_before_a_step_stand_before_it_those_of_policies_last() -> None:
    class Notes(vaka.Middleware, ContextPolicy):
        async def before_step(self, turn: Any) -> Sequence[Body]:
            return [Logged(level="info", message="step")]

        async def shorten_context(self, turn: Any, *, refused: bool = False) -> Sequence[Body]:
            return [Logged(level="info", message="policy")]

    log = await run_with(Notes(), Notes(), model=ScriptedModel(say("done")))
    notes = [event.data.message for event in log if isinstance(event.data, Logged)]
    assert notes == ["step", "step", "policy", "policy"]
    at = event_types(log).index("step.started")
    assert event_types(log)[at - 4 : at] == ["log"] * 4


async def test_an_after_step_ends_the_turn_with_its_text_as_the_limit() -> None:
    async def enough(turn: Any) -> str:
        return "enough"

    async def never(turn: Any) -> str:
        raise AssertionError

    log = await run_with(middleware_with("after_step", enough), middleware_with("after_step", never))
    assert (last_body(log).limit, event_types(log).count("step.started")) == ("enough", 1)


async def test_a_policy_of_the_agent_shortens_a_refused_prompt_once_and_replaces_the_compaction() -> None:
    asked: list[bool] = []

    class Forgetting(vaka.Middleware, ContextPolicy):
        async def shorten_context(self, turn: Any, *, refused: bool = False) -> Sequence[Body]:
            asked.append(refused)
            return [ContextCompacted(summary="They talked.", keep_from=turn.log.head + 1)] if refused else ()

    refuses = iter([True, False, True, True])

    async def answer(prompt: Any) -> Any:
        if next(refuses):
            raise ContextTooLong("too long")
        return [TextChunk("done"), StopChunk("end")]

    model = FunctionModel(answer)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, middleware=[Forgetting()]), id="s")
        assert (await session.run("Go.")).text == "done"
        with pytest.raises(vaka.TurnError, match="too long"):
            await session.run("Go on.")
    assert asked == [False, True, False, True]


async def test_middlewares_of_a_parent_only_approve_for_its_children() -> None:
    asked: list[tuple[str, int]] = []

    class Everything(vaka.Middleware, ToolSource, Approver, Continuation):
        async def prompt_for_step(self, turn: Any) -> str:
            asked.append(("prompt_for_step", turn.depth))
            return ""

        async def check_answer(self, turn: Any, text: str) -> str:
            asked.append(("check_answer", turn.depth))
            return ""

        async def decide_approval(self, turn: Any, request: Any) -> Any:
            asked.append(("decide_approval", turn.depth))
            return Deny("no") if turn.depth else Allow()

    child = agent(ScriptedModel(agents={"child": [call("look"), say("child done")]}), look, name="child")
    log = await run_with(
        Everything(), model=ScriptedModel(call("look"), call("child", prompt="Look."), say("done")), tools=(look, child)
    )
    assert {method for method, depth in asked if depth} == {"decide_approval"}
    assert {method for method, depth in asked if not depth} == {"prompt_for_step", "check_answer", "decide_approval"}
    assert {result.text for result in results_by_call(log).values()} == {"seen ", "no", "child done"}


async def test_a_class_names_the_methods_that_its_child_agents_inherit() -> None:
    texts: list[int] = []

    async def text(turn: Any) -> str:
        texts.append(turn.depth)
        return ""

    child = agent(ScriptedModel(agents={"child": [say("child done")]}), name="child")
    await run_with(
        middleware_with("prompt_for_step", text, inherited=("prompt_for_step",)),
        model=ScriptedModel(call("child", prompt="Look."), say("done")),
        tools=(child,),
    )
    assert texts == [0, 1, 0]
