"""The adapter for Chat Completions over a real connection: addresses, keys and errors."""

from contextlib import AsyncExitStack, aclosing
from typing import Any

import httpx2
import msgspec
import pytest

from tests.models.oracles.vendor_clients import chat_completion
from vaka.core.ports.model import Closeable, Model, Prompt
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ModelUnavailable, StreamCut
from vaka.core.types.message import Text, UserMessage
from vaka.core.types.tool import ToolSpec
from vaka.models.openai_chat.model import OpenAIChat, request_path
from vaka.models.openai_chat.vendors import PROFILES, VendorProfile
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.testing.adapters import FULL_ANSWER, follow_up_prompt
from vaka.testing.fake_provider import FakeProvider, Fault, render_events
from vaka.testing.models import PROMPT, ScriptLine, call, calls, collect_stream, drain_stream, say

KEY = "very-private-0123456789"


async def test_a_model_is_named_after_its_vendor_and_can_be_closed() -> None:
    model = OpenAIChat("gpt-x", Account(base_url="https://a.example/v1", key=KEY))
    assert isinstance(model, Model)
    assert isinstance(model, Closeable)
    assert model.name == "openai-chat/gpt-x"
    assert OpenAIChat("k", Account(base_url=""), profile=PROFILES["groq"]).name == "groq/k"
    assert OpenAIChat("k", Account(base_url=""), name="mine").name == "mine"
    assert KEY not in repr(model)
    await model.close()
    await model.close()


async def test_a_request_has_the_key_the_headers_and_the_query_of_the_account() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        account = Account(base_url=f"{provider.url}/v1/", key=KEY, headers={"x-team": "a"}, query={"region": "eu"})
        profile = msgspec.structs.replace(VendorProfile(), headers={"x-vendor": "v"})
        model = OpenAIChat("gpt-x", account, profile=profile)
        prompt = msgspec.structs.replace(PROMPT, options={"headers": {"x-request": "r"}})
        assert (await collect_stream(model, prompt)).text == "Hi."
        await model.close()
    request = provider.requests[0]
    assert (request.path, request.query) == ("/v1/chat/completions", "region=eu")
    names = ("authorization", "x-team", "x-vendor", "x-request", "accept")
    assert [request.headers[name] for name in names] == [f"Bearer {KEY}", "a", "v", "r", "text/event-stream"]
    assert "headers" not in request.body


async def test_without_a_key_none_is_sent() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        model = OpenAIChat("k", Account(base_url=provider.url), profile=PROFILES["ollama"])
        await collect_stream(model)
        await model.close()
    assert "authorization" not in provider.requests[0].headers


AZURE = "https://a.openai.azure.com"


@pytest.mark.parametrize(
    ("base", "version", "where"),
    [
        (AZURE, "2024-10-21", "openai/deployments/my%20gpt%2F4/chat/completions"),
        (f"{AZURE}/", "2024-10-21", "openai/deployments/my%20gpt%2F4/chat/completions"),
        (f"{AZURE}/openai", "2024-10-21", "deployments/my%20gpt%2F4/chat/completions"),
        (f"{AZURE}/openai/deployments/other", "2024-10-21", "chat/completions"),
        (f"{AZURE}/openai/v1", "", "chat/completions"),
        (f"{AZURE}/openai/v1/", "preview", "chat/completions"),
        (AZURE, "", "openai/v1/chat/completions"),
        (AZURE, "preview", "openai/v1/chat/completions"),
        (f"{AZURE}/openai", "v1", "v1/chat/completions"),
    ],
)
def test_azure_has_a_path_for_each_deployment_or_one_for_all(base: str, version: str, where: str) -> None:
    account = Account(base_url=base, query={"api-version": version} if version else {})
    assert request_path("my gpt/4", account, PROFILES["azure"]) == where
    assert request_path("my gpt/4", account, VendorProfile()) == "chat/completions"


async def test_azure_gets_its_key_in_a_header_of_its_own_and_its_version() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        account = Account(base_url=provider.url, key=KEY, query={"api-version": "2024-10-21"})
        model = OpenAIChat("gpt", account, profile=PROFILES["azure"])
        assert (await collect_stream(model)).text == "Hi."
        await model.close()
    request = provider.requests[0]
    assert (request.path, request.query) == ("/openai/deployments/gpt/chat/completions", "api-version=2024-10-21")
    assert request.headers["api-key"] == KEY
    assert "authorization" not in request.headers


async def test_shared_connections_are_left_open_and_own_ones_closed() -> None:
    async with FakeProvider(say("Hi.")) as provider, AsyncExitStack() as stack:
        http = ConnectionPool()
        stack.push_async_callback(http.close)
        one, two = (OpenAIChat(name, Account(base_url=provider.url), http=http) for name in "ab")
        await collect_stream(one)
        client = http.client
        await one.close()
        assert http.client is client
        assert (await collect_stream(two)).text == "Hi."


async def test_an_invalid_prompt_is_refused_before_a_request_is_sent() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        deep = {"anyOf": [deep]}
    endless = ToolSpec(name="endless", parameters={"type": "object", "properties": {"a": deep}}, strict=True)
    async with FakeProvider(say("Hi.")) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url))
        for prompt in (
            msgspec.structs.replace(PROMPT, tool_choice="fly"),
            msgspec.structs.replace(PROMPT, options={"temprature": 1}),
            msgspec.structs.replace(PROMPT, tools=(endless,)),
            Prompt(messages=(UserMessage(content=(Text(text="\ud800"),)),)),
        ):
            with pytest.raises(BadRequest):
                await drain_stream(model, prompt)
        await model.close()
    assert provider.requests == []


async def test_a_key_that_a_vendor_repeats_is_not_in_the_error() -> None:
    body = msgspec.json.encode({"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid_api_key"}})
    for status, kind in ((401, AuthenticationFailed), (503, ModelUnavailable)):
        async with FakeProvider(say(""), fault=Fault(status=status, body=body)) as provider:
            model = OpenAIChat("m", Account(base_url=provider.url, key=KEY))
            with pytest.raises(kind) as caught:
                await drain_stream(model)
            await model.close()
        assert KEY not in str(caught.value)


async def test_a_key_that_a_vendor_repeats_in_a_stream_is_not_in_the_error() -> None:
    body = b'data: {"error":{"message":"bad key sk-abcdefghijklmnop","type":"invalid_api_key"}}\n\n'
    async with FakeProvider(say(""), fault=Fault(body=body)) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url, key="sk-abcdefghijklmnop"))
        with pytest.raises(AuthenticationFailed) as caught:
            await drain_stream(model)
        await model.close()
    assert "abcdefgh" not in str(caught.value)


async def test_closing_the_stream_early_ends_the_request() -> None:
    async with FakeProvider({"chunks": ["a", "b"]}, fault=Fault(stall_after=1000)) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url))
        async with aclosing(model.stream(PROMPT)) as chunks:
            await anext(chunks)
        await provider.wait_until(lambda provider: provider.abandoned_count == 1)
        await model.close()


async def test_a_page_of_a_gateway_is_an_error() -> None:
    async with FakeProvider(say(""), fault=Fault(body=b"<html><body>Welcome</body></html>")) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url))
        with pytest.raises(StreamCut, match="an HTML page"):
            await drain_stream(model)
        await model.close()


RECORDED: dict[str, ScriptLine] = {
    "text": {"chunks": ["It", " will", "", " rain 🌧"], "usage": {"input": 12, "output": 4, "cache_read": 8}},
    "refusal": say("I will not.", stop="refusal"),
    "length": say("Once upon a", stop="length"),
    "calls": calls(
        call("weather", city="Hilo 🌺"), call("weather", city='say "x"\n'), call("now"), text="Let me look."
    ),
}


@pytest.mark.parametrize("answer", RECORDED.values(), ids=RECORDED)
async def test_openais_own_client_reads_the_same_message_from_a_stream(answer: ScriptLine) -> None:
    async with FakeProvider(answer) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url))
        ours = await collect_stream(model)
        await model.close()
    events = render_events(answer, provider.requests[0])[:-1]
    theirs = chat_completion(event.removeprefix(b"data: ").strip() for event in events)
    message = theirs.choices[0].message
    assert ours.text == (message.content or "") + (message.refusal or "")
    made = message.tool_calls or []
    assert ours.calls == [(one.function.name, one.function.arguments) for one in made]
    assert ours.ids == [one.id for one in made]
    assert theirs.usage is not None
    assert (ours.usage.input, ours.usage.output) == (theirs.usage.prompt_tokens, theirs.usage.completion_tokens)


async def test_a_conversation_continues_with_the_data_that_the_vendor_needs_back() -> None:
    async with FakeProvider(FULL_ANSWER, say("Bring a coat.")) as provider:
        model = OpenAIChat("m", Account(base_url=provider.url), profile=PROFILES["deepseek"])
        prompt = follow_up_prompt(await drain_stream(model))
        assert (await collect_stream(model, prompt)).text == "Bring a coat."
        await model.close()
    said = provider.requests[1].body["messages"][-4]
    assert (said["reasoning_content"], said["content"]) == ("It is the wet side.", "Let me look.")
    made = [one["function"]["arguments"] for one in said["tool_calls"]]
    assert [msgspec.json.decode(one) for one in made] == [{"city": "Hilo 🌺"}, {"city": "Kona"}]
    ids = [one["id"] for one in said["tool_calls"]]
    assert [message["tool_call_id"] for message in provider.requests[1].body["messages"][-3:-1]] == ids


async def test_connections_may_come_from_any_transport() -> None:
    def answer(request: httpx2.Request) -> httpx2.Response:
        event = b'data: {"choices":[{"delta":{"content":"Hi."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=event)

    http = ConnectionPool(httpx2.MockTransport(answer))
    assert (await collect_stream(OpenAIChat("m", Account(base_url="https://a.example/v1"), http=http))).text == "Hi."
    await http.close()
