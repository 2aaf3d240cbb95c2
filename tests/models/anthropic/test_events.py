"""Recorded streams of Anthropic Messages become chunks; the vendor's client reads the same message."""

from collections.abc import Sequence
from typing import Any

import httpx2
import msgspec
import pytest

from tests.models.oracles.vendor_clients import anthropic_message
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    ReasoningChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.message import Citation, Usage
from vaka.models.anthropic.events import AnthropicStreamDecoder

Event = dict[str, Any]
USAGE = {"input_tokens": 10, "cache_creation_input_tokens": 20, "cache_read_input_tokens": 30, "output_tokens": 1}


def message_start(**usage: Any) -> Event:
    message: Event = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": USAGE | usage,
    }
    return {"type": "message_start", "message": message}


def block_events(index: int, given: Event, *deltas: Event, closed: bool = True) -> list[Event]:
    """Return the events of a block."""
    return [
        {"type": "content_block_start", "index": index, "content_block": given},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        *([{"type": "content_block_stop", "index": index}] if closed else []),
    ]


def text_events(index: int, *pieces: str) -> list[Event]:
    return block_events(
        index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces)
    )


def tool_use_events(index: int, *pieces: str, name: str = "look", closed: bool = True) -> list[Event]:
    given: Event = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}}
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return block_events(index, given, *deltas, closed=closed)


def message_stop_events(reason: str | None, **usage: Any) -> list[Event]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9, **usage}},
        {"type": "message_stop"},
    ]


def decode_events(*events: Event, answer: str = "") -> list[Chunk]:
    """Return the chunks of a stream."""
    parser = AnthropicStreamDecoder(answer)
    return [chunk for event in events for chunk in parser.feed(msgspec.json.encode(event), event["type"])]


def decode_content(*events: Event, answer: str = "") -> list[Chunk]:
    """Return the chunks of a whole stream, without what it cost."""
    return [chunk for chunk in decode_events(*events, answer=answer) if not isinstance(chunk, UsageChunk)]


def whole_stream(*blocks: Sequence[Event], reason: str = "end_turn") -> list[Event]:
    return [message_start(), *(event for events in blocks for event in events), *message_stop_events(reason)]


class RecordedTransport(httpx2.BaseTransport):
    """Answers every request with a recorded stream."""

    def __init__(self, events: Sequence[Event]) -> None:
        pairs = [(event["type"].encode(), msgspec.json.encode(event)) for event in events]
        self.data = b"".join(b"event: %b\ndata: %b\n\n" % pair for pair in pairs)

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=self.data)


def vendor_message(events: Sequence[Event]) -> Any:
    """Return the message that the vendor's client makes of a stream."""
    with httpx2.Client(transport=RecordedTransport(events)) as http:
        return anthropic_message(http)


def test_text_chunks_come_between_two_usage_chunks() -> None:
    before = Usage(input=60, output=1, cache_read=30, cache_write=20)
    after = Usage(input=60, output=9, cache_read=30, cache_write=20)
    events = [message_start(), {"type": "ping"}, *text_events(0, "He", "", "llo 🌧"), *message_stop_events("end_turn")]
    assert decode_events(*events) == [
        UsageChunk(before, "claude-x"),
        TextChunk("He"),
        TextChunk(""),
        TextChunk("llo 🌧"),
        UsageChunk(after, "claude-x"),
        StopChunk("end"),
    ]


def test_token_counts_are_cumulative_and_never_shrink() -> None:
    def cost(*events: Event) -> Usage:
        return [chunk.usage for chunk in decode_events(*events) if isinstance(chunk, UsageChunk)][-1]

    more = {"input_tokens": 100, "output_tokens_details": {"thinking_tokens": 4}, "server_tool_use": {"x": 1}}
    assert cost(message_start(), *message_stop_events("end_turn", **more)) == Usage(
        input=150, output=9, cache_read=30, cache_write=20, reasoning=4
    )
    nothing = {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens_details": None}
    assert cost(message_start(), *message_stop_events("end_turn", **nothing)).input == 60
    assert cost(message_start(input_tokens=None, output_tokens=12), *message_stop_events("end_turn")).output == 12
    absurd = cost(
        message_start(input_tokens=-5, output_tokens=2**70),
        *message_stop_events("end_turn", cache_read_input_tokens=2**63),
    )
    assert absurd == Usage(input=10**12 + 20, output=10**12, cache_read=10**12, cache_write=20)
    bare = {"type": "message_start", "message": {"model": "m"}}
    assert (
        cost(bare, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}) == Usage()
    )


def test_thinking_is_streamed_and_its_block_has_the_signature() -> None:
    given = {"type": "thinking", "thinking": "", "signature": ""}
    deltas = [
        {"type": "thinking_delta", "thinking": "Hm"},
        {"type": "thinking_delta", "thinking": ", so."},
        {"type": "signature_delta", "signature": "Eq"},
        {"type": "signature_delta", "signature": "Rs"},
    ]
    kept = {"type": "thinking", "thinking": "Hm, so.", "signature": "EqRs"}
    assert decode_content(*whole_stream(block_events(0, given, *deltas), text_events(1, "Yes."))) == [
        ReasoningChunk("Hm"),
        ReasoningChunk(", so."),
        ReasoningChunk(signature="EqRs", opaque={"anthropic": kept}),
        TextChunk("Yes."),
        StopChunk("end"),
    ]


def test_hidden_thinking_is_sent_back_as_well() -> None:
    hidden = {"type": "redacted_thinking", "data": "xyz"}
    signed = {"type": "thinking", "thinking": "", "signature": "Eq"}
    begun = {"type": "thinking", "thinking": "All at once.", "signature": "Eq"}
    assert decode_content(*whole_stream(block_events(0, hidden), block_events(1, signed), block_events(2, begun))) == [
        ReasoningChunk(opaque={"anthropic": hidden}),
        ReasoningChunk(signature="Eq", opaque={"anthropic": signed}),
        ReasoningChunk("All at once."),
        ReasoningChunk(signature="Eq", opaque={"anthropic": begun}),
        StopChunk("end"),
    ]


def test_a_call_begins_with_name_and_id_and_arguments_follow_unchanged() -> None:
    made = whole_stream(
        text_events(0, "Look:"),
        tool_use_events(1, "", '{"at": ', '"a"}'),
        tool_use_events(2, '{"at"'),
        tool_use_events(3),
        reason="tool_use",
    )
    assert decode_content(*made) == [
        TextChunk("Look:"),
        CallChunk(1, "look", "", "toolu_1"),
        CallChunk(1, "", ""),
        CallChunk(1, "", '{"at": '),
        CallChunk(1, "", '"a"}'),
        CallChunk(2, "look", "", "toolu_2"),
        CallChunk(2, "", '{"at"'),
        CallChunk(3, "look", "", "toolu_3"),
        CallChunk(3, "", "{}"),
        StopChunk("calls"),
    ]


def test_a_call_may_come_whole_and_without_an_id() -> None:
    made = block_events(4, {"type": "tool_use", "name": "look", "input": {"at": "a"}})
    assert decode_content(*whole_stream(made, reason="end_turn")) == [
        CallChunk(4, "look", "", "call_4"),
        CallChunk(4, "", '{"at":"a"}'),
        StopChunk("calls"),
    ]


def test_the_call_of_the_output_tool_is_the_answer() -> None:
    made = whole_stream(tool_use_events(0, '{"city":', '"Hilo"}', name="answer"), reason="tool_use")
    assert decode_content(*made, answer="answer") == [TextChunk('{"city":'), TextChunk('"Hilo"}'), StopChunk("end")]
    at_once = whole_stream(
        block_events(0, {"type": "tool_use", "id": "t", "name": "answer", "input": {"a": 1}}), reason="tool_use"
    )
    assert decode_content(*at_once, answer="answer") == [TextChunk('{"a":1}'), StopChunk("end")]
    both = whole_stream(tool_use_events(0, "{}", name="answer"), tool_use_events(1, "{}"), reason="tool_use")
    assert decode_content(*both, answer="answer")[-1] == StopChunk("calls")
    cut_short = whole_stream(tool_use_events(0, '{"ci', name="answer"), reason="max_tokens")
    assert decode_content(*cut_short, answer="answer") == [TextChunk('{"ci'), StopChunk("length")]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("end_turn", "end"),
        ("stop_sequence", "end"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refusal"),
        ("pause_turn", "pause"),
        ("new", "new"),
    ],
)
def test_stop_reasons_are_mapped(theirs: str, ours: str) -> None:
    assert decode_content(*whole_stream(text_events(0, "x"), reason=theirs))[-1] == StopChunk(ours)


@pytest.mark.parametrize("reason", ["max_tokens", "refusal"])
def test_an_unfinished_answer_with_calls_stays_unfinished(reason: str) -> None:
    assert decode_content(*whole_stream(tool_use_events(0, "{"), reason=reason))[-1] != StopChunk("calls")


def test_citations_follow_their_text_and_keep_the_record_of_the_provider() -> None:
    page = {
        "type": "web_search_result_location",
        "cited_text": "rain",
        "encrypted_index": "x",
        "title": "Hilo",
        "url": "https://example.com",
    }
    place = {
        "type": "char_location",
        "cited_text": "wet",
        "document_index": 0,
        "document_title": "Notes",
        "start_char_index": 0,
        "end_char_index": 3,
        "file_id": None,
    }
    untitled = {**place, "document_title": None}
    given = {"type": "text", "text": "It ", "citations": [place]}
    deltas: list[Event] = [
        {"type": "text_delta", "text": "rains."},
        {"type": "citations_delta", "citation": page},
        {"type": "citations_delta", "citation": untitled},
    ]
    assert decode_content(*whole_stream(block_events(0, given, *deltas))) == [
        CitationChunk(Citation(title="Notes", text="wet", opaque={"anthropic": place})),
        TextChunk("It "),
        TextChunk("rains."),
        CitationChunk(Citation(url="https://example.com", title="Hilo", text="rain", opaque={"anthropic": page})),
        CitationChunk(Citation(text="wet", opaque={"anthropic": untitled})),
        StopChunk("end"),
    ]


def test_provider_specific_blocks_are_stored_unchanged() -> None:
    search: Event = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", '{"query"', ': "rain"}')]
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [{"type": "web_search_result"}]}
    grown = {"type": "compaction", "content": None, "note": "a"}
    deltas = [
        {"type": "compaction_delta", "content": "So ", "note": "b"},
        {"type": "compaction_delta", "content": "far."},
    ]
    assert decode_content(
        *whole_stream(block_events(0, search, *pieces), block_events(1, found), block_events(2, grown, *deltas))
    ) == [
        ReasoningChunk(opaque={"anthropic": {**search, "input": {"query": "rain"}}}),
        ReasoningChunk(opaque={"anthropic": found}),
        ReasoningChunk(opaque={"anthropic": {"type": "compaction", "content": "So far.", "note": "ab"}}),
        StopChunk("end"),
    ]


@pytest.mark.parametrize(
    ("reasons", "stop"),
    [
        (("tool_use",), "calls"),
        (("end_turn",), "calls"),
        (("tool_use", "end_turn"), "calls"),
        (("max_tokens", "tool_use"), "length"),
        (("tool_use", "max_tokens"), "length"),
        (("refusal", "end_turn"), "refusal"),
        (("tired", "tool_use"), "refusal"),
        (("tired",), "refusal"),
    ],
)
def test_no_call_runs_from_an_answer_that_may_be_incomplete(reasons: tuple[str, ...], stop: str) -> None:
    said = [event for reason in reasons for event in message_stop_events(reason)[:-1]]
    assert decode_events(message_start(), *tool_use_events(0, "{}"), *said, message_stop_events("")[-1])[
        -1
    ] == StopChunk(stop)


def test_an_unknown_stop_reason_is_passed_on() -> None:
    assert decode_events(message_start(), *text_events(0, "x"), *message_stop_events("tired"))[-1] == StopChunk("tired")


def test_unknown_events_are_ignored() -> None:
    new: Event = {"type": "message_mood", "mood": {"deep": [1, 2]}}
    piece = {"type": "color_delta", "color": "red"}
    thought = block_events(1, {"type": "thinking", "thinking": "", "more": 1}, {"type": "mood_delta", "mood": "x"})
    events = [
        message_start(),
        new,
        *block_events(0, {"type": "text", "text": "", "lang": "en"}, piece),
        *thought,
        *message_stop_events("end_turn"),
    ]
    kept = {"type": "thinking", "thinking": "", "signature": "", "more": 1}
    assert decode_content(*events) == [ReasoningChunk(opaque={"anthropic": kept}), StopChunk("end")]


def test_names_of_events_may_be_missing() -> None:
    parser = AnthropicStreamDecoder()
    chunks = [
        chunk for event in whole_stream(text_events(0, "Hi.")) for chunk in parser.feed(msgspec.json.encode(event))
    ]
    assert (chunks[-1], parser.done) == (StopChunk("end"), True)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"type": "overloaded_error", "message": "Overloaded"}, ModelUnavailable),
        ({"type": "api_error", "message": "Internal"}, ModelUnavailable),
        ({"type": "rate_limit_error", "message": "Slow down"}, RateLimited),
        ({"type": "authentication_error", "message": "invalid x-api-key"}, AuthenticationFailed),
        ({"type": "invalid_request_error", "message": "prompt is too long: 9 tokens > 8"}, ContextTooLong),
        ({"type": "invalid_request_error", "message": "messages: wrong"}, BadRequest),
    ],
)
@pytest.mark.parametrize("place", range(5))
def test_an_error_event_raises_anywhere_in_the_stream(error: Event, kind: type[ModelError], place: int) -> None:
    events = whole_stream(text_events(0, "Hi."))
    for inline in ({"type": "error", "error": error, "request_id": "req_1"}, {"type": "", "error": error}):
        with pytest.raises(kind, match=error["message"]):
            decode_events(*events[:place], inline)


PIECE: Event = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
CALL: Event = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
GARBLED: list[tuple[str, list[Event]]] = [
    ("no beginning", [*text_events(0, "x"), *message_stop_events("end_turn")]),
    ("nothing at all", message_stop_events("end_turn")),
    ("two beginnings", [message_start(), message_start()]),
    ("an empty beginning", [{"type": "message_start"}]),
    ("no reason", [message_start(), *text_events(0, "x"), *message_stop_events(None)]),
    ("an empty reason", [message_start(), *text_events(0, "x"), *message_stop_events("")]),
    ("an open block", [message_start(), *tool_use_events(0, "{}", closed=False), *message_stop_events("tool_use")]),
    ("a call that never arrived", [message_start(), *text_events(0, "x"), *message_stop_events("tool_use")]),
    ("a piece of no block", [message_start(), PIECE]),
    (
        "a piece of a closed block",
        [message_start(), *text_events(0), {"type": "content_block_delta", "index": 0, "delta": {}}],
    ),
    ("a piece without a block", [message_start(), PIECE | {"index": None}]),
    (
        "a piece that is none",
        [
            message_start(),
            text_events(0)[0],
            PIECE | {"delta": None},
            text_events(0)[1],
            *message_stop_events("end_turn"),
        ],
    ),
    ("a block twice", [message_start(), *text_events(0), *text_events(0)]),
    ("a block without a place", [message_start(), {"type": "content_block_start", "content_block": {"type": "text"}}]),
    ("a block that is none", [message_start(), {"type": "content_block_start", "index": 0, "content_block": "x"}]),
    (
        "a block of no kind",
        [
            message_start(),
            *block_events(0, {"type": None, "id": "t"}),
            *tool_use_events(1, "{}"),
            *message_stop_events("tool_use"),
        ],
    ),
    ("an end of no block", [message_start(), {"type": "content_block_stop", "index": 3}]),
    ("a call without a name", [message_start(), *block_events(0, {"type": "tool_use", "id": "t", "input": {}})]),
    ("arguments of another kind", [message_start(), *block_events(0, CALL, {"type": "text_delta", "text": "x"})]),
    ("arguments that are missing", [message_start(), *block_events(0, CALL, {"type": "input_json_delta"})]),
    (
        "text that is missing",
        [message_start(), *block_events(0, {"type": "text", "text": ""}, {"type": "text_delta", "txet": "x"})],
    ),
    (
        "text that is a number",
        [message_start(), *block_events(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": 1})],
    ),
    (
        "a citation that is none",
        [message_start(), *block_events(0, {"type": "text"}, {"type": "citations_delta", "citation": "x"})],
    ),
    (
        "a search that is not JSON",
        [message_start(), *block_events(0, {"type": "server_tool_use"}, {"partial_json": "{"})],
    ),
    ("no type", [{"type": ""}]),
]


@pytest.mark.parametrize("events", [events for _, events in GARBLED], ids=[name for name, _ in GARBLED])
def test_events_that_contradict_each_other_are_a_cut(events: list[Event]) -> None:
    with pytest.raises(StreamCut):
        decode_events(*events)


@pytest.mark.parametrize(
    "data",
    [b"", b"{", b"[]", b"null", b'"x"', b'{"type": 1}', b'\xff{"type":"ping"}', b"[" * 100_000, b'{"type":"ping"} x'],
)
def test_data_that_is_not_an_event_is_a_cut(data: bytes) -> None:
    with pytest.raises(StreamCut, match="the stream is garbled"):
        AnthropicStreamDecoder().feed(data, "ping")


def test_an_event_under_a_wrong_name_is_a_cut() -> None:
    with pytest.raises(StreamCut, match="is called 'content_block_delta' and says it is 'content_block_deltb'"):
        AnthropicStreamDecoder().feed(b'{"type":"content_block_deltb","index":0}', "content_block_delta")


STREAMS = {
    "text": whole_stream(text_events(0, "It", " rains 🌧.")),
    "thinking": whole_stream(
        block_events(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "Hm."},
            {"type": "signature_delta", "signature": "Eq"},
        ),
        block_events(1, {"type": "redacted_thinking", "data": "xyz"}),
        text_events(2, "Yes."),
    ),
    "calls": whole_stream(
        text_events(0, "Look."),
        tool_use_events(1, "", '{"at": "é', '"}'),
        tool_use_events(2, '{"at":[1,2]}'),
        reason="tool_use",
    ),
    "search": whole_stream(
        block_events(
            0,
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query": "rain"}'},
        ),
        block_events(1, {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}),
        text_events(2, "Rain."),
    ),
    "length": whole_stream(text_events(0, "Once upon a"), reason="max_tokens"),
}


@pytest.mark.parametrize("name", STREAMS)
def test_the_vendors_client_reads_the_same_message(name: str) -> None:
    events = STREAMS[name]
    message = vendor_message(events).to_dict()
    ours: list[Event] = []
    for chunk in decode_events(*events):
        if isinstance(chunk, TextChunk):
            ours = [*ours, {"type": "text", "text": ""}] if not ours or ours[-1]["type"] != "text" else ours
            ours[-1]["text"] += chunk.text
        elif isinstance(chunk, ReasoningChunk) and chunk.opaque:
            kept: Any = chunk.opaque
            ours.append(kept["anthropic"])
        elif isinstance(chunk, CallChunk) and chunk.name:
            ours.append({"type": "tool_use", "id": chunk.id, "name": chunk.name, "input": ""})
        elif isinstance(chunk, CallChunk):
            ours[-1]["input"] += chunk.arguments
    for one in ours:
        if isinstance(one.get("input"), str):
            one["input"] = msgspec.json.decode(one["input"])
    assert message["content"] == ours
    usage = [chunk for chunk in decode_events(*events) if isinstance(chunk, UsageChunk)][-1].usage
    assert (usage.output, usage.input) == (message["usage"]["output_tokens"], 60)
