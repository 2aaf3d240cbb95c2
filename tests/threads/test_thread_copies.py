"""Copies of what was said in a thread: in background sessions, and in the sessions of turns beside it."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import IDS
from vaka.core.ports.messages import MessageSearch
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import SessionQuery, Store
from vaka.errors import ConfigError
from vaka.memory import FactExtraction, SemanticMemory, TextMemory
from vaka.memory.background import facts_session
from vaka.runtime.options import Environment
from vaka.testing.models import FunctionModel, ScriptedModel, call, say
from vaka.threads import ThreadOptions

ASIDE = ThreadOptions(save_to_memory=False)


async def find(runtime: vaka.Runtime, text: str, **chosen: Any) -> list[str]:
    return [hit.message.session for hit in (await runtime.threads.search(MessageSearch(text=text, **chosen))).hits]


@pytest.mark.parametrize("memory", [TextMemory(), SemanticMemory(messages=True)], ids=["text", "semantic"])
async def test_a_deleted_message_is_not_found_in_the_session_that_extracted_facts_from_it(
    every_store: Store, memory: Any
) -> None:
    facts = facts_session("one", "kim")
    extraction = FactExtraction(memory, model=ScriptedModel(say("done")))
    agent = vaka.Agent("helper", model=ScriptedModel(say("Noted.")), middleware=[extraction])
    async with vaka.Runtime(store=every_store, environment=Environment(ids=IDS)) as runtime:
        await runtime.threads.create(id="one", resource_id="kim")
        await (await runtime.open(agent, id="one")).run("The PIN is 4711.", key="pin")
    async with vaka.Runtime(store=every_store, environment=Environment(ids=IDS)) as runtime:
        assert await find(runtime, "4711") == ["one"]
        assert (await runtime.threads.delete_messages("one", ["pin"])).success
        assert await find(runtime, "4711") == await find(runtime, "4711", owner="kim") == []
        assert await find(runtime, "4711", session=facts) == [facts]
        recall = SemanticMemory(messages=True, threshold=0)
        later = ScriptedModel(say("No."))
        session = await runtime.open(vaka.Agent("helper", model=later, middleware=[recall]), id="two")
        await session.update(owner="kim")
        await session.run("What is the PIN?")
        assert "4711" not in repr(later.prompts)


async def list_sessions(store: Store) -> list[str]:
    return [info.id for info in (await store.sessions.list(SessionQuery())).sessions]


async def test_a_turn_beside_a_thread_uses_the_memory_of_its_owner(every_store: Store) -> None:
    model = ScriptedModel(call("memory_write", file="agent.md", title="Boat", content="It is red."), say("Noted."))
    seen: list[list[str]] = []

    async def look() -> str:
        """Look."""
        seen.append([thread.id for thread in (await runtime.threads.list(resource_id="kim")).threads])
        return "seen"

    agent = vaka.Agent("helper", model=model, tools=[look], middleware=[TextMemory(), SemanticMemory()])
    async with vaka.Runtime(store=every_store, environment=Environment(ids=IDS)) as runtime:
        await runtime.threads.create(id="t", resource_id="kim")
        assert (await runtime.threads.generate_with_memory(agent, "t", "Note it.", ASIDE)).text == "Noted."
        assert [info.path for info in await runtime.memories.open_text(owner="kim").list_files()] == [
            "/memories/agent.md"
        ]
        watcher = vaka.Agent("helper", model=ScriptedModel(call("look"), say("Ok.")), tools=[look])
        await runtime.threads.generate_with_memory(watcher, "t", "Look.", ASIDE)
    assert seen == [["t"]]
    assert await list_sessions(every_store) == ["t"]


async def test_the_session_of_a_turn_beside_a_thread_is_deleted_when_the_caller_is_cancelled(
    every_store: Store,
) -> None:
    entered = asyncio.Event()

    async def wait(_: Prompt) -> dict[str, Any]:
        entered.set()
        await asyncio.Event().wait()
        return say("never")

    agent = vaka.Agent("helper", model=FunctionModel(wait))
    async with vaka.Runtime(store=every_store, environment=Environment(ids=IDS)) as runtime:
        await runtime.threads.create(id="t")
        await runtime.threads.add_message("t", {"role": "user", "content": "Hello."})
        turn = asyncio.create_task(runtime.threads.generate_with_memory(agent, "t", "Wait.", ASIDE))
        await entered.wait()
        turn.cancel()
        with pytest.raises(asyncio.CancelledError):
            await turn
        assert await list_sessions(every_store) == ["t"]


async def test_the_session_of_a_turn_beside_a_thread_is_deleted_when_the_turn_cannot_begin(every_store: Store) -> None:
    async with vaka.Runtime(store=every_store, environment=Environment(ids=IDS)) as runtime:
        await runtime.threads.create(id="t")
        with pytest.raises(ConfigError):
            await runtime.threads.generate_with_memory(vaka.Agent("helper"), "t", "Hello.", ASIDE)
        assert await list_sessions(every_store) == ["t"]
