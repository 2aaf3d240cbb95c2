"""The Gemini adapter over real sockets: addresses, headers, and invalid answers."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec
import pytest

import vaka
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ModelError, RateLimited, StreamCut
from vaka.core.types.message import Text, UserMessage
from vaka.models.gemini.model import BASE_URL, Gemini
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import PROMPT, ScriptLine, call, collect_stream, drain_stream, say

KEY = "very-private-0123456789"
MODEL = "gemini-3.8-flash"
PROMPT_WITH_TOOLS = Prompt(messages=(UserMessage(content=(Text(text="Hi."),)),))


@pytest.fixture
async def http() -> AsyncIterator[ConnectionPool]:
    shared = ConnectionPool()
    yield shared
    await shared.close()


async def error_of(http: ConnectionPool, fault: Fault, answer: ScriptLine | None = None) -> ModelError:
    async with FakeProvider(answer or say("Hi."), fault=fault) as provider:
        model = Gemini(MODEL, Account(base_url=provider.url + "/v1beta", key=KEY), http=http)
        with pytest.raises(ModelError) as caught:
            await drain_stream(model)
    assert KEY not in str(caught.value)
    return caught.value


async def test_the_key_is_in_a_header_and_nowhere_else(http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        account = Account(base_url=provider.url + "/v1beta/", key=KEY, query={"alt": "json", "x": "y"})
        model = Gemini(MODEL, account, http=http)
        assert (await collect_stream(model)).text == "Hi."
        (request,) = provider.requests
    assert request.path == f"/v1beta/models/{MODEL}:streamGenerateContent"
    assert sorted(request.query.split("&")) == ["alt=sse", "x=y"]
    assert request.headers["x-goog-api-key"] == KEY
    assert KEY.encode() not in request.raw
    assert KEY not in repr(model)


async def test_without_a_key_the_headers_of_the_account_authenticate(http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        base = provider.url + "/v1/projects/p/locations/global/publishers/google"
        account = Account(base_url=base, headers={"authorization": "Bearer t"})
        await collect_stream(Gemini(MODEL, account, http=http))
        (request,) = provider.requests
    assert request.path == f"/v1/projects/p/locations/global/publishers/google/models/{MODEL}:streamGenerateContent"
    assert request.headers["authorization"] == "Bearer t"
    assert "x-goog-api-key" not in request.headers


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("tunedModels/mine", "/v1beta/tunedModels/mine:streamGenerateContent"),
        ("models/x", "/v1beta/models/x:streamGenerateContent"),
        ("a?b#c d", "/v1beta/models/a?b#c d:streamGenerateContent"),
    ],
)
async def test_a_model_name_may_be_a_path_and_is_never_split(model: str, path: str, http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        await collect_stream(Gemini(model, Account(base_url=provider.url + "/v1beta", key=KEY), http=http))
        assert provider.requests[0].path == path
        assert provider.requests[0].query == "alt=sse"


async def test_headers_of_one_call_are_sent_with_it(http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        prompt = msgspec.structs.replace(PROMPT, options={"headers": {"x-trace": "7"}})
        await collect_stream(Gemini(MODEL, Account(base_url=provider.url, key=KEY), http=http), prompt)
        assert provider.requests[0].headers["x-trace"] == "7"


def test_a_model_has_the_given_name_or_a_default_name() -> None:
    account = Account(base_url=BASE_URL)
    assert Gemini(MODEL, account).name == f"gemini/{MODEL}"
    assert Gemini(MODEL, account, name="fast").name == "fast"


async def test_a_model_closes_only_its_own_connections(http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        account = Account(base_url=provider.url, key=KEY)
        own, shared = Gemini(MODEL, account), Gemini(MODEL, account, http=http)
        for model in (own, shared):
            assert (await collect_stream(model)).text == "Hi."
            await model.close()
            await model.close()
        assert (await collect_stream(shared)).text == "Hi."
        assert not http.client.is_closed


async def test_an_invalid_request_is_not_sent(http: ConnectionPool) -> None:
    async with FakeProvider(say("Hi.")) as provider:
        model = Gemini(MODEL, Account(base_url=provider.url, key=KEY), http=http)
        with pytest.raises(BadRequest, match="there is no model option 'x'"):
            await drain_stream(model, msgspec.structs.replace(PROMPT_WITH_TOOLS, options={"x": 1}))
        assert provider.requests == []


@pytest.mark.parametrize("type", ["application/json; charset=UTF-8", "text/event-stream"])
async def test_an_array_instead_of_a_stream_is_a_cut(type: str, http: ConnectionPool) -> None:
    """A gateway that drops ``alt=sse`` answers with an array."""
    whole: list[Any] = [{"candidates": [{"content": {"parts": [{"text": "Hi."}]}, "finishReason": "STOP"}]}]
    fault = Fault(body=msgspec.json.format(msgspec.json.encode(whole)), headers={"content-type": type})
    error = await error_of(http, fault)
    assert isinstance(error, StreamCut)
    assert str(error).startswith('expected an event stream, got a JSON array: \'[ { "candidates":')


def refusal_body(code: int, status: str, *details: Any) -> bytes:
    body = {"error": {"code": code, "message": f"It is {KEY} that failed.", "status": status, "details": details}}
    return msgspec.json.encode([body])


@pytest.mark.parametrize(
    ("code", "status", "details", "kind"),
    [
        (400, "INVALID_ARGUMENT", [], BadRequest),
        (400, "INVALID_ARGUMENT", [{"reason": "API_KEY_INVALID"}], AuthenticationFailed),
        (403, "PERMISSION_DENIED", [], AuthenticationFailed),
        (429, "RESOURCE_EXHAUSTED", [{"retryDelay": "7s"}], RateLimited),
    ],
)
async def test_errors_in_a_list_are_recognized(
    code: int, status: str, details: Sequence[Any], kind: type, http: ConnectionPool
) -> None:
    error = await error_of(http, Fault(status=code, body=refusal_body(code, status, *details)))
    assert type(error) is kind
    assert not isinstance(error, RateLimited) or error.retry_after == 7


async def test_an_answer_that_is_cut_anywhere_raises(http: ConnectionPool) -> None:
    answer = call("weather", city="Hilo") | {"text": "Let me look.", "reasoning": "hm"}
    async with FakeProvider(answer) as provider:
        model = Gemini(MODEL, Account(base_url=provider.url, key=KEY), http=http)
        assert (await collect_stream(model)).stops == ["calls"]
    for size in range(0, 1200, 97):
        assert isinstance(await error_of(http, Fault(cut=size), answer), StreamCut)


@vaka.tool(effect="read")
async def weather(city: str) -> str:
    """Return today's weather."""
    return f"rain in {city}"


async def test_a_session_sends_back_what_the_model_signed(http: ConnectionPool) -> None:
    first = call("weather", city="Hilo") | {"reasoning": "Let me see."}
    async with FakeProvider(first, say("Rain.", reasoning="So."), say("Yes.")) as provider:
        model = Gemini(MODEL, Account(base_url=provider.url, key=KEY), http=http)
        agent = vaka.Agent("assistant", model=model, tools=[weather])
        async with vaka.Runtime(store="memory:") as runtime:
            session = await runtime.open(agent, id="s")
            assert (await session.run("Is it raining?")).text == "Rain."
            assert (await session.run("Sure?")).text == "Yes."
        _, _, last = provider.requests
    asked, called, answered, said, again = last.body["contents"]
    assert asked == {"role": "user", "parts": [{"text": "Is it raining?"}]}
    (part,) = called["parts"]
    assert part["functionCall"] == {"name": "weather", "args": {"city": "Hilo"}}
    assert part["thoughtSignature"] not in ("", "skip_thought_signature_validator")
    assert answered["parts"] == [{"functionResponse": {"name": "weather", "response": {"output": "rain in Hilo"}}}]
    assert [*said["parts"][0]] == ["text", "thoughtSignature"]
    assert again == {"role": "user", "parts": [{"text": "Sure?"}]}


async def test_structured_output_arrives_as_text_also_when_it_is_a_call(http: ConnectionPool) -> None:
    options = {"output": {"type": "object", "properties": {"rain": {"type": "boolean"}}}}
    prompt = msgspec.structs.replace(PROMPT, options=options)
    async with FakeProvider(call("answer", rain=True)) as provider:
        model = Gemini("gemini-2.5-flash", Account(base_url=provider.url, key=KEY), http=http)
        heard = await collect_stream(model, prompt)
    assert (heard.text, heard.calls, heard.stops) == ('{"rain":true}', [], ["end"])
