"""A lost, garbled or cut stream of the Responses API is never a complete answer."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.models.openai_responses.test_events import (
    CALLS,
    HILO,
    KONA,
    SAID,
    SPENT,
    TEXT,
    Events,
    argument_deltas,
    arguments_done,
    assemble_parts,
    completed_event,
    decode_events,
    error_of,
    function_call_item,
    item_added,
    item_done,
    message_item,
    response_body,
    text_deltas,
    text_part,
)
from vaka.core.loop.assemble import RawToolCall
from vaka.core.ports.model import (
    Chunk,
    UsageChunk,
)
from vaka.core.types.errors import (
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.message import Reasoning, Text, Usage
from vaka.models.openai_responses.events import ResponsesStreamDecoder


def test_events_of_unknown_types_are_ignored() -> None:
    strange: Events = [
        {"type": "response.dreamt", "delta": {"a": 1}, "output_index": "x", "item": 5},
        {"type": "response.dreamt", "error": None},
        {"type": "response.dreamt", "error": {"message": "not for us"}},
        {"object": "chat.completion.chunk", "choices": []},
    ]
    assert decode_events([*TEXT[:5], *strange, *TEXT[5:]]) == decode_events(TEXT)


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
    reader = ResponsesStreamDecoder()
    with pytest.raises(StreamCut):
        list(reader.feed(data))
    assert not reader.done


STARTED_EVENTS = [*TEXT[:3], *text_deltas(0, "It rains.")]
CALL_EVENTS = [item_added(0, function_call_item("")), *argument_deltas(0, HILO)]


@pytest.mark.parametrize(
    ("events", "words"),
    [
        (
            [*STARTED_EVENTS, completed_event(message_item(text_part("It is dry.")))],
            "differ from the complete",
        ),
        (
            [*STARTED_EVENTS, *text_deltas(5, "x", id="y"), completed_event(SAID)],
            "an item that the answer does not have",
        ),
        (
            [*STARTED_EVENTS, text_deltas(0, "x")[0] | {"content_index": 1}, completed_event(SAID)],
            "a part that its message does not have",
        ),
        ([*STARTED_EVENTS, item_done(0, function_call_item(HILO))], "'message' became a 'function_call'"),
        ([*STARTED_EVENTS, *argument_deltas(0, "{}")], "came for a 'message'"),
        ([*CALL_EVENTS, *text_deltas(0, "x")], "came for a 'function_call'"),
        ([*STARTED_EVENTS, *text_deltas(1, "x")], "'msg_1' with another index"),
        ([*STARTED_EVENTS, item_done(1, SAID)], "'msg_1' has two indexes"),
        ([*CALL_EVENTS, completed_event()], "began and never ended"),
        ([*CALL_EVENTS, arguments_done(0, KONA)], "the arguments for 'weather' differ"),
        ([*CALL_EVENTS, item_done(0, function_call_item('{"city": '))], "the arguments for 'weather' differ"),
        ([*CALL_EVENTS, item_done(0, function_call_item(HILO, name="fly"))], "'weather' became one of 'fly'"),
        ([completed_event(function_call_item(HILO, name=""))], "names no tool"),
        ([*argument_deltas(0, HILO), arguments_done(0, HILO) | {"name": ""}, completed_event()], "never ended"),
    ],
)
def test_a_contradictory_stream_is_not_an_answer(events: Events, words: str) -> None:
    assert words in error_of(events)


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow down", "param": None}, RateLimited, "slow"),
        ({"type": "error", "error": {"type": "server_error", "message": "oops"}}, ModelUnavailable, "oops"),
        ({"error": {"code": 500, "message": "broken", "type": "server_error"}}, ModelUnavailable, "broken"),
        ({"type": "error", "code": "context_length_exceeded", "message": "too long"}, ContextTooLong, "too long"),
        ({"type": "error"}, ModelUnavailable, "no reason"),
        (
            {
                "type": "response.failed",
                "response": response_body("failed", error={"code": "invalid_prompt", "message": "no"}),
            },
            BadRequest,
            "no",
        ),
        ({"type": "response.failed", "response": response_body("failed", error=None)}, ModelUnavailable, "no reason"),
        (completed_event(error={"code": "server_error", "message": "half-way"}), ModelUnavailable, "half-way"),
    ],
)
def test_an_error_inside_the_stream_is_raised(event: dict[str, Any], kind: type[ModelError], words: str) -> None:
    for before in ([], TEXT[:5], CALLS[:3]):
        assert words in error_of([*before, event], kind)


def test_token_counts_are_limited_to_what_the_log_can_store() -> None:
    absurd = {"input_tokens": -5, "output_tokens": 2**63, "input_tokens_details": {"cached_tokens": -1}}
    assert decode_events([completed_event(usage=absurd)])[0] == UsageChunk(Usage(output=2**53), "gpt-6-2026")


def test_an_event_named_error_is_an_error() -> None:
    with pytest.raises(ModelUnavailable, match="oops"):
        ResponsesStreamDecoder().feed(b'{"message": "oops"}', "error")


def test_the_usage_of_a_failed_answer_is_emitted() -> None:
    feed = iter(
        ResponsesStreamDecoder().feed(
            msgspec.json.encode({"type": "response.failed", "response": response_body("failed")})
        )
    )
    assert next(feed) == SPENT
    with pytest.raises(ModelUnavailable):
        next(feed)


def mutations_of(events: Events) -> Iterator[bytes]:
    """Each event of a stream with each of its bytes changed, and the others as they were."""
    encoded = [msgspec.json.encode(event) for event in events]
    for at, event in enumerate(encoded):
        for place in range(0, len(event), 3):
            changed = event[:place] + bytes([event[place] ^ 1]) + event[place + 1 :]
            yield b"\0".join([*encoded[:at], changed, *encoded[at + 1 :]])


@pytest.mark.parametrize("events", [TEXT, CALLS[:4] + CALLS[8:]])
def test_a_garbled_byte_loses_no_text_and_makes_no_other_call(events: Events) -> None:
    whole = assemble_parts(decode_events(events))
    for stream in mutations_of(events):
        reader = ResponsesStreamDecoder()
        chunks: list[Chunk] = []
        try:
            for data in stream.split(b"\0"):
                chunks += reader.feed(data)
        except ModelError:
            continue
        if not reader.done:
            continue
        made = [part for part in assemble_parts(chunks) if not isinstance(part, Reasoning)]
        assert len(made) >= len(whole)
        for part, expected in zip(made, whole, strict=False):
            if isinstance(part, RawToolCall) and isinstance(expected, RawToolCall):
                assert (part.name, part.arguments) == (expected.name, expected.arguments)
            elif isinstance(part, Text) and isinstance(expected, Text):
                assert len(part.text) == len(expected.text)
