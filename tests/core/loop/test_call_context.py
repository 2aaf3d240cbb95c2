"""The context of a tool: session state, and the services of the runtime."""

import hashlib

import pytest
from msgspec import structs

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.config.options import Storage
from vaka.core.ports.store import Retention
from vaka.core.ports.tool import ToolContext, World
from vaka.core.types.control import StateChanged
from vaka.core.types.ids import Digest
from vaka.core.types.message import Stored, Text, ToolMessage
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, calls, say


@vaka.tool(effect="idempotent")
async def count(context: ToolContext, by: int = 1) -> int:
    """Count."""
    so_far = context.state.get("count")
    total = (so_far if isinstance(so_far, int) else 0) + by
    context.state.set("count", total)
    return total


async def stored_values(store: MemoryStore) -> list[object]:
    return [event.data.value for event in await read_log(store, "s") if isinstance(event.data, StateChanged)]


async def test_state_values_are_in_the_log_and_outlive_the_runtime() -> None:
    store, lines = MemoryStore(), [call("count"), say("done"), call("count"), say("done")]
    for expected in ("1", "2"):
        async with runtime(store) as rt:
            await (await rt.open(agent(ScriptedModel(*lines), count), id="s")).run("Count.")
        assert list(results_by_call(await read_log(store, "s")).values())[-1].text == expected
    assert await stored_values(store) == [1, 2]


async def test_concurrent_calls_see_state_values_of_each_other() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        model = ScriptedModel(calls(*[call("count", by=n) for n in range(1, 6)]), say("done"))
        await (await rt.open(agent(model, count), id="s")).run("Count.")
    assert (await stored_values(store))[-1] == 15


async def test_a_rewind_restores_state_values() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        model = ScriptedModel(call("count"), say("one"), call("count", by=10), say("two"))
        session = await rt.open(agent(model, count), id="s")
        await session.run("Count.")
        before = (await read_log(store, "s"))[-1].id
        await session.run("Count.")
        await rt.rewind("s", str(before))
        await session.run("Count.")
    assert await stored_values(store) == [1, 11, 11]


async def test_a_too_large_state_value_and_missing_files_are_errors() -> None:
    @vaka.tool(effect="idempotent")
    async def hoard(context: ToolContext) -> str:
        """Keep too much."""
        context.state.set("x", "y" * 1_000_000)
        return "kept"

    @vaka.tool(effect="read")
    async def look(context: ToolContext) -> str:
        """Look at a file."""
        return (await context.files.stat("a")).path

    store = MemoryStore()
    async with runtime(store) as rt:
        rt.env.world = World()
        model = ScriptedModel(calls(call("hoard"), call("look")), say("done"))
        await (await rt.open(agent(model, hoard, look), id="s")).run("Go.")
    ended = results_by_call(await read_log(store, "s"))
    assert "at most 262144 bytes" in ended["call_1"].text
    assert "lends no files" in ended["call_2"].text


@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1]}])
async def test_any_plain_value_can_be_stored(value: object) -> None:
    seen: list[object] = []

    @vaka.tool(effect="idempotent")
    async def keep(context: ToolContext) -> str:
        """Keep a value."""
        context.state.set("k", value)
        seen.append(context.state.get("k"))
        return "ok"

    async with runtime(MemoryStore()) as rt:
        await (await rt.open(agent(ScriptedModel(call("keep"), say("done")), keep), id="s")).run("Go.")
    assert seen == [value]


async def test_a_stored_text_has_a_preview_and_loads_in_full() -> None:
    store, long = MemoryStore(), "many words, and my-secret-word among them. " * 5_000

    @vaka.tool(effect="read")
    async def recite(context: ToolContext) -> Stored:
        """Say much."""
        return structs.replace(await context.store_text(long), preview="many words…")

    @vaka.tool(effect="read")
    async def recall(context: ToolContext, name: str) -> int:
        """Count what was said."""
        return len(await context.load_text(Digest(name)))

    kept = long.replace("my-secret-word", "[redacted]")
    name = hashlib.sha256(kept.encode()).hexdigest()
    model = ScriptedModel(call("recite"), call("recall", name=name), call("recall", name="0" * 64), say("done"))
    async with runtime(store, storage=Storage(secrets=["my-secret-word"])) as rt:
        await (await rt.open(agent(model, recite, recall), id="s")).run("Go.")
    results = [
        result
        for message in model.prompts[-1].messages
        if isinstance(message, ToolMessage)
        for result in message.results
    ]
    assert results[0].content == (Text(text="many words…"),)
    assert [result.text for result in results[1:]] == [str(len(kept)), f"NotFound: there is no blob '{'0' * 64}'"]
    await store.gc(Retention(blobs_before="9999-01-01T00:00:00Z"))
    assert await store.blobs.get(Digest(name)) == kept.encode()
