"""Erased events keep their place and their hash, and nothing else."""

import msgspec
import pytest

from vaka.core.ports.store import SessionInfo
from vaka.core.session.fold import fold
from vaka.core.session.hash_chain import HashChain, hash_of, seal_chain
from vaka.core.session.index_rows import advance_row, rebuild_row
from vaka.core.types.control import SessionErased, StateChanged
from vaka.core.types.decode import decode, decode_batch
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Custom, Event, Unknown
from vaka.core.types.ids import EventScope, SessionId, TurnId
from vaka.core.types.message import Text, Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.core.types.progress import MessageCompleted, StepCompleted
from vaka.core.types.state import SessionState
from vaka.stores.erased_events import KEPT_TYPES, erase_event, seal_erased

S = SessionId("s")
TS = "2026-01-01T00:00:00.000Z"
SCOPE = EventScope(TurnId("t"), 2, ("agent-1",))


def make_log() -> list[Event]:
    bodies = (
        MessageCompleted(message_id="m", content=(Text(text='"erased":"private"'),)),  # type: ignore[arg-type]  # an id is a string
        UsageRecorded(model="m", usage=Usage(input=1)),
        StepCompleted(number=1),
        Custom(name="x", value="private"),
        Unknown(name="from.tomorrow", raw=b'{"private":1}', of="control"),
        StateChanged(key="private", value=1),
    )
    return seal_chain(S, None, [(SCOPE, body) for body in bodies], TS)


def test_a_stub_keeps_the_place_and_the_hash_of_its_event() -> None:
    log = make_log()
    stubs = [erase_event(event) for event in log]
    assert [stub.erased != "" for stub in stubs] == [not isinstance(event.data, KEPT_TYPES) for event in log]
    for event, stub in zip(log, stubs, strict=True):
        assert stub.hash == hash_of(stub.stored) == event.hash
        assert erase_event(stub) == stub
        if stub.erased:
            fields = msgspec.json.decode(event.stored)
            del fields["data"]
            assert msgspec.json.decode(stub.stored) == {**fields, "erased": event.hash}
            assert stub.data == Unknown(name=event.type, raw=b"", of=event.channel)
            assert b"private" not in stub.stored
            assert stub.to_json() == stub.stored
    assert [stub.hash for stub in decode_batch([stub.stored for stub in stubs])] == [event.hash for event in log]
    chain = HashChain(S)
    assert [chain.check_next(stub.seq, stub.stored) for stub in stubs] == stubs
    assert chain.erased == 4


def test_a_stub_with_data_and_an_event_without_are_corrupt() -> None:
    event = make_log()[0]
    stub = erase_event(event).stored
    for wrong in (
        stub.replace(b',"erased":', b',"data":{},"erased":'),
        event.stored.replace(b'"prev":""', f'"prev":"","erased":"{event.hash}"'.encode()),
        stub.replace(f',"erased":"{event.hash}"'.encode(), b""),
        stub.replace(f'"{event.hash}"'.encode(), b"5"),
    ):
        with pytest.raises(Corrupt):
            decode(wrong)


def test_the_row_after_an_erasure_is_that_of_the_erased_log() -> None:
    log = make_log()
    before = rebuild_row(S, log)
    ended = seal_erased(before, events=4, blobs=0, by="ops", ts=TS)
    stubs = [*(erase_event(event) for event in log), ended]
    assert advance_row(before, [ended]) == rebuild_row(S, stubs)
    assert (ended.seq, ended.prev, ended.data) == (7, log[-1].hash, SessionErased(events=4, by="ops"))
    assert fold(SessionState(), stubs).usage == Usage(input=1)
    assert advance_row(SessionInfo(id=S), stubs[:1]).erased == 0


def test_a_chain_needs_an_event_that_accounts_for_its_stubs() -> None:
    log = make_log()
    chain = HashChain(S)
    for event in log:
        chain.check_next(event.seq, erase_event(event).stored)
    info = rebuild_row(S, log)
    chain.check_erased(seal_erased(info, events=4, blobs=0, by="", ts=TS))
    for listing in (None, log[-1]):
        with pytest.raises(Corrupt, match="no event says why"):
            chain.check_erased(listing)
    with pytest.raises(Corrupt, match="4 events have no data, 3 were erased"):
        chain.check_erased(seal_erased(info, events=3, blobs=0, by="", ts=TS))


STORED_STUB = (
    b'{"v":1,"seq":1,"id":"1.1","ts":"2026-01-01T00:00:00.000Z","session":"s","turn":"t","step":2,"path":["agent-1"],'
    b'"channel":"progress","type":"message.completed","prev":"",'
    b'"erased":"%s"}'
)


def test_the_stored_form_of_an_erased_event_does_not_change() -> None:
    event = make_log()[0]
    assert erase_event(event).stored == STORED_STUB % event.hash.encode()
    stub = decode(STORED_STUB % event.hash.encode())
    assert (stub.hash, stub.erased, stub.type) == (event.hash, event.hash, "message.completed")
    assert hash_of(event.stored) == event.hash, "a text that looks like a stub is not one"
