"""Bytes that were garbled, and events that a provider never sends: an error, or words that differ, and nothing worse.

No wire has a checksum: a letter of a text that came as another is another text. What must not be is a call that was
not sent whole, or more calls than were sent.
"""

import random
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.models.hostile.adapters import (
    ADAPTERS,
    ANSWER,
    WIRES,
    InMemoryAdapter,
    Outcome,
    agent_answer_size,
    answer_body,
    answer_events,
    ask_once,
    feed_bytes,
    run_agent,
)
from vaka.core.types.errors import ModelError, ModelRefused, ModelUnavailable, StreamCut
from vaka.models.transport.sse import StreamLimits
from vaka.testing.fake_provider import Fault
from vaka.testing.models import call, join_chunks, say

SENT = [made["arguments"]["words"] for made in ANSWER["tool_calls"]]
NOISE = (
    b"\x00",
    b"\xff",
    b"\n",
    b"\r",
    b":",
    b'"',
    b"\\",
    b"{",
    b"}",
    b",",
    b" ",
    b"0",
    b"e",
    b"\n\n",
    b'"}',
    b"[DONE]",
)
UNREADABLE = [
    rb"\ud83c",
    rb"\udf3a",
    rb"\ud83c\ud83c",
    b"\xff",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\x00",
    b"\xf0\x9f",
]
NO_EVENT = [b"null", b"0", b'"text"', b"[]", b"[1]", b"{}", b"", b"NaN", b"{", b"[DONE", b"\x00"]
TAILS = [b"data: {garbage\n\n", b"\xff\x00\xff", b"data: {}", b"<html>", b"data: null\n\n"]


def check_harmless(found: Outcome, garble: object = None, most: int = 2) -> None:
    """Check that an answer that came through garbled is an error, or has no call in it that was not sent."""
    chunks, error = found
    said = join_chunks(chunks)
    if error is not None:
        assert isinstance(error, ModelError)
        assert said.stops == [], garble
        return
    assert len(said.stops) == 1
    if said.stops[0] not in {"end", "calls"}:
        return  # the loop runs no call of an answer that did not come to its end
    ran = [words for name, words in map(_run, said.calls) if name]
    assert len(ran) <= most, garble
    assert all(any(_is_close(words, sent) for sent in SENT) for words in ran), (garble, ran)


def _run(written: tuple[str, str]) -> tuple[str, str]:
    """Return what a tool would be given: nothing, when it would not run."""
    name, arguments = written
    try:
        found = msgspec.json.decode(arguments or "{}")
    except msgspec.DecodeError:
        return "", ""
    if name != "note" or not isinstance(found, dict) or list(found) != ["words"] or not isinstance(found["words"], str):
        return "", ""
    return name, found["words"]


def _is_close(words: str, sent: str) -> bool:
    """Whether words are what was sent but for one place: a beginning and an end of it."""
    start = next((at for at, (mine, theirs) in enumerate(zip(words, sent, strict=False)) if mine != theirs), len(words))
    return sent.endswith(words[start + 16 :]) if len(words) > start + 16 else True


@given(st.sampled_from(list(ADAPTERS)), st.integers(0, 2**31), st.binary(min_size=1, max_size=6))
@example("chat", 0, b":")
def test_garbled_bytes_anywhere_never_make_a_call(wire: str, place: int, noise: bytes) -> None:
    data = answer_body(wire)
    at = place % len(data)
    check_harmless(feed_bytes(wire, data[:at] + noise + data[at + len(noise) :]), (at, noise))


@WIRES
def test_a_changed_byte_never_makes_a_call(wire: str) -> None:
    data, chance = answer_body(wire), random.Random(1)
    with InMemoryAdapter(wire) as ear:
        for at in chance.sample(range(len(data)), 40):
            for noise in NOISE:
                check_harmless(ear.feed(data[:at] + noise + data[at + len(noise) :]), (at, noise))


@pytest.mark.exhaustive
@pytest.mark.timeout(3000)
@WIRES
def test_no_changed_byte_ever_makes_a_call(wire: str) -> None:
    data, chance = answer_body(wire), random.Random(6)
    with InMemoryAdapter(wire) as ear:
        for at in range(len(data)):
            for noise in chance.sample(NOISE, 4):
                check_harmless(ear.feed(data[:at] + noise + data[at + len(noise) :]), (at, noise))


@WIRES
def test_bytes_that_are_missing_or_come_twice_never_make_a_call(wire: str) -> None:
    data, chance = answer_body(wire), random.Random(2)
    with InMemoryAdapter(wire) as ear:
        for _ in range(200):
            at, size = chance.randrange(len(data)), chance.randrange(1, 200)
            check_harmless(ear.feed(data[:at] + data[at + size :]), (at, -size))
            check_harmless(ear.feed(data[: at + size] + data[at:]), (at, size))


@WIRES
def test_an_event_that_is_missing_or_comes_twice_never_makes_a_call(wire: str) -> None:
    sent, most = answer_events(wire), 3 if wire == "gemini" else 2  # a whole call that comes twice there is two calls
    with InMemoryAdapter(wire) as ear:
        for at in range(len(sent)):
            check_harmless(ear.feed(*sent[:at], *sent[at + 1 :]), f"without {sent[at]!r}")
            check_harmless(ear.feed(*sent[: at + 1], *sent[at:]), f"twice {sent[at]!r}", most)


@WIRES
async def test_no_tool_runs_with_data_that_was_not_sent(wire: str) -> None:
    size, chance = agent_answer_size(wire), random.Random(3)
    faults = [Fault(garble=(at, noise)) for at in chance.sample(range(size), 25) for noise in chance.sample(NOISE, 3)]
    met = 0
    async with aclosing(run_agent(wire, *faults)) as lives:
        async for one in lives:
            assert len(one.notes) <= len(SENT)
            assert all(any(_is_close(words, sent) for sent in SENT) for words in one.notes), (faults[met], one.notes)
            assert ("turn.completed" in one.types) == bool(one.completed), faults[met]
            met += 1
    assert met == len(faults)


class TestText:
    """Characters that have no place in a text, inside one."""

    @WIRES
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (rb"\u0000", "\0"),
            (rb"\ud83c\udf3a", "🌺"),
            (rb"\u2028\u2029", "\u2028\u2029"),
            (b"\xe2\x80\xa8\xc2\x85", "\u2028\x85"),
            (rb"\u202e", "\u202e"),
        ],
    )
    def test_any_text_of_json_arrives(self, wire: str, written: bytes, read: str) -> None:
        data = answer_body(wire, {"chunks": ["before", "MARK", "after"]}).replace(b"MARK", written)
        chunks, error = feed_bytes(wire, data)
        assert (join_chunks(chunks).text, join_chunks(chunks).stops, error) == (f"before{read}after", ["end"], None)

    @WIRES
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (rb"\ud83c", "\ufffd"),
            (rb"\uDF3A", "\ufffd"),
            (rb"\ud83c\udf3a", "🌺"),
            (rb"\ud83c\ud83c", "\ufffd\ufffd"),
            (rb"\ud83c\n\udf3a", "\ufffd\n\ufffd"),
            (rb"\\ud83c", r"\ud83c"),
            (rb"\ud83c\ud83c\udf3a", "\ufffd🌺"),
        ],
    )
    async def test_half_a_surrogate_pair_is_replaced(self, wire: str, written: bytes, read: str) -> None:
        data = answer_body(wire, {"chunks": ["before", "MARK", "after"]}).replace(b"MARK", written)
        chunks, error = await ask_once(wire, Fault(body=data))
        assert (join_chunks(chunks).text, join_chunks(chunks).stops, error) == (f"before{read}after", ["end"], None)

    @WIRES
    @pytest.mark.parametrize("written", UNREADABLE)
    async def test_invalid_text_is_an_error_or_is_replaced(self, wire: str, written: bytes) -> None:
        data = answer_body(wire, {"chunks": ["before", "MARK", "after"]}).replace(b"MARK", written)
        chunks, error = await ask_once(wire, Fault(body=data))
        if error is None:
            said = join_chunks(chunks)
            assert said.stops == ["end"]
            assert said.text.startswith("before")
            assert said.text.endswith("after")
        else:
            assert (type(error), join_chunks(chunks).stops) == (StreamCut, [])


class TestShape:
    """Events that are JSON, and not what they should be."""

    @WIRES
    def test_a_nesting_without_end_is_an_error(self, wire: str) -> None:
        for opening, closing in ((b'{"a":', b"}"), (b"[", b"]")):
            deep = opening * 200_000 + b"0" + closing * 200_000
            for at in (0, 2, len(answer_events(wire)) - 1):
                sent = answer_events(wire)
                chunks, error = feed_bytes(wire, *sent[:at], b'data: {"x":' + deep + b"}\n\n", *sent[at:])
                assert error is None or isinstance(error, StreamCut)
                assert bool(join_chunks(chunks).stops) == (error is None)

    @WIRES
    async def test_an_event_that_is_too_large_is_an_error(self, wire: str) -> None:
        large = b'data: {"padding": "' + b"x" * 2_000_000 + b'"}\n\n'
        sent = answer_events(wire)
        fault = Fault(body=b"".join([sent[0], large, *sent[1:]]))
        chunks, error = await ask_once(wire, fault, limits=StreamLimits(event_bytes=1_000_000))
        assert (join_chunks(chunks).stops, type(error)) == ([], StreamCut)
        assert "larger than the 1000000 bytes" in str(error)

    @WIRES
    def test_values_of_another_kind_are_an_error_or_are_passed_over(self, wire: str) -> None:
        self.check(wire, random.Random(5).sample([*_mutated_events(wire)], 150))

    @pytest.mark.exhaustive
    @WIRES
    def test_every_value_of_another_kind_is_an_error_or_is_passed_over(self, wire: str) -> None:
        self.check(wire, [*_mutated_events(wire)])

    def check(self, wire: str, wrongs: list[tuple[int, bytes]]) -> None:
        sent = answer_events(wire)
        with InMemoryAdapter(wire) as ear:
            for at, wrong in wrongs:
                check_harmless(ear.feed(*sent[:at], wrong, *sent[at + 1 :]), (at, wrong))

    @WIRES
    @pytest.mark.parametrize("data", NO_EVENT)
    def test_an_event_that_is_not_an_object_never_ends_an_answer(self, wire: str, data: bytes) -> None:
        sent = answer_events(wire)
        with InMemoryAdapter(wire) as ear:
            for at in range(len(sent)):
                check_harmless(ear.feed(*sent[:at], b"data: " + data + b"\n\n", *sent[at:]), at)
            chunks, _ = ear.feed(*sent[:-1], b"data: " + data + b"\n\n")
        assert join_chunks(chunks).stops == []

    @WIRES
    def test_keys_that_come_twice_never_make_a_call(self, wire: str) -> None:
        sent = answer_events(wire)
        twice = ((b'"name":"note"', b'"name":"rm","name":"note"'), (b'"index":0', b'"index":9,"index":0'))
        with InMemoryAdapter(wire) as ear:
            for at in range(len(sent)):
                for once, more in twice:
                    check_harmless(ear.feed(*sent[:at], sent[at].replace(once, more), *sent[at + 1 :]), (at, more))


def _mutated_events(wire: str) -> Iterator[tuple[int, bytes]]:
    for at, event in enumerate(answer_events(wire)):
        for wrong in _mutations_of(event):
            yield at, wrong


def _mutations_of(event: bytes) -> Iterator[bytes]:
    """Yield an event with one value after the other replaced by values of other kinds."""
    head, _, data = event.partition(b"data: ")
    if not data.startswith(b"{"):
        return
    found = msgspec.json.decode(data)
    for path in _paths_of(found):
        value: Any
        for value in (None, 7, "words", [], {}, -1, 1e300, True):
            copied: Any = msgspec.json.decode(data)
            place = copied
            for step in path[:-1]:
                place = place[step]
            place[path[-1]] = value
            yield head + b"data: " + msgspec.json.encode(copied) + b"\n\n"


def _paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        if key not in {"tools", "usage", "usageMetadata", "obfuscation", "logprobs", "instructions"}:
            yield (*path, key)
            yield from _paths_of(inner, (*path, key))


ERRORS = {
    "chat": [b'data: {"error":{"message":"no room","type":"server_error","code":"server_error"}}\n\n'],
    "responses": [
        b'event: error\ndata: {"type":"error","code":"server_error","message":"no room","param":null}\n\n',
        (
            b'event: response.failed\ndata: {"type":"response.failed","response":{"id":"r","status":"failed","error":'
            b'{"code":"server_error","message":"no room"},"output":[]}}\n\n'
        ),
        b'data: {"error":{"message":"no room","type":"server_error"}}\n\n',
    ],
    "anthropic": [
        b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"no room"}}\n\n',
        b'data: {"error":{"type":"api_error","message":"no room"}}\n\n',
    ],
    "gemini": [
        b'data: {"error":{"code":503,"message":"no room","status":"UNAVAILABLE"}}\n\n',
        b'data: [{"error":{"code":503,"message":"no room","status":"UNAVAILABLE"}}]\n\n',
    ],
}


class TestOrder:
    """Events that are what they should be, and where they should not."""

    @pytest.mark.parametrize(("wire", "trouble"), [(wire, one) for wire, many in ERRORS.items() for one in many])
    def test_an_error_at_any_place_is_an_error(self, wire: str, trouble: bytes) -> None:
        sent = answer_events(wire)
        for at in range(len(sent) if wire != "gemini" else len(sent) + 1):
            chunks, error = feed_bytes(wire, *sent[:at], trouble, *sent[at:])
            assert join_chunks(chunks).stops == [], at
            assert isinstance(error, ModelUnavailable), at
            assert "no room" in str(error)

    @WIRES
    @pytest.mark.parametrize("garbage", TAILS)
    async def test_data_after_the_end_changes_nothing(self, wire: str, garbage: bytes) -> None:
        """Gemini's answers end with the body, so there it is an error."""
        chunks, error = await ask_once(wire, Fault(body=answer_body(wire) + garbage))
        if wire == "gemini":
            assert (join_chunks(chunks).stops, type(error)) in (([], StreamCut), (["calls"], type(None)))
        else:
            assert (join_chunks(chunks).stops, error) == (["calls"], None)

    @WIRES
    def test_a_second_answer_in_the_same_stream_is_not_part_of_the_first(self, wire: str) -> None:
        first, second = answer_body(wire, say("one")), answer_body(wire, call("note", words="two"))
        chunks, error = feed_bytes(wire, first + second)
        if wire == "gemini":
            assert error is None or join_chunks(chunks).stops == []
        else:
            assert (join_chunks(chunks).text, join_chunks(chunks).calls, error) == ("one", [], None)

    @WIRES
    def test_an_answer_that_begins_again_in_the_middle_never_makes_more_calls(self, wire: str) -> None:
        sent, most = answer_events(wire), 3 if wire == "gemini" else 2
        with InMemoryAdapter(wire) as ear:
            for at in range(1, len(sent)):
                check_harmless(ear.feed(*sent[:at], *sent), at, most)

    @WIRES
    def test_an_end_event_alone_never_makes_a_call(self, wire: str) -> None:
        chunks, error = feed_bytes(wire, answer_events(wire)[-1])
        if error is None:  # the last event of these wires holds all of the answer, or its last call
            assert wire in {"responses", "gemini"}
            check_harmless((chunks, error))
        else:
            assert join_chunks(chunks).stops == []

    @WIRES
    def test_events_in_another_order_never_make_a_call_of_anything_else(self, wire: str) -> None:
        chance = random.Random(4)
        letters = {*"".join(SENT)}
        with InMemoryAdapter(wire) as ear:
            for _ in range(100):
                mixed = answer_events(wire)
                first, second = chance.sample(range(len(mixed)), 2)
                mixed[first], mixed[second] = mixed[second], mixed[first]
                chunks, error = ear.feed(*mixed)
                assert error is None or join_chunks(chunks).stops == []
                ran = [words for name, words in map(_run, join_chunks(chunks).calls) if name]
                assert len(ran) <= 2
                assert letters.issuperset("".join(ran))  # on some wires nothing numbers the pieces

    @WIRES
    def test_an_unknown_event_is_ignored(self, wire: str) -> None:
        strange = b'event: next.year\ndata: {"type":"next.year","sequence_number":3,"news":{"a":[1]}}\n\n'
        chunks, error = feed_bytes(wire, strange.join([b"", *answer_events(wire)]))
        assert (join_chunks(chunks).stops, error) == (["calls"], None)


@WIRES
async def test_a_refusal_is_an_answer_and_no_call_of_it_runs(wire: str) -> None:
    async with aclosing(run_agent(wire, None, answer=call("note", words="no") | {"stop": "refusal"})) as lives:
        one = await anext(lives)
    assert one.notes == []
    assert "tool.started" not in one.types


@WIRES
async def test_no_call_of_an_answer_at_its_length_limit_runs(wire: str) -> None:
    async with aclosing(run_agent(wire, None, answer=ANSWER | {"stop": "length"})) as lives:
        one = await anext(lives)
    assert one.notes == []
    assert "tool.started" not in one.types


def test_a_cut_stream_is_an_unavailable_model_and_not_a_refusal() -> None:
    assert issubclass(StreamCut, ModelUnavailable)
    assert not issubclass(StreamCut, ModelRefused)
