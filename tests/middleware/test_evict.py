"""Eviction: long results are put away, and can be read again."""

from pathlib import Path

import pytest

import vaka
from tests.runtime.scene import agent, logged, results, runtime
from vaka.core.ports.world import World
from vaka.core.types.content import Stored
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import ToolMessage
from vaka.files.workspace import Workspace
from vaka.middleware import Eviction
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin

SECRET = "hunter2-hunter2"


def long_tool(size: int) -> object:
    @vaka.tool(effect="read")
    async def long() -> str:
        """Return much."""
        return f"begin {SECRET} " + "x" * size + "\nneedle\n" + "y" * size + " end"

    return long


@pytest.mark.parametrize("size", [5_000, 60_000])
async def test_a_long_result_is_told_in_part_and_read_again_by_its_name(size: int, tmp_path: Path) -> None:
    store = MemoryStore()
    model = ScriptedModel(call("long"), say("done"))
    bot = agent(model, long_tool(size), *builtin(["Read"]), middleware=[Eviction(2_000)])
    async with runtime(store, secrets=(SECRET,), permission_mode="bypassPermissions") as rt:
        rt.env.world = World(files=Workspace(tmp_path, home=tmp_path), cwd=str(tmp_path))
        await (await rt.open(bot, id="s")).run("Go.")
        part = results(await logged(store, "s"))["call_1"].content[0]
        assert isinstance(part, Stored)
        last = model.prompts[-1].messages[-1]
        assert isinstance(last, ToolMessage)
        told = last.results[0].text
        assert told == part.preview
        assert told.startswith("begin [redacted] xxx")
        assert told.endswith("y end")
        assert "needle" not in told
        assert len(told) < 7_000
        again = ScriptedModel(
            call("long"), say("done"), call("Read", file_path=f"output:{part.blob}", offset=2, limit=1), say("done")
        )
        await (await rt.open(agent(again, *bot.tools, middleware=[Eviction(2_000)]), id="s")).run("Read it.")
    assert "needle" in results(await logged(store, "s"))["call_2"].text
    assert SECRET.encode() not in b"".join([event.stored for event in await logged(store, "s")])


async def test_a_short_result_stays_and_without_a_reader_none_is_named() -> None:
    store = MemoryStore()
    bot = agent(ScriptedModel(call("long"), say("done")), long_tool(100), middleware=[Eviction(2_000)])
    big = agent(ScriptedModel(call("long"), say("done")), long_tool(9_000), middleware=[Eviction(2_000)])
    async with runtime(store, permission_mode="bypassPermissions") as rt:
        await (await rt.open(bot, id="s")).run("Go.")
        await (await rt.open(big, id="b")).run("Go.")
    assert "needle" in results(await logged(store, "s"))["call_1"].text
    assert "ask for less at a time" in results(await logged(store, "b"))["call_1"].text


def test_a_bound_below_what_is_shown_is_refused() -> None:
    with pytest.raises(ConfigError):
        Eviction(100)
