"""Contracts of erasure."""

# ruff: noqa: S101  # a contract suite is made of asserts

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import pytest

from vaka.core.ports.erasure import EraseResult
from vaka.core.ports.messages import MessageQuery, MessageSearch
from vaka.core.ports.store import GcResult, Retention, SessionQuery, Store
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.control import InputAdded, SessionErased, SessionForked, SessionOpened
from vaka.core.types.errors import Corrupt, ErasedSession, NotFound
from vaka.core.types.event import Body, Custom, Event
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import Image, Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import StepCompleted, StepStarted
from vaka.stores.erased_events import erase_event
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    begin_session,
    find_session,
    format_time,
    input_added,
    offer_event,
    read_log,
    turn_events,
    write_session,
)
from vaka.testing.stores.sessions import list_ids
from vaka.testing.stores.tables import FAR_FUTURE

SESSION = SessionId("s")
Tamper: TypeAlias = Callable[[str, int, bytes | None], Awaitable[None]]


async def _read_events(store: Store, session: str = "s", *, after: int = 0, upto: int | None = None) -> list[Event]:
    return [event async for event in store.events.read(SessionId(session), after=after, upto=upto)]


async def _write_private_session(store: Store, name: str = "s") -> EventSealer:
    """Write a session whose texts all contain ``private``, with a blob of its own and one it shares."""
    own, shared = await store.blobs.put(f"private {name}".encode()), await store.blobs.put(b"shared")
    start, end = turn_events("private agent")
    bodies: list[Body] = [
        SessionOpened(title="private title", owner="ann", tags=("private",), metadata={"private": "private"}),
        InputAdded(key="private key", content=(Image(blob=own, media_type="image/png"),)),
        start,
        StepStarted(agent="private", number=1, system=shared),
        UsageRecorded(model="m", usage=Usage(input=3)),
        StepCompleted(number=1),
        end,
        Custom(name="note", value="private"),
        input_added("private words", "k2"),
        SessionForked(origin="before", cursor="1.1"),
        approval_requested("private approval"),
    ]
    log = await write_session(store, name, *bodies)
    await store.snapshots.save(log.session, seq=3, version="v", data=b"private")
    await store.values.put(f"{session_values_prefix(name)}note", "private")
    return log


class ErasureContract:
    """Data are erased, hashes stay."""

    async def test_an_erased_session_keeps_its_hashes_and_nothing_that_was_said(
        self, store: Store, other: Store
    ) -> None:
        log = await _write_private_session(store)
        kept_blob = await store.blobs.put(b"shared")
        await write_session(store, "t", StepStarted(agent="x", number=1, system=kept_blob), input_added("mine"))
        await store.values.put(f"{session_values_prefix('t')}note", "mine")
        head = await find_session(store)
        assert len((await store.messages.search(MessageSearch(text="private"))).hits) == 1

        result = await other.erase([SESSION, SESSION], by="ops")

        assert (result.sessions, result.events, result.blobs, result.failed) == (("s",), 8, 1, {})
        assert result.bytes > len(b"private s")
        events = await _read_events(store)
        assert [event.hash for event in events[:-1]] == [event.hash for event in log.events]
        assert [(e.seq, e.id, e.ts, e.type, e.channel, e.prev) for e in events[:-1]] == [
            (e.seq, e.id, e.ts, e.type, e.channel, e.prev) for e in log.events
        ]
        assert [event.type for event in events if not event.erased] == [
            "usage",
            "step.completed",
            "session.forked",
            "session.erased",
        ]
        assert events[-1].data == SessionErased(events=8, blobs=1, by="ops")
        assert events[-1].prev == head.hash
        assert b"private" not in b"".join(await read_log(other, "s"))
        assert [event.seq for event in await _read_events(store, after=3, upto=5)] == [4, 5]
        for _ in range(2):
            row = await find_session(store)
            assert (row.title, row.agent, row.owner, row.tags, row.metadata) == ("", "", "", (), {})
            assert (row.status, row.state, row.origin, row.erased) == ("closed", "terminated", "before", 12)
            assert (row.head, row.version, row.hash) == (12, 12, events[-1].hash)
            assert await list_ids(store, SessionQuery(owner="ann")) == []
            assert await store.sessions.decisions() == []
            await store.reindex()
        assert await store.snapshots.load(SESSION, version="v") is None
        assert list(await store.values.keys()) == [f"{session_values_prefix('t')}note"]
        assert await store.blobs.get(kept_blob) == b"shared"
        with pytest.raises(NotFound):
            await store.blobs.get(log.events[1].data.content[0].blob)  # type: ignore[attr-defined]  # an image
        assert (await find_session(store, "t")).title == "mine"
        for _ in range(2):
            assert (await other.messages.search(MessageSearch(text="private"))).hits == ()
            assert (await other.messages.list(SESSION, MessageQuery())).messages == ()
            assert await other.messages.find(SESSION, "k2") is None
            assert [hit.message.session for hit in (await other.messages.search(MessageSearch(text="mine"))).hits] == [
                "t"
            ]
            await store.reindex()

    async def test_an_erased_session_cannot_be_written_and_can_be_deleted(self, store: Store, other: Store) -> None:
        await _write_private_session(store)
        await store.erase([SESSION])
        before = await read_log(store, "s")
        assert await other.erase([SESSION]) == EraseResult(overwritten=(await other.erase([])).overwritten)
        with pytest.raises(ErasedSession, match="was erased"):
            await other.events.claim(SESSION)
        for key in ("k2", "new"):
            with pytest.raises(ErasedSession, match="start another one"):
                await offer_event(other, input_added("more", key))
        with pytest.raises(ErasedSession):
            await store.events.claim(SESSION)
        assert await read_log(store, "s") == before
        await other.sessions.delete(SESSION)
        assert await store.sessions.find(SESSION) is None
        assert await store.events.claim(SESSION) == 1

    async def test_a_session_of_small_events_does_not_count_as_less_than_nothing(self, store: Store) -> None:
        await write_session(store, "s", *turn_events())
        assert (await store.erase([SESSION])).bytes >= 0

    async def test_sessions_that_cannot_be_erased_are_named_and_the_others_are_erased(
        self, store: Store, other: Store
    ) -> None:
        for name in ("a", "b"):
            await _write_private_session(store, name)
        busy, term = await begin_session(store, "busy", input_added("private"))
        tenant = store.with_namespace("tenant")
        await _write_private_session(tenant, "a")
        before = [await read_log(tenant, "a"), await read_log(store, "busy")]
        result = await other.erase([SessionId(name) for name in ("a", "busy", "none", "'; --", "b")])
        assert (set(result.sessions), result.events, result.blobs) == ({"a", "b"}, 16, 3)
        assert set(result.failed) == {"busy", "none", "'; --"}
        assert "has a writer" in result.failed[SessionId("busy")]
        assert result.busy == ("busy",)
        assert [await read_log(tenant, "a"), await read_log(store, "busy")] == before
        assert await tenant.blobs.get(await tenant.blobs.put(b"shared")) == b"shared"
        await busy.append_to(store, term, input_added("more", "k9"), release=True)
        assert (await other.erase([busy.session])).sessions == ("busy",)

    async def test_a_session_that_is_being_claimed_is_erased_before_or_not_at_all(
        self, store: Store, other: Store
    ) -> None:
        for number in range(20):
            log = await write_session(store, f"s{number}")
            claim, erasure = asyncio.create_task(store.events.claim(log.session)), other.erase([log.session])
            for _ in range(number % 5):
                await asyncio.sleep(0)
            result = await erasure
            try:
                term = await claim
            except ErasedSession:
                assert result.sessions == (log.session,)
            else:
                assert log.session in result.failed
                await log.append_to(store, term, input_added("more", "k2"), release=True)
            assert (await find_session(store, log.session)).head == 2

    async def test_a_reader_that_began_before_the_erasure_reads_on(self, store: Store, other: Store) -> None:
        log = await write_session(store, "s", *(input_added("x" * 9000, str(n)) for n in range(600)))
        events = store.events.read(SESSION)
        seen = [await anext(events)]
        await other.erase([SESSION])
        seen += [event async for event in events]
        assert [event.hash for event in seen] == [event.hash for event in log.events]


def _image(digest: Digest, key: str = "k") -> InputAdded:
    return InputAdded(key=key, content=(Image(blob=digest, media_type="image/png"),))


class BlobErasureContract:
    """A blob stays while a session other than the erased ones has put it or names it."""

    async def test_a_blob_that_another_session_has_put_survives_until_its_event_names_it(
        self, store: Store, other: Store
    ) -> None:
        await write_session(store, "s", _image(await store.blobs.put(b"both", session="s")))
        await write_session(store, "t")
        digest = await other.blobs.put(b"both", session="t")
        result = await store.erase([SESSION])
        assert (result.blobs, result.failed) == (0, {})
        assert await other.blobs.find_missing([digest]) == set()
        assert await offer_event(other, _image(digest, "k2"), session="t") == 2
        await other.reindex()
        assert await store.blobs.get(digest) == b"both"
        assert (await store.erase([SessionId("t")])).blobs == 1
        assert await store.blobs.find_missing([digest]) == {digest}

    async def test_a_blob_of_a_session_without_events_survives_the_erasure_of_another_one(
        self, store: Store, other: Store
    ) -> None:
        await write_session(store, "s", _image(await store.blobs.put(b"both", session="s")))
        digest = await other.blobs.put(b"both", session="new")
        await other.reindex()
        assert (await store.erase([SESSION])).blobs == 0
        await write_session(other, "new", _image(digest))
        assert (await store.gc(Retention(blobs_before=FAR_FUTURE))).blobs == 0
        assert await store.blobs.get(digest) == b"both"

    async def test_reindexing_keeps_the_blobs_that_a_session_has_put(self, store: Store, other: Store) -> None:
        await write_session(store, "s", _image(await store.blobs.put(b"both", session="s")))
        await write_session(store, "t")
        digest = await other.blobs.put(b"both", session="t")
        await store.reindex()
        await store.erase([SESSION])
        assert await other.blobs.get(digest) == b"both"

    async def test_a_blob_is_put_before_or_after_an_erasure_and_is_there_in_both_cases(
        self, store: Store, other: Store
    ) -> None:
        for number in range(20):
            name, data = f"s{number}", f"data {number}".encode()
            await write_session(store, name, _image(await store.blobs.put(data, session=name)))
            erasure = asyncio.create_task(store.erase([SessionId(name)]))
            for _ in range(number % 5):
                await asyncio.sleep(0)
            digest = await other.blobs.put(data, session="t")
            await erasure
            assert await other.blobs.get(digest) == data
        await other.reindex()

    async def test_what_a_session_has_put_and_not_named_is_erased_with_it(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        digest = await other.blobs.put(b"private", session="s")
        result = await store.erase([SESSION])
        assert (result.blobs, result.bytes >= len(b"private")) == (1, True)
        with pytest.raises(NotFound):
            await other.blobs.get(digest)

    async def test_nothing_can_be_put_for_an_erased_session(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        await store.erase([SESSION])
        with pytest.raises(ErasedSession, match="was erased"):
            await other.blobs.put(b"late", session="s")
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult()

    async def test_gc_removes_old_blobs_of_sessions_that_were_never_written(self, store: Store, other: Store) -> None:
        digest = await other.blobs.put(b"loose", session="never")
        assert await store.gc(Retention(blobs_before=format_time())) == GcResult()
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult(blobs=1, bytes=5)
        assert await other.blobs.find_missing([digest, Digest("0" * 64)]) == {digest, Digest("0" * 64)}
        await write_session(store, "never")
        assert (await store.erase([SessionId("never")])).blobs == 0

    async def test_deleting_a_session_frees_the_blobs_that_it_has_put(self, store: Store, other: Store) -> None:
        await write_session(store, "s")
        await other.blobs.put(b"loose", session="s")
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult()
        await store.sessions.delete(SESSION)
        assert await store.gc(Retention(blobs_before=FAR_FUTURE)) == GcResult(blobs=1, bytes=5)


class ErasureChainContract:
    """Events without data that no ``session.erased`` accounts for are Corrupt; ``tamper`` as for ``ChainContract``."""

    async def test_data_that_are_missing_without_an_erasure_are_corrupt(self, store: Store, tamper: Tamper) -> None:
        log = await write_session(store, "s", *(input_added(f"word {n}", str(n)) for n in range(4)))
        for event in log.events[:3]:
            await tamper("s", event.seq, erase_event(event).stored)
            for after in {0, event.seq - 1}:
                with pytest.raises(Corrupt, match="no event says why"):
                    await read_log(store, "s", after=after)
            with pytest.raises(Corrupt):
                await store.reindex()
            assert "no event says why" in (await store.erase([SESSION])).failed[SESSION]
            await tamper("s", event.seq, event.stored)
        assert await read_log(store, "s") == log.stored

    async def test_a_changed_event_of_an_erased_session_is_corrupt(self, store: Store, tamper: Tamper) -> None:
        log = await _write_private_session(store)
        await store.erase([SESSION])
        stored = await read_log(store, "s")
        usage, erased = log.events[4], stored[1]
        changed = {
            5: [_stub_of(usage), usage.stored.replace(b'"input":3', b'"input":4')],
            2: [erased.replace(b'"erased":"', b'"data":{},"erased":"'), erased.replace(b'"erased":"', b'"erased":"0')],
            12: [stored[11].replace(b'"events":8', b'"events":9')],
        }
        for seq, versions in changed.items():
            for version in versions:
                await tamper("s", seq, version)
                with pytest.raises(Corrupt):
                    await read_log(store, "s")
                await tamper("s", seq, stored[seq - 1])
        assert await read_log(store, "s") == stored


def _stub_of(event: Event) -> bytes:
    """Return the stub of an event, also of an event that an erasure keeps."""
    head, _, rest = event.stored.partition(b',"data":')
    return head + rest[rest.rindex(b',"prev"') : -1] + f',"erased":"{event.hash}"}}'.encode()
