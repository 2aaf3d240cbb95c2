"""``ctx.transformer`` and ``rt:transformer``: scripts that feed and read transformers."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import pytest

import vaka
from tests.luau.surfaces.surface_fixtures import MemoryJournal, make_services, run_script
from tests.runtime.runtime_fixtures import agent, collect, results_by_call, runtime, wait_until
from vaka.config.options import Scripts
from vaka.content import Text
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.services import HostServices
from vaka.testing.models import ScriptedModel, call, say
from vaka.transformers import MapText, StreamChunk, builtin_transformers

DRAIN = """
    local function drain(stream)
        local seen = {}
        for chunk in stream:iter() do
            local content = chunk.text or chunk.part.data
            table.insert(seen, (chunk.stream_id or "") .. content .. (if chunk.is_eos then "$" else ""))
        end
        return seen
    end
"""


class Recorder:
    """A transformer that echoes its input, and records that it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    async def transform(self, chunks: AsyncGenerator[StreamChunk]) -> AsyncGenerator[StreamChunk]:
        try:
            async for chunk in chunks:
                yield chunk
                if isinstance(chunk.part, Text) and chunk.part.text == "bad":
                    raise ValueError("cannot transform this")
        finally:
            self.closed += 1


def services(**fields: Any) -> HostServices:
    return make_services(builtin_transformers=builtin_transformers(), **fields)


async def run(source: str, *args: JSON, **fields: Any) -> Any:
    host = services(**fields)
    async with host.exit_stack:
        return await run_script(DRAIN + source, *args, services=host)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (
            """local cut = ctx.transformer("split")
            cut:send("One. Tw")
            local first = cut:recv().text
            cut:send({ text = "o! Three", eof = true })
            cut:close_send()
            return { first, table.unpack(drain(cut)) }""",
            ["One. ", "Two! ", "Three", "$"],
        ),
        (
            """local all = ctx.transformer("merge")
            all:send({ text = "a", stream_id = "1" })
            all:send({ "x", "y", buffer.fromstring("\\255"), stream_id = "2" })
            all:send({ text = "b", stream_id = "1", is_eos = true })
            all:close_send()
            return drain(all)""",
            ["2xy", b"2\xff", "1ab", "1$"],
        ),
        (
            """local loud = ctx.transformer("text", { map = string.upper })
            loud:send("a") loud:send({ text = "b", eof = true })
            loud:send({ audio = "z" }) loud:send("c") loud:close_send()
            return drain(loud)""",
            ["AB", "$", "z", "C"],
        ),
        (
            """local asked = ctx.transformer("text", { model = "m", system = "Be brief." })
            asked:send("Hel") asked:send("lo?") asked:close_send()
            return drain(asked)""",
            ["A", "lo", "ha"],
        ),
        (
            """local cut, seen = ctx.transformer("split", { by = "line" }), nil
            local reader = ctx.spawn(function() seen = drain(cut) end)
            for index = 1, 3 do ctx.sleep(0) cut:send(index .. "\\n") end
            cut:close_send()
            ctx.join(reader)
            return seen""",
            ["1\n", "2\n", "3\n"],
        ),
        (
            """local cut = ctx.transformer("split")
            local reader = ctx.spawn(function() return cut:recv() end)
            local _, busy = pcall(cut.recv, cut)
            reader:cancel()
            cut:send("kept") cut:close_send()
            return { busy, table.unpack(drain(cut)) }""",
            ["transformer: another coroutine reads it", "kept"],
        ),
    ],
)
async def test_a_script_feeds_and_reads_a_transformer(source: str, expected: list[JSON]) -> None:
    model = ScriptedModel({"chunks": ["A", "lo", "ha"]})
    assert await run(source, find_model=lambda _: model) == [expected]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("ctx.transformer('x')", "unknown transformer: x; there are echo, merge, split, text"),
        ("ctx.transformer(7)", "transformer: name must be a string, not a number"),
        ("ctx.transformer('split', 7)", "transformer: config must be a table, not a number"),
        ("ctx.transformer('split', {by = 'word'})", "transformer split: Invalid enum value 'word' - at `$.by`"),
        ("ctx.transformer('merge', {by = 'line'})", "transformer merge: Object contains unknown field `by`"),
        ("ctx.transformer('merge', {max_chars = 0})", "max_chars must be at least 1, not 0"),
        ("ctx.transformer('text')", "transformer text: config needs either map, a function, or model"),
        ("ctx.transformer('text', {map = 'x'})", "transformer text: map must be a function, not a string"),
        (
            "local t = ctx.transformer('text', {map = function() return {} end}) t:send('a') t:close_send() t:recv()",
            "transformer text: map returned a table, not a string",
        ),
        (
            "local t = ctx.transformer('text', {map = function(s) error(s) end}) t:send('a') t:close_send() t:recv()",
            "a",
        ),
        ("ctx.transformer('split'):send(nil)", "send: expected table"),
        ("ctx.transformer('split').send('x')", "call the method of a transformer with a colon"),
        (
            "local t = ctx.transformer('split') t:close_send() t:send('x')",
            "transformer: send was called after close_send",
        ),
        ("local t = ctx.transformer('split') t:close() t:recv()", "the transformer is closed"),
        (
            "local t = ctx.transformer('echo') t:send('bad') t:recv() t:recv()",
            "transformer.recv: ValueError: cannot transform this",
        ),
        (
            "local t, s = ctx.transformer('merge'), string.rep('x', 2^20) for _ = 1, 20 do t:send(s) end",
            "transformer: more than 16777216 characters were sent; open another one",
        ),
    ],
)
async def test_a_wrong_use_of_a_transformer_is_an_error_of_the_script(source: str, message: str) -> None:
    transformers = {"echo": lambda _: Recorder()}
    caught = await run(f"return pcall(function()\n{source}\nend)", transformers=transformers)
    assert caught == [False, f"script:{DRAIN.count(chr(10)) + 2}: {message}"]


async def test_a_reader_that_waits_for_input_of_no_other_coroutine_does_not_hang() -> None:
    with pytest.raises(ScriptError, match="deadlock: every coroutine waits for another one"):
        await run("local t = ctx.transformer('split') t:send('no end') t:recv()")


async def test_rt_returns_errors_and_marks_the_end_once() -> None:
    source = """
        local stream, err = rt:transformer("split", {})
        local seen = { tostring(stream:send({ part = "A. B", is_bos = true })), tostring(err) }
        stream:close_send()
        table.insert(seen, stream:send("x"))
        for _ = 1, 6 do
            local chunk, problem = stream:recv()
            local mark = if chunk and chunk.is_eos then "$" else ""
            table.insert(seen, if chunk then (chunk.text or "") .. mark else tostring(problem))
        end
        return seen, rt:transformer("x")
    """
    assert await run(source) == [
        ["nil", "nil", "transformer: send was called after close_send", "", "A. ", "B", "$", "nil", "stream EOF"],
        None,
        "unknown transformer: x",
    ]


async def test_a_script_that_ends_closes_its_transformers() -> None:
    recorders: list[Recorder] = []

    def record(_: Mapping[str, JSON]) -> Recorder:
        recorders.append(Recorder())
        return recorders[-1]

    source = """
        local t = ctx.transformer("record")
        t:send("x")
        t:recv()
        ctx.spawn(function() t:recv() end)
        if ... == "hang" then ctx.sleep(3600) end
        if ... == "fail" then error("no luck") end
    """
    with pytest.raises(ScriptError, match="no luck"):
        await run(source, "fail", transformers={"record": record})
    await run(source, transformers={"record": record})
    hanging = asyncio.create_task(run(source, "hang", transformers={"record": record}))
    await wait_until(lambda: len(recorders) == 3)
    hanging.cancel()
    await asyncio.gather(hanging, return_exceptions=True)
    assert [recorder.closed for recorder in recorders] == [1, 1, 1]


async def test_replaying_any_prefix_feeds_the_transformers_again() -> None:
    source = """
        local cut, up = ctx.transformer("split"), ctx.transformer("text", { map = string.upper })
        local seen = {}
        for _, text in { "One. Two", "! Three. Four" } do
            cut:send(text)
            local chunk = cut:recv()
            up:send({ text = chunk.text .. ctx.uuid(), eof = true })
            table.insert(seen, up:recv().text .. tostring(up:recv().is_eos))
        end
        cut:close_send()
        return seen, drain(cut)
    """
    book = MemoryJournal()
    complete = await run_script(DRAIN + source, services=services(), journal=book)
    assert complete[1] == ["Three. ", "Four"]
    for cut in range(1, len(book.answers) + 1):
        journal = MemoryJournal(book.answers[:cut])
        replayed = await run_script(DRAIN + source, services=services(), journal=journal)
        assert [text[:5] for text in replayed[0]] == ["ONE. ", "TWO! "]
        assert replayed[1] == complete[1]


async def test_only_trusted_scripts_open_the_transformers_of_the_runtime() -> None:
    source = """function invoke(ctx, args)
        local loud = ctx.transformer("shout")
        loud:send("aloha") loud:close_send()
        return loud:recv().text
    end"""
    tools = [vaka.LuauTool(source, name=name, trusted=name == "own") for name in ("own", "foreign")]
    who = agent(ScriptedModel(call("own"), call("foreign"), say("done")), *tools)
    async with runtime(scripts=Scripts(transformers={"shout": lambda _: MapText(str.upper)})) as rt:
        results = results_by_call(await collect((await rt.open(who)).stream("Go.")))
    own, foreign = results.values()
    assert own.text == "ALOHA"
    assert foreign.failed
    assert "unknown transformer: shout; there are merge, split, text" in foreign.text
