"""No answer of the Responses API that was lost, garbled or broken off passes for a whole one."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.models.test_openai_responses_events import (
    CALLS,
    HILO,
    KONA,
    SAID,
    SPENT,
    TEXT,
    Events,
    added,
    argument_deltas,
    arguments_done,
    completed,
    done,
    failing,
    function,
    heard,
    message,
    parts,
    response,
    text_deltas,
    words,
)
from vaka.core.loop.assemble import WrittenCall
from vaka.core.ports.model import (
    Chunk,
    UsageChunk,
)
from vaka.core.types.content import Reasoning, Text
from vaka.core.types.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.usage import Usage
from vaka.models.openai_responses import Reader


def test_events_of_kinds_that_nobody_knows_are_nothing_whatever_is_in_them() -> None:
    strange: Events = [
        {"type": "response.dreamt", "delta": {"a": 1}, "output_index": "x", "item": 5},
        {"type": "response.dreamt", "error": None},
        {"type": "response.dreamt", "error": {"message": "not for us"}},
        {"object": "chat.completion.chunk", "choices": []},
    ]
    assert heard([*TEXT[:5], *strange, *TEXT[5:]]) == heard(TEXT)


@pytest.mark.parametrize(
    "data",
    [
        b'{"type":"response.output_text.delta","delta":5}',
        b'{"type":"response.output_text.delta","delta":"x"',
        b'{"type":"response.output_text.delta","delta":"\xff"}',
        b'{"type":"response.output_text.delta","delta":"\\ud83d"}',
        b'{"type":"response.output_item.done","item":{"type":"message","content":5}}',
        b'{"type":"response.output_item.done"}',
        b'{"type":"response.completed","response":[]}',
        b'{"type":5}',
        b"[1]",
        b"[DONE]",
        b"",
        b'{"type":"response.output_item.done","item":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"type":"response.x","delta":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_an_event_that_cannot_be_read_cuts_the_stream(data: bytes) -> None:
    reader = Reader()
    with pytest.raises(StreamCut):
        list(reader.feed(data))
    assert not reader.done


BEGUN = [*TEXT[:3], *text_deltas(0, "It rains.")]
CALLING = [added(0, function("")), *argument_deltas(0, HILO)]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([*BEGUN, completed(message(words("It is dry.")))], "not those that the model ended with"),
        ([*BEGUN, *text_deltas(5, "x", id="y"), completed(SAID)], "an item that the answer does not have"),
        ([*BEGUN, text_deltas(0, "x")[0] | {"content_index": 1}, completed(SAID)], "a part of a message"),
        ([*BEGUN, done(0, function(HILO))], "'message' became a 'function_call'"),
        ([*BEGUN, *argument_deltas(0, "{}")], "came for a 'message'"),
        ([*CALLING, *text_deltas(0, "x")], "came for a 'function_call'"),
        ([*BEGUN, *text_deltas(1, "x")], "'msg_1' in another place"),
        ([*BEGUN, done(1, SAID)], "'msg_1' stands in two places"),
        ([*CALLING, completed()], "begun and never finished"),
        ([*CALLING, arguments_done(0, KONA)], "the arguments that came for 'weather'"),
        ([*CALLING, done(0, function('{"city": '))], "the arguments that came for 'weather'"),
        ([*CALLING, done(0, function(HILO, name="fly"))], "'weather' became one of 'fly'"),
        ([completed(function(HILO, name=""))], "names no tool"),
        ([*argument_deltas(0, HILO), arguments_done(0, HILO) | {"name": ""}, completed()], "never finished"),
    ],
)
def test_what_contradicts_itself_is_no_answer(events: Events, words: str) -> None:
    assert words in failing(events)


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}, RateLimited, "slow"),
        ({"type": "error", "error": {"type": "server_error", "message": "oops"}}, ModelUnavailable, "oops"),
        ({"error": {"code": 500, "message": "broken", "type": "server_error"}}, ModelUnavailable, "broken"),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, ContextTooLong, "too long"),
        ({"type": "error"}, ModelUnavailable, "no reason"),
        ({"type": "response.failed", "response": response("failed", error={"code": "invalid_prompt", "message": "no"})},
         BadRequest, "no"),
        ({"type": "response.failed", "response": response("failed", error=None)}, ModelUnavailable, "no reason"),
        (completed(error={"code": "server_error", "message": "half-way"}), ModelUnavailable, "half-way"),
    ],
)  # fmt: skip
def test_an_error_inside_the_stream_is_raised(event: dict[str, Any], kind: type[ModelError], words: str) -> None:
    for before in ([], TEXT[:5], CALLS[:3]):
        assert words in failing([*before, event], kind)


def test_a_count_of_tokens_is_never_less_than_none_or_more_than_a_log_can_hold() -> None:
    absurd = {"input_tokens": -5, "output_tokens": 2**63, "input_tokens_details": {"cached_tokens": -1}}
    assert heard([completed(usage=absurd)])[0] == UsageChunk(Usage(output=2**53), "gpt-6-2026")


def test_an_event_named_error_is_one() -> None:
    with pytest.raises(ModelUnavailable, match="oops"):
        Reader().feed(b'{"message": "oops"}', "error")


def test_what_a_failed_answer_cost_is_told() -> None:
    feed = iter(Reader().feed(msgspec.json.encode({"type": "response.failed", "response": response("failed")})))
    assert next(feed) == SPENT
    with pytest.raises(ModelUnavailable):
        next(feed)


def changes(events: Events) -> Iterator[bytes]:
    """Each event of a stream with each of its bytes changed, and the others as they were."""
    encoded = [msgspec.json.encode(event) for event in events]
    for at, event in enumerate(encoded):
        for place in range(0, len(event), 3):
            changed = event[:place] + bytes([event[place] ^ 1]) + event[place + 1 :]
            yield b"\0".join([*encoded[:at], changed, *encoded[at + 1 :]])


@pytest.mark.parametrize("events", [TEXT, CALLS[:4] + CALLS[8:]])
def test_a_garbled_byte_loses_no_words_and_runs_no_other_call(events: Events) -> None:
    whole = parts(heard(events))
    for stream in changes(events):
        reader = Reader()
        chunks: list[Chunk] = []
        try:
            for data in stream.split(b"\0"):
                chunks += reader.feed(data)
        except ModelError:
            continue
        if not reader.done:
            continue
        made = [part for part in parts(chunks) if not isinstance(part, Reasoning)]
        assert len(made) >= len(whole)
        for part, expected in zip(made, whole, strict=False):
            if isinstance(part, WrittenCall) and isinstance(expected, WrittenCall):
                assert (part.name, part.arguments) == (expected.name, expected.arguments)
            elif isinstance(part, Text) and isinstance(expected, Text):
                assert len(part.text) == len(expected.text)
