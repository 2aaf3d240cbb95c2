"""An agent as a tool of another: its own conversation, in its root's log, under its root's rules."""

import asyncio
from typing import Any

import pytest
from inline_snapshot import snapshot

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    collect_turn,
    event_types,
    last_body,
    log_writer,
    read_log,
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.core.loop.subagent import run_subagent
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.progress import SubagentCompleted, SubagentStarted
from vaka.middleware import Deny, Reject
from vaka.runtime.options import policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, calls, fail, say


@vaka.tool(effect="read")
async def look(at: str = "") -> str:
    """Look at something."""
    return f"seen {at}"


def helper_agent(*lines: Any, name: str = "helper", tools: Any = (look,), **more: Any) -> vaka.Agent:
    return vaka.Agent(name, model=ScriptedModel(agents={name: list(lines)}), tools=tools, **more)


async def run_agent(who: vaka.Agent, **options: Any) -> list[Any]:
    store = MemoryStore()
    async with runtime(store, **options) as rt:
        await collect_turn(await rt.open(who, id="s"))
    log = await read_log(store, "s")
    check_log(log)
    return log


async def test_events_of_a_child_are_in_the_log_of_the_root_under_its_path() -> None:
    who = agent(ScriptedModel(call("helper", prompt="Look."), say("done")), helper_agent(call("look"), say("helped")))
    log = await run_agent(who)
    assert [("/".join(event.path), event.type) for event in log[6:-5]] == snapshot(
        [
            ("", "tool.called"),
            ("", "tool.started"),
            ("", "subagent.started"),
            ("agent-1", "step.started"),
            ("agent-1", "message.completed"),
            ("agent-1", "usage"),
            ("agent-1", "tool.called"),
            ("agent-1", "tool.started"),
            ("agent-1", "tool.completed"),
            ("agent-1", "step.completed"),
            ("agent-1", "step.started"),
            ("agent-1", "message.completed"),
            ("agent-1", "usage"),
            ("agent-1", "step.completed"),
            ("", "subagent.completed"),
            ("", "tool.completed"),
            ("", "step.completed"),
        ]
    )
    assert results_by_call(log)["call_1"].text == "helped"
    assert results_by_call(log)["call_1.1"].text == "seen "


async def test_the_prompt_of_a_child_contains_only_its_own_input() -> None:
    inner = helper_agent(say("helped"), instructions="Help.")
    model = ScriptedModel(say("hi"), call("helper", prompt="Look there."), say("done"))
    async with runtime() as rt:
        session = await rt.open(agent(model, inner), id="s")
        await collect_turn(session, "A secret.")
        await collect_turn(session, "Go.")
    lines = inner.model
    assert isinstance(lines, ScriptedModel)
    [prompt] = lines.prompts
    assert prompt.messages == (UserMessage(content=(Text(text="Look there."),)),)
    assert (prompt.system, prompt.path, prompt.agent) == ("Help.", ("agent-1",), "helper")


async def test_children_run_concurrently() -> None:
    both = asyncio.Barrier(2)

    @vaka.tool(effect="read")
    async def meet() -> str:
        """Wait for the other."""
        await both.wait()
        return "met"

    one = helper_agent(call("meet"), say("first"), name="one", tools=[meet])
    two = helper_agent(call("meet"), say("second"), name="two", tools=[meet])
    log = await run_agent(
        agent(ScriptedModel(calls(call("one", prompt="a"), call("two", prompt="b")), say("done")), one, two)
    )
    assert results_by_call(log)["call_1"].text == "first"
    assert results_by_call(log)["call_2"].text == "second"


async def test_the_same_agent_may_run_twice_at_once() -> None:
    asked: list[int] = []

    async def answer(prompt: Any) -> str:
        asked.append(prompt.number)
        await asyncio.sleep(0)
        return f"number {prompt.number}"

    inner = vaka.Agent("helper", model=FunctionModel(answer))
    model = ScriptedModel(calls(*(call("helper", prompt=str(n)) for n in range(4))), say("done"))
    await run_agent(agent(model, inner))
    assert sorted(asked) == [1, 2, 3, 4]


async def test_children_may_have_children() -> None:
    inner = helper_agent(call("look", at="deep"), say("deepest"), name="inner")
    middle = helper_agent(call("inner", prompt="b"), say("middle"), name="middle", tools=[inner])
    log = await run_agent(agent(ScriptedModel(call("middle", prompt="a"), say("done")), middle))
    assert reasons_by_call(log) == {"call_1.1.1": "ok", "call_1.1": "ok", "call_1": "ok"}
    assert {event.path for event in log} == {(), ("agent-1",), ("agent-1", "agent-1")}


async def test_a_child_without_a_model_uses_its_parents() -> None:
    for name in ("first", "second"):
        inner = vaka.Agent("helper", description="Helps.")
        lines = ScriptedModel(call("helper", prompt="a"), say("done"), agents={"helper": [say(f"by {name}")]})
        assert results_by_call(await run_agent(agent(lines, inner)))["call_1"].text == f"by {name}"


async def test_one_child_of_two_parents_uses_the_model_of_each() -> None:
    inner = vaka.Agent("helper", description="Helps.")
    store = MemoryStore()
    async with runtime(store) as rt:
        for name in ("first", "second"):
            lines = ScriptedModel(call("helper", prompt="a"), say("done"), agents={"helper": [say(f"by {name}")]})
            events = await collect_turn(await rt.open(agent(lines, inner), id=name))
            assert results_by_call(events)["call_1"].text == f"by {name}"


async def test_a_child_that_reaches_a_limit_is_a_failed_result_with_its_partial_text() -> None:
    inner = helper_agent(call("look") | {"text": "So far."}, limits=vaka.Limits(max_steps=1))
    who = agent(ScriptedModel(call("helper", prompt="a"), say("done")), inner)
    log = await run_agent(who)
    result = results_by_call(log)["call_1"]
    assert (result.failed, result.reason) == (True, "limit")
    assert result.text == (
        "the agent helper stopped before it was done, at the limit 'steps'\n\nIts answer up to then:\nSo far."
    )
    ended = next(event.data for event in log if isinstance(event.data, SubagentCompleted))
    assert (ended.failed, ended.stop, ended.reason) == (True, "steps", "limit")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (say("helped"), ""),
        (say(""), "error"),
        (fail(500, "broken"), "error"),
        (say("no", stop="refusal"), "error"),
        (call("look") | {"text": "So far."}, "limit"),
        (say("Wrong."), "error"),
        (say("rejected"), "denied"),
    ],
)
async def test_the_result_of_a_child_that_had_ended_before_a_crash_is_the_same(answer: Any, reason: str) -> None:
    async def guard(turn: Any, content: Any) -> Any:
        return Reject("not that") if reason == "denied" else content

    inner = helper_agent(
        answer,
        limits=vaka.Limits(max_steps=1, output_retries=0),
        output=int if answer == say("Wrong.") else None,
        middleware=[vaka.Middleware.from_functions("guard", before_agent=guard)],
    )
    who = agent(ScriptedModel(call("helper", prompt="a"), say("done")), inner)
    log = await run_agent(who)
    result = results_by_call(log)["call_1"]
    assert (result.failed, result.reason) == (bool(reason), reason)
    done = next(n for n, event in enumerate(log, 1) if isinstance(event.data, SubagentCompleted))
    store = MemoryStore()
    await log_writer(store, "s", log[:done])()
    async with runtime(store) as rt:
        await collect((await rt.open(who, id="s")).resume())
    assert results_by_call(await read_log(store, "s"))["call_1"] == result


async def test_a_child_without_any_text_is_a_failed_result() -> None:
    log = await run_agent(agent(ScriptedModel(call("helper", prompt="a"), say("done")), helper_agent(say(""))))
    result = results_by_call(log)["call_1"]
    assert (result.reason, result.text) == ("error", "the agent helper ended without an answer")


async def test_a_child_whose_model_refuses_is_a_failed_result() -> None:
    inner = helper_agent(call("look"), say("I cannot help with that.", stop="refusal"))
    log = await run_agent(agent(ScriptedModel(call("helper", prompt="a"), say("done")), inner))
    result = results_by_call(log)["call_1"]
    assert (result.reason, result.text) == (
        "error",
        "the model of helper refused to answer\n\nIts answer up to then:\nI cannot help with that.",
    )


async def test_a_child_with_a_blank_prompt_is_not_started() -> None:
    log = await run_agent(agent(ScriptedModel(call("helper", prompt=" \n"), say("done")), helper_agent(say("never"))))
    result = results_by_call(log)["call_1"]
    assert (result.reason, result.text) == ("error", "InvalidInput: the prompt of the agent helper is empty")
    assert "subagent.started" not in event_types(log)


def mutual_agents(**limits: Any) -> tuple[vaka.Agent, list[tuple[str, ...]]]:
    """Return an agent that calls another, which calls it in turn without end, and the paths of all model calls."""
    paths: list[tuple[str, ...]] = []

    async def answer(prompt: Any) -> Any:
        paths.append(prompt.path)
        other = "b" if prompt.agent == "a" else "a"
        return calls(*(call(other, prompt=f"{len(paths)}.{n}") for n in range(2)))

    a = vaka.Agent("a", model=FunctionModel(answer), limits=vaka.Limits(**limits))
    b = vaka.Agent("b", model=FunctionModel(answer), tools=[a])
    a.tools = (b,)
    return a, paths


async def test_agents_that_call_each_other_stop_at_the_depth_limit() -> None:
    who, paths = mutual_agents(max_steps=1)
    log = await run_agent(who)
    assert max(map(len, paths)) == 5
    assert len(paths) == 1 + 2 + 4 + 8 + 16 + 32
    refused = [r for r in results_by_call(log).values() if "was not started" in r.text]
    assert {r.reason for r in refused} == {"limit"}
    assert refused[0].text == "the agent a was not started: child agents may be nested 5 deep (max_depth)"


async def test_a_turn_starts_no_more_children_than_its_limit() -> None:
    who, paths = mutual_agents(max_children=20)
    log = await run_agent(who)
    assert event_types(log).count("subagent.started") == 20
    assert len(paths) <= 21 * 50
    texts = {result.text for result in results_by_call(log).values() if "max_children" in result.text}
    assert texts == {
        f"the agent {name} was not started: a turn may start 20 child agents (max_children)" for name in ("a", "b")
    }


async def test_children_are_counted_across_a_resume() -> None:
    inner = helper_agent(*[say("helped")] * 4)
    lines = [call("helper", prompt=str(n)) for n in range(4)]
    who = agent(ScriptedModel(*lines, say("done")), inner, limits=vaka.Limits(max_children=3))
    log = await run_agent(who)
    assert reasons_by_call(log) == {"call_1": "ok", "call_2": "ok", "call_3": "ok", "call_4": "limit"}
    second = [n for n, event in enumerate(log, 1) if event.type == "subagent.completed"][1]
    store = MemoryStore()
    await log_writer(store, "s", log[:second])()
    async with runtime(store) as rt:
        await collect((await rt.open(who, id="s")).resume())
    assert reasons_by_call(await read_log(store, "s")) == reasons_by_call(log)


async def test_the_step_limit_of_a_parent_holds_for_its_children() -> None:
    inner = helper_agent(*[call("look", at=str(n)) for n in range(9)], limits=vaka.Limits(max_steps=None))
    lines = ScriptedModel(call("helper", prompt="a"), say("done"))
    log = await run_agent(agent(lines, inner, limits=vaka.Limits(max_steps=2)))
    assert sum(event.type == "step.started" and event.path == ("agent-1",) for event in log) == 2
    assert results_by_call(log)["call_1"].reason == "limit"


async def test_middleware_of_a_parent_refuses_calls_of_its_children() -> None:
    async def refuse(turn: Any, request: Any) -> Any:
        return Deny("not below me") if request.name == "look" else request

    async def stamp(turn: Any, request: Any, result: Any) -> Any:
        seen.append((turn.path, request.name))
        return result

    seen: list[tuple[Any, str]] = []
    guard = vaka.Middleware.from_functions("guard", before_tool=refuse, after_tool=stamp)
    inner = helper_agent(
        call("look"),
        call("deeper", prompt="b"),
        say("refused"),
        tools=[
            look,
            helper_agent(call("look"), say("refused"), name="deeper", middleware=[guard]),
        ],
    )
    log = await run_agent(agent(ScriptedModel(call("helper", prompt="a"), say("done")), inner, middleware=[guard]))
    assert {name: r.reason for name, r in results_by_call(log).items() if r.failed} == {
        "call_1.1": "denied",
        "call_1.2.1": "denied",
    }
    assert seen == [(("agent-1",), "deeper"), ((), "helper")]  # once each, also where both agents have the guard


async def test_the_tools_that_a_turn_may_use_are_those_of_its_children_too() -> None:
    inner = helper_agent(call("look"), say("refused"))
    who = agent(ScriptedModel(call("helper", prompt="a"), say("done")), inner)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(who, id="s")
        await session.run("Go.", options={"tool_whitelist": ["helper"]})
    log = await read_log(store, "s")
    assert reasons_by_call(log) == {"call_1.1": "unknown_tool", "call_1": "ok"}
    assert isinstance(inner.model, ScriptedModel)
    assert inner.model.prompts[0].tools == ()


async def test_middleware_may_hold_for_its_own_agent_alone() -> None:
    class Own(vaka.Middleware):
        inherited = ()

        async def before_tool(self, turn: Any, call: Any) -> Any:
            return Deny("no") if call.name == "look" else call

    who = agent(
        ScriptedModel(call("helper", prompt="a"), say("done")), helper_agent(call("look"), say("x")), middleware=[Own()]
    )
    assert reasons_by_call(await run_agent(who)) == {"call_1.1": "ok", "call_1": "ok"}


async def test_a_child_that_fails_is_a_failed_result_for_its_parent() -> None:
    log = await run_agent(
        agent(ScriptedModel(call("helper", prompt="a"), say("sorry")), helper_agent(fail(500, "broken")))
    )
    assert results_by_call(log)["call_1"].text == "broken (status 500)"
    assert last_body(log).text == "sorry"
    assert next(event.data for event in log if isinstance(event.data, SubagentCompleted)).failed


async def test_a_child_that_blocks_its_task_is_a_failed_result() -> None:
    async def guard(turn: Any, content: Any) -> Any:
        return Reject("not that")

    inner = helper_agent(say("never"), middleware=[vaka.Middleware.from_functions("guard", before_agent=guard)])
    log = await run_agent(agent(ScriptedModel(call("helper", prompt="a"), say("sorry")), inner))
    assert results_by_call(log)["call_1"].text == "not that"
    assert results_by_call(log)["call_1"].reason == "denied"


async def test_before_agent_of_a_child_may_change_its_input() -> None:
    async def polite(turn: Any, content: Any) -> Any:
        turn.values["call"] = "mine"  # not visible to the parent
        return (Text(text="Please."),)

    inner = helper_agent(say("helped"), middleware=[vaka.Middleware.from_functions("polite", before_agent=polite)])
    log = await run_agent(agent(ScriptedModel(call("helper", prompt="Now!"), say("done")), inner))
    started = next(event.data for event in log if isinstance(event.data, SubagentStarted))
    assert (started.call, started.content[0].text) == ("call_1", "Please.")  # type: ignore[union-attr]  # a text


async def test_the_rules_of_the_root_apply_to_its_children() -> None:
    who = agent(ScriptedModel(call("helper", prompt="a"), say("done")), helper_agent(call("look"), say("refused")))
    log = await run_agent(who, permissions=vaka.Permissions(policy=policy_from_rules(deny=["look"])))
    assert reasons_by_call(log) == {"call_1.1": "denied", "call_1": "ok"}


async def test_a_child_with_a_hostile_name_is_still_a_tool() -> None:
    inner = helper_agent(say("ok"), name="my helper!")
    model = ScriptedModel(call("my_helper_", prompt="a"), say("done"))
    log = await run_agent(agent(model, inner))
    assert [spec.name for spec in model.prompts[0].tools] == ["my_helper_"]
    assert reasons_by_call(log) == {"call_1": "ok"}


async def test_an_agent_can_be_a_tool_under_another_name() -> None:
    inner = helper_agent(say("ok"), description="Helps a lot.")
    model = ScriptedModel(call("aide", prompt="a"), say("done"))
    await run_agent(agent(model, inner.as_tool(name="aide")))
    [spec] = model.prompts[0].tools
    assert (spec.name, spec.description, spec.effect) == ("aide", "Helps a lot.", "resume")
    assert vaka.Agent("x").as_tool(description="Other.").description == "Other."
    assert repr(inner) == "Agent('helper')"


async def test_a_child_cannot_be_started_outside_a_call() -> None:
    with pytest.raises(InvalidInput, match="needs the context of the call"):
        await run_subagent(None, None, ())  # type: ignore[arg-type]  # what a test without a runtime would do


async def test_a_tool_that_ends_before_its_child_stops_it() -> None:
    store = MemoryStore()
    begun = asyncio.Event()

    @vaka.tool(effect="read", timeout=None)
    async def hang() -> str:
        """Hang."""
        begun.set()
        await asyncio.Event().wait()
        return ""

    inner = helper_agent(call("hang"), tools=[hang])
    async with runtime(store) as rt:
        recipe = rt._builder.build_recipe(inner)

        @vaka.tool(effect="resume")
        async def starts(context: vaka.ToolContext) -> str:
            """Start a child and leave."""
            child = asyncio.create_task(run_subagent(context, recipe, ()))
            await begun.wait()
            child.cancel()
            return "left"

        events = await collect_turn(await rt.open(agent(ScriptedModel(call("starts"), say("done")), starts), id="s"))
    log = await read_log(store, "s")
    check_log(log)
    assert last_body(events).text == "done"
    assert reasons_by_call(log) == {"call_1.1": "cancelled", "call_1": "ok"}


async def test_one_call_may_start_several_children() -> None:
    store = MemoryStore()
    inner = helper_agent(say("a"), say("b"))
    async with runtime(store) as rt:
        recipe = rt._builder.build_recipe(inner)

        @vaka.tool(effect="resume")
        async def both(context: vaka.ToolContext) -> list[str]:
            """Start two, one after the other."""
            return [(await run_subagent(context, recipe, ())).text for _ in range(2)]

        await collect_turn(await rt.open(agent(ScriptedModel(call("both"), say("done")), both), id="s"))
    log = await read_log(store, "s")
    check_log(log)
    assert results_by_call(log)["call_1"].value == ["a", "b"]
    assert [event.data.child for event in log if isinstance(event.data, SubagentStarted)] == ["agent-1", "agent-1-2"]


async def test_a_crash_during_a_child_repeats_no_call_that_has_a_result() -> None:
    looked: list[str] = []

    @vaka.tool
    async def act(at: str) -> str:
        """Act."""
        looked.append(at)
        return at

    inner = helper_agent(call("act", at="a"), call("act", at="b"), say("helped"), tools=[act])
    who = agent(ScriptedModel(call("helper", prompt="x"), say("done")), inner)
    log = await run_agent(who)
    whole = list(results_by_call(log))
    ends = [n for n, event in enumerate(log, 1) if event.path and event.type == "step.completed"]
    done = next(n for n, event in enumerate(log, 1) if event.type == "subagent.completed")
    for end, again in zip([*ends, done], [["b"], [], [], []], strict=True):
        looked.clear()
        store = MemoryStore()
        await log_writer(store, "s", log[:end])()
        async with runtime(store) as rt:
            events = await collect((await rt.open(who, id="s")).resume())
        after = await read_log(store, "s")
        check_log(after)
        assert looked == again
        assert last_body(events).text == "done"
        assert list(results_by_call(after)) == whole
        assert event_types(after).count("subagent.started") == 1
