"""Eviction: long texts are stored, shown in part, and can be read."""

import hashlib
from pathlib import Path

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, event_types, read_log, results_by_call, runtime
from vaka.config.options import Storage
from vaka.core.loop.blobs import restore_content
from vaka.core.ports.tool import World
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.message import Image, Stored, Text, ToolMessage, ToolResult, UserMessage, text_of
from vaka.files.workspace import WorkspaceFiles
from vaka.middleware import Eviction
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.tools.builtin import builtin_tools

SECRET = "hunter2-hunter2"


def long_tool(size: int) -> object:
    @vaka.tool(effect="read")
    async def long() -> str:
        """Return much."""
        return f"begin {SECRET} " + "x" * size + "\nneedle\n" + "y" * size + " end"

    return long


@pytest.mark.parametrize("size", [5_000, 60_000])
async def test_a_long_result_is_shown_in_part_and_can_be_read_by_its_digest(size: int, tmp_path: Path) -> None:
    store = MemoryStore()
    model = ScriptedModel(call("long"), say("done"))
    bot = agent(model, long_tool(size), *builtin_tools(["Read"]), middleware=[Eviction(2_000)])
    async with runtime(
        store, storage=Storage(secrets=(SECRET,)), permissions=vaka.Permissions(mode="bypassPermissions")
    ) as rt:
        rt.env.world = World(files=WorkspaceFiles(tmp_path, home=tmp_path), cwd=str(tmp_path))
        await (await rt.open(bot, id="s")).run("Go.")
        part = results_by_call(await read_log(store, "s"))["call_1"].content[0]
        assert isinstance(part, Stored)
        last = model.prompts[-1].messages[-1]
        assert isinstance(last, ToolMessage)
        text = last.results[0].text
        assert text == part.preview
        assert text.startswith("begin [redacted] xxx")
        assert text.endswith("y end")
        assert "needle" not in text
        assert len(text) < 7_000
        line = size // 2_000 + 2  # Read splits the long line before it
        again = ScriptedModel(
            call("long"), say("done"), call("Read", file_path=f"output:{part.blob}", offset=line, limit=1), say("done")
        )
        await (await rt.open(agent(again, *bot.tools, middleware=[Eviction(2_000)]), id="s")).run("Read it.")
    assert "needle" in results_by_call(await read_log(store, "s"))["call_2"].text
    assert SECRET.encode() not in b"".join([event.stored for event in await read_log(store, "s")])


async def test_results_below_the_limit_and_those_without_a_limit_stay_whole() -> None:
    store = MemoryStore()
    sizes = {"short": (100, Eviction(2_000)), "long": (60_000, Eviction(None)), "limits": (60_000, None)}
    async with runtime(store) as rt:
        for id, (size, eviction) in sizes.items():
            model = ScriptedModel(call("long"), say("done"))
            bot = agent(model, long_tool(size), middleware=[eviction] if eviction else [])
            if eviction is None:
                bot.limits = vaka.Limits(max_result_tokens=None)
            await (await rt.open(bot, id=id)).run("Go.")
            message = model.prompts[-1].messages[-1]
            assert isinstance(message, ToolMessage)
            assert "needle" in message.results[0].text
            assert "state.changed" not in event_types(await read_log(store, id))


def test_a_limit_below_the_preview_size_is_an_error() -> None:
    with pytest.raises(ConfigError, match="tokens must be at least 2000"):
        Eviction(100)
    with pytest.raises(ConfigError, match="input_tokens"):
        Eviction(input_tokens=100)
    with pytest.raises(InvalidInput, match="max_result_tokens 100 must be at least 2000, or None"):
        vaka.Limits(max_result_tokens=100)


@vaka.tool(effect="read")
async def pages() -> ToolResult:
    """Return many texts."""
    parts = tuple(Text(text=f"page {number} " + "x" * 3_000) for number in range(9))
    return ToolResult(call=CallId(""), content=(parts[0], Image(media_type="image/gif", data="R0lGODlh"), *parts[1:]))


async def test_several_texts_that_are_too_long_together_are_stored_as_one(tmp_path: Path) -> None:
    store, model = MemoryStore(), ScriptedModel(call("pages"), say("done"))
    bot = agent(model, pages, *builtin_tools(["Read"]), middleware=[Eviction(2_000)])
    async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        rt.env.world = World(files=WorkspaceFiles(tmp_path, home=tmp_path), cwd=str(tmp_path))
        await (await rt.open(bot, id="s")).run("Go.")
    stored, image = results_by_call(await read_log(store, "s"))["call_1"].content
    assert isinstance(stored, Stored)
    assert isinstance(image, Image)
    message = model.prompts[-1].messages[-1]
    assert isinstance(message, ToolMessage)
    assert message.results[0].text.startswith("page 0 xxx")
    assert message.results[0].text.endswith("xxx")
    assert len(message.results[0].text) < 7_000
    joined = (await store.blobs.get(stored.blob)).decode()
    assert [line[:6] for line in joined.splitlines()] == [f"page {number}" for number in range(9)]


async def test_a_long_input_is_shown_in_part_and_can_be_read_by_its_digest(tmp_path: Path) -> None:
    store = MemoryStore()
    content = "begin " + "x" * 20_000 + "\nneedle\n" + "y" * 20_000 + " end"
    digest = hashlib.sha256(content.encode()).hexdigest()
    model = ScriptedModel(call("Read", file_path=f"output:{digest}", offset=12, limit=1), say("done"))
    bot = agent(model, *builtin_tools(["Read"]), middleware=[Eviction(input_tokens=2_000)])
    async with runtime(store, permissions=vaka.Permissions(mode="bypassPermissions")) as rt:
        rt.env.world = World(files=WorkspaceFiles(tmp_path, home=tmp_path), cwd=str(tmp_path))
        await (await rt.open(bot, id="s")).run(content)
    for prompt in model.prompts:
        message = prompt.messages[0]
        assert isinstance(message, UserMessage)
        text = text_of(message.content)
        assert text.startswith("begin xxx")
        assert text.endswith("y end")
        assert f"output:{digest}" in text
        assert len(text) < 7_000
    log = await read_log(store, "s")
    assert "needle" in results_by_call(log)["call_1"].text
    [added] = [event.data for event in log if isinstance(event.data, InputAdded)]
    assert (await restore_content(store.blobs, added.content)) == (Text(text=content),)
