"""The bytes of an event: plain data, read with care, never silently something else."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vaka.core.types.control import CheckpointSaved, InputAdded, InterruptRequested, SessionClosed, StateChanged
from vaka.core.types.errors import Corrupt, InvalidInput, LogError
from vaka.core.types.event import VERSION, Custom, Event, Unknown, decode, decode_body, encode, encode_body, seal
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


class TestTheEnvelope:
    def test_its_fields_stand_in_this_order(self) -> None:
        assert ",".join(WIRE) == "v,seq,id,ts,session,turn,step,path,channel,type,data,prev"
        assert WIRE["id"] == "3.7"

    def test_what_was_written_is_read(self) -> None:
        event = seal_body(Custom(name="mine", value={"n": [1, 2.5, None, "ü"]}))
        assert decode(event.stored) == event
        assert encode(event) is event.stored

    def test_a_live_event_has_no_place(self) -> None:
        live = Event(data=TextDelta(message_id="m", block=0, offset=0, text="hi"), session=S, ts=TS)  # type: ignore[arg-type]  # an id is a string
        wire = msgspec.json.decode(encode(live))
        assert not {"seq", "id", "prev"} & set(wire)
        assert decode(encode(live)) == live

    def test_a_type_nobody_knows_is_kept_with_its_bytes(self) -> None:
        raw = b'{"some": [1,  2], "more":null}'
        stored = wire_with(type="from.tomorrow", channel="control", data=msgspec.Raw(raw))
        event = decode(stored)
        assert event.data == Unknown(name="from.tomorrow", raw=raw, of="control")
        assert (event.type, event.channel, event.stored) == ("from.tomorrow", "control", stored)
        again = seal(event, epoch=3, seq=7, prev="0" * 64)
        assert again.stored == stored
        live = Event(data=event.data, session=S, ts=TS)
        assert decode(encode(live)).data == event.data
        assert decode(wire_with(type="unknown")).data == Unknown(name="unknown", raw=b'{"input":"k"}', of="progress")

    def test_fields_from_tomorrow_are_ignored(self) -> None:
        assert decode(wire_with(extra=1, data={"input": "k", "more": [1]})).data == TurnQueued(input="k")

    def test_an_event_of_a_higher_version_is_followed_although_it_is_not_understood(self) -> None:
        event = decode(wire_with(v=VERSION + 1, data={"input": {"now": "an object"}}))
        assert event.v == VERSION + 1
        assert isinstance(event.data, Unknown)
        assert decode(wire_with(v=VERSION + 1)).data == TurnQueued(input="k")


class TestStoredDataIsInput:
    @pytest.mark.parametrize(
        "stored",
        [
            b"", b"null", b"[]", b"{}", b"\xff", b'"x"', b"{" * 10, b"NaN", b"\x00", b"\xef\xbb\xbf{}",
            b'{"v":1}', b"[" * 200_000, b'{"a":' * 200_000,
        ],
        ids=repr,
    )  # fmt: skip
    def test_garbage_is_corrupt(self, stored: bytes) -> None:
        with pytest.raises(Corrupt):
            decode(stored)

    @pytest.mark.parametrize(
        "fields",
        [
            {"v": "1"}, {"v": None}, {"seq": "7"}, {"seq": 1.5}, {"seq": True}, {"seq": -7, "id": "3.-7"},
            {"id": "3.8"}, {"id": "7"}, {"id": ""}, {"id": "x.7"}, {"id": "03.7"}, {"id": "0.7"}, {"id": "-3.7"},
            {"id": " 3.7"}, {"id": "3_0.7"}, {"id": "9" * 5000 + ".7"}, {"ts": 0}, {"session": None}, {"step": "2"},
            {"path": "agent-1"}, {"path": [1]}, {"channel": "other"}, {"type": None}, {"data": None}, {"data": []},
            {"data": {"input": 5}}, {"data": {}}, {"prev": 0}, {"type": "custom.x", "data": {"value": 1}},
        ],
        ids=repr,
    )  # fmt: skip
    def test_a_field_of_the_wrong_kind_is_corrupt(self, fields: dict[str, Any]) -> None:
        with pytest.raises(Corrupt, match="cannot be read"):
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
    def test_what_is_not_json_is_corrupt_also_inside_free_data(self, value: bytes) -> None:
        stored = seal_body(StateChanged(key="k", value="HERE")).stored.replace(b'"HERE"', value)
        with pytest.raises(Corrupt):
            decode(stored)

    @pytest.mark.parametrize("value", [10**100, -(10**100), 1e308, "\x00", "\u202e", "🛶", "x" * 100_000, [[]] * 1000])
    def test_odd_but_honest_data_survives(self, value: object) -> None:
        event = seal_body(StateChanged(key="k", value=value))
        assert decode(event.stored) == event
        assert event.data == StateChanged(key="k", value=value)

    @pytest.mark.parametrize("name", ["__class__", "__reduce__", "py/object", "$type", "@type"])
    def test_the_name_of_a_class_is_only_a_word(self, name: str) -> None:
        event = seal_body(StateChanged(key="k", value={name: "os.system", "args": ["true"]}))
        assert type(decode(event.stored).data) is StateChanged
        assert decode(event.stored).data.value == {name: "os.system", "args": ["true"]}  # type: ignore[attr-defined]  # just checked

    @pytest.mark.parametrize(
        "value", ["\ud800", {"k": "\udfff"}, object(), {("a", "b"): 1}, Ellipsis, [complex(1, 2)], {1: {2: set}}]
    )
    def test_what_json_cannot_say_is_refused_before_it_is_written(self, value: object) -> None:
        with pytest.raises(LogError, match=r"state\.changed cannot be written down"):
            seal_body(StateChanged(key="k", value=value))

    def test_what_cannot_be_read_back_is_refused_before_it_is_written(self) -> None:
        with pytest.raises(LogError):
            seal_body(Logged(level="loud", message="m"))  # type: ignore[arg-type]  # that is the point
        with pytest.raises(LogError):
            seal_body(InputAdded(key="k", content="words"))  # type: ignore[arg-type]  # that is the point
        for body in (CheckpointSaved(label=5), InterruptRequested(key="k", note=5), SessionClosed(reason=["x"])):  # type: ignore[arg-type]  # what a careless caller says
            with pytest.raises(LogError):
                seal_body(body)

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
            max_leaves=20,
        )
    )
    def test_any_json_is_read_as_it_was_written(self, value: Any) -> None:
        try:
            event = seal_body(StateChanged(key="k", value=value))
        except LogError:
            assert "\\ud" in ascii(value)
            return
        assert decode(event.stored) == event

    def test_every_flipped_bit_is_corrupt_or_shows_in_the_hash(self) -> None:
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


class TestBodies:
    def test_the_body_alone_can_be_sent_and_read(self) -> None:
        body = TurnQueued(input="k")
        assert decode_body("turn.queued", encode_body(body)) == body
        unknown = Unknown(name="x", raw=b'{"a":1}')
        assert encode_body(unknown) == b'{"a":1}'


class TestWords:
    def test_lone_surrogates_become_marks_and_all_else_stays(self) -> None:
        assert replace_surrogates("a\ud800b") == "a\ufffdb"
        assert replace_surrogates("\ud83d\udef6") == "🛶"
        assert replace_surrogates("plain 🛶 \x00") == "plain 🛶 \x00"
        assert as_content([Text(text="a\udfff")]) == (Text(text="a\ufffd"),)
        assert as_content(Text(text="\ud800")) == (Text(text="\ufffd"),)

    def test_content_is_made_of_words_or_parts(self) -> None:
        image = Image(url="https://example.com/x.png")
        assert as_content("hi") == (Text(text="hi"),)
        assert as_content((Text(text="hi"), image)) == (Text(text="hi"), image)
        assert text_of(as_content([Text(text="hi"), image, Text(text="!")])) == "hi!"

    @pytest.mark.parametrize("text", ["", " ", "a\n", "x" * 201, "\x00", " a", "a\ud800", "a\u200b"])
    def test_a_session_id_is_printable_and_of_some_length(self, text: str) -> None:
        with pytest.raises(InvalidInput):
            parse_session_id(text)

    @pytest.mark.parametrize("text", ["a", "x" * 200, "日本 語", "a/b", "..", "'; drop"])
    def test_most_names_will_do(self, text: str) -> None:
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
