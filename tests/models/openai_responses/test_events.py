"""Streams of the Responses API become chunks, once each, whichever events a server leaves out."""

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.models.oracles.vendor_clients import event_type
from vaka.core.loop.assemble import MessageAssembly, RawToolCall
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
    ModelError,
    StreamCut,
)
from vaka.core.types.ids import MessageId
from vaka.core.types.message import Citation, Part, Reasoning, Text, Usage
from vaka.models.openai_responses.events import ResponsesStreamDecoder

Events = list[dict[str, Any]]
USAGE = {
    "input_tokens": 20,
    "input_tokens_details": {"cached_tokens": 8, "cache_write_tokens": 4},
    "output_tokens": 9,
    "output_tokens_details": {"reasoning_tokens": 5},
    "total_tokens": 29,
}
SPENT = UsageChunk(Usage(input=20, output=9, cache_read=8, cache_write=4, reasoning=5), "gpt-6-2026")
CITED = {
    "type": "url_citation",
    "url": "https://x",
    "title": "X",
    "start_index": 0,
    "end_index": 2,
}


def response_body(status: str, output: Any = (), **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "gpt-6-2026",
        "output": list(output),
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE,
        **more,
    }


def message_item(*content: dict[str, Any], status: str = "completed", id: str = "msg_1", **more: Any) -> dict[str, Any]:
    return {"id": id, "type": "message", "role": "assistant", "status": status, "content": list(content), **more}


def text_part(text: str, *annotations: dict[str, Any]) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": list(annotations), "logprobs": []}


def function_call_item(
    arguments: str, number: int = 1, status: str = "completed", name: str = "weather"
) -> dict[str, Any]:
    return {
        "id": f"fc_{number}",
        "type": "function_call",
        "status": status,
        "call_id": f"call_{number}",
        "name": name,
        "arguments": arguments,
    }


def item_added(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def item_done(index: int, item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def completed_event(*output: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response_body("completed", output, **more)}


def incomplete_event(reason: str | None, *output: dict[str, Any]) -> dict[str, Any]:
    why = {"reason": reason} if reason else None
    return {"type": "response.incomplete", "response": response_body("incomplete", output, incomplete_details=why)}


def text_deltas(index: int, *pieces: str, id: str = "msg_1") -> Events:
    place = {"item_id": id, "output_index": index, "content_index": 0, "logprobs": []}
    return [{"type": "response.output_text.delta", **place, "delta": piece} for piece in pieces]


def argument_deltas(index: int, *pieces: str, number: int = 1) -> Events:
    kind = "response.function_call_arguments.delta"
    return [{"type": kind, "item_id": f"fc_{number}", "output_index": index, "delta": piece} for piece in pieces]


def arguments_done(index: int, arguments: str, number: int = 1) -> dict[str, Any]:
    kind, name = "response.function_call_arguments.done", "weather"
    return {"type": kind, "item_id": f"fc_{number}", "output_index": index, "name": name, "arguments": arguments}


def decode_valid_events(events: Events, limit: int | None = None) -> list[Chunk]:
    """The chunks of events that are as OpenAI's own types say."""
    for number, event in enumerate(events):
        event_type("responses").validate_python({"sequence_number": number, **event})
    return decode_events(events, limit)


def decode_events(events: Events, limit: int | None = None) -> list[Chunk]:
    reader = ResponsesStreamDecoder(limit)
    chunks = [chunk for event in events for chunk in reader.feed(msgspec.json.encode(event))]
    assert reader.done
    return chunks


def error_of(events: Events, kind: type[ModelError] = StreamCut) -> str:
    with pytest.raises(kind) as caught:
        decode_events(events)
    return str(caught.value)


def assemble_parts(chunks: list[Chunk]) -> list[Part | RawToolCall]:
    assembly = MessageAssembly(MessageId("m"))
    for chunk in chunks:
        assembly.feed(chunk)
    return assembly.parts()


SAID = message_item(text_part("It rains."))
TEXT: Events = [
    {"type": "response.created", "response": response_body("in_progress")},
    {"type": "response.in_progress", "response": response_body("in_progress")},
    item_added(0, message_item(status="in_progress")),
    {
        "type": "response.content_part.added",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "part": text_part(""),
    },
    *text_deltas(0, "It", " rains", "."),
    {
        "type": "response.output_text.done",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "text": "It rains.",
        "logprobs": [],
    },
    {
        "type": "response.content_part.done",
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "part": text_part("It rains."),
    },
    item_done(0, SAID),
    completed_event(SAID),
]

HILO, KONA = '{"city": "Hilo"}', '{"city": "Kona"}'
CALLS: Events = [
    item_added(0, function_call_item("", status="in_progress")),
    *argument_deltas(0, '{"city": ', '"Hilo"}'),
    arguments_done(0, HILO),
    item_done(0, function_call_item(HILO)),
    item_added(1, function_call_item("", 2, status="in_progress")),
    *argument_deltas(1, KONA, number=2),
    arguments_done(1, KONA, 2),
    item_done(1, function_call_item(KONA, 2)),
    completed_event(function_call_item(HILO), function_call_item(KONA, 2)),
]

THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "encrypted_content": "gAAA",
    "summary": [{"type": "summary_text", "text": "First."}, {"type": "summary_text", "text": "Then."}],
}
PLACE = {"item_id": "rs_1", "output_index": 0}
THINKING: Events = [
    item_added(0, {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gA"}),
    {
        "type": "response.reasoning_summary_part.added",
        **PLACE,
        "summary_index": 0,
        "part": {"type": "summary_text", "text": ""},
    },
    {"type": "response.reasoning_summary_text.delta", **PLACE, "summary_index": 0, "delta": "Fir"},
    {"type": "response.reasoning_summary_text.delta", **PLACE, "summary_index": 0, "delta": "st."},
    {"type": "response.reasoning_summary_text.done", **PLACE, "summary_index": 0, "text": "First."},
    {"type": "response.reasoning_summary_text.delta", **PLACE, "summary_index": 1, "delta": "Then."},
    {"type": "response.reasoning_summary_text.done", **PLACE, "summary_index": 1, "text": "Then."},
    item_done(0, THOUGHT),
    item_added(1, function_call_item("", status="in_progress")),
    *argument_deltas(1, HILO),
    arguments_done(1, HILO),
    item_done(1, function_call_item(HILO)),
    completed_event(THOUGHT, function_call_item(HILO)),
]


# Well-formed streams


def test_text_is_streamed_once_and_unchanged() -> None:
    assert decode_valid_events(TEXT) == [TextChunk("It"), TextChunk(" rains"), TextChunk("."), SPENT, StopChunk("end")]


def test_calls_come_with_their_names_and_ids_first() -> None:
    assert decode_valid_events(CALLS) == [
        CallChunk(0, "weather", "", "call_1"),
        CallChunk(0, arguments='{"city": '),
        CallChunk(0, arguments='"Hilo"}'),
        CallChunk(1, "weather", "", "call_2"),
        CallChunk(1, arguments=KONA),
        SPENT,
        StopChunk("calls"),
    ]


def test_reasoning_is_stored_unchanged_before_its_call() -> None:
    assert assemble_parts(decode_valid_events(THINKING)) == [
        Reasoning(text="First.\n\nThen.", opaque={"responses": THOUGHT}),
        RawToolCall("weather", HILO, "call_1"),
    ]


def test_plain_reasoning_is_emitted() -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]}
    events: Events = [
        item_added(0, {"id": "rs_1", "type": "reasoning", "summary": []}),
        {"type": "response.reasoning_text.delta", **PLACE, "content_index": 0, "delta": "H"},
        {"type": "response.reasoning_text.done", **PLACE, "content_index": 0, "text": "Hm."},
        {
            "type": "response.content_part.done",
            **PLACE,
            "content_index": 0,
            "part": {"type": "reasoning_text", "text": "Hm."},
        },
        item_done(0, thought),
        completed_event(thought),
    ]
    assert assemble_parts(decode_valid_events(events)) == [Reasoning(text="Hm.", opaque={"responses": thought})]


def test_items_of_built_in_tools_are_stored_unchanged_in_their_place() -> None:
    search = {
        "id": "ws_1",
        "type": "web_search_call",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    events: Events = [
        item_added(0, search | {"status": "in_progress"}),
        {"type": "response.web_search_call.searching", "item_id": "ws_1", "output_index": 0},
        item_done(0, search),
        item_added(1, message_item(status="in_progress")),
        *text_deltas(1, "It rains."),
        item_done(1, SAID),
        completed_event(search, SAID),
    ]
    assert assemble_parts(decode_valid_events(events)) == [
        Reasoning(opaque={"responses": search}),
        Text(text="It rains."),
    ]


def test_sources_are_cited_after_the_text_and_once() -> None:
    cited = message_item(text_part("It rains.", CITED, CITED | {"url": "https://y", "title": "Y"}))
    kind, place = "response.output_text.annotation.added", {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    annotated = {"type": kind, **place, "annotation_index": 0, "annotation": CITED}
    events = [
        item_added(0, message_item(status="in_progress")),
        *text_deltas(0, "It rains."),
        annotated,
        item_done(0, cited),
        completed_event(cited),
    ]
    sources = [chunk.citation for chunk in decode_valid_events(events) if isinstance(chunk, CitationChunk)]
    assert sources == [
        Citation(url="https://x", title="X", opaque={"responses": CITED}),
        Citation(url="https://y", title="Y", opaque={"responses": CITED | {"url": "https://y", "title": "Y"}}),
    ]
    file = {"type": "file_citation", "file_id": "f", "filename": "a.pdf", "index": 0}
    assert assemble_parts(decode_valid_events([completed_event(message_item(text_part("Yes.", file)))])) == [
        Text(text="Yes.", citations=(Citation(title="a.pdf", opaque={"responses": file}),))
    ]


def test_a_refusal_has_text_and_a_stop_reason() -> None:
    refused = message_item({"type": "refusal", "refusal": "I will not."})
    place = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
    events = [
        item_added(0, message_item(status="in_progress")),
        {"type": "response.refusal.delta", **place, "delta": "I will"},
        {"type": "response.refusal.done", **place, "refusal": "I will not."},
        item_done(0, refused),
        completed_event(refused),
    ]
    expected = [TextChunk("I will"), TextChunk(" not."), SPENT, StopChunk("refusal")]
    assert decode_valid_events(events) == expected
    assert decode_valid_events([completed_event(refused)]) == [SPENT, TextChunk("I will not."), StopChunk("refusal")]


def test_the_phase_of_a_message_comes_before_its_text() -> None:
    first, second = (
        message_item(text_part("Look."), phase="commentary"),
        message_item(text_part("Rain."), id="msg_2", phase="final_answer"),
    )
    begun = [
        item_added(0, message_item(phase="commentary", status="in_progress")),
        *text_deltas(0, "Look."),
        item_done(0, first),
    ]
    events = [*begun, item_done(1, second), completed_event(first, second)]
    assert assemble_parts(decode_valid_events(events)) == [
        Reasoning(opaque={"responses": {"type": "message", "phase": "commentary"}}),
        Text(text="Look."),
        Reasoning(opaque={"responses": {"type": "message", "phase": "final_answer"}}),
        Text(text="Rain."),
    ]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("max_output_tokens", "length"), ("content_filter", "refusal"), ("steered", "steered"), (None, "incomplete")],
)
def test_an_incomplete_answer_has_its_reason(reason: str | None, stop: str) -> None:
    begun = message_item(text_part("It"), status="incomplete")
    events = [*TEXT[:5], item_done(0, begun), incomplete_event(reason, begun)]
    assert decode_valid_events(events)[-1] == StopChunk(stop)


def test_calls_of_an_incomplete_answer_are_dropped() -> None:
    half = function_call_item('{"city": "Hi', status="incomplete")
    begun = [item_added(0, function_call_item("", status="in_progress")), *argument_deltas(0, '{"city": "Hi')]
    assert decode_valid_events([*begun, incomplete_event("max_output_tokens", half)])[-1] == StopChunk("length")
    assert decode_valid_events([*begun, incomplete_event("max_messages")])[-1] == StopChunk("length")
    assert decode_valid_events([*begun, item_done(0, half), completed_event(half)])[-1] == StopChunk("length")
    ended = completed_event(half)
    ended["response"]["status"] = "incomplete"
    assert decode_valid_events([*begun, ended])[-1] == StopChunk("length")


def test_an_empty_answer_ends_with_a_stop() -> None:
    assert decode_valid_events([completed_event()]) == [SPENT, StopChunk("end")]
    assert decode_events([{"type": "response.completed"}]) == [UsageChunk(Usage()), StopChunk("end")]


# Servers that send parts only


@pytest.mark.parametrize("missing", range(len(TEXT) - 1))
def test_text_is_complete_whichever_event_is_missing(missing: int) -> None:
    """A piece that is missing in the middle cannot be emitted in its place, so the answer is an error."""
    events = TEXT[:missing] + TEXT[missing + 1 :]
    if TEXT[missing] in TEXT[4:6]:
        assert "differ from the complete" in error_of(events)
    else:
        assert "".join(chunk.text for chunk in decode_events(events) if isinstance(chunk, TextChunk)) == "It rains."


@pytest.mark.parametrize("missing", range(len(CALLS) - 1))
def test_calls_are_complete_whichever_event_is_missing(missing: int) -> None:
    events = CALLS[:missing] + CALLS[missing + 1 :]
    if missing == 1:
        assert "arguments" in error_of(events)
    else:
        calls = assemble_parts(decode_events(events))
        assert calls == [RawToolCall("weather", HILO, "call_1"), RawToolCall("weather", KONA, "call_2")]


@pytest.mark.parametrize("events", [TEXT, CALLS, THINKING])
def test_the_last_event_alone_is_the_answer(events: Events) -> None:
    assert assemble_parts(decode_events(events[-1:])) == assemble_parts(decode_events(events))


@pytest.mark.parametrize("events", [TEXT, CALLS, THINKING])
def test_an_answer_whose_last_event_is_empty_is_read_from_the_others(events: Events) -> None:
    assert assemble_parts(decode_events([*events[:-1], completed_event()])) == assemble_parts(decode_events(events))


@pytest.mark.parametrize("events", [TEXT, CALLS, THINKING])
@pytest.mark.parametrize("without", [("output_index",), ("item_id",), ("output_index", "item_id")])
def test_indexes_and_ids_may_be_missing(events: Events, without: tuple[str, ...]) -> None:
    bare = [{name: value for name, value in event.items() if name not in without} for event in events]
    assert assemble_parts(decode_events(bare)) == assemble_parts(decode_events(events))


@pytest.mark.parametrize("events", [TEXT, CALLS, THINKING])
def test_ids_of_items_may_be_missing_or_change(events: Events) -> None:
    def other(value: Any, ids: Iterator[int] | None) -> Any:
        if isinstance(value, list):
            return [other(item, ids) for item in value]
        if not isinstance(value, dict):
            return value
        changed = {name: other(inner, ids) for name, inner in value.items() if ids or name not in {"id", "item_id"}}
        return {name: f"x{next(ids)}" if ids and name in {"id", "item_id"} else was for name, was in changed.items()}

    def calls_and_words(events: Events) -> list[Any]:
        return [
            part.text if isinstance(part, Text | Reasoning) else part for part in assemble_parts(decode_events(events))
        ]

    assert calls_and_words(other(events, None)) == calls_and_words(events)
    assert calls_and_words(other(events, itertools.count())) == calls_and_words(events)


def test_calls_get_unique_ids() -> None:
    bare = [
        {name: value for name, value in function_call_item(HILO).items() if name not in {"id", "call_id"}}
        for _ in range(2)
    ]
    assert assemble_parts(decode_events([item_done(0, bare[0]), item_done(1, bare[1]), completed_event()])) == [
        RawToolCall("weather", HILO, "call_1"),
        RawToolCall("weather", HILO, "call_2"),
    ]
    twice = [RawToolCall("weather", HILO, "call_1"), RawToolCall("weather", HILO, "call_1_")]
    assert (
        assemble_parts(
            decode_events([completed_event(function_call_item(HILO), function_call_item(HILO) | {"id": "fc_2"})])
        )
        == twice
    )


def test_arguments_may_be_an_object_and_may_be_replaced() -> None:
    whole = function_call_item(HILO) | {"arguments": {"city": "Hilo"}}
    assert assemble_parts(decode_events([completed_event(whole)])) == [
        RawToolCall("weather", '{"city":"Hilo"}', "call_1")
    ]
    begun = [item_added(0, function_call_item("")), *argument_deltas(0, HILO)]
    assert assemble_parts(decode_events([*begun, completed_event(whole)])) == [RawToolCall("weather", HILO, "call_1")]


def test_a_name_that_comes_late_is_waited_for() -> None:
    nameless = function_call_item("", status="in_progress", name="")
    events = [
        item_added(0, nameless),
        *argument_deltas(0, '{"city"', ': "Hilo"}'),
        item_done(0, function_call_item(HILO)),
        completed_event(),
    ]
    assert decode_events(events) == [CallChunk(0, "weather", HILO, "call_1"), SPENT, StopChunk("calls")]


def test_text_that_differs_only_in_white_space_is_not_repeated() -> None:
    assert decode_events([*TEXT[:3], *text_deltas(0, "\n\nIt rains. "), *TEXT[7:]])[0] == TextChunk("\n\nIt rains. ")


LLAMA_CALL: Events = [
    {"type": "response.created", "response": {"id": "resp_x", "object": "response", "status": "in_progress"}},
    {
        "type": "response.output_item.added",
        "item": {
            "id": "rs_x",
            "summary": [],
            "type": "reasoning",
            "content": [],
            "encrypted_content": "",
            "status": "in_progress",
        },
    },
    {"type": "response.reasoning_text.delta", "delta": "Hm.", "item_id": "rs_x"},
    {
        "type": "response.output_item.added",
        "item": {"content": [], "id": "msg_x", "role": "assistant", "status": "in_progress", "type": "message"},
    },
    {"type": "response.content_part.added", "item_id": "msg_x", "part": {"type": "output_text", "text": ""}},
    {"type": "response.output_text.delta", "item_id": "msg_x", "delta": "Let me"},
    {"type": "response.output_text.delta", "item_id": "msg_x", "delta": " look."},
    {
        "type": "response.output_item.added",
        "item": {
            "id": "fc_x",
            "arguments": "",
            "call_id": "call_x",
            "name": "weather",
            "type": "function_call",
            "status": "in_progress",
        },
    },
    {"type": "response.function_call_arguments.delta", "delta": '{"city":', "item_id": "fc_x"},
    {"type": "response.function_call_arguments.delta", "delta": '"Hilo"}', "item_id": "fc_x"},
    {
        "type": "response.output_item.done",
        "item": {
            "id": "rs_x",
            "summary": [],
            "type": "reasoning",
            "content": [{"text": "Hm.", "type": "reasoning_text"}],
            "encrypted_content": "",
        },
    },
    {"type": "response.output_text.done", "item_id": "msg_x", "text": "Let me look."},
    {
        "type": "response.output_item.done",
        "item": {
            "type": "message",
            "status": "completed",
            "id": "msg_x",
            "content": [{"type": "output_text", "annotations": [], "logprobs": [], "text": "Let me look."}],
        },
    },
    {
        "type": "response.output_item.done",
        "item": {
            "id": "fc_x",
            "type": "function_call",
            "status": "completed",
            "arguments": '{"city":"Hilo"}',
            "call_id": "call_x",
            "name": "weather",
        },
    },
    {
        "type": "response.completed",
        "response": {
            "id": "resp_x",
            "object": "response",
            "status": "completed",
            "model": "m.gguf",
            "output": [],
            "usage": {
                "input_tokens": 41,
                "output_tokens": 12,
                "total_tokens": 53,
                "input_tokens_details": {"cached_tokens": 40},
            },
        },
    },
]


def test_the_stream_of_a_llama_server_is_read() -> None:
    chunks = decode_events(LLAMA_CALL)
    assert [part for part in assemble_parts(chunks) if not isinstance(part, Reasoning)] == [
        Text(text="Let me look."),
        RawToolCall("weather", '{"city":"Hilo"}', "call_x"),
    ]
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, ReasoningChunk)) == "Hm."
    assert chunks[-2:] == [UsageChunk(Usage(input=41, output=12, cache_read=40), "m.gguf"), StopChunk("calls")]


def test_the_token_count_shows_the_length_limit_where_the_server_does_not() -> None:
    assert decode_events(LLAMA_CALL, limit=12)[-1] == StopChunk("length")
    assert decode_events(LLAMA_CALL, limit=13)[-1] == StopChunk("calls")
