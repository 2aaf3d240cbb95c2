"""Long results of every kind of tool are shown in part by default, and every agent can read the rest."""

from pathlib import Path
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, check_log, event_types, read_log, results_by_call, runtime
from vaka.config.options import Storage
from vaka.core.loop.script_journal import restore_result
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import Store
from vaka.core.types.control import QuestionAsked, StateChanged
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import Stored, Text, ToolCall, ToolMessage, ToolResult
from vaka.models.given_calls import GivenCalls
from vaka.runtime.options import policy_from_rules
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, calls, say
from vaka.tools import ClientTool

SECRET = "hunter2-hunter2"
LINES = [f"line {number} {SECRET} {'x' * 80}" for number in range(1, 1_501)]


@vaka.tool(effect="read")
async def report() -> str:
    """Return a long report."""
    return "\n".join(LINES)


@vaka.tool(effect="read")
async def table() -> list[dict[str, int]]:
    """Return many rows."""
    return [{"row": number} for number in range(10_000)]


def offered(model: ScriptedModel) -> list[list[str]]:
    """Return the names of the tools of each prompt."""
    return [[spec.name for spec in prompt.tools] for prompt in model.prompts]


def results_of(prompt: Prompt) -> list[str]:
    """Return the texts of the last results in a prompt."""
    messages = [m for m in prompt.messages if isinstance(m, ToolMessage)]
    return [result.text for result in messages[-1].results]


def last_results(model: ScriptedModel) -> list[str]:
    """Return the texts of the last results that the model got."""
    return results_of(model.prompts[-1])


async def read_digest(store: Store, session: str = "s", of_call: str = "call_1") -> Digest:
    """Return the digest of the text that a result shows in part."""
    log = [event async for event in store.events.read(SessionId(session))]
    part = results_by_call(log)[of_call].content[0]
    assert isinstance(part, Stored)
    assert part.cut
    return part.blob


async def test_an_agent_without_read_gets_a_tool_that_reads_what_was_left_out(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'vaka.db'}"
    first = ScriptedModel(call("report"), say("Long."))
    async with vaka.Runtime(store=url, storage=Storage(secrets=(SECRET,))) as rt:
        await (await rt.open(agent(first, report), id="s")).run("Go.")
    assert offered(first) == [["report"], ["report", "read_output"]]
    [shown] = last_results(first)
    assert shown.startswith("line 1 [redacted] xxx")
    assert shown.endswith("x" * 80)
    assert "lines) left out; to see them call read_output with output:" in shown
    assert len(shown) < 7_000
    store = SqliteStore(tmp_path / "vaka.db")
    log, digest = [event async for event in store.events.read(SessionId("s"))], await read_digest(store)
    assert event_types(log).count("state.changed") == 1
    assert "tool.returned" not in event_types(log)  # no further commit for each call
    assert SECRET.encode() not in await store.blobs.get(digest)
    await store.close()
    reads = [
        call("read_output", output=f"output:{digest}", offset=700, limit=2),
        call("read_output", output=digest),
        call("report"),
        say("Seen."),
    ]
    again = ScriptedModel(say(""), say(""), *reads)
    async with vaka.Runtime(store=url, storage=Storage(secrets=(SECRET,))) as rt:
        session = await rt.open(agent(again, report), id="s")
        await session.run("Read it.")
        fork = await session.fork()
        await session.rewind("1.1")
        fresh = ScriptedModel(*[say("")] * 6, say("Hello."))
        await (await rt.open(agent(fresh, report), id="s")).run("Hello.")
        forked = ScriptedModel(*[say("")] * 6, say("Hello."))
        await (await rt.open(agent(forked, report), id=fork.id)).run("Hello.")
        log = [event async for event in rt.store.events.read(fork.id)]
    assert {tuple(names) for names in offered(again)} == {("report", "read_output")}
    assert offered(forked) == [["report", "read_output"]]
    assert offered(fresh) == [["report"]]
    results = results_by_call(log)
    assert results["call_2"].text.splitlines()[0] == f"   700\tline 700 [redacted] {'x' * 80}"
    assert results["call_3"].text.splitlines()[-1].endswith(f"of {len(LINES)}; go on with offset=299]")
    assert event_types(log).count("state.changed") == 1
    check_log(log)


WORDS = "word " * 40_000


async def test_results_of_scripts_clients_children_and_middleware_are_shown_in_part_too() -> None:
    async def answer(turn: vaka.Turn, asked: ToolCall) -> Any:
        return ToolResult(call=asked.id, content=(Text(text=WORDS),)) if asked.name == "add" else asked

    @vaka.tool(effect="read")
    async def add() -> str:
        """Add."""
        return ""

    @vaka.tool(effect="read")
    async def fail() -> str:
        """Fail at length."""
        raise ValueError(WORDS)

    child_model = ScriptedModel(agents={"child": [call("report"), say(WORDS)]})
    made = (call("script"), call("pick"), call("child", prompt="Go."), call("add"), call("fail"))
    script = vaka.LuauTool('function invoke() return string.rep("word ", 40000) end', name="script")
    tools = (script, ClientTool("pick"), agent(child_model, report, name="child"), add, fail)
    model = ScriptedModel(calls(*made), say("done"))
    answering = vaka.Middleware.from_functions("answering", before_tool=answer)
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(model, *tools, middleware=[answering]), id="s")
        async for event in session.stream("Go."):
            if isinstance(event.data, QuestionAsked):
                await session.answer_call(event.data.call or "", WORDS)
    shown = last_results(model)
    assert [len(text) < 7_000 for text in shown] == [True] * 5
    assert ["call read_output with output:" in text for text in shown] == [True] * 5
    assert offered(child_model) == [["report"], ["report", "read_output"]]
    assert offered(model)[-1][-1] == "read_output"
    log = await read_log(store, "s")
    check_log(log)
    keys = [event.data.key for event in log if isinstance(event.data, StateChanged)]
    assert len(keys) == len(set(keys)) == 2  # one for each conversation


async def test_a_script_and_a_program_get_the_whole_result() -> None:
    script = 'function invoke(ctx) return "rows: " .. #ctx.invoke("table", {}) end'
    model = ScriptedModel(call("script"), call("table"), say("done"))
    store = MemoryStore()
    async with runtime(store) as rt:
        bot = agent(model, vaka.LuauTool(script, name="script"), table)
        await (await rt.open(bot, id="s")).run("Go.")
        given = agent(GivenCalls(), report)
        options: dict[str, Any] = {"calls": [{"name": "report", "arguments": {}}]}
        await (await rt.open(given, id="given")).run("Go.", options=options)
    results = results_by_call(await read_log(store, "s"))
    assert "rows: 10000" in results["call_1"].text
    assert "left out" in results["call_2"].text
    restored = await restore_result(store.blobs, results["call_2"])
    assert restored.value == await table()
    assert "left out" in restored.text
    [part] = results_by_call(await read_log(store, "given"))["call_1"].content
    assert isinstance(part, Stored)
    assert not part.cut


@pytest.mark.parametrize(
    "name",
    [
        "",
        "output:",
        "output:../../etc/passwd",
        "/etc/passwd",
        "output:" + "g" * 64,
        "output:" + "A" * 64,
        "output:" + "٣" * 64,
        "output:" + "a" * 63,
        "output:" + "a" * 65,
        f"output:{'a' * 64}\x00",
        f"output:{'0' * 64}; drop table blobs",
    ],
)
async def test_a_name_that_is_not_a_digest_is_an_error_for_the_model(name: str) -> None:
    model = ScriptedModel(call("report"), call("read_output", output=name), say("done"))
    store = MemoryStore()
    async with runtime(store) as rt:
        assert (await (await rt.open(agent(model, report), id="s")).run("Go.")).text == "done"
    result = results_by_call(await read_log(store, "s"))["call_2"]
    assert result.failed
    assert "is not an output; expected output: and 64 digits from 0 to f" in result.text


async def test_the_outputs_of_another_namespace_are_not_found() -> None:
    store = MemoryStore()
    async with runtime(store, storage=Storage(namespace="one")) as rt:
        bot = agent(ScriptedModel(call("report"), say("done")), report)
        await (await rt.open(bot, id="s")).run("Go.")
    digest = await read_digest(store.with_namespace("one"))
    async with runtime(store, storage=Storage(namespace="two")) as rt:
        bot = agent(ScriptedModel(call("table"), call("read_output", output=digest), say("done")), table)
        await (await rt.open(bot, id="s")).run("Go.")
    result = results_by_call(await read_log(store.with_namespace("two"), "s"))["call_2"]
    assert (result.failed, "is not stored" in result.text) == (True, True)


@pytest.mark.parametrize("case", ["denied", "own"])
async def test_read_output_stands_in_for_a_read_that_is_denied_or_another_tool(case: str) -> None:
    @vaka.tool(name="Read", effect="read")
    async def read(path: str) -> str:
        """Read from an archive."""
        return "x" * 100_000

    store, model = MemoryStore(), ScriptedModel(call("report"), say("done"))
    own = ScriptedModel(call("Read", path="x"), say("done"))
    async with runtime(
        store, permissions=vaka.Permissions(policy=policy_from_rules(deny=["Read"] if case == "denied" else []))
    ) as rt:
        used = own if case == "own" else model
        bot = agent(used, report, read if case == "own" else "Read")
        await (await rt.open(bot, id="s")).run("Go.")
    assert offered(used)[-1][-1] == "read_output"
    assert "call read_output with output:" in last_results(used)[0]


async def test_a_turn_with_a_list_of_tools_may_read_what_was_left_out() -> None:
    model = ScriptedModel(call("report"), say("done"))
    async with runtime() as rt:
        session = await rt.open(agent(model, report, table), id="s")
        await session.run("Go.", options={"tool_whitelist": ["report"]})
    assert offered(model) == [["report"], ["report", "read_output"]]


async def test_a_child_with_a_list_of_tools_may_read_what_was_left_out() -> None:
    model = ScriptedModel(
        call("Task", description="Report.", prompt="Go.", subagent_type="reporter"),
        say("done"),
        agents={"reporter": [call("report"), say("long")]},
    )
    reporter = vaka.SubAgent(name="reporter", description="Reports.", instructions="Report.", allowed_tools=["report"])
    async with runtime() as rt:
        session = await rt.open(agent(model, report, table, middleware=[vaka.SubAgents(reporter)]), id="s")
        await session.run("Go.")
    of_child = [[spec.name for spec in prompt.tools] for prompt in model.prompts if prompt.agent == "reporter"]
    assert of_child == [["report"], ["report", "read_output"]]


async def test_a_result_of_megabytes_costs_a_few_thousand_characters() -> None:
    @vaka.tool(effect="read")
    async def dump() -> str:
        """Return more than any window holds."""
        return "ü" * 3_000_000

    @vaka.tool(effect="read")
    async def page() -> str:
        """Return more than a quarter of a small window."""
        return "x" * 20_000

    model = ScriptedModel(call("dump"), call("page"), say("done"), context_window=8_000)
    wide = ScriptedModel(call("page"), say("done"))
    async with runtime() as rt:
        await (await rt.open(agent(model, dump, page), id="s")).run("Go.")
        await (await rt.open(agent(wide, page), id="wide")).run("Go.")
    sizes = [len(text) for prompt in model.prompts[1:] for text in results_of(prompt)]
    assert [size < 7_000 for size in sizes] == [True] * 2
    assert last_results(wide) == ["x" * 20_000]
