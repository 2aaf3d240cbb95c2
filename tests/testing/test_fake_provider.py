"""The fake provider, read byte by byte by a plain HTTP client."""

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import msgspec
import pytest

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.testing.fake_provider import UNLIMITED, FakeProvider, Fault, ProviderRequest
from vaka.testing.models import ScriptLine, call, calls, fail, say, stall

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/gem:streamGenerateContent?alt=sse",
}
BODY = {"model": "m", "stream": True, "stream_options": {"include_usage": True}}
WIRES = pytest.mark.parametrize("wire", PATHS)


@asynccontextmanager
async def post_request(provider: FakeProvider, wire: str, body: Any = BODY) -> AsyncGenerator[httpx2.Response]:
    async with httpx2.AsyncClient() as client, client.stream("POST", provider.url + PATHS[wire], json=body) as response:
        yield response


async def response_body(answer: ScriptLine, wire: str, fault: Fault | None = None) -> bytes:
    async with FakeProvider(answer, fault=fault) as provider, post_request(provider, wire) as response:
        return await response.aread()


async def response_events(answer: ScriptLine, wire: str) -> list[Any]:
    """Return the data of each event."""
    found: list[Any] = []
    for block in (await response_body(answer, wire)).decode().split("\n\n")[:-1]:
        data = block.rpartition("data: ")[2]
        found.append(data if data == "[DONE]" else msgspec.json.decode(data))
    return found


HAS_END_MARKER: dict[str, Callable[[list[Any]], bool]] = {
    "chat": lambda events: events[-1] == "[DONE]",
    "responses": lambda events: events[-1]["type"] == "response.completed",
    "anthropic": lambda events: events[-1]["type"] == "message_stop",
    "gemini": lambda events: "finishReason" in events[-1]["candidates"][0],
}


@WIRES
async def test_only_a_complete_answer_has_an_end_marker(wire: str) -> None:
    assert HAS_END_MARKER[wire](await response_events(say("It is raining."), wire))
    assert HAS_END_MARKER[wire](await response_events(say(""), wire))
    assert not HAS_END_MARKER[wire](await response_events({"chunks": ["It", " is"], "cut_after": 1}, wire))
    assert not HAS_END_MARKER[wire]([{"type": "", "candidates": [{}]}, *await response_events(stall(0.001), wire)])


async def test_chat_completions_streams_deltas() -> None:
    answer = calls(call("a", x=1), call("b"), text="Let me.", reasoning="Hm.", usage={"input": 7, "output": 5})
    events = await response_events(answer, "chat")
    choices = [event["choices"][0] for event in events[:-2]]
    assert [choice["delta"] for choice in choices[:4]] == [
        {"role": "assistant", "content": None, "refusal": None},
        {"reasoning_content": "Hm."},
        {"content": "Let "},
        {"content": "me."},
    ]
    made = [choice["delta"]["tool_calls"][0] for choice in choices[4:-1]]
    assert [(piece["index"], piece["function"]["arguments"]) for piece in made] == [
        (0, ""),
        (1, ""),
        (0, '{"'),
        (1, "{"),
        (0, 'x"'),
        (1, "}"),
        (0, ":1"),
        (0, "}"),
    ]
    assert len({piece["id"] for piece in made[:2]}) == 2
    assert choices[-1]["finish_reason"] == "tool_calls"
    assert events[-2]["choices"] == []
    assert (events[-2]["usage"]["prompt_tokens"], events[-2]["usage"]["completion_tokens"]) == (7, 5)


async def test_responses_closes_each_item_and_ends_with_all_of_them() -> None:
    body = {**BODY, "include": ["reasoning.encrypted_content"]}
    answer = call("a", x=1) | {"text": "Let me.", "reasoning": "Hm."}
    async with FakeProvider(answer) as provider, post_request(provider, "responses", body) as response:
        blocks = (await response.aread()).decode().split("\n\n")[:-1]
    events = [msgspec.json.decode(block.rpartition("data: ")[2]) for block in blocks]
    assert [event["sequence_number"] for event in events] == [*range(len(events))]
    assert [block.partition("\n")[0] for block in blocks] == [f"event: {event['type']}" for event in events]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert [item["type"] for item in done] == ["reasoning", "message", "function_call"]
    assert done[0]["encrypted_content"]
    assert events[-1]["response"]["output"] == done
    assert events[-1]["response"]["status"] == "completed"


async def test_anthropic_streams_signed_blocks() -> None:
    events = await response_events(call("a", x=1) | {"text": "Let me.", "reasoning": "Hm."}, "anthropic")
    blocks = [event["content_block"]["type"] for event in events if event["type"] == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use"]
    deltas = [event["delta"] for event in events if event["type"] == "content_block_delta"]
    assert [delta["type"] for delta in deltas[:2]] == ["thinking_delta", "signature_delta"]
    assert "".join(delta.get("partial_json", "") for delta in deltas) == '{"x":1}'
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    assert {"type": "ping"} in events


async def test_anthropic_counts_cached_tokens_separately() -> None:
    usage = {"input": 100, "output": 9, "cache_read": 60, "cache_write": 30, "reasoning": 4}
    events = await response_events(say("Yes.", usage=usage), "anthropic")
    assert events[-2]["usage"] == {
        "input_tokens": 10,
        "cache_read_input_tokens": 60,
        "cache_creation_input_tokens": 30,
        "output_tokens": 9,
        "output_tokens_details": {"thinking_tokens": 4},
    }


async def test_gemini_signs_the_first_call_after_thinking() -> None:
    events = await response_events(calls(call("a", x=1), call("b"), reasoning="Hm."), "gemini")
    parts = [event["candidates"][0]["content"]["parts"][0] for event in events]
    assert parts[0] == {"text": "Hm.", "thought": True}
    assert parts[1]["functionCall"] == {"name": "a", "args": {"x": 1}}
    assert [bool(part.get("thoughtSignature")) for part in parts] == [False, True, False]
    assert events[-1]["candidates"][0]["finishReason"] == "STOP"
    assert events[-1]["modelVersion"] == "gem"


async def test_gemini_ends_a_call_that_is_not_json_as_malformed() -> None:
    events = await response_events({"tool_calls": [{"name": "a", "arguments": '{"x": '}]}, "gemini")
    assert [event["candidates"][0]["finishReason"] for event in events] == ["MALFORMED_FUNCTION_CALL"]


@WIRES
async def test_an_answer_may_end_with_an_error_in_the_stream(wire: str) -> None:
    events = await response_events(say("It is") | fail(529, "too many"), wire)
    assert "too many" in str(events[-1])


@WIRES
async def test_equal_requests_get_equal_bytes_and_others_get_other_ids(wire: str) -> None:
    async with FakeProvider(call("fly")) as provider:
        found: list[bytes] = []
        for body in (BODY, BODY, {**BODY, "user": "else"}):
            async with post_request(provider, wire, body) as response:
                found.append(await response.aread())
    assert found[0] == found[1] != found[2]


@WIRES
async def test_a_failure_has_the_status_and_the_format_of_its_provider(wire: str) -> None:
    async with (
        FakeProvider(fail(429, "slow down", retry_after=7)) as provider,
        post_request(provider, wire) as response,
    ):
        body = msgspec.json.decode(await response.aread())
    assert (response.status_code, response.headers["retry-after"]) == (429, "7")
    assert body["error"]["message"] == "slow down"


async def test_requests_are_recorded() -> None:
    async with FakeProvider(say("Hi.")) as provider, httpx2.AsyncClient(headers={"X-Api-Key": "k"}) as client:
        await client.post(provider.url + "/messages?beta=true", json=BODY)
    [request] = provider.requests
    assert (request.method, request.path, request.query, request.body) == ("POST", "/messages", "beta=true", BODY)
    assert request.headers["x-api-key"] == "k"
    assert msgspec.json.decode(request.raw) == BODY


async def test_answers_come_in_order_and_the_last_one_repeats() -> None:
    def text(request: ProviderRequest) -> ScriptLine:
        return say(f"{request.body['user']}!")

    for repeat, last in ((True, 200), (False, 400)):
        statuses: list[int] = []
        async with FakeProvider(say("one"), text, repeat=repeat) as provider:
            for number in range(3):
                async with post_request(provider, "chat", {**BODY, "user": f"n{number}"}) as response:
                    body = await response.aread()
                    statuses.append(response.status_code)
                    assert (f"n{number}!".encode() in body) == (number > 0 and response.status_code == 200)
        assert statuses == [200, 200, last]


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/v1/elsewhere", BODY, 404, "/chat/completions"),
        ("/v1/messages", [1], 400, "JSON object"),
        ("/v1/messages", {}, 400, "'stream'"),
        ("/models/m:streamGenerateContent", {}, 400, "alt=sse"),
    ],
)
async def test_an_invalid_request_gets_an_error_with_its_cause(path: str, body: Any, status: int, words: str) -> None:
    async with FakeProvider(say("Hi.")) as provider, httpx2.AsyncClient() as client:
        response = await client.post(provider.url + path, json=body)
    assert response.status_code == status
    assert words in response.json()["error"]["message"]


def test_an_invalid_answer_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="did you mean 'text'"):
        FakeProvider({"txt": "Hi."})
    with pytest.raises(InvalidInput, match="needs an answer"):
        FakeProvider()


class TestFaults:
    async def test_a_cut_ends_the_body_correctly(self) -> None:
        whole = await response_body(say("It is raining."), "chat")
        for at in (0, 1, 100, len(whole) - 1):
            assert await response_body(say("It is raining."), "chat", Fault(cut=at)) == whole[:at]
        for at in (-1, -100, -len(whole) - 1):
            assert await response_body(say("It is raining."), "chat", Fault(cut=at)) == whole[: max(len(whole) + at, 0)]

    async def test_a_drip_changes_only_the_pieces(self) -> None:
        whole = await response_body(say("It is raining."), "chat")
        async with (
            FakeProvider(say("It is raining."), fault=Fault(drip=3)) as provider,
            post_request(provider, "chat") as response,
        ):
            pieces = [piece async for piece in response.aiter_raw()]
        assert b"".join(pieces) == whole
        assert max(map(len, pieces)) <= 3

    async def test_garbled_bytes_replace_the_originals_across_events(self) -> None:
        whole = await response_body(say("It is raining."), "chat")
        at = whole.index(b"\n\n") - 1
        found = await response_body(say("It is raining."), "chat", Fault(garble=(at, b"\x00\xff\x00\xff")))
        assert found == whole[:at] + b"\x00\xff\x00\xff" + whole[at + 4 :]

    async def test_after_a_stall_nothing_is_sent_and_a_disconnect_is_counted(self) -> None:
        async with FakeProvider(say("It is raining."), fault=Fault(stall_after=10)) as provider:
            async with post_request(provider, "chat") as response:
                first = await anext(response.aiter_raw())
                assert len(first) == 10
                assert provider.abandoned_count == 0
            await provider.wait_until(lambda seen: seen.abandoned_count == 1)

    async def test_a_reset_breaks_the_connection_with_an_error(self) -> None:
        async with FakeProvider(say("It is raining."), fault=Fault(reset_after=10)) as provider:
            with pytest.raises(httpx2.TransportError):
                async with post_request(provider, "chat") as response:
                    await response.aread()

    async def test_pings_come_before_each_event_or_without_end(self) -> None:
        found = await response_body(say("Hi."), "anthropic", Fault(pings=2))
        assert found.startswith(b'event: ping\ndata: {"type":"ping"}\n\n' * 2 + b"event: message_start")
        async with (
            FakeProvider(say("Hi."), fault=Fault(pings=UNLIMITED)) as provider,
            post_request(provider, "chat") as response,
        ):
            async for piece in response.aiter_raw():
                assert piece.startswith(b": keep-alive")
                if len(provider.requests) == 1:
                    break

    async def test_status_headers_and_body_may_be_anything(self) -> None:
        fault = Fault(status=418, headers={"Content-Type": "text/plain", "x-more": "1"}, body=b"tea")
        async with FakeProvider(say("Hi."), fault=fault) as provider, post_request(provider, "chat") as response:
            assert await response.aread() == b"tea"
        assert (response.status_code, response.headers["content-type"], response.headers["x-more"]) == (
            418,
            "text/plain",
            "1",
        )

    async def test_html_and_redirect_replace_the_answer(self) -> None:
        async with FakeProvider(
            say("Hi."), fault=[Fault(html=True), Fault(redirect_to="http://127.0.0.1:1/")]
        ) as provider:
            async with post_request(provider, "chat") as response:
                assert (await response.aread()).startswith(b"<!DOCTYPE html>")
                assert response.status_code == 502
            async with post_request(provider, "chat") as response:
                assert (response.status_code, response.headers["location"]) == (307, "http://127.0.0.1:1/")
            async with post_request(provider, "chat") as response:
                assert response.status_code == 200

    async def test_a_false_content_length_ends_the_connection(self) -> None:
        with pytest.raises(httpx2.RemoteProtocolError):
            await response_body(say("Hi."), "chat", Fault(content_length=10**6))
        assert await response_body(say("Hi."), "chat", Fault(content_length=5)) == b"data:"

    async def test_a_gzip_body_is_compressed(self) -> None:
        whole = await response_body(say("Hi."), "chat")
        async with (
            FakeProvider(say("Hi."), fault=Fault(gzip=True)) as provider,
            post_request(provider, "chat") as response,
        ):
            packed = b"".join([piece async for piece in response.aiter_raw()])
        assert response.headers["content-encoding"] == "gzip"
        assert gzip.decompress(packed) == whole


async def test_a_stall_ends_after_its_time_or_when_the_client_disconnects() -> None:
    async with FakeProvider(stall(0.001, text="Sorry."), stall()) as provider:
        async with post_request(provider, "chat") as response:
            assert b"Sorry." in await response.aread()
        async with post_request(provider, "chat") as response:
            assert response.status_code == 200
        await provider.wait_until(lambda seen: seen.abandoned_count == 1)


async def test_a_closed_provider_leaves_no_task() -> None:
    before = asyncio.all_tasks()
    async with FakeProvider(stall()) as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(provider.url.rpartition(":")[2]))
        writer.write(b"POST /v1/messages HTTP/1.1\r\ncontent-length: 15\r\n\r\n" + b'{"stream":true}')
        await provider.wait_until(lambda seen: len(seen.requests) == 1)
    assert asyncio.all_tasks() == before
    await reader.read()
    writer.close()
    await writer.wait_closed()
