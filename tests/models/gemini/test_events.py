"""Streams of Gemini become chunks; a cut stream is never an answer."""

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.oracles.vendor_clients import event_type
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
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.message import Citation, Usage
from vaka.models.gemini.events import GeminiStreamDecoder

FREE = UsageChunk(Usage(), "m")


def event_of_part(**fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": [fields]}, "index": 0}]}


def ending_event(reason: str = "STOP", **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"finishReason": reason, "index": 0, **fields}]}


def decode_events(*events: Any, forced: str = "") -> list[Chunk]:
    """The chunks of a whole stream; usage that is said early counts less than the last and is left out."""
    answer = GeminiStreamDecoder("m", forced)
    chunks = [chunk for event in events for chunk in answer.feed(encode_event(event))]
    return [chunk for chunk in chunks if not isinstance(chunk, UsageChunk)] + answer.end()


def encode_event(event: Any) -> bytes:
    return event if isinstance(event, bytes) else msgspec.json.encode(event)


def error_of(*events: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        decode_events(*events)
    return caught.value


def opaque_blocks(**block: Any) -> ReasoningChunk:
    return ReasoningChunk(opaque={"gemini": block})


STREAM: list[dict[str, Any]] = [
    {
        "candidates": [{"content": {"parts": [{"text": "**Rain**", "thought": True}], "role": "model"}, "index": 0}],
        "usageMetadata": {"promptTokenCount": 20, "totalTokenCount": 50, "thoughtsTokenCount": 30},
        "modelVersion": "gemini-3.8-flash",
        "responseId": "r1",
    },
    {"candidates": [{"content": {"parts": [{"text": "It "}, {"text": "will."}], "role": "model"}, "index": 0}]},
    {
        "candidates": [
            {
                "content": {
                    "parts": [
                        {
                            "functionCall": {"name": "weather", "args": {"city": "Hilo 🌺"}, "id": "fc1"},
                            "thoughtSignature": "c2ln",
                        },
                        {"functionCall": {"name": "weather", "args": {}}},
                    ],
                    "role": "model",
                },
                "index": 0,
            }
        ]
    },
    {
        "candidates": [{"content": {"parts": [{"text": ""}], "role": "model"}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {
            "promptTokenCount": 20,
            "toolUsePromptTokenCount": 2,
            "cachedContentTokenCount": 8,
            "candidatesTokenCount": 12,
            "thoughtsTokenCount": 30,
            "totalTokenCount": 64,
        },
        "modelVersion": "gemini-3.8-flash",
    },
]


def test_a_stream_becomes_chunks() -> None:
    assert decode_events(*STREAM) == [
        ReasoningChunk("**Rain**"),
        TextChunk("It "),
        TextChunk("will."),
        opaque_blocks(thoughtSignature="c2ln"),
        CallChunk(0, "weather", '{"city":"Hilo 🌺"}', "fc1"),
        CallChunk(1, "weather", "{}", "call_gemini_1"),
        UsageChunk(Usage(input=22, output=42, cache_read=8, reasoning=30), "gemini-3.8-flash"),
        StopChunk("calls"),
    ]


def test_googles_client_reads_the_same_answer() -> None:
    chunks = decode_events(*STREAM)
    theirs = [event_type("gemini").validate_json(encode_event(event)) for event in STREAM]
    parts = [
        part
        for response in theirs
        for candidate in response.candidates or ()
        for part in (candidate.content and candidate.content.parts) or ()
    ]
    calls = [part.function_call for part in parts if part.function_call]
    made = [chunk for chunk in chunks if isinstance(chunk, CallChunk)]
    assert "".join(chunk.text for chunk in chunks if isinstance(chunk, TextChunk)) == "".join(
        part.text or "" for part in parts if not part.thought
    )
    assert [(chunk.name, msgspec.json.decode(chunk.arguments)) for chunk in made] == [
        (call.name, call.args or {}) for call in calls
    ]


def test_the_first_event_has_the_usage_of_the_prompt() -> None:
    answer = GeminiStreamDecoder("m")
    (*_, usage) = answer.feed(encode_event(STREAM[0]))
    assert usage == UsageChunk(Usage(input=20, output=30, reasoning=30), "gemini-3.8-flash")


@pytest.mark.parametrize(
    ("counts", "usage"),
    [
        ({}, Usage()),
        ({"promptTokenCount": 3, "candidatesTokenCount": None, "totalTokenCount": 10}, Usage(input=3, output=7)),
        ({"promptTokenCount": 9, "totalTokenCount": 3}, Usage(input=9)),
        ({"promptTokenCount": -4, "candidatesTokenCount": 1}, Usage(output=1)),
        ({"promptTokenCount": 2**53 + 1, "totalTokenCount": 10**15}, Usage(input=2**53)),
        (
            {"candidatesTokenCount": 2**60, "thoughtsTokenCount": 2**60, "totalTokenCount": 1},
            Usage(output=2**53, reasoning=2**53),
        ),
    ],
)
def test_usage_is_read_from_the_counts_that_are_present(counts: dict[str, Any], usage: Usage) -> None:
    assert decode_events({**ending_event(), "usageMetadata": counts}) == [UsageChunk(usage, "m"), StopChunk("end")]


def test_a_signature_comes_right_before_what_it_belongs_to() -> None:
    code = {"language": "PYTHON", "code": "print(1)"}
    output = {"outcome": "OUTCOME_OK", "output": "1"}
    assert decode_events(
        event_of_part(text="a", thoughtSignature="czE="),
        event_of_part(text="", thoughtSignature="czI="),
        event_of_part(text="hm", thought=True, thoughtSignature="czM="),
        event_of_part(executableCode=code, thoughtSignature="czQ="),
        event_of_part(codeExecutionResult=output),
        event_of_part(text="", thought=True),
        ending_event(),
    ) == [
        opaque_blocks(thoughtSignature="czE="),
        TextChunk("a"),
        opaque_blocks(thoughtSignature="czI="),
        ReasoningChunk("hm", opaque={"gemini": {"thought": True, "thoughtSignature": "czM="}}),
        opaque_blocks(executableCode=code, thoughtSignature="czQ="),
        opaque_blocks(codeExecutionResult=output),
        FREE,
        StopChunk("end"),
    ]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{ "a" :1e2 }', '{ "a" :1e2 }'),
        ("null", "{}"),
        ('"{\\"a\\": "', '{"a": '),
        ("[1]", "[1]"),
    ],
)
def test_arguments_are_passed_on_unchanged(arguments: str, text: str) -> None:
    event = '{"candidates":[{"content":{"parts":[{"functionCall":{"name":"f","args":%s}}]},"finishReason":"STOP"}]}'
    chunk, *_ = decode_events((event % arguments).encode())
    assert chunk == CallChunk(0, "f", text, "call_gemini_0")


def test_calls_with_the_same_id_get_unique_ids() -> None:
    same = {"name": "f", "id": "x"}
    first, second, *_ = decode_events(
        event_of_part(functionCall=same), event_of_part(functionCall=same), ending_event()
    )
    assert [first, second] == [CallChunk(0, "f", "{}", "x"), CallChunk(1, "f", "{}", "call_gemini_1")]


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("STOP", "calls"),
        ("MAX_TOKENS", "length"),
        ("CONTINUATION", "length"),
        ("SAFETY", "refusal"),
        ("OTHER", "refusal"),
        ("SOMETHING_NEW", "refusal"),
    ],
)
def test_stop_reasons_of_an_answer_with_calls_are_mapped(reason: str, stop: str) -> None:
    chunks = decode_events(event_of_part(text="a"), event_of_part(functionCall={"name": "f"}), ending_event(reason))
    assert chunks[-1] == StopChunk(stop)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [("STOP", "end"), ("MAX_TOKENS", "length"), ("RECITATION", "refusal"), ("SPII", "refusal"), ("NEW_ONE", "new_one")],
)
def test_stop_reasons_of_an_answer_without_calls_are_mapped(reason: str, stop: str) -> None:
    assert decode_events(event_of_part(text="a"), ending_event(reason)) == [TextChunk("a"), FREE, StopChunk(stop)]


def test_a_refusal_without_text_has_the_providers_reason() -> None:
    said = decode_events(
        ending_event("PROHIBITED_CONTENT", finishMessage="Not  this.\nkey=abcdefgh12345678 " + "x" * 600)
    )
    assert isinstance(said[0], TextChunk)
    assert said[0].text.startswith("The answer was refused: PROHIBITED_CONTENT: Not this. [redacted] xxx")
    assert len(said[0].text) < 600
    assert said[1:] == [FREE, StopChunk("refusal")]


def test_a_blocked_prompt_is_a_refusal_with_its_reason() -> None:
    feedback = {"promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "no"}, "usageMetadata": {}}
    with pytest.raises(ModelRefused, match=r"^the prompt was blocked: SAFETY: no$"):
        decode_events(feedback)
    with pytest.raises(ModelRefused, match=r"^the prompt was blocked: OTHER$"):
        decode_events({"promptFeedback": {"blockReason": "OTHER"}})
    assert decode_events({"promptFeedback": {"safetyRatings": []}}, event_of_part(text="a"), ending_event())[
        0
    ] == TextChunk("a")


@pytest.mark.parametrize(
    "reason", ["MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS", "MALFORMED_RESPONSE"]
)
def test_a_malformed_call_may_be_retried(reason: str) -> None:
    error = error_of(event_of_part(text="a"), ending_event(reason, finishMessage="print(x"))
    assert type(error) is StreamCut
    assert str(error) == f"the model's answer is malformed: {reason}: print(x"


def test_a_lost_signature_is_not_retried() -> None:
    assert type(error_of(ending_event("MISSING_THOUGHT_SIGNATURE"))) is BadRequest


@pytest.mark.parametrize(
    "events",
    [
        [],
        [event_of_part(text="a")],
        [event_of_part(functionCall={"name": "f"})],
        [{}],
        [{"candidates": None}],
        [{"candidates": []}],
        [event_of_part(text="a"), ending_event("")],
        [event_of_part(text="a"), ending_event("FINISH_REASON_UNSPECIFIED")],
        [{"candidates": [{"finishReason": "STOP", "index": 1}]}],
        [b"[DONE]"],
        [{"usageMetadata": {"promptTokenCount": 1}}],
    ],
)
def test_a_stream_without_a_finish_reason_was_cut(events: list[Any]) -> None:
    assert type(error_of(*events)) is StreamCut


def test_usage_and_text_may_come_after_the_finish_reason() -> None:
    usage = {"usageMetadata": {"promptTokenCount": 1, "candidatesTokenCount": 2}}
    words = [ending_event(content={"parts": [{"text": text}]}) for text in "ab"]
    assert decode_events(*words, usage, b"[DONE]") == [
        TextChunk("a"),
        TextChunk("b"),
        UsageChunk(Usage(input=1, output=2), "m"),
        StopChunk("end"),
    ]


@pytest.mark.parametrize("reasons", [("MAX_TOKENS", "STOP"), ("STOP", "MAX_TOKENS")])
def test_the_finish_reason_of_an_incomplete_answer_takes_precedence(reasons: tuple[str, str]) -> None:
    call = event_of_part(functionCall={"name": "go", "args": {}})
    assert decode_events(call, *map(ending_event, reasons))[-1] == StopChunk("length")


def test_only_the_first_of_several_candidates_counts() -> None:
    other = {"content": {"parts": [{"text": "no"}]}, "index": 1, "finishReason": "SAFETY"}
    first = {"content": {"parts": [{"text": "yes"}]}, "index": 0, "finishReason": "STOP"}
    assert decode_events({"candidates": [other, first, other]}) == [TextChunk("yes"), FREE, StopChunk("end")]


def test_nulls_and_unknown_fields_are_ignored() -> None:
    event: dict[str, Any] = {
        "candidates": [
            {"content": None, "avgLogprobs": 1, "safetyRatings": [{}], "finishReason": None, "groundingMetadata": None},
            {"content": {"parts": None}},
            {"content": {"parts": [{"text": None, "thought": None, "partMetadata": {}, "fancy": {"new": 1}}]}},
        ],
        "error": None,
        "usageMetadata": None,
        "modelVersion": None,
        "promptFeedback": None,
        "createTime": "x",
    }
    assert decode_events(event, ending_event()) == [FREE, StopChunk("end")]


@pytest.mark.parametrize(
    ("data", "error_text"),
    [
        (b'{"candidates": [', "expected an event of an answer, got a JSON object: '{\"candidates\": ['"),
        (b"<html>no</html>", "expected an event of an answer, got an HTML page: '<html>no</html>'"),
        (b"[]", "expected an event of an answer, got a JSON array: '[]'"),
        (b'{"candidates": 1}', "expected an event of an answer, got a JSON object: '{\"candidates\": 1}'"),
        (b'{"candidates": [{"content": {"parts": [{"text": "\xff"}]}}]}', "expected an event of an answer"),
        (b'{"candidates": [{"content": {"parts": [{"text": "\\ud800"}]}}]}', "expected an event of an answer"),
        (b'{"x": ' + b"[" * 200_000, "expected an event of an answer, got a JSON object"),
        (b'{"error": {"message": ' + b"[" * 200_000, "expected an event of an answer, got a JSON object"),
        (b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":{"a":"\xff"}}}]}}]}', "the arguments of a call"),
        (b'{"candidates":[{"content":{"parts":[{"functionCall":{"args":{}}}]}}]}', "the answer is garbled: a call"),
        (b"", "expected an event of an answer, got an empty body"),
    ],
)
def test_invalid_events_are_a_cut(data: bytes, error_text: str) -> None:
    error = error_of(data, ending_event())
    assert type(error) is StreamCut
    assert str(error).startswith(error_text)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}, ModelUnavailable),
        ({"code": 429, "message": "Quota exceeded.", "status": "RESOURCE_EXHAUSTED"}, RateLimited),
        ({"code": 400, "message": "No such field.", "status": "INVALID_ARGUMENT"}, BadRequest),
        (
            {
                "code": 400,
                "message": "API key not valid.",
                "status": "INVALID_ARGUMENT",
                "details": [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}],
            },
            AuthenticationFailed,
        ),
    ],
)
def test_an_error_event_raises_its_error(error: dict[str, Any], kind: type, listed: bool) -> None:
    event: Any = {"error": error}
    caught = error_of(event_of_part(text="a"), [event] if listed else event)
    assert type(caught) is kind
    assert error["message"] in str(caught)


def test_an_error_event_has_its_retry_delay() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}
    error = error_of({"error": {"code": 429, "message": "m", "status": "RESOURCE_EXHAUSTED", "details": [detail]}})
    assert isinstance(error, RateLimited)
    assert error.retry_after == 34.5


def test_sources_are_cited_once_each() -> None:
    segment = {"startIndex": 0, "endIndex": 3, "text": "Yes"}
    grounding: dict[str, Any] = {
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"retrievedContext": {"uri": "gs://b", "title": "B", "text": "words"}},
            {"maps": {"uri": "https://m.example"}},
            {"image": {}},
            {"web": {}},
        ],
        "groundingSupports": [{"segment": segment, "groundingChunkIndices": [0, 2, 9]}, {"segment": segment}],
        "webSearchQueries": ["rain"],
    }
    cited = {"citationSources": [{"uri": "https://c.example", "startIndex": 1, "license": "mit"}]}
    candidate: Any = {
        "content": {"parts": [{"text": "Yes"}]},
        "groundingMetadata": grounding,
        "citationMetadata": cited,
    }
    again = {"citations": [{"uri": "https://a.example", "title": "A"}]}
    where: Any = {"gemini": {"segments": [segment]}}
    assert decode_events(
        {"candidates": [candidate]}, {"candidates": [candidate]}, ending_event(citationMetadata=again)
    ) == [
        TextChunk("Yes"),
        CitationChunk(Citation(url="https://a.example", title="A", opaque=where)),
        CitationChunk(Citation(url="gs://b", title="B", text="words")),
        CitationChunk(Citation(url="https://m.example", opaque=where)),
        CitationChunk(Citation(url="https://c.example")),
        TextChunk("Yes"),
        FREE,
        StopChunk("end"),
    ]


def test_the_call_of_the_output_tool_becomes_text() -> None:
    events = [event_of_part(functionCall={"name": "answer", "args": {"rain": True}}), ending_event()]
    assert decode_events(*events, forced="answer") == [TextChunk('{"rain":true}'), FREE, StopChunk("end")]
    assert decode_events(event_of_part(functionCall={"name": "f"}), *events, forced="answer")[-1] == StopChunk("calls")


def argument_pieces(*given: dict[str, Any], more: bool = True, **fields: Any) -> dict[str, Any]:
    return event_of_part(functionCall={"partialArgs": list(given), "willContinue": more, **fields})


def test_arguments_in_pieces_are_joined() -> None:
    assert decode_events(
        event_of_part(functionCall={"name": "f", "id": "x", "willContinue": True}, thoughtSignature="c2ln"),
        argument_pieces({"jsonPath": "$.city", "stringValue": "Hi", "willContinue": True}),
        argument_pieces({"jsonPath": "$.city", "stringValue": "lo", "willContinue": True}),
        argument_pieces({"jsonPath": "$.city", "stringValue": ""}, {"jsonPath": "$.n", "numberValue": 2}),
        argument_pieces({"jsonPath": '$.deep[\'a.b\'][0]["c\\"d"]', "boolValue": False}),
        argument_pieces({"jsonPath": "$.deep['a.b'][1]", "nullValue": "NULL_VALUE"}),
        event_of_part(functionCall={}),
        event_of_part(functionCall={"name": "g"}),
        ending_event(),
    ) == [
        opaque_blocks(thoughtSignature="c2ln"),
        CallChunk(0, "f", '{"city":"Hilo","n":2,"deep":{"a.b":[{"c\\"d":false},null]}}', "x"),
        CallChunk(1, "g", "{}", "call_gemini_1"),
        FREE,
        StopChunk("calls"),
    ]


@pytest.mark.parametrize(
    "events",
    [
        [argument_pieces({"jsonPath": "$.a", "stringValue": "x"}, name="f")],
        [argument_pieces({"jsonPath": "$.a", "stringValue": "x"}, name="f"), event_of_part(functionCall={"name": "g"})],
        [argument_pieces({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, name="f", more=False)],
        [
            argument_pieces({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, name="f"),
            argument_pieces({"jsonPath": "$.a", "numberValue": 1}, more=False),
        ],
        [argument_pieces({"jsonPath": "$.a", "stringValue": "x"}, {"jsonPath": "$.a.b", "numberValue": 1}, more=False)],
        [argument_pieces({"jsonPath": "$.a[1]", "numberValue": 1}, more=False)],
        [argument_pieces({"jsonPath": "$.a[999999999]", "numberValue": 1}, more=False)],
        *(
            [argument_pieces({"jsonPath": path, "numberValue": 1}, more=False)]
            for path in ("", "$", "a", "$..a", "$.a[", "$[x]")
        ),
    ],
)
def test_pieces_that_contradict_each_other_are_a_cut(events: list[Any]) -> None:
    assert type(error_of(*events, ending_event())) is StreamCut


def test_pieces_cut_by_the_length_limit_are_emitted_as_truncated() -> None:
    half = argument_pieces({"jsonPath": "$.a", "stringValue": "x", "willContinue": True}, name="f")
    assert decode_events(half, ending_event("MAX_TOKENS")) == [
        CallChunk(0, "f", '{"a":"x"}', "call_gemini_0"),
        FREE,
        StopChunk("length"),
    ]


@given(st.data())
def test_a_mutated_event_raises_only_model_errors(data: st.DataObject) -> None:
    event = bytearray(encode_event(data.draw(st.sampled_from(STREAM))))
    for _ in range(data.draw(st.integers(1, 4))):
        event[data.draw(st.integers(0, len(event) - 1))] = data.draw(st.integers(0, 255))
    answer = GeminiStreamDecoder("m")
    with suppress(ModelError):
        answer.feed(bytes(event))
        answer.end()
