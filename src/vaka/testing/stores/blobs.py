"""Bytes by their digest, and folded states."""
# ruff: noqa: D102, S101  # the names of the tests say what is promised

import asyncio
import hashlib

import pytest

from vaka.core.ports.store import Removed, Retention, Store
from vaka.core.types.content import Image, Stored
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.progress import StepStarted
from vaka.testing.stores.pen import kept, moment

S = SessionId("s")
LATER = "9999-01-01T00:00:00.000Z"


class BlobsContract:
    """Blobs, and which of them may go."""

    async def test_bytes_come_back_by_their_digest(self, store: Store, other: Store) -> None:
        for data in (b"", b"\x00", bytes(range(256)), b"x" * 5_000_000):
            digest = await store.blobs.put(data)
            assert digest == hashlib.sha256(data).hexdigest()
            assert await other.blobs.get(digest) == data

    async def test_the_same_bytes_are_kept_once(self, store: Store, other: Store) -> None:
        digests = await asyncio.gather(*(handle.blobs.put(b"same") for _ in range(5) for handle in (store, other)))
        assert len(set(digests)) == 1
        assert await store.gc(Retention(blobs_before=LATER)) == Removed(blobs=1, bytes=4)

    async def test_unknown_bytes_are_not_found(self, store: Store) -> None:
        for digest in ("0" * 64, "", "nonsense", "'; --"):
            with pytest.raises(NotFound):
                await store.blobs.get(Digest(digest))

    async def test_namespaces_share_no_bytes(self, store: Store) -> None:
        digest = await store.blobs.put(b"secret")
        with pytest.raises(NotFound):
            await store.scoped("tenant").blobs.get(digest)

    async def test_what_a_log_names_stays_and_the_rest_may_go(self, store: Store) -> None:
        names = {name: await store.blobs.put(name.encode()) for name in ("image", "text", "system", "tools", "loose")}
        await kept(
            store, "s",
            InputAdded(key="k", content=(Image(blob=names["image"]), Stored(blob=names["text"], size=4))),
            StepStarted(agent="a", number=1, system=names["system"], tools=names["tools"]),
        )  # fmt: skip
        assert await store.gc(Retention(blobs_before=LATER, dry_run=True)) == Removed(blobs=1, bytes=5)
        assert await store.blobs.get(names["loose"]) == b"loose"
        assert await store.gc(Retention(blobs_before=LATER)) == Removed(blobs=1, bytes=5)
        with pytest.raises(NotFound):
            await store.blobs.get(names["loose"])
        for name in ("image", "text", "system", "tools"):
            assert await store.blobs.get(names[name]) == name.encode()

    async def test_young_bytes_stay(self, store: Store) -> None:
        digest = await store.blobs.put(b"about to be named")
        assert await store.gc(Retention(blobs_before=moment())) == Removed()
        assert await store.gc(Retention()) == Removed()
        assert await store.blobs.get(digest) == b"about to be named"

    async def test_bytes_two_sessions_name_stay_until_both_are_gone(self, store: Store) -> None:
        digest = await store.blobs.put(b"shared")
        for name in ("s", "t"):
            await kept(store, name, InputAdded(key="k", content=(Image(blob=digest),)))
        await store.sessions.delete(SessionId("s"))
        assert (await store.gc(Retention(blobs_before=LATER))).blobs == 0
        assert await store.blobs.get(digest) == b"shared"
        await store.sessions.delete(SessionId("t"))
        assert (await store.gc(Retention(blobs_before=LATER))).blobs == 1

    async def test_bytes_of_another_namespace_stay(self, store: Store) -> None:
        tenant = store.scoped("tenant")
        digest = await tenant.blobs.put(b"theirs")
        assert await store.gc(Retention(blobs_before=LATER)) == Removed()
        assert await tenant.blobs.get(digest) == b"theirs"

    async def test_bytes_that_were_removed_can_be_put_again(self, store: Store) -> None:
        await store.blobs.put(b"again")
        await store.gc(Retention(blobs_before=LATER))
        assert await store.blobs.get(await store.blobs.put(b"again")) == b"again"


class SnapshotsContract:
    """Folded states: a help, never the truth."""

    async def test_the_newest_state_of_the_fold_is_loaded(self, store: Store, other: Store) -> None:
        await kept(store, "s")
        assert await store.snapshots.load(S, version="1") is None
        await store.snapshots.save(S, seq=10, version="1", data=b"ten")
        await store.snapshots.save(S, seq=30, version="1", data=b"\x00thirty")
        await store.snapshots.save(S, seq=20, version="1", data=b"twenty")
        assert await other.snapshots.load(S, version="1") == (30, b"\x00thirty")

    async def test_a_state_after_the_place_asked_for_is_not(self, store: Store) -> None:
        await kept(store, "s")
        await store.snapshots.save(S, seq=10, version="1", data=b"ten")
        await store.snapshots.save(S, seq=30, version="1", data=b"thirty")
        assert await store.snapshots.load(S, version="1", upto=30) == (30, b"thirty")
        assert await store.snapshots.load(S, version="1", upto=29) == (10, b"ten")
        assert await store.snapshots.load(S, version="1", upto=9) is None

    async def test_a_state_of_another_fold_is_not(self, store: Store) -> None:
        await kept(store, "s")
        await store.snapshots.save(S, seq=10, version="1", data=b"ten")
        assert await store.snapshots.load(S, version="2") is None
        await store.snapshots.save(S, seq=5, version="2", data=b"five")
        assert await store.snapshots.load(S, version="2") == (5, b"five")

    async def test_a_state_saved_again_is_the_later_one(self, store: Store) -> None:
        await kept(store, "s")
        await store.snapshots.save(S, seq=10, version="1", data=b"old")
        await store.snapshots.save(S, seq=10, version="1", data=b"new")
        assert await store.snapshots.load(S, version="1") == (10, b"new")

    async def test_states_belong_to_their_session_and_namespace(self, store: Store) -> None:
        await kept(store, "s")
        await store.snapshots.save(S, seq=1, version="1", data=b"x")
        assert await store.snapshots.load(SessionId("t"), version="1") is None
        assert await store.scoped("tenant").snapshots.load(S, version="1") is None

    async def test_states_go_with_their_session(self, store: Store) -> None:
        await kept(store, "s")
        await store.snapshots.save(S, seq=1, version="1", data=b"x")
        await store.sessions.delete(S)
        await kept(store, "s")
        assert await store.snapshots.load(S, version="1") is None
