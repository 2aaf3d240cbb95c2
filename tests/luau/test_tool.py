"""Luau tools: results, permissions, state, questions and recovery after a crash."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    event_types,
    last_body,
    log_writer,
    merge_options,
    read_log,
    results_by_call,
    runtime,
)
from vaka.config.options import Scripts
from vaka.core.types.errors import InvalidInput, NotFound, ScriptError, Suspended
from vaka.luau import ScriptLimits
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say


@vaka.tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def run_tool_once(script: str, *tools: Any, given: dict[str, Any] | None = None, **more: Any) -> Any:
    """Let a model call a script once, and return the result of the call."""
    model = more.pop("model", None) or ScriptedModel(call("script", **(given or {})), say("done"))
    given_options: dict[str, Any] = {name: more.pop(name) for name in ("permissions", "scripts") if name in more}
    settings = merge_options({"permissions": vaka.Permissions(ask="deny")}, given_options)
    tool = vaka.LuauTool(script, name="script", **more)
    async with runtime(**settings) as rt:
        session = await rt.open(agent(model, tool, *tools), id="s")
        log = await collect(session.stream("Go."))
    return results_by_call(log)["call_1"]


class TestResults:
    @pytest.mark.parametrize(
        ("script", "value"),
        [
            ("function invoke(ctx, args) return { got = args } end", {"got": {"x": 1}}),
            ("function invoke(ctx, args) ctx.output(7) end", 7),
            ("function invoke(ctx, args) ctx.output(7) return 8 end", 8),
            ("function invoke(ctx, args) end", None),
            ("return { invoke = function(ctx, args) return args.x + 1 end }", 2),
            ("local input = rt:input() rt:output({ twice = input.x * 2 })", {"twice": 2}),
        ],
    )
    async def test_a_script_returns_or_outputs_a_value(self, script: str, value: Any) -> None:
        result = await run_tool_once(f" {script}", given={"x": 1})
        assert (result.failed, result.value) == (False, value)

    @pytest.mark.parametrize(
        ("script", "message"),
        [
            ("function invoke() error('no luck') end", "ScriptError: script.luau:1: no luck"),
            ("function invoke(ctx) return ctx.nothing.here end", "script.luau:1:"),
            ("rt:output(nil, 'it broke')", "it broke"),
            ("local input = rt:input()", "script.luau: tool did not call output"),
            ("function invoke() while true do end end", "ScriptLimit"),
            ("function invoke() return function() end end", "function"),
        ],
    )
    async def test_an_error_of_the_script_is_a_failed_result(self, script: str, message: str) -> None:
        result = await run_tool_once(f" {script}", limits=ScriptLimits(seconds=0.2))
        assert result.failed
        assert message in result.text

    async def test_a_failed_tool_call_is_an_error_the_script_may_catch(self) -> None:
        result = await run_tool_once(""" function invoke(ctx)
            local ok, why = pcall(ctx.invoke, "nothing", {})
            return { ok = ok, why = why }
        end""")
        assert result.value["ok"] is False
        assert "there is no tool 'nothing'" in result.value["why"]


class TestDefinition:
    async def test_a_tool_is_read_and_compiled_when_it_is_constructed(self, tmp_path: Path) -> None:
        file = tmp_path / "weather.luau"
        file.write_text("--!strict\n-- Tell the weather\n-- of a city.\nfunction invoke(ctx, args) return 1 end\n")
        tool = vaka.LuauTool(file, params={"city": {"type": "string"}, "days": {"type": "integer", "default": 1}})
        assert (tool.name, tool.spec.description, tool.spec.effect) == (
            "weather",
            "Tell the weather of a city.",
            "resume",
        )
        assert tool.spec.parameters["required"] == ["city"]
        assert repr(tool) == "LuauTool('weather')"
        file.write_text("function invoke(\n  return\n")
        with pytest.raises(ScriptError, match=r"weather.luau:2: "):
            vaka.LuauTool(str(file))
        with pytest.raises(NotFound, match="nowhere"):
            vaka.LuauTool("nowhere.luau")

    @pytest.mark.parametrize(
        ("settings", "why"),
        [
            ({"name": ""}, "needs a name"),
            ({"name": "a b"}, "needs a name"),
            ({"name": "x", "params": {"city": "string"}}, "'city' must be a JSON Schema"),
        ],
    )
    def test_invalid_settings_are_errors_at_once(self, settings: dict[str, Any], why: str) -> None:
        with pytest.raises(InvalidInput, match=why):
            vaka.LuauTool("return 1\n", **settings)

    def test_an_unknown_setting_is_an_error_with_a_suggestion(self) -> None:
        settings: dict[str, Any] = {"name": "x", "limit": None}
        with pytest.raises(TypeError, match=r"LuauTool\(\) got .* 'limit'; did you mean 'limits'\?"):
            vaka.LuauTool("return 1\n", **settings)

    async def test_arguments_are_checked_before_the_script_runs(self) -> None:
        result = await run_tool_once(
            " function invoke() return 1 end", given={"x": "no"}, params={"x": {"type": "integer"}}
        )
        assert (result.reason, result.failed) == ("invalid_arguments", True)

    async def test_an_untrusted_script_runs_in_another_process(self) -> None:
        result = await run_tool_once(
            ' function invoke(ctx, args) return ctx.invoke("add", { a = args.x, b = 1 }) end',
            add,
            given={"x": 41},
            trusted=False,
        )
        assert result.value == 42

    async def test_an_untrusted_script_may_ask_only_its_own_model(self) -> None:
        script = """ function invoke(ctx)
            local _, raised = pcall(ctx.generate, "scripted:/etc/passwd", "Who?")
            return { ctx.generate("default", "Who?"), raised, select(2, rt:generate("other", "Who?")) }
        end"""
        model = ScriptedModel(call("script"), say("done"), agents={"script": [say("me")]})
        result = await run_tool_once(script, model=model, trusted=False)
        assert result.value[0] == "me"
        reason = (
            "this script may ask the model 'default' only, not {!r}, because it is confined; scripts are trusted with "
        )
        assert reason.format("scripted:/etc/passwd") in result.value[1]
        assert result.value[2].startswith(
            "generator not configured: " + reason.format("other") + "trusted=True in Python"
        )

    async def test_a_library_can_read_and_write_the_state(self, tmp_path: Path) -> None:
        lib = b"return function(ctx) ctx.agent.state.seen = 1 return ctx.agent.state.seen end"
        (tmp_path / "counter.luau").write_bytes(lib)
        script = ' local count = require("counter") function invoke(ctx) return count(ctx) end'
        assert (await run_tool_once(script, libs=[tmp_path])).value == 1

    async def test_the_spec_of_a_tool_is_available_without_a_runtime(self) -> None:
        from vaka.runtime.agent_builder import AgentBuilder  # noqa: PLC0415 - as the command line does

        tool = vaka.LuauTool("function invoke() end\n", name="x")
        recipe = AgentBuilder(ScriptedModel(say("x"))).build_recipe(vaka.Agent("a", tools=[tool]))
        assert recipe.tools["x"].spec == tool.spec
        assert "in a runtime" in getattr(recipe.tools["x"].parse("{}"), "message", "")
        with pytest.raises(vaka.VakaError, match="in a runtime"):
            await recipe.tools["x"].call(None, {})  # type: ignore[arg-type]  # the context is not used


class TestLibraries:
    async def test_a_script_finds_the_modules_of_its_libraries_and_their_parts(self, tmp_path: Path) -> None:
        sums = tmp_path / "libs" / "sums"
        (sums / "parts").mkdir(parents=True)
        (sums / "init.luau").write_text('return { add = require("./parts/add") }', "utf-8")
        (sums / "parts" / "add.luau").write_text("return function(a, b) return a + b end", "utf-8")
        (tmp_path / "libs" / "greet.luau").write_text("return function(n) return `hello {n}` end", "utf-8")
        script = """
            local sums = require("sums")
            local add = require("sums/parts/add")
            local greet = require("greet")
            function invoke(ctx, args) return greet(sums.add(1, 2) + add(3, 4)) end
        """
        assert (await run_tool_once(script, libs=[tmp_path / "libs"])).text == "hello 10"


class TestCalls:
    async def test_tool_calls_of_a_script_obey_the_policy(self) -> None:
        script = ' function invoke(ctx) return ctx.invoke("add", { a = 1, b = 2 }) end'
        assert (await run_tool_once(script, add)).value == 3
        result = await run_tool_once(script, add, permissions=vaka.Permissions(policy=policy_from_rules(deny=["add"])))
        assert "add is not allowed" in result.text or "denied" in result.text

    async def test_http_requests_of_a_script_obey_the_policy(self) -> None:
        script = ' function invoke(ctx) return ctx.http.get("http://127.0.0.1:8000/x").status end'
        result = await run_tool_once(script)
        assert "this machine itself" in result.text
        result = await run_tool_once(script, permissions=vaka.Permissions(policy=policy_from_rules(deny=["http"])))
        assert "http is not allowed" in result.text or "deny" in result.text

    async def test_a_script_asks_a_model_by_name_and_its_usage_is_recorded(self) -> None:
        script = """ function invoke(ctx)
            return ctx.generate("default", "Who?") .. ctx.generate(ctx.agent.model, "And?")
        end"""
        cost = {"usage": {"input": 5, "output": 2}}
        model = ScriptedModel(call("script"), say("done"), agents={"script": [say("me") | cost, say("you") | cost]})
        tool = vaka.LuauTool(script, name="script")
        async with runtime(permissions=vaka.Permissions(ask="deny")) as rt:
            session = await rt.open(agent(model, tool), id="s")
            log: list[Any] = await collect(session.stream("Go."))
        assert results_by_call(log)["call_1"].text == "meyou"
        assert sum(e.data.usage.input for e in log if e.type == "usage" and e.path) == 10
        assert last_body(log).usage.input >= 10

    async def test_a_script_calls_other_agents_by_name(self) -> None:
        script = """ function invoke(ctx)
            local helper = ctx.create_agent("helper")
            helper:send("Who are you?")
            local poet = ctx.create_agent("poet", { instructions = "Rhyme." })
            poet:send("Hi")
            return { helper:collect(), poet:collect() }
        end"""
        model = ScriptedModel(call("script"), say("done"), agents={"helper": [say("Me.")], "poet": [say("Hi, my.")]})
        helper = vaka.Agent("helper", model=model)
        async with runtime(permissions=vaka.Permissions(ask="deny")) as rt:
            session = await rt.open(agent(model, vaka.LuauTool(script, name="script"), helper), id="s")
            log: list[Any] = await collect(session.stream("Go."))
        assert results_by_call(log)["call_1"].value == ["Me.", "Hi, my."]
        ask = " function invoke(ctx) local other = ctx.create_agent(%s) other:send('Hi') return other:collect() end"
        assert "unknown agent 'ghost'" in (await run_tool_once(ask % "'ghost'")).text
        result = await run_tool_once(ask % "'x', { colour = 1 }")
        assert "may have model, instructions and prompt" in result.text

    async def test_only_listed_environment_variables_are_visible(self) -> None:
        script = ' function invoke() return { __builtin.env("CITY"), __builtin.env("HOME") or "nothing" } end'
        assert (await run_tool_once(script, scripts=Scripts(env={"CITY": "Hilo"}))).value == ["Hilo", "nothing"]


class TestState:
    async def test_state_history_and_memory_are_those_of_the_session(self) -> None:
        script = """ function invoke(ctx, args)
            local state = ctx.agent.state
            state.count = (state.count or 0) + 1
            ctx.agent.history:append({ role = "user", content = "by the way" })
            local seen = ctx.agent.history:recent(9)
            ctx.agent.history:revert()
            ctx.agent.memory:set_summary("short " .. state.count)
            return { count = state.count, all = state:all(), seen = seen, after = #ctx.agent.history:recent(9),
                summary = ctx.agent.memory:summary(), result = ctx.agent.memory:query("go") }
        end"""
        model = ScriptedModel(call("script"), say("one"), call("script"), say("two"))
        async with runtime(permissions=vaka.Permissions(ask="deny")) as rt:
            session = await rt.open(agent(model, vaka.LuauTool(script, name="script")), id="s")
            first = results_by_call(await collect(session.stream("Go.")))["call_1"].value
            second = results_by_call(await collect(session.stream("Again.")))["call_2"].value
        assert (first["count"], first["all"], first["summary"]) == (1, {"count": 1}, "short 1")
        assert [m["content"] for m in first["seen"]] == ["Go.", "", "by the way"]
        assert first["after"] == 2
        assert [m["content"] for m in first["result"]] == ["Go."]
        assert (second["count"], second["summary"]) == (2, "short 2")
        assert [m["content"] for m in second["seen"]][-1] == "by the way"
        result = await run_tool_once(' function invoke(ctx) ctx.agent.state["$history"] = 1 end')
        assert "is reserved" in result.text

    async def test_only_a_script_that_names_the_state_has_it_in_the_log(self) -> None:
        answers: list[list[str]] = []
        for script in (" function invoke(ctx, args) return 1 end", " function invoke(ctx) return ctx.state.x end"):
            model = ScriptedModel(call("script"), say("done"))
            async with runtime(permissions=vaka.Permissions(ask="deny")) as rt:
                session = await rt.open(agent(model, vaka.LuauTool(script, name="script")), id="s")
                log: list[Any] = await collect(session.stream("Go."))
            answers.append([event.data.name for event in log if event.type == "script.answered"])
        assert answers == [["start"], ["start", "state.all"]]


ASKS = """ function invoke(ctx, args)
    ctx.output("Which city?")
    local city = ctx.input()
    local sum = ctx.invoke("add", { a = 1, b = 2 })
    ctx.output({ sum = sum })
    local sure = ctx.input()
    return { city = city, sum = sum, sure = sure }
end"""


class TestQuestions:
    async def test_a_tool_that_asks_for_input_continues_with_the_answer(self) -> None:
        store = MemoryStore()
        model = ScriptedModel(call("script"), say("done"))
        who = agent(model, vaka.LuauTool(ASKS, name="script"), add)
        answers = iter(["Hilo", "yes"])
        begin: Any = None
        for _ in range(3):
            async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
                session = await rt.open(who, id="s")
                try:
                    await collect(session.resume() if begin else session.stream("Go."))
                except Suspended:
                    begin = True
                    [row] = await rt.decisions()
                    await rt.answer(row.id, next(answers))
        log: list[Any] = await read_log(store, "s")
        check_log(log)
        assert results_by_call(log)["call_1"].value == {"city": "Hilo", "sum": 3, "sure": "yes"}
        assert [e.data.text for e in log if e.type == "question.asked"] == ["Which city?", '{"sum":3}']
        assert event_types(log).count("tool.called") == 2

    async def test_input_waits_for_the_answer_of_a_person(self) -> None:
        async with runtime(permissions=vaka.Permissions(ask="wait")) as rt:
            session = await rt.open(
                agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(ASKS, name="script"), add), id="s"
            )
            events = list[Any]()
            event: Any
            async for event in session.stream("Go."):
                events.append(event)
                if event.type == "question.asked":
                    await rt.answer(event.data.question, "so")
        assert results_by_call(events)["call_1"].value == {"city": "so", "sum": 3, "sure": "so"}

    async def test_input_is_an_error_when_the_question_is_not_answered(self) -> None:
        assert "the question was not answered" in (await run_tool_once(ASKS, add)).text

    async def test_an_approval_inside_a_script_suspends_the_turn(self) -> None:
        store, done = MemoryStore(), list[str]()

        @vaka.tool
        async def sign(name: str) -> str:
            """Sign."""
            done.append(name)
            return f"signed {name}"

        script = """ function invoke(ctx)
            local a, b = ctx.parallel(
                function() return ctx.invoke("sign", { name = "a" }) end,
                function() return ctx.invoke("add", { a = 1, b = 1 }) end
            )
            return { a, b }
        end"""
        who = agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(script, name="script"), sign, add)
        async with runtime(
            store, permissions=vaka.Permissions(ask="suspend", policy=policy_from_rules(ask=["sign"]))
        ) as rt:
            with pytest.raises(Suspended):
                await collect((await rt.open(who, id="s")).stream("Go."))
            [row] = await rt.decisions()
            assert done == []
            await rt.resolve(row.id, "approve")
        async with runtime(
            store, permissions=vaka.Permissions(ask="suspend", policy=policy_from_rules(ask=["sign"]))
        ) as rt:
            await collect((await rt.open(who, id="s")).resume())
        log: list[Any] = await read_log(store, "s")
        check_log(log)
        assert results_by_call(log)["call_1"].value == ["signed a", 2]
        assert done == ["a"]
        assert event_types(log).count("tool.called") == 3


async def test_a_script_interrupted_after_any_event_gives_the_same_result() -> None:
    script = """ function invoke(ctx)
        local seen = {}
        for round = 1, 3 do
            local a, b = ctx.parallel(
                function() return ctx.invoke("add", { a = round, b = 1 }) end,
                function() return ctx.generate("default", "Who?") end
            )
            ctx.agent.state.last = a
            table.insert(seen, { a, b, math.random(1, 1000000), os.time() > 0, ctx.uuid() })
        end
        return seen
    end"""

    def who() -> vaka.Agent:
        model = ScriptedModel(call("script"), say("done"), agents={"script": [say("x"), say("y"), say("z")]})
        return agent(model, vaka.LuauTool(script, name="script"), add)

    store = MemoryStore()
    async with runtime(
        store, permissions=vaka.Permissions(ask="deny"), environment=Environment(clock=FakeClock(auto=True))
    ) as rt:
        await collect((await rt.open(who(), id="s")).stream("Go."))
    log: list[Any] = await read_log(store, "s")
    complete = results_by_call(log)["call_1"].value
    assert [[a, b] for a, b, *_ in complete] == [[2, "x"], [3, "y"], [4, "z"]]
    for cut in range(event_types(log).index("tool.started") + 1, len(log) - 4):
        again = MemoryStore()
        await log_writer(again, "s", log[:cut])()
        async with runtime(
            again, permissions=vaka.Permissions(ask="deny"), environment=Environment(clock=FakeClock(auto=True))
        ) as rt:
            await collect((await rt.open(who(), id="s")).resume())
        after: list[Any] = await read_log(again, "s")
        check_log(after)
        recorded = [row for row in complete if _is_in_log(row, log[:cut])]
        result = results_by_call(after)["call_1"].value
        assert result is not None, (cut, results_by_call(after)["call_1"].text)
        assert [[a, b] for a, b, *_ in result] == [[2, "x"], [3, "y"], [4, "z"]], cut
        assert result[: len(recorded)] == recorded, cut


def _is_in_log(row: list[Any], log: list[Any]) -> bool:
    """Return whether the last answer of a row is in the log, and with it all earlier ones."""
    return any(e.type == "script.answered" and e.data.answer == row[-1] for e in log)


async def test_cancelling_a_turn_stops_the_script_and_its_calls() -> None:
    stopped = asyncio.Event()

    @vaka.tool(effect="read")
    async def wait() -> str:
        """Wait for ever."""
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    store = MemoryStore()
    script = ' function invoke(ctx) return ctx.invoke("wait", {}) end'
    async with runtime(store) as rt:
        session = await rt.open(
            agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(script, name="script"), wait), id="s"
        )
        async for event in session.stream("Go."):
            if event.type == "tool.started" and event.path == ():
                await session.interrupt("enough")
    log: list[Any] = await read_log(store, "s")
    check_log(log)
    assert last_body(log).type == "turn.interrupted"
