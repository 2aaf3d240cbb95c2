"""What scripts share and what they do not: stored values, the state of agents, history, and who asked."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, collect, log_writer, read_log, results_by_call, runtime
from vaka.core.types.control import StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import SessionId
from vaka.runtime.options import Environment, ModeContext
from vaka.stores.memory import MemoryStore, SharedMemory
from vaka.testing.models import ScriptedModel, call, say

COUNTER = """
function invoke(ctx, args)
    local stored = (__builtin.kvs_get("n") or 0) + 1
    __builtin.kvs_set("n", stored)
    local cached = (__builtin.cache_get("n") or 0) + 1
    __builtin.cache_set("n", cached)
    return `{stored} {cached}`
end
"""


async def call_tools(rt: vaka.Runtime, *tools: Any, session: str = "") -> list[str]:
    """Call each tool once in a session, and return their results."""
    model = ScriptedModel(*[call(tool.spec.name) for tool in tools], say("done"))
    log = await collect((await rt.open(agent(model, *dict.fromkeys(tools)), id=session)).stream("Go."))
    return [result.text for result in results_by_call(log).values()]


class TestStoredValues:
    async def test_each_script_has_values_of_its_own_in_all_sessions(self) -> None:
        async with runtime() as rt:
            first, second = (vaka.LuauTool(COUNTER, name=name) for name in ("first", "second"))
            assert await call_tools(rt, first, second, first) == ["1 1", "1 1", "2 2"]
            assert await call_tools(rt, first) == ["3 3"]

    async def test_files_of_the_same_name_in_two_folders_share_nothing(self, tmp_path: Path) -> None:
        tools: list[vaka.LuauTool] = []
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            (tmp_path / folder / "count.luau").write_text(COUNTER, "utf-8")
            tools.append(vaka.LuauTool(tmp_path / folder / "count.luau"))
        async with runtime() as rt:
            assert [await call_tools(rt, tool) for tool in tools] == [["1 1"], ["1 1"]]

    async def test_a_script_can_choose_values_of_the_session_or_of_all_scripts(self) -> None:
        async with runtime() as rt:
            mine = vaka.LuauTool(COUNTER, name="mine", storage="session")
            assert await call_tools(rt, mine, mine, session="x") == ["1 1", "2 2"]
            assert await call_tools(rt, mine, session="y") == ["1 1"]
            shared = [vaka.LuauTool(COUNTER, name=name, storage="shared") for name in ("one", "two")]
            assert await call_tools(rt, *shared) == ["1 1", "2 2"]
        with pytest.raises(InvalidInput, match="storage must be one of script, session, shared, not 'all'"):
            vaka.LuauTool(COUNTER, name="wrong", storage="all")  # type: ignore[arg-type]  # the fault of this test

    async def test_values_of_a_session_are_deleted_with_it(self) -> None:
        tool = vaka.LuauTool(COUNTER, name="mine", storage="session")
        async with runtime() as rt:
            for name in ("x", "x/y"):
                assert await call_tools(rt, tool, session=name) == ["1 1"]
            await rt.store.sessions.delete(SessionId("x"))
            assert [key.partition("/script/")[0] for key in await rt.store.values.keys()] == ["session/3/x/y"]
            assert await call_tools(rt, tool, session="x") == ["1 1"]

    async def test_trusted_and_untrusted_scripts_share_nothing(self) -> None:
        async with runtime() as rt:
            tools = [
                vaka.LuauTool(COUNTER, name="one", storage="shared", trusted=trusted) for trusted in (True, False, True)
            ]
            assert [await call_tools(rt, tool) for tool in tools] == [["1 1"], ["1 1"], ["2 2"]]

    async def test_namespaces_share_nothing(self) -> None:
        memory, tool = SharedMemory(), vaka.LuauTool(COUNTER, name="one", storage="shared")
        for namespace in ("a", "b"):
            async with runtime(MemoryStore(namespace, memory)) as rt:
                assert await call_tools(rt, tool) == ["1 1"]


WHO = """
function on_input(ctx, input)
    ctx.agent.state.count = (ctx.agent.state.count or 0) + 1
    ctx.agent.memory:set_summary(input.text)
    ctx.agent.history:append({ role = "user", content = "noted" })
    ctx.emit({ text = `{ctx.agent.state.count} {ctx.agent.state_id} {ctx.agent.memory:summary()}`, eof = true })
end
"""


async def test_a_child_agent_has_its_own_state_and_state_id() -> None:
    parent = """
    function on_input(ctx, input)
        ctx.agent.state.count = 10
        local child = ctx.create_agent("child")
        child:send("to the child")
        local said = child:collect()
        local count, summary = ctx.agent.state.count, ctx.agent.memory:summary()
        ctx.emit({ text = `{count} {ctx.agent.state_id} <{summary}> {#ctx.agent.history:recent(9)}; {said}` })
    end
    """
    child = vaka.LuauAgent("child", WHO)
    async with runtime() as rt:
        session = await rt.open(vaka.LuauAgent("parent", parent, tools=[child]), id="s")
        own, said = (await session.run("Go.")).text.split("; ")
    assert own == "10 s <> 1"
    count, state_id, summary = said.split(" ", 2)
    assert (count, summary) == ("1", "to the child")
    assert state_id.startswith("s/agent-")


async def test_a_revert_after_the_end_of_a_message_keeps_the_next_input() -> None:
    text = """
    function on_input(ctx, input)
        ctx.emit({ text = `heard {input.text}`, eof = true })
        if input.text == "undo" then
            ctx.agent.history:revert()
        end
        local seen = {}
        for _, message in ctx.agent.history:recent(9) do table.insert(seen, message.content) end
        ctx.agent.state.seen = table.concat(seen, ", ")
    end
    """
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(vaka.LuauAgent("chat", text), id="s")
        for words in ("one", "undo", "two"):
            await session.run(words)
    changes = [event.data.value for event in await read_log(store, "s") if isinstance(event.data, StateChanged)]
    assert [value for value in changes if isinstance(value, str)] == [
        "one, heard one",
        "one, heard one",
        "one, heard one, two, heard two",
    ]


async def test_a_revert_before_the_end_of_a_message_removes_that_message() -> None:
    text = """
    function on_input(ctx, input)
        ctx.emit({ text = `heard {input.text}` })
        if input.text == "undo" then ctx.agent.history:revert() end
        ctx.emit({ text = " well", eof = true })
        ctx.emit({ text = tostring(#ctx.agent.history:recent(9)), eof = true })
    end
    """
    async with runtime() as rt:
        session = await rt.open(vaka.LuauAgent("chat", text), id="s")
        assert (await session.run("undo")).text == "0"
        assert (await session.run("two")).text == "3"  # "0", "two" and "heard two well"


USER = " function on_input(ctx) ctx.emit({ text = ctx.runtime.user_id, eof = true }) end"


class TestUser:
    @pytest.mark.parametrize(
        ("metadata", "mode", "user"),
        [
            ({"user_id": "kim"}, None, "kim"),
            ({"mode": {"cli": {"user": "lee"}}}, None, "lee"),
            ({}, ModeContext(cli={"user": "sam"}), "sam"),
            ({"user_id": "kim"}, ModeContext(cli={"user": "sam"}), "kim"),
            ({}, None, ""),
        ],
    )
    async def test_the_user_is_that_of_the_session_or_of_the_runtime(
        self, metadata: dict[str, Any], mode: ModeContext | None, user: str
    ) -> None:
        async with runtime(environment=Environment(mode=mode)) as rt:
            session = await rt.open(vaka.LuauAgent("chat", USER), metadata=metadata)
            assert (await session.run("Hi.")).text == user

    async def test_the_user_stays_the_same_when_another_user_resumes_the_script(self) -> None:
        text = """ function on_input(ctx)
            ctx.invoke("note", { text = ctx.runtime.user_id })
            ctx.emit({ text = ctx.runtime.user_id, eof = true })
        end"""

        @vaka.tool(effect="read")
        async def note(text: str) -> str:
            """Note something."""
            return text

        def who() -> vaka.LuauAgent:
            return vaka.LuauAgent("chat", text, tools=[note])

        store, crashed = MemoryStore(), MemoryStore()
        async with runtime(store, environment=Environment(mode=ModeContext(cli={"user": "kim"}))) as rt:
            await collect((await rt.open(who(), id="s")).stream("Hi."))
        log = await read_log(store, "s")
        cut = [event.type for event in log].index("tool.completed") + 1
        await log_writer(crashed, "s", log[:cut])()
        async with runtime(crashed, environment=Environment(mode=ModeContext(cli={"user": "lee"}))) as rt:
            resumed: list[Any] = await collect((await rt.open(who(), id="s")).resume())
        assert resumed[-1].data.text == "kim"
