"""Streams of Chat Completions become chunks, for OpenAI and for compatible vendors."""

from typing import Any

import msgspec
import pytest
from inline_snapshot import snapshot

from tests.models.origin_tags import strip_origin
from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    CitationChunk,
    Prompt,
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
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.core.types.message import Citation, Text, Usage, UserMessage
from vaka.models.openai_chat.model import OpenAIChat
from vaka.models.openai_chat.vendors import PROFILES, VendorProfile
from vaka.models.transport.client import Account
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import drain_stream, join_chunks, say

ASKED = Prompt(messages=(UserMessage(content=(Text(text="Well?"),)),))
DONE = b"data: [DONE]\n\n"


def event_item(**fields: Any) -> bytes:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-2026"}
    return b"data: " + msgspec.json.encode({**frame, **fields}) + b"\n\n"


def delta_event(finish: str | None = None, **fields: Any) -> bytes:
    return event_item(choices=[{"index": 0, "delta": fields, "logprobs": None, "finish_reason": finish}], usage=None)


def call_fragment(arguments: Any = "", **fields: Any) -> bytes:
    name = {"name": fields.pop("name")} if "name" in fields else {}
    return delta_event(tool_calls=[{"type": "function", **fields, "function": {**name, "arguments": arguments}}])


def usage_event(input: int = 5, output: int = 2, /, **more: Any) -> bytes:
    counted = {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output}
    return event_item(choices=[], usage={**counted, **more})


async def decode_stream(
    *events: bytes, profile: VendorProfile = VendorProfile(), prompt: Prompt = ASKED
) -> list[Chunk]:
    """Return what an adapter makes of these events, sent by a real server."""
    async with FakeProvider(say(""), fault=Fault(body=b"".join(events))) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url), profile=profile)
        try:
            return strip_origin(await drain_stream(model, prompt))
        finally:
            await model.close()


async def error_of(*events: bytes, profile: VendorProfile = VendorProfile()) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await decode_stream(*events, profile=profile)
    return caught.value


async def decode_text(*events: bytes, profile: VendorProfile = VendorProfile()) -> list[Chunk]:
    """Return the chunks before usage and stop, of a stream that ends well."""
    chunks = await decode_stream(*events, delta_event("stop"), DONE, profile=profile)
    assert isinstance(chunks[-1], StopChunk)
    return [chunk for chunk in chunks if not isinstance(chunk, UsageChunk | StopChunk)]


async def decode_calls(*events: bytes) -> list[tuple[str, str, str]]:
    """Return the calls of a stream, each with its id, name and arguments."""
    chunks = await decode_stream(*events, delta_event("tool_calls"), DONE)
    assert chunks[-1] == StopChunk("calls")
    for index in {chunk.index for chunk in chunks if isinstance(chunk, CallChunk)}:
        first, *rest = [chunk for chunk in chunks if isinstance(chunk, CallChunk) and chunk.index == index]
        assert first.id
        assert first.name
        assert not any(chunk.id or chunk.name for chunk in rest)
    whole = join_chunks(chunks)
    return [(id, name, arguments) for id, (name, arguments) in zip(whole.ids, whole.calls, strict=True)]


async def test_a_stream_of_openai_becomes_chunks() -> None:
    tokens = {
        "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    chunks = await decode_stream(
        delta_event(role="assistant", content="", refusal=None),
        delta_event(content="Hel"),
        delta_event(),
        delta_event(content="lo 🌺"),
        delta_event("stop"),
        usage_event(**tokens),
        DONE,
    )
    assert chunks == snapshot(
        [
            TextChunk("Hel"),
            TextChunk("lo 🌺"),
            UsageChunk(Usage(input=5, output=2, cache_read=3, cache_write=1, reasoning=1), "m-2026"),
            StopChunk("end"),
        ]
    )


async def test_without_usage_the_model_is_still_named_before_the_end() -> None:
    expected = [TextChunk("Hi."), UsageChunk(Usage(), "m-2026"), StopChunk("end")]
    assert await decode_stream(delta_event("stop", content="Hi."), DONE) == expected


async def test_only_the_first_of_several_choices_counts() -> None:
    other = {"index": 1, "delta": {"content": "No."}, "finish_reason": "length"}
    first = {"index": 0, "delta": {"content": "Yes."}, "finish_reason": None}
    chunks = await decode_stream(
        event_item(choices=[other, first]), event_item(choices=[other]), delta_event("stop"), DONE
    )
    assert join_chunks(chunks).text == "Yes."
    assert join_chunks(chunks).stops == ["end"]


async def test_empty_fields_of_vendors_are_ignored() -> None:
    azure = event_item(id="", model="", object="", choices=[], prompt_filter_results=[{"prompt_index": 0}])
    nothing = event_item(choices=None, usage=None)
    bare = event_item(choices=[{"delta": {"role": "assistant", "content": None}, "finish_reason": ""}])
    headless = event_item(choices=[{"delta": None, "finish_reason": "null"}])
    text = event_item(choices=[{"delta": {"content": "Hi.", "role": ""}, "content_filter_results": {}}])
    assert await decode_text(b": ping\n\n", azure, nothing, bare, headless, text, event_item(ping=True)) == [
        TextChunk("Hi.")
    ]


@pytest.mark.parametrize(
    ("finish", "reason"),
    [
        ("stop", "end"),
        ("length", "length"),
        ("content_filter", "refusal"),
        ("eos", "end"),
        ("sensitive", "refusal"),
        ("model_length", "length"),
        ("recitation", "recitation"),
        ("STOP", "end"),
        ("MAX_TOKENS", "length"),
        ("context_length_exceeded", "length"),
        ("time_limit", "length"),
        ("safety", "refusal"),
    ],
)
async def test_finish_reasons_are_mapped_to_stop_reasons(finish: str, reason: str) -> None:
    assert (await decode_stream(delta_event(finish, content="Hi."), DONE))[-1] == StopChunk(reason)


async def test_a_refusal_is_streamed_and_is_the_stop_reason() -> None:
    chunks = await decode_stream(delta_event(refusal="I will"), delta_event(refusal=" not."), delta_event("stop"), DONE)
    assert join_chunks(chunks).text == "I will not."
    assert join_chunks(chunks).stops == ["refusal"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
async def test_reasoning_fields_of_all_vendors_are_read_before_the_text(field: str) -> None:
    both = {field: "b", "content": "Hi."}
    chunks = await decode_text(delta_event(**{field: "a"}), delta_event(**both), delta_event(**{field: None}))
    assert chunks == [ReasoningChunk("a"), ReasoningChunk("b"), TextChunk("Hi.")]


async def test_reasoning_in_content_parts_is_separated_from_the_text() -> None:
    thought = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}, {"type": "other"}]}
    events = [
        delta_event(content=[thought]),
        delta_event(content=[{"type": "text", "text": "Hi."}, {"type": "reference"}]),
    ]
    assert await decode_text(*events, profile=PROFILES["mistral"]) == [ReasoningChunk("Hm."), TextChunk("Hi.")]


async def test_reasoning_details_are_joined_and_stored_for_vendors_that_need_them_back() -> None:
    first = {"type": "reasoning.text", "index": 0, "format": "v1", "text": "It is"}
    second = {"type": "reasoning.text", "index": 0, "format": None, "text": " wet.", "signature": "s"}
    sealed = {"type": "reasoning.encrypted", "index": 1, "data": "abc"}
    events = [
        delta_event(reasoning="It is", reasoning_details=[first]),
        delta_event(reasoning=" wet.", reasoning_details=[second]),
        delta_event(reasoning_details=[sealed]),
        delta_event(content="Rain."),
    ]
    kept = {
        "vendor": "openrouter",
        "reasoning_details": [
            {"type": "reasoning.text", "index": 0, "format": "v1", "text": "It is wet.", "signature": "s"},
            {"type": "reasoning.encrypted", "index": 1, "data": "abc"},
        ],
    }
    thoughts: list[Chunk] = [ReasoningChunk("It is"), ReasoningChunk(" wet.")]
    assert await decode_text(*events, profile=PROFILES["openrouter"]) == [
        *thoughts,
        ReasoningChunk(opaque={"chat": kept}),
        TextChunk("Rain."),
    ]
    assert await decode_text(*events) == [*thoughts, TextChunk("Rain.")]


async def test_reasoning_details_alone_and_after_a_call_are_stored() -> None:
    text, sealed = {"type": "reasoning.text", "text": "Hm."}, {"type": "reasoning.encrypted", "data": "x"}
    chunks = await decode_stream(
        delta_event(reasoning_details=[text]),
        call_fragment("{}", index=0, id="c", name="go"),
        delta_event(reasoning_details=[sealed, 7]),
        delta_event("tool_calls"),
        DONE,
        profile=PROFILES["minimax"],
    )
    assert [chunk for chunk in chunks if not isinstance(chunk, UsageChunk)] == snapshot(
        [
            ReasoningChunk("Hm."),
            ReasoningChunk(
                opaque={"chat": {"vendor": "minimax", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}}
            ),
            CallChunk(0, "go", "{}", "c"),
            ReasoningChunk(
                opaque={
                    "chat": {"vendor": "minimax", "reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}]}
                }
            ),
            StopChunk("calls"),
        ]
    )


async def test_interleaved_calls_of_openai_are_assembled() -> None:
    assert await decode_calls(
        delta_event(role="assistant", content=None),
        call_fragment(index=0, id="call_a", name="weather"),
        call_fragment(index=1, id="call_b", name="time"),
        call_fragment('{"ci', index=0),
        call_fragment("{}", index=1),
        call_fragment('ty":"Hilo"}', index=0),
    ) == [("call_a", "weather", '{"city":"Hilo"}'), ("call_b", "time", "{}")]


async def test_a_new_id_on_the_same_index_is_a_new_call() -> None:
    assert await decode_calls(
        call_fragment('{"n":', index=0, id="a", name="go"),
        call_fragment("1}", index=0, id="a"),
        call_fragment('{"n":2', index=0, id="b", name="go"),
        call_fragment("}", index=0),
    ) == [("a", "go", '{"n":1}'), ("b", "go", '{"n":2}')]


async def test_calls_without_an_index_are_distinguished_by_their_ids() -> None:
    assert await decode_calls(
        call_fragment('{"n":', id="a", name="go"),
        call_fragment("1", id=""),
        call_fragment('{"n":2}', id="b", name="go"),
        call_fragment("}", id="a"),
    ) == [("a", "go", '{"n":1}'), ("b", "go", '{"n":2}')]


async def test_calls_without_an_id_get_one_of_their_own() -> None:
    whole = [{"function": {"name": name, "arguments": "{}"}} for name in ("go", "stop", "go")]
    expected = [("call_0", "go", "{}"), ("call_1", "stop", "{}"), ("call_2", "go", "{}")]
    assert await decode_calls(delta_event(tool_calls=whole)) == expected


async def test_complete_calls_without_index_and_id_are_separate_calls() -> None:
    once = {"id": None, "name": "go"}
    assert await decode_calls(
        call_fragment('{"n":1}', **once), call_fragment('{"n":2}', **once), call_fragment("{}", id=None, name="stop")
    ) == [("call_0", "go", '{"n":1}'), ("call_1", "go", '{"n":2}'), ("call_2", "stop", "{}")]


async def test_a_name_on_every_fragment_is_one_call() -> None:
    named = {"index": 0, "name": "go"}
    assert await decode_calls(
        call_fragment("", id="a", **named),
        call_fragment('{"x":{}', **named),
        call_fragment("}", id="a", **named),
        call_fragment("", **named),
    ) == [("a", "go", '{"x":{}}')]


async def test_arguments_that_are_an_object_are_kept_unchanged() -> None:
    call = b'{"index":0,"id":"a","function":{"name":"go","arguments":{"n" : 1.0}}}'
    assert await decode_calls(b'data: {"choices":[{"delta":{"tool_calls":[' + call + b"]}}]}\n\n") == [
        ("a", "go", '{"n" : 1.0}')
    ]


async def test_duplicate_ids_and_late_names_are_corrected() -> None:
    nameless = delta_event(tool_calls=[{"index": 1, "id": "a", "function": {"name": None, "arguments": '{"n":'}}])
    assert await decode_calls(
        call_fragment("{}", index=0, id="a", name="go"), nameless, call_fragment("2}", index=1, name="stop")
    ) == [("a", "go", "{}"), ("call_1", "stop", '{"n":2}')]


async def test_a_call_without_arguments_is_a_call() -> None:
    call = {"index": 0, "id": "a", "function": {"name": "go"}}
    assert await decode_calls(delta_event(tool_calls=[call])) == [("a", "go", "")]


async def test_the_old_function_call_is_a_call() -> None:
    chunks = await decode_stream(
        delta_event(function_call={"name": "go", "arguments": ""}),
        delta_event(function_call={"arguments": "{}"}),
        delta_event("function_call"),
        DONE,
    )
    assert join_chunks(chunks).calls == [("go", "{}")]
    assert join_chunks(chunks).ids == ["call_0"]
    assert join_chunks(chunks).stops == ["calls"]


async def test_an_answer_with_calls_stops_for_calls_unless_it_was_cut() -> None:
    whole = call_fragment("{}", index=0, id="a", name="go")
    for finishes, reason in (
        (["stop"], "calls"),
        (["length"], "length"),
        (["content_filter"], "refusal"),
        (["tool_calls", "stop"], "calls"),
        (["tool_calls", "length"], "length"),
        (["length", "tool_calls"], "length"),
        (["max_output_tokens"], "length"),
    ):
        chunks = await decode_stream(whole, *map(delta_event, finishes), DONE)
        assert chunks[-1] == StopChunk(reason), finishes


async def test_the_transcript_of_audio_is_text() -> None:
    assert await decode_text(
        delta_event(audio={"id": "a", "data": "AAAA"}), delta_event(audio={"transcript": "Hi."})
    ) == [TextChunk("Hi.")]


async def test_citations_follow_their_text() -> None:
    note = {"type": "url_citation", "url_citation": {"url": "https://a.example", "title": "A", "start_index": 0}}
    assert await decode_text(delta_event(content="Rain."), delta_event(annotations=[note, {"type": "file"}])) == [
        TextChunk("Rain."),
        CitationChunk(Citation(url="https://a.example", title="A")),
    ]


async def test_sources_beside_the_answer_are_cited_once_at_its_end_and_it_needs_no_marker() -> None:
    found = [{"title": "A", "url": "https://a.example", "snippet": "Wet.", "date": None}]
    sources = {"citations": ["https://a.example"], "search_results": found}
    one = {"index": 0, "delta": {"content": "Rain."}, "message": {"content": "Rain."}, "finish_reason": None}
    last = {"index": 0, "delta": {"content": ""}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 5, "completion_tokens": 1, "total_tokens": 6, "cost": {"total_cost": 0.5}}
    events = (event_item(choices=[one], **sources), event_item(choices=[last], usage=usage, **sources))
    assert await decode_stream(*events, profile=PROFILES["perplexity"]) == [
        TextChunk("Rain."),
        UsageChunk(Usage(input=5, output=1), "m-2026"),
        CitationChunk(Citation(url="https://a.example", title="A", text="Wet.")),
        StopChunk("end"),
    ]
    plain = event_item(choices=[last], citations=["https://b.example", "", 5])
    cited = [chunk for chunk in await decode_stream(plain, DONE) if isinstance(chunk, CitationChunk)]
    assert cited == [CitationChunk(Citation(url="https://b.example"))]


@pytest.mark.parametrize(
    ("fields", "usage"),
    [
        ({"prompt_cache_hit_tokens": 3}, Usage(input=5, output=2, cache_read=3)),
        ({"cached_tokens": 3}, Usage(input=5, output=2, cache_read=3)),
        ({"prompt_tokens_details": None, "completion_tokens_details": None}, Usage(input=5, output=2)),
        (
            {"completion_tokens_details": {"reasoning_tokens": 4}, "total_tokens": 11},
            Usage(input=5, output=6, reasoning=4),
        ),
        ({"reasoning_tokens": 1}, Usage(input=5, output=2, reasoning=1)),
        ({"completion_tokens": -2, "cached_tokens": 10**30}, Usage(input=5, cache_read=2**53)),
    ],
)
async def test_token_counts_of_all_vendors_are_normalized(fields: dict[str, Any], usage: Usage) -> None:
    assert UsageChunk(usage, "m-2026") in await decode_stream(delta_event("stop"), usage_event(**fields), DONE)


async def test_usage_may_be_in_several_places_and_repeated() -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 2}
    inside = event_item(choices=[{"index": 0, "delta": {}, "finish_reason": "stop", "usage": counted}])
    aside = event_item(choices=[], x_groq={"id": "r", "usage": counted})
    for one in (inside, aside):
        chunks = await decode_stream(delta_event("stop", content="Hi."), one, one, DONE)
        assert chunks[1:] == [UsageChunk(Usage(input=5, output=2), "m-2026"), StopChunk("end")]


@pytest.mark.parametrize(
    ("counted", "usage"),
    [
        (
            {"prompt_tokens": 5.0, "completion_tokens": "2", "prompt_tokens_details": {"cached_tokens": 3.0}},
            Usage(input=5, output=2, cache_read=3),
        ),
        ({"prompt_tokens": 1.5, "completion_tokens": 10**30, "prompt_tokens_details": "none"}, Usage(output=2**53)),
        ({"prompt_tokens": "9" * 100, "completion_tokens": -1.0}, Usage(input=2**53)),
        ("none of yours", None),
        ("", None),
        ([5, 2], None),
    ],
)
async def test_invalid_token_counts_do_not_fail_an_answer(counted: Any, usage: Usage | None) -> None:
    choice = {"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}
    inside = event_item(choices=[{**choice, "usage": counted}])
    aside = event_item(choices=[choice], usage=counted)
    groq = event_item(choices=[choice], x_groq={"usage": counted})
    expected = [TextChunk("Hi."), UsageChunk(usage or Usage(), "m-2026"), StopChunk("end")]
    for one in (inside, aside, groq):
        assert await decode_stream(one, DONE) == expected
    assert isinstance(await error_of(event_item(choices="x", usage=counted), DONE), StreamCut)
    assert isinstance(await error_of(aside[:-3] + b"\n\n", DONE), StreamCut)


async def test_a_reported_cost_is_used_only_for_vendors_that_report_dollars() -> None:
    events = (delta_event("stop"), usage_event(cost=0.25), DONE)
    assert join_chunks(await decode_stream(*events, profile=PROFILES["openrouter"])).usage.cost == 0.25
    assert join_chunks(await decode_stream(*events)).usage.cost == 0
    refund = (delta_event("stop"), usage_event(cost=-5), DONE)
    assert join_chunks(await decode_stream(*refund, profile=PROFILES["openrouter"])).usage.cost == 0


async def test_nothing_is_read_after_the_end() -> None:
    chunks = await decode_stream(
        delta_event("stop", content="Hi."), DONE, b"data: <html>\n\n", delta_event(content=" More.")
    )
    assert join_chunks(chunks).text == "Hi."


@pytest.mark.parametrize(
    "events",
    [
        (),
        (delta_event(content="Hi."),),
        (delta_event(content="Hi."), delta_event("stop")),
        (delta_event("stop"), usage_event()),
        (delta_event(content="Hi."), DONE),
        (DONE,),
        (delta_event("stop"), b"data: [DONE]"),
        (delta_event("stop"), b'data: {"choices":[{"delta":{"content":"x\n\n', DONE),
        (delta_event("stop"), b"data: [1]\n\n", DONE),
        (delta_event("stop"), b"data: 5\n\n", DONE),
        (delta_event("stop"), b'data: {"choices":[{"delta":{"content":5}}]}\n\n', DONE),
        (delta_event("stop"), b'data: {"choices":[{"delta":{"content":"\xff"}}]}\n\n', DONE),
        (delta_event("stop"), b'data: {"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n\n", DONE),
        (delta_event("tool_calls"), DONE),
        (delta_event(tool_calls=[{"index": 0, "id": "a", "function": {"arguments": "{}"}}]), delta_event("stop"), DONE),
        (delta_event(tool_calls=[{"index": 0, "id": "a"}]), delta_event("stop"), DONE),
        (delta_event("stop", tool_calls=[{"index": 0, "id": "a", "function": {"name": "go", "argumxnts": ""}}]), DONE),
        (delta_event("stop", tool_calls=[{"index": 0, "id": "a", "function": {"name": 5, "arguments": "{}"}}]), DONE),
        (delta_event("error", content="Hi."), DONE),
        (delta_event("network_error"), DONE),
        (b'data: {"choices":[{"index":-1,"delta":{"content":"Hi."}}]}\n\n', delta_event("stop"), DONE),
    ],
)
async def test_a_cut_or_garbled_stream_is_never_an_answer(events: tuple[bytes, ...]) -> None:
    assert isinstance(await error_of(*events), StreamCut)


async def test_a_vendor_without_an_end_marker_must_give_a_reason() -> None:
    quiet = PROFILES["perplexity"]
    assert (await decode_stream(delta_event("stop", content="Hi."), DONE, profile=quiet))[-1] == StopChunk("end")
    assert isinstance(await error_of(delta_event(content="Hi."), profile=quiet), StreamCut)
    assert isinstance(await error_of(delta_event(content="Hi."), DONE, profile=quiet), StreamCut)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        (event_item(error={"message": "busy", "type": "server_error"}), ModelUnavailable),
        (event_item(error={"message": "slow down", "code": 429}, choices=[{"finish_reason": "error"}]), RateLimited),
        (event_item(error="out of memory"), ModelUnavailable),
        (event_item(choices=[{"index": 0, "delta": {}, "error": {"code": 502, "message": "down"}}]), ModelUnavailable),
        (b'event: error\ndata: {"message":"no such key","type":"authentication_error"}\n\n', AuthenticationFailed),
        (b'data: {"object":"error","message":"maximum context length","code":400}\n\n', ContextTooLong),
        (b'data: {"base_resp":{"status_code":1002,"status_msg":"rpm"},"choices":null}\n\n', RateLimited),
        (b'data: {"base_resp":{"status_code":1008,"status_msg":"no balance"}}\n\n', ModelRefused),
        (b'data: {"base_resp":{"status_code":2013,"status_msg":"bad parameter"}}\n\n', BadRequest),
    ],
)
async def test_an_error_in_the_stream_is_mapped_like_an_error_response(trouble: bytes, kind: type[ModelError]) -> None:
    assert type(await error_of(delta_event(content="Hi."), trouble, delta_event("stop"), DONE)) is kind


async def test_a_success_status_is_not_an_error() -> None:
    assert await decode_text(
        delta_event(content="Hi."), event_item(base_resp={"status_code": 0, "status_msg": ""})
    ) == [TextChunk("Hi.")]


FORCED = VendorProfile(name="plain", output="tool")
SHAPE = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
SHAPED = Prompt(messages=ASKED.messages, options={"output": SHAPE})


async def test_the_arguments_of_a_forced_tool_are_the_answer() -> None:
    chunks = await decode_stream(
        delta_event(content="Sure: "),
        call_fragment('{"city":', index=0, id="a", name="answer"),
        call_fragment('"Hilo"}', index=0),
        call_fragment('{"city":"Kona"}', index=1, id="b", name="answer"),
        delta_event("tool_calls"),
        DONE,
        profile=FORCED,
        prompt=SHAPED,
    )
    answer = [chunk for chunk in chunks if not isinstance(chunk, UsageChunk)]
    assert answer == [TextChunk('{"city":'), TextChunk('"Hilo"}'), StopChunk("end")]


async def test_plain_text_is_the_answer_when_the_forced_tool_was_not_called() -> None:
    chunks = await decode_stream(
        delta_event(content='{"city":'), delta_event("stop", content='"Hilo"}'), DONE, profile=FORCED, prompt=SHAPED
    )
    assert join_chunks(chunks).text == '{"city":"Hilo"}'
    assert join_chunks(chunks).stops == ["end"]


async def test_other_calls_beside_the_forced_tool_are_calls() -> None:
    chunks = await decode_stream(
        call_fragment("{}", index=0, id="a", name="go"), delta_event("stop"), DONE, profile=FORCED, prompt=SHAPED
    )
    assert join_chunks(chunks).calls == [("go", "{}")]
    assert join_chunks(chunks).stops == ["calls"]
