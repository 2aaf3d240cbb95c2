"""A session of two thousand turns: every prompt fits the window, the log verifies, its first turns can be forked."""

from pathlib import Path

import pytest

from tests.faults import log_checks
from vaka.agents.react import Agent
from vaka.core.ports.model import Prompt
from vaka.core.ports.store import Store
from vaka.core.session.snapshot import reopen
from vaka.core.types.context import ContextCompacted
from vaka.core.types.ids import SessionId
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage, text_of
from vaka.core.types.tokens import estimate_message_tokens
from vaka.runtime.runtime import Runtime
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import FunctionModel, ScriptLine, call, say
from vaka.tools import tool

WINDOW = 4_000
ID = SessionId("long")


@tool(effect="read")
async def look(where: str) -> str:
    """Look somewhere."""
    return f"sea in the {where} " * 20


class WatchedModel(FunctionModel):
    """A model that calls a tool in every third turn, and checks every prompt it gets."""

    def __init__(self) -> None:
        super().__init__(self._answer)
        self.context_window = WINDOW
        self.largest = 0
        self.summaries = 0

    async def _answer(self, prompt: Prompt) -> ScriptLine:
        self.largest = max(self.largest, estimate_message_tokens(prompt.messages))
        if prompt.agent == "summary":
            self.summaries += 1
            return say(f"<summary>Summary {self.summaries}.</summary>")
        last = prompt.messages[-1]
        calls = [one.id for m in prompt.messages if isinstance(m, AssistantMessage) for one in m.calls]
        results = [one.call for m in prompt.messages if isinstance(m, ToolMessage) for one in m.results]
        assert calls == results
        if isinstance(last, UserMessage) and int(text_of(last.content).split()[1]) % 3 == 0:
            return call("look", where="north")
        return say("All is well on board. " * 5)


async def sail(store: Store, turns: int) -> None:
    model = WatchedModel()
    agent = Agent("teller", model=model, tools=[look])
    async with Runtime(store=store) as runtime:
        session = await runtime.open(agent, id=ID)
        for number in range(1, turns + 1):
            await session.run(f"day {number} at sea: what do you see from the top of the mast?")
        assert model.largest < WINDOW
        opened = await reopen(store, ID)
        assert len(opened.window.events) < 400
        log = [event async for event in store.events.read(ID)]
        log_checks.assert_chain_complete(log)
        done = [event for event in log if isinstance(event.data, ContextCompacted)]
        assert len(done) > turns // 40
        assert {event.data.failure for event in done if isinstance(event.data, ContextCompacted)} == {""}
        assert not any(event.type == "turn.failed" for event in log)
        first = await session.fork(f"1.{done[0].seq - 2}", id="early")
        seen = [text_of(m.content) for m in await first.messages() if isinstance(m, UserMessage)]
        assert seen[:2] == [f"day {n} at sea: what do you see from the top of the mast?" for n in (1, 2)]
        assert (await first.run("day 1000000 at last?")).text.startswith("All is well")
        shown = [text_of(m.content) for m in await session.messages() if isinstance(m, UserMessage)]
        assert shown[0].startswith("day 1 at sea")
        assert shown[1].endswith(f"Summary {len(done)}.")
        assert shown[-1].startswith(f"day {turns} at sea")


async def test_two_thousand_turns_stay_within_the_window() -> None:
    await sail(MemoryStore(), 2_000)


@pytest.mark.exhaustive
async def test_two_thousand_turns_stay_within_the_window_in_a_file(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "vaka.db", durability="process")
    await sail(store, 2_000)
    await store.close()
