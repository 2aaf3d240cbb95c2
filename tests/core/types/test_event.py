"""The bytes of an event: encoding, decoding, and rejection of anything else."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.session.hash_chain import seal
from vaka.core.types.context import CheckpointSaved
from vaka.core.types.control import InputAdded, InterruptRequested, SessionClosed, StateChanged
from vaka.core.types.decode import decode
from vaka.core.types.errors import Corrupt, InvalidInput, LogError
from vaka.core.types.event import VERSION, Custom, Event, Unknown
from vaka.core.types.ids import SessionId, TurnId, digest_of, parse_session_id
from vaka.core.types.message import Image, Text, Usage, as_content, replace_surrogates, text_of
from vaka.core.types.monitor import Logged
from vaka.core.types.progress import TextDelta, TurnQueued
from vaka.core.types.tool import ToolSpec

S = SessionId("s")
TS = "2026-01-01T00:00:00.000Z"


def seal_body(body: Any, **more: Any) -> Event:
    event = Event(data=body, session=S, ts=TS, turn=TurnId("t"), step=2, path=("agent-1",), **more)
    return seal(event, epoch=3, seq=7, prev="0" * 64)


WIRE = msgspec.json.decode(seal_body(TurnQueued(input="k")).stored)


def wire_with(**fields: Any) -> bytes:
    return msgspec.json.encode({**WIRE, **fields})


class TestEnvelope:
    def test_the_order_of_fields_is_fixed(self) -> None:
        assert ",".join(WIRE) == "v,seq,id,ts,session,turn,step,path,channel,type,data,prev"
        assert WIRE["id"] == "3.7"

    def test_a_sealed_event_decodes_to_itself(self) -> None:
        event = seal_body(Custom(name="mine", value={"n": [1, 2.5, None, "ü"]}))
        assert decode(event.stored) == event
        assert event.to_json() is event.stored

    def test_a_live_event_has_no_position(self) -> None:
        live = Event(data=TextDelta(message_id="m", block=0, offset=0, text="hi"), session=S, ts=TS)  # type: ignore[arg-type]  # an id is a string
        wire = msgspec.json.decode(live.to_json())
        assert not {"seq", "id", "prev"} & set(wire)
        assert decode(live.to_json()) == live

    def test_an_event_of_an_unknown_type_keeps_its_bytes(self) -> None:
        raw = b'{"some": [1,  2], "more":null}'
        stored = wire_with(type="from.tomorrow", channel="control", data=msgspec.Raw(raw))
        event = decode(stored)
        assert event.data == Unknown(name="from.tomorrow", raw=raw, of="control")
        assert (event.type, event.channel, event.stored) == ("from.tomorrow", "control", stored)
        assert seal(event, epoch=3, seq=7, prev="0" * 64).stored == stored
        live = Event(data=event.data, session=S, ts=TS)
        assert decode(live.to_json()).data == event.data
        assert decode(wire_with(type="unknown")).data == Unknown(name="unknown", raw=b'{"input":"k"}', of="progress")

    def test_unknown_fields_are_ignored(self) -> None:
        assert decode(wire_with(extra=1, data={"input": "k", "more": [1]})).data == TurnQueued(input="k")

    def test_an_event_of_a_higher_version_with_another_body_decodes_to_unknown(self) -> None:
        event = decode(wire_with(v=VERSION + 1, data={"input": {"now": "an object"}}))
        assert event.v == VERSION + 1
        assert isinstance(event.data, Unknown)
        assert decode(wire_with(v=VERSION + 1)).data == TurnQueued(input="k")


class TestStoredBytes:
    @pytest.mark.parametrize(
        "stored",
        [
            b"",
            b"null",
            b"[]",
            b"{}",
            b"\xff",
            b'"x"',
            b"{" * 10,
            b"NaN",
            b"\x00",
            b"\xef\xbb\xbf{}",
            b'{"v":1}',
            b"[" * 200_000,
            b'{"a":' * 200_000,
        ],
        ids=repr,
    )
    def test_garbage_is_corrupt(self, stored: bytes) -> None:
        with pytest.raises(Corrupt):
            decode(stored)

    @pytest.mark.parametrize(
        "fields",
        [
            {"v": "1"},
            {"v": None},
            {"seq": "7"},
            {"seq": 1.5},
            {"seq": True},
            {"seq": -7, "id": "3.-7"},
            {"id": "3.8"},
            {"id": "7"},
            {"id": ""},
            {"id": "x.7"},
            {"id": "03.7"},
            {"id": "0.7"},
            {"id": "-3.7"},
            {"id": " 3.7"},
            {"id": "3_0.7"},
            {"id": "9" * 5000 + ".7"},
            {"ts": 0},
            {"session": None},
            {"step": "2"},
            {"path": "agent-1"},
            {"path": [1]},
            {"channel": "other"},
            {"type": None},
            {"data": None},
            {"data": []},
            {"data": {"input": 5}},
            {"data": {}},
            {"prev": 0},
            {"type": "custom.x", "data": {"value": 1}},
        ],
        ids=repr,
    )
    def test_a_field_of_the_wrong_kind_is_corrupt(self, fields: dict[str, Any]) -> None:
        with pytest.raises(Corrupt, match="cannot be decoded"):
            decode(wire_with(**fields))

    @pytest.mark.parametrize(
        "value",
        [
            b'"\\ud800"',
            b"1e999",
            b"-1e999",
            b"Infinity",
            b"01",
            b"'x'",
            b"[1,]",
            b'{"a":1,}',
            b"[" * 100_000,
            b'"\xed\xa0\x80"',
        ],
    )
    def test_invalid_json_inside_a_free_value_is_corrupt(self, value: bytes) -> None:
        stored = seal_body(StateChanged(key="k", value="HERE")).stored.replace(b'"HERE"', value)
        with pytest.raises(Corrupt):
            decode(stored)

    @pytest.mark.parametrize("value", [10**100, -(10**100), 1e308, "\x00", "\u202e", "🛶", "x" * 100_000, [[]] * 1000])
    def test_unusual_json_values_round_trip(self, value: object) -> None:
        event = seal_body(StateChanged(key="k", value=value))
        assert decode(event.stored) == event
        assert event.data == StateChanged(key="k", value=value)

    @pytest.mark.parametrize("name", ["__class__", "__reduce__", "py/object", "$type", "@type"])
    def test_a_value_that_names_a_class_is_decoded_as_data(self, name: str) -> None:
        event = seal_body(StateChanged(key="k", value={name: "os.system", "args": ["true"]}))
        assert type(decode(event.stored).data) is StateChanged
        assert decode(event.stored).data.value == {name: "os.system", "args": ["true"]}  # type: ignore[attr-defined]  # just checked

    @pytest.mark.parametrize(
        "value", ["\ud800", {"k": "\udfff"}, object(), {("a", "b"): 1}, Ellipsis, [complex(1, 2)], {1: {2: set}}]
    )
    def test_sealing_a_value_that_json_cannot_encode_is_an_error(self, value: object) -> None:
        with pytest.raises(LogError, match=r"state\.changed cannot be encoded"):
            seal_body(StateChanged(key="k", value=value))

    def test_sealing_a_body_with_a_field_of_the_wrong_type_is_an_error(self) -> None:
        bodies = (
            Logged(level="loud", message="m"),  # type: ignore[arg-type]  # wrong on purpose
            InputAdded(key="k", content="words"),  # type: ignore[arg-type]  # wrong on purpose
            CheckpointSaved(label=5),  # type: ignore[arg-type]  # wrong on purpose
            InterruptRequested(key="k", note=5),  # type: ignore[arg-type]  # wrong on purpose
            SessionClosed(reason=["x"]),  # type: ignore[arg-type]  # wrong on purpose
        )
        for body in bodies:
            with pytest.raises(LogError):
                seal_body(body)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_json_value_round_trips(self, value: Any) -> None:
        try:
            event = seal_body(StateChanged(key="k", value=value))
        except LogError:
            assert "\\ud" in ascii(value)
            return
        assert decode(event.stored) == event

    def test_every_flipped_bit_is_corrupt_or_changes_the_hash(self) -> None:
        event = seal_body(StateChanged(key="k", value={"n": 12, "words": "some more"}))
        for index in range(len(event.stored)):
            for bit in range(8):
                broken = bytearray(event.stored)
                broken[index] ^= 1 << bit
                try:
                    read = decode(bytes(broken))
                except Corrupt:
                    continue
                assert read.hash != event.hash


class TestValues:
    def test_lone_surrogates_are_replaced_and_other_characters_stay(self) -> None:
        assert replace_surrogates("a\ud800b") == "a\ufffdb"
        assert replace_surrogates("\ud83d\udef6") == "🛶"
        assert replace_surrogates("plain 🛶 \x00") == "plain 🛶 \x00"
        assert as_content([Text(text="a\udfff")]) == (Text(text="a\ufffd"),)
        assert as_content(Text(text="\ud800")) == (Text(text="\ufffd"),)

    def test_as_content_takes_a_string_or_parts(self) -> None:
        image = Image(url="https://example.com/x.png")
        assert as_content("hi") == (Text(text="hi"),)
        assert as_content((Text(text="hi"), image)) == (Text(text="hi"), image)
        assert text_of(as_content([Text(text="hi"), image, Text(text="!")])) == "hi!"

    @pytest.mark.parametrize("text", ["", " ", "a\n", "x" * 201, "\x00", " a", "a\ud800", "a\u200b"])
    def test_an_invalid_session_id_is_refused(self, text: str) -> None:
        with pytest.raises(InvalidInput):
            parse_session_id(text)

    @pytest.mark.parametrize("text", ["a", "x" * 200, "日本 語", "a/b", "..", "'; drop"])
    def test_a_printable_session_id_is_accepted(self, text: str) -> None:
        assert parse_session_id(text) == text

    def test_equal_values_have_equal_digests(self) -> None:
        assert digest_of({"a": 1, "b": [1, 2]}) == digest_of({"b": [1, 2], "a": 1})
        assert digest_of({"a": 1}) != digest_of({"a": "1"})
        assert (
            ToolSpec(name="x", timeout=float("60")).digest
            == ToolSpec(name="x").digest
            != ToolSpec(name="x", effect="read").digest
        )

    def test_usage_adds_up(self) -> None:
        total = Usage(input=1, output=2, cost=0.5) + Usage(input=3, cache_read=1, cache_write=2, reasoning=4)
        assert total == Usage(input=4, output=2, cache_read=1, cache_write=2, reasoning=4, cost=0.5)
        assert total.total == 6
