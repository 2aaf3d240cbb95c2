"""Tools that are slow, block, ignore a stop, or return invalid values: each call gets exactly one result."""

import asyncio
import math
import threading
import time
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
    reasons_by_call,
    results_by_call,
    runtime,
)
from vaka.core.ports.tool import ToolContext
from vaka.core.types.message import Image, Stored, Text, ToolMessage, ToolResult
from vaka.core.types.monitor import Logged
from vaka.core.types.tool import ParsedArguments, ToolSpec
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, ScriptedModel, call, calls, say


class RawTool:
    """A tool that keeps to the port and to nothing else."""

    def __init__(self, value: Any = None, *, error: BaseException | None = None, name: str = "raw") -> None:
        self.spec = ToolSpec(name=name, effect="read")
        self.value, self.error = value, error

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments:
        return ParsedArguments({})

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


async def run_tool(*tools: Any, model: Any = None, **more: Any) -> tuple[Any, list[Any]]:
    """Let a model call the first tool once; return the result and the log."""
    store = MemoryStore()
    name = tools[0].spec.name
    async with runtime(store) as rt:
        chosen = model or ScriptedModel(call(name), say("done"))
        await collect_turn(await rt.open(agent(chosen, *tools, **more), id="s"))
    log = await read_log(store, "s")
    check_log(log)
    assert last_body(log).type == "turn.completed"
    return results_by_call(log)["call_1"], log


class OddError(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        SystemExit(3),
        GeneratorExit(),
        OddError("odd"),
        RecursionError(),
        StopAsyncIteration(),
        Exception(),
    ],
)
async def test_an_exception_of_a_tool_becomes_its_result(error: BaseException) -> None:
    result, _ = await run_tool(RawTool(error=error))
    assert (result.failed, result.reason) == (True, "error")
    assert result.text.startswith(f"{type(error).__name__}: ") or type(error) is StopAsyncIteration


async def test_a_tool_that_cancels_itself_has_failed() -> None:
    result, _ = await run_tool(RawTool(error=asyncio.CancelledError()))
    assert (result.reason, result.text) == ("error", "the tool cancelled itself")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        ("a\ud800b", "a\ufffdb"),
        (None, "null"),
        (7, "7"),
        ({"a": [1, True, None]}, '{"a":[1,true,null]}'),
        ({"b\ud800": "\udfff"}, '{"b\ufffd":"\ufffd"}'),
        ((1, 2), "[1,2]"),
        (math.nan, "null"),
        (Text(text="x\ud800"), "x\ufffd"),
        ([Text(text="x"), Text(text="y")], "xy"),
        (ToolResult(call="whose", content=(Text(text="z\ud800"),), value={"n": math.inf}), "z\ufffd"),  # type: ignore[arg-type]  # any id
    ],
)
async def test_a_tool_returns_text_parts_or_data(value: Any, text: str) -> None:
    result, _ = await run_tool(RawTool(value))
    assert (result.failed, result.text) == (False, text)


def nested_list(depth: int) -> Any:
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1: object()},
        nested_list(5000),
        ToolResult(call="c", value=object()),  # type: ignore[arg-type]  # any id
        ToolResult(call="c", content=("not a part",)),  # type: ignore[arg-type]  # what a careless tool does
        [Image(media_type="\ud800", data="AA==")],
    ],
)
async def test_a_value_that_cannot_be_encoded_is_a_failed_result(value: Any) -> None:
    result, _ = await run_tool(RawTool(value))
    assert (result.failed, result.reason) == (True, "error")


async def test_a_failed_result_of_a_tool_stays_failed() -> None:
    bad = ToolResult(call="c", content=(Text(text="all fine"),), failed=True, reason="error")  # type: ignore[arg-type]  # any id
    result, log = await run_tool(RawTool(bad))
    assert result.failed
    assert "tool.failed" in event_types(log)


async def test_a_large_output_is_a_blob_in_the_log_and_whole_in_the_prompt() -> None:
    store = MemoryStore()
    large = "ä" * 40_000
    model = ScriptedModel(call("raw"), say("done"))
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(model, RawTool(large)), id="s"))
    log = await read_log(store, "s")
    [part] = results_by_call(log)["call_1"].content
    assert isinstance(part, Stored)
    assert (part.size, part.preview) == (80_000, "ä" * 1000)
    assert max(len(event.stored) for event in log) < 32 * 1024
    shown = model.prompts[1].messages[-1]
    assert isinstance(shown, ToolMessage)
    assert shown.results[0].text == large


async def test_an_erased_large_output_is_replaced_by_its_preview() -> None:
    store = MemoryStore()
    model = ScriptedModel(call("raw"), say("done"), say("again"))
    async with runtime(store) as rt:
        session = await rt.open(agent(model, RawTool("x" * 40_000)), id="s")
        await collect_turn(session)
        store.hub.shared.blobs.clear()
        await collect_turn(session)
    shown = model.prompts[2].messages[2]
    assert isinstance(shown, ToolMessage)
    assert shown.results[0].text == "x" * 1000 + "\n[the rest of this part was erased]"


async def test_a_large_input_is_a_blob_too_and_whole_in_the_prompt() -> None:
    store = MemoryStore()
    model = ScriptedModel(say("long"))
    async with runtime(store) as rt:
        await collect_turn(await rt.open(agent(model), id="s"), "y" * 50_000)
    assert max(len(event.stored) for event in await read_log(store, "s")) < 32 * 1024
    assert model.prompts[0].messages[0].content == (Text(text="y" * 50_000),)  # type: ignore[union-attr]  # a user's


async def test_a_tool_that_exceeds_its_timeout_is_cancelled_and_fails() -> None:
    cleaned: list[str] = []

    @vaka.tool(timeout=0.01)
    async def slow() -> str:
        """Never end."""
        try:
            await asyncio.Event().wait()
        finally:
            cleaned.append("yes")
        return ""

    result, _ = await run_tool(slow)
    assert result.reason == "timeout"
    assert result.text == "no result within 0.01 s; its outcome is unknown, verify before repeating it"
    assert cleaned == ["yes"]


async def test_a_tool_that_ignores_its_cancellation_is_abandoned_and_reported() -> None:
    end = asyncio.Event()

    @vaka.tool(effect="read", timeout=0.01)
    async def stubborn(context: ToolContext) -> str:
        """Do not listen."""
        while not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue
        context.emit("too late")
        return "late"

    result, log = await run_tool(stubborn, limits=vaka.Limits(grace=0.01))
    assert (result.reason, result.text) == ("timeout", "no result within 0.01 s")
    said_so = [event.data.message for event in log if isinstance(event.data, Logged)]
    assert said_so == ["'stubborn' did not stop within 0.01 s of being cancelled and was left behind"]
    end.set()
    await asyncio.sleep(0)


async def test_a_plain_function_runs_beside_the_loop() -> None:
    here = threading.get_ident()

    @vaka.tool(effect="read")
    def where() -> bool:
        """Tell whether this is the thread of the loop."""
        return threading.get_ident() == here

    result, _ = await run_tool(where)
    assert result.value is False


async def test_a_sync_tool_sees_that_its_timeout_has_expired() -> None:
    stopped = threading.Event()

    @vaka.tool(effect="read", timeout=0.01)
    def patient(context: ToolContext) -> str:
        """Look until the call is being stopped."""
        while not context.stopping:
            threading.Event().wait(0.001)
        context.emit("too late")
        stopped.set()
        return "stopped"

    result, _ = await run_tool(patient)
    assert result.reason == "timeout"
    assert await asyncio.to_thread(stopped.wait, 10)


async def test_a_tool_that_blocks_the_loop_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = time.perf_counter

    @vaka.tool(effect="read")
    async def blocks() -> str:
        """Block."""
        monkeypatch.setattr(time, "perf_counter", lambda: clock() + 7)
        await asyncio.sleep(0)
        return "ok"

    _, log = await run_tool(blocks)
    [text] = [event.data.message for event in log if isinstance(event.data, Logged)]
    assert text == "'blocks' held the event loop for 7.0 s: make it a plain def, or await"


async def test_output_of_a_tool_is_published_live_in_order() -> None:
    @vaka.tool(effect="read")
    def prints(context: ToolContext) -> str:
        """Print from a thread."""
        context.emit("one ")
        context.emit("tw\ud800o")
        return "done"

    async with runtime() as rt:
        events = await collect_turn(await rt.open(agent(ScriptedModel(call("prints"), say("done")), prints), id="s"))
    shown = [event.data for event in events if event.type == "tool.output.delta"]
    assert [(delta.offset, delta.text) for delta in shown] == [(0, "one "), (4, "tw\ufffdo")]  # type: ignore[attr-defined]  # deltas


async def test_a_failing_tool_does_not_affect_concurrent_tools() -> None:
    tools = [
        RawTool("fine", name="a"),
        RawTool(error=OddError("x"), name="b"),
        RawTool(object(), name="c"),
        RawTool("also", name="d"),
    ]
    model = ScriptedModel(calls(*(call(name) for name in "abcd")), say("done"))
    _, log = await run_tool(*tools, model=model)
    assert reasons_by_call(log) == {"call_1": "ok", "call_2": "error", "call_3": "error", "call_4": "ok"}


async def test_a_tool_context_has_the_session_call_and_key() -> None:
    @vaka.tool(effect="idempotent")
    async def who(context: ToolContext) -> list[Any]:
        """Tell."""
        return [context.session, context.path, context.call, context.key, context.attempt]

    result, _ = await run_tool(who)
    session, path, call_id, key, attempt = result.value
    assert (session, path, call_id, attempt) == ("s", [], "call_1", 1)
    assert key.startswith("s/call_1/key_")


async def test_middleware_and_tools_share_the_values_of_a_run() -> None:
    @vaka.tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Look."""
        return str(context.values["seen"])

    async def note(turn: Any, content: Any) -> Any:
        turn.values["seen"] = "by before_agent"
        return content

    result, _ = await run_tool(look, middleware=[vaka.Middleware.from_functions("note", before_agent=note)])
    assert result.text == "by before_agent"


async def test_two_tools_with_one_name_are_refused() -> None:
    async with runtime() as rt:
        session = await rt.open(agent(ScriptedModel(say("x")), RawTool(), RawTool()), id="s")
        with pytest.raises(vaka.VakaError, match="agent 'assistant' has two tools named 'raw'"):
            await session.run("Go.")


async def test_a_tool_whose_parse_raises_ends_the_turn_and_not_the_runtime() -> None:
    class Broken(RawTool):
        def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments:
            raise ZeroDivisionError("oh")

    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(ScriptedModel(call("raw"), say("fine")), Broken()), id="s")
        with pytest.raises(vaka.VakaError, match="ZeroDivisionError: oh"):
            await session.run("Go.")
        assert (await session.run("Go.")).text == "fine"
    check_log(await read_log(store, "s"))


async def test_rules_that_raise_end_the_turn_with_every_call_sealed() -> None:
    class Rules:
        def judge(self, *_: Any) -> Any:
            raise ZeroDivisionError("oh")

        def visible(self, spec: ToolSpec) -> bool:
            return True

    store = MemoryStore()
    async with runtime(store, permissions=vaka.Permissions(policy=Rules())) as rt:
        session = await rt.open(agent(ScriptedModel(calls(call("raw"), call("raw"))), RawTool("never")), id="s")
        with pytest.raises(vaka.VakaError, match="ZeroDivisionError: oh"):
            await session.run("Go.")
    log = await read_log(store, "s")
    check_log(log)
    assert reasons_by_call(log) == {"call_1": "sealed", "call_2": "sealed"}


async def test_a_model_may_be_a_function() -> None:
    async def answer(prompt: Any) -> Any:
        return call("raw") if prompt.number == 1 else "done"

    result, _ = await run_tool(RawTool("hi"), model=FunctionModel(answer))
    assert result.text == "hi"
