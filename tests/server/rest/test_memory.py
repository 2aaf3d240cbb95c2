"""The memory of an agent behind a server belongs to the caller."""

from typing import Any

import vaka
from tests.server.conftest import Serve
from tests.server.rest.test_turns import API, start
from vaka.core.ports.model import Prompt
from vaka.core.types.message import ToolMessage, text_of
from vaka.memory import TextMemory
from vaka.testing.models import FunctionModel, call, say


async def answer(prompt: Prompt) -> Any:
    """Write what the user says to the memory, or say what it has."""
    last = prompt.messages[-1]
    if isinstance(last, ToolMessage):
        return say(last.results[0].text)
    text = text_of(last.content)
    if text == "Recall.":
        return call("memory_search", query="is")
    return call("memory_write", file="n.md", content=text, title="Note")


async def test_callers_of_two_tenants_and_of_one_have_memories_of_their_own(serve: Serve) -> None:
    agent = vaka.Agent("assistant", model=FunctionModel(answer), middleware=[TextMemory()])
    async with serve([agent]) as served:
        for token in ("alice", "bob", "carol"):
            async with served.client(token) as client:
                for session, text in ((f"{token}-1", f"{token} is here"), (f"{token}-2", "Recall.")):
                    done = (await start(client, session=session, input=text)).json()
                    assert done["status"] == "completed", done
                messages = (await client.get(f"{API}/sessions/{token}-2/messages")).json()["data"]
                assert messages[-1]["content"][0]["text"] == f"/memories/n.md:3: {token} is here"
