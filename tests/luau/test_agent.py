"""Luau agents: inputs, messages, approvals and recovery; no message is lost or logged twice."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import (
    check_log,
    collect,
    count_events,
    event_types,
    last_body,
    log_writer,
    merge_options,
    read_log,
    results_by_call,
    runtime,
    wait_until,
)
from vaka.core.types.errors import Suspended, TurnError
from vaka.core.types.message import Image, Text
from vaka.core.types.progress import TextDelta
from vaka.luau import ScriptLimits
from vaka.runtime.options import Environment, policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, say

RUNS = """ function run(ctx)
    local count = 0
    while true do
        local input = ctx.recv()
        if input == nil then return end
        count += 1
        ctx.emit({ text = `{count}: ` })
        ctx.emit({ text = input.text, eof = true })
    end
end"""
REACTS = """ function on_start(ctx)
    ctx.agent.state.count = 10
end
function on_input(ctx, input)
    ctx.agent.state.count += 1
    ctx.emit({ text = `{ctx.agent.state.count}: {input.text}` })
end"""


@vaka.tool(effect="read")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def make_agent(text: str, *tools: Any, **more: Any) -> vaka.LuauAgent:
    return vaka.LuauAgent("chat", text, tools=tools, **more)


async def talk_turns(who: vaka.Agent, *inputs: str, **more: Any) -> list[str]:
    settings: dict[str, Any] = merge_options({"permissions": vaka.Permissions(ask="deny")}, more)
    async with runtime(**settings) as rt:
        session = await rt.open(who, id="s")
        return [(await session.run(words)).text for words in inputs]


@pytest.mark.parametrize(("text", "first"), [(RUNS, 1), (REACTS, 11)])
async def test_an_agent_answers_one_input_after_the_other(text: str, first: int) -> None:
    assert await talk_turns(make_agent(text), "a", "b", "c") == [f"{first}: a", f"{first + 1}: b", f"{first + 2}: c"]


@pytest.mark.parametrize(("text", "first"), [(RUNS, 1), (REACTS, 11)])
async def test_another_process_continues_the_conversation(text: str, first: int) -> None:
    store = MemoryStore()
    for number in range(3):
        assert await talk_turns(make_agent(text), "x", store=store) == [f"{first + number}: x"]
    log: list[Any] = await read_log(store, "s")
    check_log(log)
    assert event_types(log).count("message.completed") == 3


async def test_emitted_text_is_streamed_and_logged_as_one_message() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(make_agent(RUNS), id="s")
        seen = await collect(session.stream("hello"))
        messages = await session.messages()
    deltas = [event.data for event in seen if isinstance(event.data, TextDelta)]
    assert [(delta.offset, delta.text) for delta in deltas] == [(0, "1: "), (3, "hello")]
    assert [message.content[0].text for message in messages] == ["hello", "1: hello"]  # type: ignore[union-attr]  # texts
    assert last_body(seen).text == "1: hello"


async def test_an_agent_receives_and_emits_images() -> None:
    text = """ function run(ctx)
        local input = ctx.recv()
        ctx.emit({ text = `{#input.parts} parts` })
        ctx.emit({ part = { type = "blob", data = "\\255\\0", mime_type = "image/png" } })
        ctx.emit({ text = " there", eof = true })
    end"""
    async with runtime() as rt:
        session = await rt.open(make_agent(text), id="s")
        await session.run([Text(text="see"), Image(media_type="image/png", data="AA==")])
        content = (await session.messages())[-1].content  # type: ignore[union-attr]  # an answer
    assert content == (Text(text="2 parts"), Image(media_type="image/png", data="/wA="), Text(text=" there"))


async def test_a_script_that_has_ended_accepts_no_more_input() -> None:
    async with runtime() as rt:
        session = await rt.open(
            make_agent(" function run(ctx) ctx.emit({ text = ctx.recv().text, eof = true }) end"), id="s"
        )
        assert (await session.run("only this")).text == "only this"
        with pytest.raises(TurnError, match="has ended; it accepts no more input"):
            await session.run("and this")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (" function run(ctx) ctx.recv() error('no luck') end", "script", "chat.luau:1: no luck"),
        (" function run(ctx) while true do end end", "script_limit", "chat.luau"),
        (" function run(ctx) ctx.recv() ctx.emit(5) end", "script", "emit: expected table"),
        (" function run(ctx) ctx.recv() ctx.generate('default', 'x') end", "script", "has no model"),
        (" function run(ctx) ctx.recv() ctx.generate('silent/of', 'x') end", "script", "'silent/of' is not known"),
    ],
)
async def test_a_script_error_fails_the_turn(text: str, code: str, message: str) -> None:
    async with runtime() as rt:
        session = await rt.open(make_agent(text, limits=ScriptLimits(seconds=0.2)), id="s")
        with pytest.raises(TurnError, match=message) as caught:
            await session.run("x")
    assert caught.value.code == code


async def test_an_agent_calls_tools_and_models_concurrently() -> None:
    text = """ function run(ctx)
        ctx.recv()
        local sum, who = ctx.parallel(
            function() return ctx.invoke("add", { a = 1, b = 2 }) end,
            function() return ctx.generate("default", "Who?") end
        )
        print("printed")
        ctx.log.warn("careful")
        ctx.emit({ text = `{sum} {who}`, eof = true })
    end"""
    store = MemoryStore()
    assert await talk_turns(make_agent(text, add, model=ScriptedModel(say("me"))), "x", store=store) == ["3 me"]
    log: list[Any] = await read_log(store, "s")
    assert [(e.data.level, e.data.message) for e in log if e.type == "log"] == [
        ("info", "printed"),
        ("warning", "careful"),
    ]


async def test_a_changed_script_cannot_continue_a_run() -> None:
    store = MemoryStore()
    await talk_turns(make_agent(RUNS), "a", store=store)
    with pytest.raises(TurnError, match="not those this run began with") as caught:
        await talk_turns(make_agent(RUNS.replace("count += 1", "count += 2")), "b", store=store)
    assert caught.value.code == "replay"
    assert await talk_turns(make_agent(RUNS), "c", store=store) == ["2: c"]


async def test_a_changed_script_with_on_input_continues_the_conversation() -> None:
    store = MemoryStore()
    await talk_turns(make_agent(REACTS), "a", store=store)
    assert await talk_turns(make_agent(REACTS.replace("+= 1", "+= 5")), "b", store=store) == ["16: b"]


async def test_a_pending_approval_survives_the_process() -> None:
    store, done = MemoryStore(), list[str]()

    @vaka.tool
    async def sign(name: str) -> str:
        """Sign."""
        done.append(name)
        return f"signed {name}"

    text = """ function run(ctx)
        local input = ctx.recv()
        ctx.emit({ text = "Signing. " })
        ctx.emit({ text = ctx.invoke("sign", { name = input.text }), eof = true })
    end"""
    rules = policy_from_rules(ask=["sign"])
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", policy=rules)) as rt:
        with pytest.raises(Suspended):
            await collect((await rt.open(make_agent(text, sign), id="s")).stream("me"))
        [row] = await rt.decisions()
        await rt.resolve(row.id, "approve")
    async with runtime(store, permissions=vaka.Permissions(ask="suspend", policy=rules)) as rt:
        seen = await collect((await rt.open(make_agent(text, sign), id="s")).resume())
    assert (last_body(seen).text, done) == ("Signing. signed me", ["me"])
    check_log(await read_log(store, "s"))


async def test_a_rejection_is_an_error_the_script_may_catch() -> None:
    store, done = MemoryStore(), list[str]()

    @vaka.tool
    async def sign(name: str) -> str:
        """Sign."""
        done.append(name)
        return f"signed {name}"

    text = """ function on_input(ctx, input)
        local done = pcall(ctx.invoke, "sign", { name = "me" })
        ctx.emit({ text = `{done} {ctx.invoke("sign", { name = "you" })}` })
    end"""
    rules = policy_from_rules(ask=["sign"])
    async with runtime(store, permissions=vaka.Permissions(policy=rules)) as rt:
        task = asyncio.create_task(collect((await rt.open(make_agent(text, sign), id="s")).stream("Go.")))
        await wait_until(lambda: count_events(store, "s", "approval.requested") == 1)
        await rt.resolve((await rt.decisions())[0].id, "reject")
        await wait_until(lambda: count_events(store, "s", "approval.requested") == 2)
        await rt.resolve((await rt.decisions())[0].id, "approve")
        assert last_body(await task).text == "false signed you"
    assert done == ["you"]


@pytest.mark.parametrize(
    ("text", "farewell"),
    [
        (REACTS + " function on_close(ctx) ctx.emit({ text = `bye {ctx.agent.state.count}` }) end", "bye 11"),
        (RUNS.replace("then return end", "then ctx.emit({ text = 'bye' }) return end"), "bye"),
        (REACTS, ""),
    ],
)
async def test_closing_a_session_runs_on_close(text: str, farewell: str) -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(make_agent(text), id="s")
        await session.run("a")
        await session.close("done")
        log: list[Any] = await read_log(store, "s")
        assert (log[-1].type, log[-2].type, log[-2].data.text) == ("session.closed", "turn.completed", farewell)
        if "function run" in text:
            with pytest.raises(TurnError, match="accepts no more input"):
                await session.run("b")
        else:
            assert (await session.run("b")).text == "11: b"
        await session.close()
        silent = await rt.open(make_agent(text), id="silent")
        with pytest.raises(vaka.VakaError):
            await silent.close()


async def test_an_agent_can_be_interrupted() -> None:
    store = MemoryStore()
    text = " function run(ctx) ctx.recv() ctx.emit({ text = 'Waiting.' }) ctx.sleep(3600) end"
    async with runtime(store, environment=Environment(clock=FakeClock())) as rt:
        session = await rt.open(make_agent(text), id="s")
        task = asyncio.create_task(collect(session.stream("x")))
        await wait_until(lambda: count_events(store, "s", "script.answered") > 1)
        await session.interrupt("enough")
        seen = await task
    assert last_body(seen).type == "turn.interrupted"


async def test_an_untrusted_agent_runs_in_a_worker() -> None:
    assert await talk_turns(make_agent(RUNS, trusted=False), "a", "b") == ["1: a", "2: b"]


async def test_a_run_interrupted_after_any_event_gives_the_same_result() -> None:
    text = """ function run(ctx)
        for turn = 1, 2 do
            local input = ctx.recv()
            for round = 1, 2 do
                local a, b = ctx.parallel(
                    function() return ctx.invoke("add", { a = round, b = turn }) end,
                    function() return ctx.generate("default", "Who?") end
                )
                ctx.agent.state.last = a
                ctx.emit({ text = `{input.text} {a}{b} ` })
            end
        end
        ctx.recv()
    end"""

    def who() -> vaka.LuauAgent:
        return make_agent(text, add, model=ScriptedModel(say("w"), say("x"), say("y"), say("z")))

    store = MemoryStore()
    clock = FakeClock(auto=True)
    assert await talk_turns(who(), "one", "two", store=store, environment=Environment(clock=clock)) == [
        "one 2w one 3x ",
        "two 3y two 4z ",
    ]
    log: list[Any] = await read_log(store, "s")
    begun = [number for number, event in enumerate(log, 1) if event.type == "turn.started"]
    for cut in range(begun[1], len(log)):
        again = MemoryStore()
        await log_writer(again, "s", log[:cut])()
        async with runtime(
            again, permissions=vaka.Permissions(ask="deny"), environment=Environment(clock=FakeClock(auto=True))
        ) as rt:
            await collect((await rt.open(who(), id="s")).resume())
        after: list[Any] = await read_log(again, "s")
        check_log(after)
        assert last_body(after).text == "two 3y two 4z ", cut
        assert event_types(after).count("message.completed") == 2, cut
        answers = [(event.data.number, event.data.name) for event in after if event.type == "script.answered"]
        assert len(answers) == len(set(answers)), cut
    assert set(results_by_call(log)) == {"call_1", "call_2", "call_3", "call_4"}


async def test_an_agent_without_run_and_on_input_is_an_error_unless_its_script_talks() -> None:
    async with runtime() as rt:
        with pytest.raises(TurnError, match=r"neither run\(ctx\) nor on_input\(ctx, input\)"):
            await (await rt.open(make_agent(" local unused = 1"))).run("Hi.")
        talks = make_agent(" ctx.emit({ text = `heard {ctx.recv().text}`, eof = true })")
        assert (await (await rt.open(talks)).run("Hi.")).text == "heard Hi."


async def test_the_errors_of_an_inline_script_name_its_agent_or_tool() -> None:
    async with runtime() as rt:
        with pytest.raises(TurnError, match=r"chat\.luau:2: no luck"):
            await (await rt.open(make_agent(" function on_input()\nerror('no luck') end"))).run("Hi.")
