"""Scripts in sessions when something goes wrong: failures, stops, secrets, lost calls, limits."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    agent,
    check_log,
    collect,
    count_events,
    event_types,
    last_body,
    log_writer,
    read_log,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.config.options import Models, NetworkAccess, Storage
from vaka.core.ports.model import Estimate, Prompt
from vaka.core.ports.net import NetRequest, NetResponse
from vaka.core.types.errors import Busy, Suspended, TurnError
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, call, say

PICKY = """ function on_input(ctx, input)
    if input.text == "bad" then error("not that") end
    ctx.emit({ text = "half " })
    if input.text == "slow" then ctx.sleep(3600) end
    ctx.emit({ text = `heard {input.text}`, eof = true })
end"""


def make_agent(text: str, *tools: Any, **more: Any) -> vaka.LuauAgent:
    return vaka.LuauAgent("chat", text, tools=tools, **more)


class TestAgents:
    async def test_an_agent_accepts_the_next_input_after_a_failure(self) -> None:
        async with runtime() as rt:
            session = await rt.open(make_agent(PICKY), id="s")
            with pytest.raises(TurnError, match="not that"):
                await session.run("bad")
            assert (await session.run("good")).text == "half heard good"
            await session.close()

    async def test_an_agent_accepts_the_next_input_after_an_interrupt_and_its_partial_message_is_logged(self) -> None:
        store = MemoryStore()
        async with runtime(store, environment=Environment(clock=FakeClock())) as rt:
            session = await rt.open(make_agent(PICKY), id="s")
            async for event in session.stream("slow"):
                if event.type == "text.delta":
                    await session.interrupt("enough")
            assert (await session.run("two")).text == "half heard two"
            texts = [message.content[0].text for message in await session.messages()]  # type: ignore[union-attr]  # texts
        assert texts == ["slow", "half ", "two", "half heard two"]
        check_log(await read_log(store, "s"))

    async def test_an_interrupted_message_continues_as_a_new_message(self) -> None:
        text = """ function run(ctx)
            while true do
                local input = ctx.recv()
                ctx.emit({ text = `half {input.text} ` })
                if input.text == "slow" then pcall(ctx.invoke, "wait", {}) end
                ctx.emit({ text = "whole", eof = true })
            end
        end"""

        @vaka.tool(effect="read")
        async def wait(context: vaka.ToolContext) -> str:
            """Wait for a person."""
            return str(await context.ask("When?"))

        store = MemoryStore()
        async with runtime(store) as rt:
            session = await rt.open(make_agent(text, wait), id="s")
            async for event in session.stream("slow"):
                if event.type == "question.asked":
                    await session.interrupt("enough")
            await session.run("two")
            texts = [message.content[0].text for message in await session.messages()]  # type: ignore[union-attr]  # texts
        assert texts == ["slow", "half slow ", "two", "whole", "half two whole"]

    async def test_an_agent_receives_only_its_own_input(self) -> None:
        echo = make_agent(" function run(ctx) ctx.emit({ text = `heard {ctx.recv().text}`, eof = true }) end")
        model = ScriptedModel(
            call("one"),
            call("chat", prompt="first"),
            call("chat", prompt="second"),
            say("done"),
        )
        tool = vaka.LuauTool(" function invoke() return 1 end", name="one")
        async with runtime() as rt:
            log = await collect((await rt.open(agent(model, tool, echo), id="s")).stream("Go."))
        assert [results_by_call(log)[f"call_{n}"].text for n in (1, 2, 3)] == ["1", "heard first", "heard second"]

    async def test_a_session_with_a_pending_approval_cannot_be_closed(self) -> None:
        @vaka.tool
        async def sign() -> str:
            """Sign."""
            return "signed"

        text = ' function on_input(ctx) ctx.emit({ text = ctx.invoke("sign", {}), eof = true }) end'
        async with runtime(permissions=vaka.Permissions(ask="suspend", policy=policy_from_rules(ask=["sign"]))) as rt:
            session = await rt.open(make_agent(text, sign), id="s")
            with pytest.raises(Suspended):
                await collect(session.stream("x"))
            with pytest.raises(Busy, match="unfinished"):
                await session.close()

    async def test_an_agent_obeys_the_limits_of_its_turn(self) -> None:
        text = """ function run(ctx)
            ctx.recv()
            for i = 1, 9 do ctx.emit({ text = ctx.generate("default", "More?") }) end
        end"""
        cost = {"usage": {"input": 80, "output": 20}}
        model = ScriptedModel(*[say("x") | cost for _ in range(9)])
        who = make_agent(text, model=model, turn_limits=vaka.Limits(max_tokens=300))
        async with runtime() as rt:
            response = await (await rt.open(who, id="s")).run("Go.")
        assert (response.stop, response.limit, response.text, response.usage.total) == ("limit", "tokens", "xxx", 300)

    async def test_a_luau_tool_uses_the_budget_of_its_agent_which_continues_when_it_is_exhausted(self) -> None:
        class Priced(ScriptedModel):
            def estimate(self, prompt: Prompt) -> Estimate:
                return Estimate(usage=Usage(input=80), max_tokens=20)

        text = """ function invoke(ctx)
            for i = 1, 9 do ctx.generate("low", "More?") end
        end"""
        cost = {"usage": {"input": 80, "output": 20}}
        small = Priced(agents={"more": [say("x") | cost for _ in range(9)]})
        model = ScriptedModel(call("more") | cost, say("That is all.") | {"usage": {"input": 5}})
        tool = vaka.LuauTool(text, name="more", description="More.")
        store = MemoryStore()
        async with runtime(store, models=Models(tiers={"low": small})) as rt:
            who = vaka.Agent("a", model=model, tools=[tool], limits=vaka.Limits(max_tokens=390))
            response = await (await rt.open(who, id="s")).run("Go.")
        assert (response.stop, response.text, response.usage.total) == ("end", "That is all.", 305)
        used = [event.data for event in await read_log(store, "s") if isinstance(event.data, UsageRecorded)]
        assert [body.call for body in used] == [None, "call_1", "call_1", None]


class TestSecrets:
    async def test_a_script_receives_the_same_redacted_text_before_and_after_a_crash(self) -> None:
        seen: list[str] = []

        @vaka.tool(effect="read")
        async def read() -> str:
            """Read."""
            return "the word is hunter22"

        @vaka.tool(effect="idempotent")
        async def write(text: str) -> str:
            """Write."""
            seen.append(text)
            return "ok"

        text = """ function invoke(ctx)
            ctx.invoke("write", { text = ctx.invoke("read", {}) })
            return ctx.invoke("write", { text = "hunter22, by the way" })
        end"""

        def who() -> vaka.Agent:
            model = ScriptedModel(call("script"), say("done"))
            return agent(model, vaka.LuauTool(text, name="script"), read, write)

        store = MemoryStore()
        async with runtime(store, storage=Storage(secrets=("hunter22",))) as rt:
            await collect((await rt.open(who(), id="s")).stream("Go."))
        log: list[Any] = await read_log(store, "s")
        assert seen == ["the word is [redacted]", "hunter22, by the way"]
        for cut in range(event_types(log).index("tool.started") + 1, len(log) - 4):
            again, seen[:] = MemoryStore(), []
            await log_writer(again, "s", log[:cut])()
            async with runtime(again, storage=Storage(secrets=("hunter22",))) as rt:
                await collect((await rt.open(who(), id="s")).resume())
            after = await read_log(again, "s")
            assert results_by_call(after)["call_1"].text == "ok", cut
            assert set(seen) <= {"the word is [redacted]", "hunter22, by the way"}, cut


class TestLostCalls:
    async def test_a_call_that_did_not_happen_runs_again_and_is_recorded(self) -> None:
        paid: list[str] = []

        @vaka.tool(timeout=None)
        async def pay(context: vaka.ToolContext) -> str:
            """Pay."""
            paid.append(context.call)
            return "paid"

        text = ' function invoke(ctx) return ctx.invoke("pay", {}) end'

        def who() -> vaka.Agent:
            return agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(text, name="script"), pay)

        async def resume_after(prefix: list[Any]) -> list[Any]:
            store = MemoryStore()
            await log_writer(store, "s", prefix)()
            async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
                session = await rt.open(who(), id="s")
                for _ in range(3):
                    try:
                        await collect(session.resume())
                    except Suspended:
                        for row in await rt.decisions():
                            await rt.answer(row.id, "did not happen")
            return await read_log(store, "s")

        store = MemoryStore()
        async with runtime(store) as rt:
            await collect((await rt.open(who(), id="s")).stream("Go."))
        log: list[Any] = await read_log(store, "s")
        begun = [n for n, e in enumerate(log, 1) if e.type == "tool.started" and e.path]
        once: list[Any] = await resume_after(log[: begun[0]])
        check_log(once)
        assert results_by_call(once)["call_1"].text == "paid"
        again = [n for n, e in enumerate(once, 1) if e.type == "tool.started" and e.path]
        twice: list[Any] = await resume_after(once[: again[-1]])
        check_log(twice)
        assert results_by_call(twice)["call_1"].text == "paid"
        assert paid == ["call_1.1", "call_1.2", "call_1.3"]
        assert event_types(twice).count("question.asked") == 2


class RecordingNetwork:
    """A network that answers every request with status 200."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def decide(self, url: str) -> Any:
        raise NotImplementedError

    def stream(self, request: NetRequest) -> Any:
        raise NotImplementedError

    async def send(self, request: NetRequest) -> NetResponse:
        """Answer."""
        self.sent.append(request.method)
        return NetResponse(status=200, url=request.url)


class TestPolicyAndLimits:
    async def test_a_sent_request_is_in_the_log_before_the_script_continues(self) -> None:
        wire, store = RecordingNetwork(), MemoryStore()
        text = """ function invoke(ctx)
            local status = ctx.http.post("https://example.com/", { body = "x" }).status
            ctx.sleep(3600)
            return status
        end"""
        who = agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(text, name="script"))
        async with runtime(store, network=NetworkAccess(client=wire), environment=Environment(clock=FakeClock())) as rt:
            session = await rt.open(who, id="s")
            await session.send("Go.")
            await wait_until(lambda: count_events(store, "s", "tool.completed") == 1)
            assert wire.sent == ["POST"]
            await session.interrupt()

    async def test_a_script_of_a_definition_needs_permission_for_http_and_agents(self) -> None:
        wire = RecordingNetwork()
        texts = [
            'return ctx.http.post("https://example.com/", { body = "x" }).status',
            'local poet = ctx.create_agent("poet", { instructions = "Rhyme." }) poet:send("Hi") return poet:collect()',
        ]
        for text in texts:
            tool = vaka.LuauTool(f" function invoke(ctx) {text} end", name="script", layer="definition")
            model = ScriptedModel(call("script"), say("done"), agents={"poet": [say("no")]})
            async with runtime(
                network=NetworkAccess(client=wire), permissions=vaka.Permissions(ask="deny", allow=("script",))
            ) as rt:
                log = await collect((await rt.open(agent(model, tool), id="s")).stream("Go."))
            assert "so it was not run" in results_by_call(log)["call_1"].text
        assert wire.sent == []

    async def test_endless_recursion_of_a_luau_tool_is_stopped(self) -> None:
        text = ' function invoke(ctx) return ctx.invoke("script", {}) end'
        who = agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(text, name="script"))
        async with runtime() as rt:
            log = await collect((await rt.open(who, id="s")).stream("Go."))
        assert "one of them calls itself" in results_by_call(log)["call_1"].text
        assert last_body(log).type == "turn.completed"

    async def test_the_timeout_of_a_tool_stops_a_script_in_its_first_run_while_other_sessions_go_on(self) -> None:
        busy = vaka.LuauTool(" function invoke() while true do end end", name="busy", timeout=0.2)
        quick = vaka.LuauTool(" function invoke() return 1 end", name="quick")
        async with runtime() as rt:
            session = await rt.open(agent(ScriptedModel(call("busy"), say("done")), busy), id="s")
            turn = asyncio.create_task(collect(session.stream("Go.")))
            others = 0
            while not turn.done():
                other = await rt.open(agent(ScriptedModel(call("quick"), say("done")), quick))
                await collect(other.stream("Go."))
                others += 1
            assert results_by_call(await turn)["call_1"].reason == "timeout"
        assert others > 0

    async def test_large_results_and_states_are_not_in_the_events(self) -> None:
        text = """ function invoke(ctx)
            local ok, why = pcall(function() ctx.agent.state.big = string.rep("x", 40000) ctx.uuid() end)
            return { why = why, big = string.rep("x", 40000) }
        end"""
        store = MemoryStore()
        who = agent(ScriptedModel(call("script"), say("done")), vaka.LuauTool(text, name="script"))
        async with runtime(store) as rt:
            await collect((await rt.open(who, id="s")).stream("Go."))
        log: list[Any] = await read_log(store, "s")
        assert max(len(event.stored) for event in log) < 10_000
        done = next(event.data for event in log if event.type == "subagent.completed")
        assert "expected at most 32768" in (await store.blobs.get(done.blob)).decode()


async def test_a_script_that_calls_itself_is_stopped_by_the_number_of_scripts() -> None:
    twice = """function invoke(ctx, args)
        for _ = 1, 2 do pcall(ctx.invoke, "twice", {}) end
        return "went on"
    end"""
    who = agent(
        ScriptedModel(call("twice"), say("done")),
        vaka.LuauTool(twice, name="twice"),
        limits=vaka.Limits(max_scripts=20),
    )
    async with runtime() as rt:
        log = await collect((await rt.open(who)).stream("Go."))
    assert event_types(log).count("subagent.started") == 21
    message = "the scripts of this turn may start 20 scripts (max_scripts): does one call itself?"
    outermost = results_by_call(log)["call_1"]
    assert (outermost.failed, outermost.text) == (True, f"ScriptLimit: {message}")
    assert last_body(log).type == "turn.completed"


@pytest.mark.parametrize(
    "call_host",
    ["ctx.log.info(text)", "pcall(ctx.generate_stream, 'default', text)", "ctx.transformer('merge'):send(text)"],
)
async def test_a_script_cannot_fill_the_memory_of_its_host(call_host: str) -> None:
    source = f"function invoke(ctx)\nlocal text = string.rep('x', 1e7) while true do {call_host} end\nend"
    async with runtime() as rt:
        who = agent(ScriptedModel(call("bomb"), say("done")), vaka.LuauTool(source, name="bomb"))
        result = results_by_call(await collect((await rt.open(who)).stream("Go.")))["call_1"]
    message = "ScriptLimit: the script called functions such as log and emit more than 100000 times, or with more than "
    assert result.text == f"{message}67108864 characters"


async def test_lines_and_answers_are_written_before_there_are_many() -> None:
    source = """function invoke(ctx)
        for index = 1, 600 do ctx.log.info(index) end
        for _ = 1, 600 do ctx.uuid() end
    end"""
    store = MemoryStore()
    commits: list[int] = []

    class CountingEvents:
        def __init__(self, events: Any) -> None:
            self._events = events

        def __getattr__(self, name: str) -> Any:
            return getattr(self._events, name)

        async def append(self, session: Any, events: Any, **more: Any) -> int:
            commits.append(len(events))
            return int(await self._events.append(session, events, **more))

    store.events = CountingEvents(store.events)
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("many"), say("done")), vaka.LuauTool(source, name="many")))
        await session.run("Go.")
    assert sum(commits) > 1200
    assert max(commits) < 600


async def test_a_result_that_is_too_large_is_an_error() -> None:
    tool = vaka.LuauTool("function invoke() return { string.rep('x', 5e6) } end", name="large")
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(call("large"), say("done")), tool))
        result = results_by_call(await collect(session.stream("Go.")))["call_1"]
    assert result.text == "ScriptError: large.luau: the result has 5000000 characters; expected at most 4194304"
