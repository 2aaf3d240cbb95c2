"""``Runtime.erase`` removes everything that is stored of an owner, and nothing of anybody else."""

import sqlite3
from collections.abc import Iterable
from contextlib import aclosing, closing
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.loop.blobs import BlobContext, offload
from vaka.core.ports.store import SessionQuery, Store
from vaka.core.ports.vectors import VectorRecord
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import ErasedSession, InvalidInput, NotFound
from vaka.core.types.ids import Digest, SessionId, Term
from vaka.core.types.message import Text
from vaka.memory import TextMemory, WorkingMemory
from vaka.memory.memory_scope import memory_scope
from vaka.memory.owner import encode_name
from vaka.memory.semantic import DEFAULT_COLLECTION
from vaka.runtime.erase import ErasureReport
from vaka.runtime.options import Project
from vaka.runtime.session_edits import delete_session
from vaka.stores.blob_references import blobs_of
from vaka.stores.memory import MemoryStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.models import ScriptedModel, call, say
from vaka.testing.stores.sealed_events import unsealed_event

OWNER = "ann%/'; drop"
OTHERS = ("ann", "ann%/'; dro", "bob")


async def _talk(rt: Any, owner: str, *sessions: str) -> None:
    """Run a turn in sessions of an owner; the owner's name is in everything that is stored."""
    for session in sessions:
        model = ScriptedModel(
            call("memory_write", file="notes.md", content=f"{owner} likes tea {'x' * 250_000}"),
            call("update_working_memory", memory=f"{owner} is here"),
            {"text": f"Hello {owner}. {'y' * 40_000}"},
        )
        memory = [TextMemory(), WorkingMemory(scope="resource")]
        opened = await rt.open(agent(model, middleware=memory), id=session)
        await opened.update(owner=owner, title=f"Tea for {owner}")
        await opened.run(f"I am {owner}.")
        scope = memory_scope("resource", user=owner, resource=session)
        record = VectorRecord(id="m", text=f"{owner} likes tea", vector=(1.0, 0.0))
        await rt.store.vectors.upsert(DEFAULT_COLLECTION, scope, [record])


async def _everything(store: Any) -> list[Any]:
    """Return what a store has of the other owners."""
    kept: list[Any] = []
    for owner in OTHERS:
        page = await store.sessions.list(SessionQuery(owner=owner))
        kept += [(info, await read_log(store, info.id)) for info in page.sessions]
        kept += [await store.vectors.scopes(DEFAULT_COLLECTION, memory_scope("user", user=owner))]
    return kept


async def test_everything_of_an_owner_is_erased_and_nothing_of_others(tmp_path: Path) -> None:
    path, folder = tmp_path / "db" / "s.db", tmp_path / "transcripts"
    path.parent.mkdir()
    store: Any = SqliteStore(path, durability="process")
    tenant = store.with_namespace("tenant")
    async with runtime(tenant) as rt:
        await _talk(rt, OWNER, "a1")
    theirs = await read_log(tenant, "a1")
    async with runtime(store, project=Project(transcript_folder=str(folder))) as rt:
        await _talk(rt, OWNER, "a1", "a2")
        await rt.fork("a1", id="a3")
        for owner in OTHERS:
            await _talk(rt, owner, f"s {owner.encode().hex()}")
        kept, keys = await _everything(store), await store.values.keys()
        folder.mkdir()
        (folder / "a1.jsonl").write_text(OWNER)

        preview = await rt.erase(owner=OWNER, dry_run=True)
        assert set(preview.sessions) == {"a1", "a2", "a3"}
        assert preview.memories == {"text": 1, "working": 1, "semantic": 2, "rules": 0}
        assert (await _everything(store), await store.values.keys()) == (kept, keys)

        report = await rt.erase(owner=OWNER, by="ops")
        assert set(report.sessions) == {"a1", "a2", "a3"}
        assert (report.memories, report.failed, report.overwritten) == (preview.memories, {}, True)
        assert report.blobs > 0
        assert await _everything(store) == kept
        left = await store.values.keys()
        assert not [key for key in left if encode_name(OWNER) in key]
        assert len(left) * 4 == len(keys) * 3, "each of the four owners has as many values"
        assert list(folder.iterdir()) == []
        for session in report.sessions:
            log = await read_log(store, session)
            assert log[-1].type == "session.erased"
            assert (await rt.stats(session)).session_id == session
        assert await store.vectors.scopes(DEFAULT_COLLECTION, memory_scope("user", user=OWNER)) == []
        assert await rt.erase(owner=OWNER) == ErasureReport(owner=OWNER, memories=dict.fromkeys(preview.memories, 0))
        opened = await rt.open(agent(ScriptedModel()), id="a1")
        for attempt in (opened.run("Again."), opened.update(title="x"), rt.fork("a1", id="a4")):
            with pytest.raises(ErasedSession):
                await attempt
        assert await read_log(tenant, "a1") == theirs
    async with runtime(tenant) as rt:
        assert (await rt.erase(owner=OWNER)).sessions == ("a1",)
    await store.close()
    assert OWNER.encode() not in b"".join(file.read_bytes() for file in path.parent.iterdir() if file.is_file())


async def test_one_session_is_erased_and_the_memory_of_its_owner_stays() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await _talk(rt, "ann", "a1", "a2")
        before = await read_log(store, "a2")
        assert (await rt.erase("a1", dry_run=True)).sessions == ("a1",)
        report = await rt.erase("a1")
        assert (report.sessions, report.memories, report.owner) == (("a1",), {}, "")
        assert (await rt.erase("a1", dry_run=True)) == ErasureReport(dry_run=True)
        assert (await rt.erase("a1")).sessions == ()
        assert await read_log(store, "a2") == before
        assert (await rt.erase(owner="ann", dry_run=True)).memories == {
            "text": 1,
            "working": 1,
            "semantic": 2,
            "rules": 0,
        }
        wrong: Any
        for wrong in ({}, {"session": "a1", "owner": "ann"}):
            with pytest.raises(InvalidInput, match="either a session or an owner"):
                await rt.erase(**wrong)
        with pytest.raises(NotFound):
            await rt.erase("none")


async def test_a_session_whose_row_is_damaged_is_deleted(tmp_path: Path) -> None:
    store: Any = SqliteStore(tmp_path / "vaka.db")
    async with runtime(store) as rt:
        await _talk(rt, "ann", "a1")
    with closing(sqlite3.connect(tmp_path / "vaka.db")) as connection, connection:
        connection.execute("update sessions set title = 'changed'")
    await delete_session(store, SessionId("a1"))
    assert await read_log(store, "a1") == []
    await store.close()


async def test_a_session_with_a_writer_is_reported_and_erased_by_the_next_call() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await _talk(rt, "ann", "a1", "a2")
        term = await store.events.claim(SessionId("a1"))
        report = await rt.erase(owner="ann")
        assert report.sessions == ("a2",)
        assert "has a writer" in report.failed[SessionId("a1")]
        await store.events.release(SessionId("a1"), term)
        assert (await rt.erase(owner="ann")).sessions == ("a1",)


async def _missing_blobs(store: Store, session: str) -> set[Digest]:
    """Return the blobs that the events of a session name and that are not stored."""
    async with aclosing(store.events.read(SessionId(session))) as events:
        return await store.blobs.find_missing({digest async for event in events for digest in blobs_of(event)})


async def test_prompt_texts_that_were_erased_with_a_session_are_stored_again_for_the_next(tmp_path: Path) -> None:
    store: Any = SqliteStore(tmp_path / "s.db", durability="process")
    elsewhere = SqliteStore(tmp_path / "s.db", durability="process")
    async with runtime(store) as rt:
        for session in ("a", "b"):
            helper = agent(ScriptedModel(say("Hello.")), instructions="Be kind.")
            await (await rt.open(helper, id=session)).run("Hi.")
            assert await _missing_blobs(store, session) == set()
            assert (await elsewhere.erase([SessionId(session)])).blobs == 2
        helper = agent(ScriptedModel(say("Hello.")), instructions="Be kind.")
        await (await rt.open(helper, id="c")).run("Hi.")
    assert await _missing_blobs(store, "c") == set()
    await elsewhere.close()
    await store.close()


class ErasingBlobs:
    """Blobs of a store in which a session is erased as soon as it is known that no blob is missing."""

    def __init__(self, store: MemoryStore, session: str) -> None:
        self._store = store
        self._inner = store.blobs
        self._session = SessionId(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def find_missing(self, digests: Iterable[Digest]) -> set[Digest]:
        missing = await self._inner.find_missing(digests)
        await self._store.erase([self._session])
        return missing


async def test_prompt_texts_that_are_erased_right_before_a_step_begins_are_stored_again() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(agent(ScriptedModel(say("Hello."))), id="a")).run("Hi.")
        store.blobs = ErasingBlobs(store, "a")
        await (await rt.open(agent(ScriptedModel(say("Hello."))), id="b")).run("Hi.")
        assert await _missing_blobs(store, "b") == set()
        erased = await store.sessions.find(SessionId("a"))
        assert erased is not None
        assert erased.erased


async def test_a_large_input_for_a_turn_of_another_process_outlives_an_erasure(tmp_path: Path) -> None:
    large = "large " * 20_000
    stores: list[Any] = [SqliteStore(tmp_path / "s.db", durability="process") for _ in range(2)]
    async with runtime(stores[0]) as rt:
        await (await rt.open(agent(ScriptedModel(say("Hello."))), id="a")).run(large)
        await (await rt.open(agent(ScriptedModel(say("Hello."))), id="b")).run("Hi.")
        offered = await offload(BlobContext(stores[1], rt.secrets, SessionId("b")), (Text(text=large),))
        await rt.erase("a")
        added = InputAdded(key="k", content=offered)
        await stores[1].events.offer(SessionId("b"), unsealed_event("b", added), key="k")
        assert await _missing_blobs(stores[0], "b") == set()
    for store in stores:
        await store.close()


class ErasingEvents:
    """Events of a store in which a session is erased when another one is claimed."""

    def __init__(self, store: MemoryStore, session: str) -> None:
        self._store = store
        self._inner = store.events
        self._session = SessionId(session)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def claim(self, session: SessionId) -> Term:
        await self._store.erase([self._session])
        return await self._inner.claim(session)


async def test_a_fork_of_a_session_that_is_erased_meanwhile_does_not_stay() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        await (await rt.open(agent(ScriptedModel(say("Hello."))), id="a")).run("large " * 20_000)
        store.events = ErasingEvents(store, "a")
        with pytest.raises(ErasedSession):
            await rt.fork("a", id="b")
        assert await store.sessions.find(SessionId("b")) is None


async def test_a_large_message_of_a_thread_outlives_an_erasure_of_its_copy(tmp_path: Path) -> None:
    large = "large " * 20_000
    store: Any = SqliteStore(tmp_path / "s.db", durability="process")
    async with runtime(store) as rt:
        for id in ("a", "b"):
            await rt.threads.create(id=id)
            await rt.threads.add_message(id, {"role": "user", "content": large})
        await rt.erase("a")
        assert await _missing_blobs(store, "b") == set()
        (message,) = (await rt.threads.get_messages("b")).messages
        assert message.text
    await store.close()
