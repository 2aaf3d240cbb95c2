"""Inputs and outputs of tools and agents."""

import pytest

from tests.luau.surfaces.surface_fixtures import AgentConversation, make_services, run_for_error, run_script
from vaka.core.loop.script_journal import ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.services import ScriptIo


async def test_a_tool_returns_or_outputs_its_result() -> None:
    tool = "function invoke(ctx, args) {} end"
    for body, values in {
        "return args.a": [1, None],
        "ctx.output(2)": [2, None],
        "ctx.output(2) return 3": [3, None],
        "ctx.output(2) ctx.output(4) return nil": [4, None],
        "": [None, None],
        "return false": [False, None],
    }.items():
        assert await run_script(tool.format(body), {"a": 1}, mode="tool") == values
    returned = "return {invoke = function(_, args) return args.a end}"
    assert await run_script(returned, {"a": 1}, mode="tool") == [1, None]
    assert await run_script("return ctx.input().a", {"a": 1}, mode="tool") == [1, None]
    assert await run_script("rt:output(nil)", mode="tool") == [None, None]


async def test_a_tool_without_a_result_fails() -> None:
    for script in ("local x = 1", "return nil", "function run(ctx) end"):
        with pytest.raises(ScriptError, match=r"^script: tool did not call output, returned no value "):
            await run_script(script, mode="tool")


async def test_a_tool_may_ask_for_input() -> None:
    shown: list[JSON] = []
    answers = ["Hilo", None]

    async def output(value: JSON, _: str | None) -> None:
        shown.append(value)

    async def more(_: ScriptRequest) -> JSON:
        return answers.pop(0)

    source = "function invoke(ctx, args) ctx.output('Where?') return args.a .. ctx.input(), ctx.input() end"
    assert (
        await run_script(
            source, {"a": "in "}, mode="tool", services=make_services(io=ScriptIo(input=more, output=output))
        )
    )[0] == "in Hilo"
    assert shown == ["Where?"]


async def test_an_agent_runs_until_the_end_of_input() -> None:
    source = """
        function run(ctx)
            while true do
                local input = ctx.recv()
                if input == nil then break end
                ctx.emit{text = "You said "}
                ctx.emit{text = input.text, eof = true}
            end
            ctx.emit("bye")
        end
    """
    talk = AgentConversation("a", "b")
    assert await run_script(source, mode="agent", services=talk.host_services) == ["run"]
    assert talk.emitted_texts == [("You said ", False), ("a", True), ("You said ", False), ("b", True), ("bye", False)]


async def test_an_agent_with_on_input_runs_for_each_input() -> None:
    source = """
        function on_start(ctx) ctx.emit("start") end
        function on_input(ctx, input) ctx.emit{text = input.text, eof = true} end
        function on_close(ctx) ctx.emit("close") end
    """
    talk = AgentConversation("a", "b")
    ends = [
        await run_script(source, mode="agent", services=talk.host_services, startup_info={"begin": first})
        for first in (True, False, False)
    ]
    assert ends == [["input"], ["input"], ["closed"]]
    assert talk.emitted_texts == [("start", False), ("a", True), ("b", True), ("close", False)]


async def test_an_agent_may_be_the_script_itself() -> None:
    talk = AgentConversation("a")
    assert await run_script("ctx.emit(ctx.recv().text)", mode="agent", services=talk.host_services) == ["main"]
    assert talk.emitted_texts == [("a", False)]


async def test_emit_raises_for_an_invalid_chunk() -> None:
    assert await run_for_error("ctx.emit(1)", AgentConversation().host_services) == "script:1: emit: expected table"
    assert await run_for_error("ctx.emit{part = 1}", AgentConversation().host_services) == (
        "script:1: emit: a part is a string or a table, not a number"
    )
