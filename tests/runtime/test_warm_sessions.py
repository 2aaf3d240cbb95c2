"""Sessions whose state a runtime holds between turns: what the next turn reads, and when it reads the whole log."""

import asyncio
import sqlite3
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import vaka
from tests.runtime.runtime_fixtures import runtime
from vaka.core.ports.model import Prompt
from vaka.core.session.hash_chain import seal_chain
from vaka.core.session.snapshot import empty_session
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event
from vaka.core.types.ids import NO_SCOPE, SessionId
from vaka.core.types.message import Text, UserMessage, text_of
from vaka.runtime.session_driver import MAX_WARM_SESSIONS, SESSION_OVERHEAD, WarmSessions
from vaka.stores.memory import MemoryStore
from vaka.testing.models import FunctionModel, RecordingModel, call


async def answer(prompt: Prompt) -> str:
    return f"answer {len(prompt.messages)}"


def make_agent() -> tuple[vaka.Agent[Any], RecordingModel]:
    model = RecordingModel(FunctionModel(answer))
    return vaka.Agent("helper", model=model), model


async def run_checked(session: vaka.Session[Any], model: RecordingModel, text: str) -> None:
    """Run a turn, and compare its prompt with the messages that the stored log has."""
    stored = await session.messages()
    await session.run(text)
    assert model.prompts[-1].messages == (*stored, UserMessage(content=(Text(text=text),)))


def user_texts(model: RecordingModel) -> list[str]:
    """Return the texts of the user in the last prompt."""
    return [text_of(message.content) for message in model.prompts[-1].messages if isinstance(message, UserMessage)]


class ReadCounter:
    """An event store that counts the events that are read."""

    def __init__(self, inner: Any) -> None:
        self._inner, self.count = inner, 0
        self.sync_waits = asyncio.Event()
        """Set when a driver begins to wait for events of others."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def select(self, session: SessionId, seqs: Sequence[int], *, digest: str) -> Sequence[Event]:
        self.count += len(seqs)
        found: Sequence[Event] = await self._inner.select(session, seqs, digest=digest)
        return found

    async def wait(self, session: SessionId, *, after: int) -> int:
        self.sync_waits.set()
        head: int = await self._inner.wait(session, after=after)
        return head

    async def read(self, session: SessionId, *, after: int = 0, upto: int | None = None) -> AsyncGenerator[Event]:
        async with aclosing(self._inner.read(session, after=after, upto=upto)) as events:
            async for event in events:
                self.count += 1
                yield event


async def test_a_later_turn_in_the_same_runtime_reads_no_events() -> None:
    store = MemoryStore()
    store.events = counter = ReadCounter(store.events)
    made, model = make_agent()
    async with runtime(store) as rt:
        session = await rt.open(made, id="s")
        for number in range(20):
            await session.run(f"{number}")
        assert counter.count == 1  # the metadata, once
        assert len(model.prompts[-1].messages) == 39


async def test_a_session_stays_warm_after_a_turn_that_was_longer_than_the_delay_of_the_sync() -> None:
    store = MemoryStore()
    store.events = counter = ReadCounter(store.events)

    async def answer_late(prompt: Prompt) -> str:
        counter.sync_waits.clear()
        await counter.sync_waits.wait()
        return "done"

    async with runtime(store) as rt:
        session = await rt.open(vaka.Agent("helper", model=FunctionModel(answer_late)), id="s")
        for _ in range(4):
            await session.run("hi")
        assert counter.count == 1  # the metadata, once


async def test_a_turn_after_another_writer_reads_only_the_events_of_that_writer() -> None:
    store = MemoryStore()
    made, model = make_agent()
    async with runtime(store) as here, runtime(other := store.open_handle()) as there:
        session = await here.open(made, id="s")
        for number in range(10):
            await session.run(f"{number}")
        elsewhere = await there.open(made, id="s")
        await elsewhere.run("from another runtime")
        info = await other.sessions.find(SessionId("s"))
        assert info is not None
        store.events = counter = ReadCounter(store.events)
        await session.run("again")
        assert 0 < counter.count < info.head / 2
        assert user_texts(model)[-2:] == [
            "from another runtime",
            "again",
        ]


@pytest.mark.parametrize("change", ["rewind", "fork_and_delete", "restore"])
async def test_a_session_that_was_changed_elsewhere_is_read_again(change: str, tmp_path: Path) -> None:
    path, backup = tmp_path / "vaka.db", tmp_path / "backup"
    made, model = make_agent()
    async with vaka.Runtime(store=f"sqlite:///{path}") as here:
        session = await here.open(made, id="s")
        await session.run("first")
        place = await session.checkpoint("here")
        if change == "restore":
            backup.mkdir()
            copy_database(path, backup / "vaka.db")
        await session.run("second")
        async with vaka.Runtime(store=f"sqlite:///{path}") as there:
            if change == "rewind":
                await there.rewind("s", str(place))
            elif change == "fork_and_delete":
                await there.fork("s", at=str(place), id="copy")
                await there.store.sessions.delete(SessionId("s"))
                await there.fork("copy", id="s")
        if change == "restore":
            restore_database(backup / "vaka.db", path)
        await run_checked(session, model, "third")
        texts = user_texts(model)
        assert texts == ["first", "third"]


def copy_database(path: Path, to: Path) -> None:
    with sqlite3.connect(path) as source, sqlite3.connect(to) as target:
        source.backup(target)
    source.close()
    target.close()


def restore_database(backup: Path, path: Path) -> None:
    with sqlite3.connect(backup) as source, sqlite3.connect(path) as target:
        source.backup(target)
    source.close()
    target.close()


async def test_a_changed_row_of_a_warm_session_is_found_by_a_cold_read(tmp_path: Path) -> None:
    path = tmp_path / "vaka.db"
    made, _ = make_agent()
    async with vaka.Runtime(store=f"sqlite:///{path}") as here:
        session = await here.open(made, id="s")
        await session.run("first")
        with sqlite3.connect(path) as database:
            database.execute("update events set body = cast(replace(cast(body as text), 'first', 'worst') as blob)")
        database.close()
        await session.run("second")  # the events that the runtime holds are not read again
        with pytest.raises(Corrupt):
            await session.messages()


async def test_a_suspended_turn_resumes_from_the_held_state() -> None:
    store = MemoryStore()

    @vaka.tool(effect="resume")
    async def ask(context: vaka.ToolContext) -> str:
        """Ask a person."""
        return f"{await context.ask('go on?')}"

    store.events = counter = ReadCounter(store.events)
    asked = False

    async def call_first(prompt: Prompt) -> Any:
        nonlocal asked
        first, asked = not asked, True
        return call("ask") if first else "done"

    model = RecordingModel(FunctionModel(call_first))
    async with runtime(store, permissions=vaka.Permissions(ask="suspend")) as rt:
        session = await rt.open(vaka.Agent("helper", model=model, tools=[ask]), id="s")
        with pytest.raises(vaka.Suspended) as caught:
            await session.run("begin")
        await rt.answer(caught.value.decisions[0], "yes")
        read_before = counter.count
        response = await session.resume().wait()
        assert response.text == "done"
        assert counter.count - read_before < 5


async def test_many_sessions_are_held_up_to_a_number_and_the_oldest_is_dropped() -> None:
    warm = WarmSessions(max_sessions=3)
    for number in range(5):
        warm.put(SessionId(f"s{number}"), empty_session())
    assert (len(warm), warm.size) == (3, 3 * SESSION_OVERHEAD)
    assert warm.take(SessionId("s1")) is None
    assert warm.take(SessionId("s4")) is not None
    assert (len(warm), warm.size) == (2, 2 * SESSION_OVERHEAD)


async def test_a_session_larger_than_the_limit_is_not_held() -> None:
    warm = WarmSessions(max_bytes=10_000)
    opened = empty_session()
    long = InputAdded(key="k", content=(Text(text="x" * 20_000),))
    opened.window.add(seal_chain(SessionId("large"), None, [(NO_SCOPE, long)], "2026-01-01T00:00:00Z"), opened.state)
    warm.put(SessionId("small"), empty_session())
    warm.put(SessionId("large"), opened)
    assert (len(warm), warm.size) == (0, 0)
    assert warm.take(SessionId("large")) is None


async def test_a_runtime_holds_a_bounded_number_of_sessions() -> None:
    made, _ = make_agent()
    async with runtime() as rt:
        for number in range(MAX_WARM_SESSIONS + 10):
            await (await rt.open(made, id=f"s{number}")).run("hi")
        first = await rt.open(made, id="s0")
        assert (await first.run("again")).text == "answer 3"


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["run", "send", "rewind", "fork", "checkpoint"]), st.integers(0, 1), st.integers(0, 5)),
    min_size=1,
    max_size=12,
)


@given(OPERATIONS)
def test_prompts_are_those_of_the_stored_log_after_any_interleaving_of_two_runtimes(
    operations: list[tuple[str, int, int]],
) -> None:
    asyncio.run(interleave(operations))


async def interleave(operations: list[tuple[str, int, int]]) -> None:
    store = MemoryStore()
    made, model = make_agent()
    async with runtime(store) as first, runtime(store.open_handle()) as second:
        runtimes = (first, second)
        places = list[str]()
        forks = 0
        sessions = [await rt.open(made, id="s") for rt in runtimes]
        await sessions[0].run("begin")
        for operation, which, number in operations:
            session = sessions[which]
            if operation == "run":
                await run_checked(session, model, f"{number}")
            elif operation == "send":
                await session.send(f"queued {number}")
                await session.resume().wait()
            elif operation == "checkpoint":
                places.append(str(await session.checkpoint(f"place {len(places)}")))
            elif operation == "rewind" and places:
                await session.rewind(places[number % len(places)])
            elif operation == "fork":
                forks += 1
                await run_checked(await session.fork(id=f"fork-{forks}"), model, "forked")
        for session in sessions:
            await run_checked(session, model, "last")
