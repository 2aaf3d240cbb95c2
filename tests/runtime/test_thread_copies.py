"""Copies of what was said in a thread: in background sessions, and in the sessions of turns beside it."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import IDS
from vaka.core.ports.messages import MessageSearch
from vaka.core.ports.store import Store
from vaka.memory.background import facts_session
from vaka.testing.models import ScriptedModel, say


async def find(runtime: vaka.Runtime, text: str, **chosen: Any) -> list[str]:
    return [hit.message.session for hit in (await runtime.threads.search(MessageSearch(text=text, **chosen))).hits]


@pytest.mark.parametrize("memory", [vaka.TextMemory(), vaka.SemanticMemory(messages=True)], ids=["text", "semantic"])
async def test_a_deleted_message_is_not_found_in_the_session_that_extracted_facts_from_it(
    every_store: Store, memory: Any
) -> None:
    facts = facts_session("one", "kim")
    extraction = vaka.FactExtraction(memory, model=ScriptedModel(say("done")))
    agent = vaka.Agent("helper", model=ScriptedModel(say("Noted.")), middleware=[extraction])
    async with vaka.Runtime(store=every_store, ids=IDS) as runtime:
        await runtime.threads.create(id="one", resource_id="kim")
        await (await runtime.open(agent, id="one")).run("The PIN is 4711.", key="pin")
    async with vaka.Runtime(store=every_store, ids=IDS) as runtime:
        assert await find(runtime, "4711") == ["one"]
        assert (await runtime.threads.delete_messages("one", ["pin"])).success
        assert await find(runtime, "4711") == await find(runtime, "4711", owner="kim") == []
        assert await find(runtime, "4711", session=facts) == [facts]
        recall = vaka.SemanticMemory(messages=True, threshold=0)
        later = ScriptedModel(say("No."))
        session = await runtime.open(vaka.Agent("helper", model=later, middleware=[recall]), id="two")
        await session.update(owner="kim")
        await session.run("What is the PIN?")
        assert "4711" not in repr(later.prompts)
