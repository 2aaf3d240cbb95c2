"""``Event.to_json`` gives the wire form of every event, and ``decode`` reads it."""

import copy
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.session.hash_chain import seal
from vaka.core.types import control, monitor, progress
from vaka.core.types.body import BODY_TYPES
from vaka.core.types.decode import decode, decode_batch
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import VERSION, Body, Custom, Event, Unknown
from vaka.core.types.ids import SessionId, TurnId
from vaka.core.types.message import Text

DEFINED_IN = (progress, control, monitor)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(-(2**40), 2**40)
JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=5,
)
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: TEXT,
    int: INTEGERS,
    bool: st.booleans(),
    float: st.floats(0, 1e9),
    NoneType: st.none(),
    Any: JSON,
    bytes: st.binary(max_size=8),
    dict: st.dictionaries(TEXT, JSON, max_size=3),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a type."""
    kind = getattr(kind, "__supertype__", kind)
    origin, inner = get_origin(kind), get_args(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin is Literal:  # an equal string is not always the same object
        return st.sampled_from(inner).map(lambda value: "".join(list(value)) if isinstance(value, str) else value)
    if origin in (Union, UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is tuple and inner[-1] is Ellipsis:
        return st.lists(st.deferred(lambda: values_of(inner[0])), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    if origin is list:
        return st.lists(values_of(inner[0]), max_size=2)
    if origin is dict:
        return st.dictionaries(TEXT, values_of(inner[1]), max_size=2)
    return structs_of(kind)


def structs_of(kind: type[msgspec.Struct]) -> st.SearchStrategy[Any]:
    """Return a strategy for the values of a struct, with and without the fields that have a default."""
    fields = {field.name: (values_of(field.type), field.required) for field in msgspec.structs.fields(kind)}
    required = {name: values for name, (values, needed) in fields.items() if needed}
    optional = {name: values for name, (values, needed) in fields.items() if not needed}
    return st.fixed_dictionaries(required, optional=optional).map(lambda given: kind(**given))


KNOWN = [
    name for name, kind in BODY_TYPES.items() if kind is Custom or kind.__module__ in [m.__name__ for m in DEFINED_IN]
]
UNKNOWN = st.builds(
    Unknown,
    name=st.just("from.tomorrow"),
    of=st.sampled_from(["progress", "control", "monitor"]),
    raw=st.dictionaries(TEXT, JSON).map(lambda value: msgspec.json.format(msgspec.json.encode(value))),
)
BODIES: dict[str, st.SearchStrategy[Any]] = {
    **{name: structs_of(BODY_TYPES[name]) for name in KNOWN},
    "unknown": UNKNOWN,
}
SCOPES = st.fixed_dictionaries(
    {"session": TEXT.map(SessionId), "ts": TEXT},
    optional={"turn": TEXT.map(TurnId), "step": st.integers(0, 5), "path": st.lists(TEXT, max_size=2).map(tuple)},
)


def assert_same_bytes(event: Event, body: Body) -> None:
    """Assert that an event that was read or copied has the same bytes, and that it is a value."""
    assert (event.data, event.type) == (body, decode(event.to_json()).type)
    for other in (decode(event.to_json()), copy.copy(event), copy.deepcopy(event)):
        assert (other, other.data, other.hash) == (event, event.data, event.hash)
        assert other.to_json() == event.to_json()


@pytest.mark.parametrize("name", BODIES)
def test_an_event_encodes_to_its_wire_form(name: str) -> None:
    @given(BODIES[name], SCOPES, st.integers(1, 3), st.integers(1, 2**40), st.sampled_from(["", "0" * 64]))
    def check(body: Body, scope: dict[str, Any], epoch: int, seq: int, prev: str) -> None:
        event = Event(data=body, **scope)
        assert (event.seq, event.id, event.prev, event.stored, event.hash) == (0, "", "", b"", "")
        assert_same_bytes(event, body)
        sealed = seal(event, epoch=epoch, seq=seq, prev=prev)
        assert (sealed.seq, sealed.epoch, sealed.id, sealed.prev) == (seq, epoch, f"{epoch}.{seq}", prev)
        assert_same_bytes(sealed, body)

    check()


@pytest.mark.parametrize("data", [b'{"input":"k","more":[1]}', b'{ "input": "k" }', b'{"input":"\\u006b"}'])
def test_a_body_with_other_bytes_than_this_code_writes_keeps_them(data: bytes) -> None:
    live = Event(data=Unknown(name="turn.queued", raw=data, of="progress"), session=SessionId("s"), ts="")
    event = decode(seal(live, epoch=1, seq=1, prev="").stored)
    assert event.data == progress.TurnQueued(input="k")
    assert data in event.stored
    assert event.to_json() == event.stored


def test_a_decoded_event_is_the_event_that_was_written() -> None:
    body = control.InputAdded(key="k", content=(Text(text="hello"),))
    event = seal(Event(data=body, session=SessionId("s"), ts=""), epoch=1, seq=1, prev="")
    decoded = decode(event.stored)
    assert (decoded, hash(decoded), repr(decoded)) == (event, hash(event), repr(event))
    assert decoded != body
    assert msgspec.structs.replace(decoded, step=2).data == body
    assert not hasattr(decoded, "payload")


def test_live_events_with_the_same_fields_are_equal() -> None:
    event = Event(data=progress.TurnQueued(input="k"), session=SessionId("s"), ts="")
    decoded = decode(event.to_json())
    assert (decoded, hash(decoded)) == (event, hash(event))
    assert decoded != Event(data=progress.TurnQueued(input="k2"), session=SessionId("s"), ts="")


def test_a_batch_is_decoded_as_its_events_are() -> None:
    data = b'{"input":"k","more":[1]}'
    unknown = Unknown(name="turn.queued", raw=data, of="progress")
    for v in (VERSION, VERSION + 1):
        events: list[Event] = []
        for body in (unknown, Custom(name="x", value=[1]), Unknown(name="from.tomorrow", raw=b"{}"), unknown):
            live = Event(data=body, session=SessionId("s"), ts="", v=v)
            events.append(seal(live, epoch=2, seq=len(events) + 1, prev=events[-1].hash if events else ""))
        for selected in (events, events[:1]):
            decoded = decode_batch([event.stored for event in selected])
            assert decoded == [decode(event.stored) for event in selected] == selected
            assert [(e.data, e.hash) for e in decoded] == [(decode(e.stored).data, e.hash) for e in selected]
            assert [event.to_json() for event in decoded] == [event.stored for event in selected]
        with pytest.raises(Corrupt):
            decode_batch([events[0].stored, events[1].stored[:-1]])


def test_an_event_of_a_higher_version_keeps_it() -> None:
    event = seal(Event(data=Custom(name="x"), session=SessionId("s"), ts="", v=VERSION + 1), epoch=1, seq=1, prev="")
    assert msgspec.json.decode(event.to_json())["v"] == decode(event.stored).v == VERSION + 1


def test_events_are_immutable() -> None:
    event = Event(data=Custom(name="x"), session=SessionId("s"), ts="")
    for name in ("seq", "data", "stored"):
        with pytest.raises(AttributeError):
            setattr(event, name, 1)
