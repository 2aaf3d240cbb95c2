"""Contracts of deletion, blobs and snapshots."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
import hashlib
from contextlib import suppress

import msgspec
import pytest

from vaka.core.ports.store import GcResult, Retention, SessionQuery, Store
from vaka.core.session.index_rows import rebuild_row
from vaka.core.types.control import (
    InputAdded,
    SessionClosed,
)
from vaka.core.types.errors import Busy, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import Image, Stored
from vaka.core.types.progress import StepStarted
from vaka.testing.stores.sealed_events import (
    approval_requested,
    begin_session,
    format_time,
    input_added,
    offer_event,
    read_log,
    turn_events,
    unsealed_event,
    write_session,
)
from vaka.testing.stores.sessions import DecisionsContract, ListContract, list_ids, write_each_status

SESSION = SessionId("s")

FAR_FUTURE = "9999-01-01T00:00:00.000Z"


class DeleteContract:
    """Deletion, garbage collection and reindexing."""

    async def test_a_deleted_session_leaves_no_rows(self, store: Store, other: Store) -> None:
        await write_session(store, "s", approval_requested("a1"), input_added("x", "o"))
        await write_session(store, "t")
        await other.sessions.delete(SESSION)
        assert await store.sessions.find(SESSION) is None
        assert await read_log(store, "s") == []
        assert list(await store.sessions.decisions()) == []
        assert await list_ids(store, SessionQuery()) == ["t"]
        await write_session(store, "s")
        assert await offer_event(store, input_added("x", "o")) == 2

    async def test_a_session_with_a_writer_cannot_be_deleted(self, store: Store, other: Store) -> None:
        await begin_session(store, "s")
        for handle in (store, other):
            with pytest.raises(Busy):
                await handle.sessions.delete(SESSION)
        assert len(await read_log(store, "s")) == 1

    async def test_a_session_that_is_being_claimed_is_deleted_before_or_not_at_all(self, store: Store) -> None:
        for ticks in range(8):
            await write_session(store, "s")
            claim = asyncio.create_task(store.events.claim(SESSION))
            for _ in range(ticks):
                await asyncio.sleep(0)
            with suppress(Busy):
                await store.sessions.delete(SESSION)
            term = await claim
            assert (await store.sessions.find(SESSION) is None) == (term == 1)
            await store.events.release(SESSION, term)
            with suppress(NotFound):
                await store.sessions.delete(SESSION)

    async def test_deleting_an_unknown_session_is_not_found(self, store: Store) -> None:
        await write_session(store.with_namespace("tenant"), "s")
        with pytest.raises(NotFound):
            await store.sessions.delete(SESSION)

    async def test_gc_removes_only_old_finished_sessions(self, store: Store, other: Store) -> None:
        logs = await write_each_status(store)
        live, _ = await begin_session(store, "live", input_added("x"), *turn_events())
        await write_session(store, "asked", approval_requested("a1"))
        await write_session(store, "recent", input_added("x"), *turn_events(), at=1000)
        before = {name: await read_log(store, name) for name in (*logs, "live", "asked", "recent")}
        dry = await other.gc(Retention(idle_before=format_time(500), dry_run=True))
        assert set(dry.sessions) == {"idle", "closed"}
        assert dry.bytes > 0
        assert {name: await read_log(store, name) for name in before} == before
        assert await other.gc(Retention(idle_before=format_time(500))) == dry
        gone: dict[str, list[bytes]] = {"idle": [], "closed": []}
        assert {name: await read_log(store, name) for name in before} == {**before, **gone}
        assert await store.sessions.find(live.session) is not None
        assert await other.gc(Retention(idle_before=format_time(500))) == GcResult()

    async def test_gc_without_a_time_removes_no_session(self, store: Store) -> None:
        await write_session(store, "s", SessionClosed())
        assert await store.gc(Retention()) == GcResult()
        assert await store.sessions.find(SESSION) is not None

    async def test_gc_stays_in_its_namespace(self, store: Store) -> None:
        tenant = store.with_namespace("tenant")
        await write_session(tenant, "s", SessionClosed())
        assert await store.gc(Retention(idle_before=FAR_FUTURE)) == GcResult()
        assert (await tenant.gc(Retention(idle_before=FAR_FUTURE))).sessions == ("s",)

    async def test_reindex_rebuilds_every_row_unchanged(self, store: Store, other: Store) -> None:
        logs = await write_each_status(store)
        log, term = await begin_session(store, "live", approval_requested("a9"))
        await write_session(store.with_namespace("tenant"), "theirs")
        page, decisions = await store.sessions.list(SessionQuery()), await store.sessions.decisions()
        assert await other.reindex() == len(logs) + 1
        assert await store.sessions.list(SessionQuery()) == page
        assert await store.sessions.decisions() == decisions
        for name, written in logs.items():
            found = await store.sessions.find(SessionId(name))
            assert found == msgspec.structs.replace(rebuild_row(written.session, written.events), term=1)
        assert await store.events.offer(SessionId("idle"), unsealed_event("idle", input_added("x")), key="k") == 1
        assert await log.append_to(store, term, input_added("on", "k2")) == 2

    async def test_sessions_can_be_listed_while_others_write(self, store: Store, other: Store) -> None:
        async def write(name: str) -> None:
            log, term = await begin_session(store, name)
            for n in range(5):
                await log.append_to(store, term, input_added("x", f"k{n}x"))

        async def look() -> None:
            for _ in range(10):
                for info in (await other.sessions.list(SessionQuery(limit=100))).sessions:
                    assert info == await other.sessions.find(info.id) or info.head < 6
                await asyncio.sleep(0)

        await asyncio.gather(look(), *(write(f"s{n}") for n in range(20)))
        assert {info.head for info in (await other.sessions.list(SessionQuery(limit=100))).sessions} == {6}


class SessionsContract(ListContract, DecisionsContract, DeleteContract):
    """The contract of the session index."""


class BlobsContract:
    """Blobs, and which of them garbage collection removes."""

    async def test_a_blob_is_read_by_its_digest(self, store: Store, other: Store) -> None:
        for data in (b"", b"\x00", bytes(range(256)), b"x" * 5_000_000):
            digest = await store.blobs.put(data)
            assert digest == hashlib.sha256(data).hexdigest()
            assert await other.blobs.get(digest) == data

    async def test_equal_blobs_are_stored_once(self, store: Store, other: Store) -> None:
        digests = await asyncio.gather(*(handle.blobs.put(b"same") for _ in range(5) for handle in (store, other)))
        assert len(set(digests)) == 1
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult(blobs=1, bytes=4)

    async def test_an_unknown_digest_is_not_found(self, store: Store) -> None:
        for digest in ("0" * 64, "", "nonsense", "'; --"):
            with pytest.raises(NotFound):
                await store.blobs.get(Digest(digest))

    async def test_namespaces_share_no_blobs(self, store: Store) -> None:
        digest = await store.blobs.put(b"secret")
        with pytest.raises(NotFound):
            await store.with_namespace("tenant").blobs.get(digest)

    async def test_gc_removes_only_unreferenced_blobs(self, store: Store) -> None:
        names = {name: await store.blobs.put(name.encode()) for name in ("image", "text", "system", "tools", "loose")}
        await write_session(
            store,
            "s",
            InputAdded(key="k", content=(Image(blob=names["image"]), Stored(blob=names["text"], size=4))),
            StepStarted(agent="a", number=1, system=names["system"], tools=names["tools"]),
        )
        assert await store.gc(Retention(blobs_before=FAR_FUTURE, dry_run=True)) == GcResult(blobs=1, bytes=5)
        assert await store.blobs.get(names["loose"]) == b"loose"
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult(blobs=1, bytes=5)
        with pytest.raises(NotFound):
            await store.blobs.get(names["loose"])
        for name in ("image", "text", "system", "tools"):
            assert await store.blobs.get(names[name]) == name.encode()

    async def test_gc_spares_recent_blobs(self, store: Store) -> None:
        digest = await store.blobs.put(b"about to be named")
        assert await store.gc(Retention(blobs_before=format_time())) == GcResult()
        assert await store.gc(Retention()) == GcResult()
        assert await store.blobs.get(digest) == b"about to be named"

    async def test_a_blob_named_by_two_sessions_stays_until_both_are_deleted(self, store: Store) -> None:
        digest = await store.blobs.put(b"shared")
        for name in ("s", "t"):
            await write_session(store, name, InputAdded(key="k", content=(Image(blob=digest),)))
        await store.sessions.delete(SessionId("s"))
        assert (await store.gc(Retention(blobs_before=FAR_FUTURE))).blobs == 0
        assert await store.blobs.get(digest) == b"shared"
        await store.sessions.delete(SessionId("t"))
        assert (await store.gc(Retention(blobs_before=FAR_FUTURE))).blobs == 1

    async def test_gc_spares_blobs_of_another_namespace(self, store: Store) -> None:
        tenant = store.with_namespace("tenant")
        digest = await tenant.blobs.put(b"theirs")
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult()
        assert await tenant.blobs.get(digest) == b"theirs"

    async def test_a_removed_blob_can_be_put_again(self, store: Store) -> None:
        await store.blobs.put(b"again")
        await store.gc(Retention(blobs_before=FAR_FUTURE))
        assert await store.blobs.get(await store.blobs.put(b"again")) == b"again"


class SnapshotsContract:
    """Snapshots of folded states."""

    async def test_the_newest_snapshot_of_the_fold_version_is_loaded(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        assert await store.snapshots.load(SESSION, version="1") is None
        await store.snapshots.save(SESSION, seq=10, version="1", data=b"ten")
        await store.snapshots.save(SESSION, seq=30, version="1", data=b"\x00thirty")
        await store.snapshots.save(SESSION, seq=20, version="1", data=b"twenty")
        assert await other.snapshots.load(SESSION, version="1") == (30, b"\x00thirty")

    async def test_a_snapshot_after_upto_is_not_loaded(self, store: Store) -> None:
        await write_session(store, "s")
        await store.snapshots.save(SESSION, seq=10, version="1", data=b"ten")
        await store.snapshots.save(SESSION, seq=30, version="1", data=b"thirty")
        assert await store.snapshots.load(SESSION, version="1", upto=30) == (30, b"thirty")
        assert await store.snapshots.load(SESSION, version="1", upto=29) == (10, b"ten")
        assert await store.snapshots.load(SESSION, version="1", upto=9) is None

    async def test_a_snapshot_of_another_fold_version_is_not_loaded(self, store: Store) -> None:
        await write_session(store, "s")
        await store.snapshots.save(SESSION, seq=10, version="1", data=b"ten")
        assert await store.snapshots.load(SESSION, version="2") is None
        await store.snapshots.save(SESSION, seq=5, version="2", data=b"five")
        assert await store.snapshots.load(SESSION, version="2") == (5, b"five")

    async def test_a_snapshot_saved_twice_is_replaced(self, store: Store) -> None:
        await write_session(store, "s")
        await store.snapshots.save(SESSION, seq=10, version="1", data=b"old")
        await store.snapshots.save(SESSION, seq=10, version="1", data=b"new")
        assert await store.snapshots.load(SESSION, version="1") == (10, b"new")

    async def test_snapshots_belong_to_their_session_and_namespace(self, store: Store) -> None:
        await write_session(store, "s")
        await store.snapshots.save(SESSION, seq=1, version="1", data=b"x")
        assert await store.snapshots.load(SessionId("t"), version="1") is None
        assert await store.with_namespace("tenant").snapshots.load(SESSION, version="1") is None

    async def test_deleting_a_session_deletes_its_snapshots(self, store: Store) -> None:
        await write_session(store, "s")
        await store.snapshots.save(SESSION, seq=1, version="1", data=b"x")
        await store.sessions.delete(SESSION)
        await write_session(store, "s")
        assert await store.snapshots.load(SESSION, version="1") is None
