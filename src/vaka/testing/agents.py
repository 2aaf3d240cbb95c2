"""The contract suite of kinds of agents: subclass ``AgentKindContract`` and give it a fixture ``make_agent``.

::

    class TestMine(AgentKindContract):
        @pytest.fixture
        def make_agent(self) -> MakeAgent: ...

The agent must answer the n-th input of a conversation with ``n TEXT``, such as ``2 hello``. Before it answers an input
that begins with ``work``, it calls the tool it was made with, which takes no arguments, as a script or one of its own
agents. It must need no model.
"""
# ruff: noqa: S101  # asserts are what a contract is made of

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import vaka
from vaka.core.ports.agent import AgentKind
from vaka.core.types import progress
from vaka.core.types.errors import TurnError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, call, say

MakeAgent: TypeAlias = Callable[[Any], vaka.Agent]
"""Makes an agent that has a tool."""


class _Work:
    """The tool of the agent: it counts its runs, and waits once ``gate`` is set to an event."""

    def __init__(self) -> None:
        self.runs = 0
        self.started = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.tool = vaka.tool(self._run, name="work", description="Work.", effect="idempotent")

    async def _run(self) -> str:
        self.runs += 1
        self.started.set()
        if self.gate is not None:
            await self.gate.wait()
        return "done"


async def _read_log(store: MemoryStore, session: str) -> list[Event]:
    return [event async for event in store.events.read(SessionId(session))]


async def _write_log(store: MemoryStore, session: str, events: Sequence[Event]) -> None:
    term = await store.events.claim(SessionId(session))
    await store.events.append(SessionId(session), events, head=0, term=term, release=True)


class AgentKindContract:
    """What every kind of agent does: see ``vaka.core.ports.agent``."""

    def test_it_is_a_kind_that_says_whether_it_needs_a_model(self, make_agent: MakeAgent) -> None:
        agent = make_agent(_Work().tool)
        assert isinstance(agent, AgentKind)
        assert agent.needs_model is False

    async def test_one_agent_serves_several_sessions_each_with_its_own_conversation(
        self, make_agent: MakeAgent
    ) -> None:
        agent = make_agent(_Work().tool)
        async with vaka.Runtime(store=MemoryStore()) as runtime:
            first, second = await runtime.open(agent, id="first"), await runtime.open(agent, id="second")
            await asyncio.gather(first.run("a"), second.run("b"))
            assert [(await session.run("c")).text for session in (first, second, first)] == ["2 c", "2 c", "3 c"]

    async def test_another_process_goes_on_after_a_turn_and_in_the_middle_of_one(self, make_agent: MakeAgent) -> None:
        store = MemoryStore()
        async with vaka.Runtime(store=store) as runtime:
            session = await runtime.open(make_agent(_Work().tool), id="s")
            texts = [(await session.run(text)).text for text in ("a", "work b")]
        assert texts == ["1 a", "2 work b"]
        log = await _read_log(store, "s")
        second_turn = max(event.seq for event in log if isinstance(event.data, progress.TurnStarted))
        for cut in range(second_turn, len(log)):
            await self._check_resumed(make_agent, log[:cut])

    async def _check_resumed(self, make_agent: MakeAgent, log: Sequence[Event]) -> None:
        """Check that a turn goes on from its events in the log, and repeats no call that has a result there."""
        store, work = MemoryStore(), _Work()
        await _write_log(store, "s", log)
        async with vaka.Runtime(store=store) as runtime:
            session = await runtime.open(make_agent(work.tool), id="s")
            events = [event async for event in session.resume()]
            assert isinstance(events[-1].data, progress.TurnCompleted), len(log)
            assert events[-1].data.text == "2 work b", len(log)
            assert (await session.run("c")).text == "3 c", len(log)
        results = [e.data.result for e in log if isinstance(e.data, progress.ToolCompleted)]
        assert work.runs == (0 if any(result.text == "done" for result in results) else 1), len(log)

    async def test_a_fork_and_a_rewind_have_the_conversation_up_to_there(self, make_agent: MakeAgent) -> None:
        async with vaka.Runtime(store=MemoryStore()) as runtime:
            session = await runtime.open(make_agent(_Work().tool), id="s")
            await session.run("a")
            place = await session.checkpoint("after a")
            await session.run("b")
            other = await session.fork(place, id="other")
            assert (await other.run("c")).text == "2 c"
            await session.rewind("after a")
            assert [(await session.run(text)).text for text in ("d", "e")] == ["2 d", "3 e"]

    async def test_as_a_tool_it_begins_a_conversation_with_each_call(self, make_agent: MakeAgent) -> None:
        work = _Work()
        agent = make_agent(work.tool)
        calls = [call(agent.name, prompt=text) for text in ("a", "work b")]
        parent = vaka.Agent("parent", model=ScriptedModel(*calls, say("Done.")), tools=[agent])
        store = MemoryStore()
        async with vaka.Runtime(store=store) as runtime:
            assert (await (await runtime.open(parent, id="s")).run("Go.")).text == "Done."
        log = await _read_log(store, "s")
        results = [e.data.result.text for e in log if isinstance(e.data, progress.ToolCompleted) and not e.path]
        assert (results, work.runs) == (["1 a", "1 work b"], 1)

    async def test_an_interrupt_ends_the_turn_and_not_the_conversation(self, make_agent: MakeAgent) -> None:
        work, store = _Work(), MemoryStore()
        work.gate = asyncio.Event()
        async with vaka.Runtime(store=store) as runtime:
            session = await runtime.open(make_agent(work.tool), id="s")
            await session.run("a")
            running = asyncio.create_task(session.run("work b"))
            await work.started.wait()
            await session.interrupt("stop")
            try:
                await running
            except TurnError as error:
                assert error.code == "interrupted"  # noqa: PT017  # the suite of a contract needs no pytest
            else:
                raise AssertionError("the turn was not interrupted")
            work.gate.set()
            assert (await session.run("c")).text.split()[-1] == "c"
        ends = [event.data for event in await _read_log(store, "s") if isinstance(event.data, progress.TURN_ENDS)]
        assert [type(end).__name__ for end in ends] == ["TurnCompleted", "TurnInterrupted", "TurnCompleted"]

    async def test_a_closed_session_goes_on_with_the_next_input(self, make_agent: MakeAgent) -> None:
        store = MemoryStore()
        async with vaka.Runtime(store=store) as runtime:
            session = await runtime.open(make_agent(_Work().tool), id="s")
            await session.run("a")
            await session.close()
            assert (await session.run("b")).text == "2 b"
        ends = [event.data for event in await _read_log(store, "s") if isinstance(event.data, progress.TURN_ENDS)]
        assert [type(end).__name__ for end in ends] == ["TurnCompleted"] * 3
