"""The adapter for the Responses API over a socket."""

from typing import Any

import msgspec
import pytest

from vaka.core.ports.model import (
    Model,
    Prompt,
    StopChunk,
)
from vaka.core.types.errors import (
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
)
from vaka.models.openai_responses.model import LLAMA, OpenAIResponses, ResponsesCapabilities
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import PROMPT, ScriptLine, call, collect_stream, drain_stream, say


def model_of(provider: FakeProvider, **more: Any) -> OpenAIResponses:
    return OpenAIResponses("gpt-6", Account(base_url=provider.url + "/v1", key="sk-private", **more))


async def test_a_request_is_sent_with_its_key_and_its_headers() -> None:
    async with FakeProvider(say("Yes.")) as provider:
        asked = model_of(provider, headers={"x-gateway": "g"})
        prompt = msgspec.structs.replace(PROMPT, options={"headers": {"x-mine": "1"}})
        assert (await collect_stream(asked, prompt)).text == "Yes."
        await asked.close()
        sent = provider.requests[0]
    assert (sent.method, sent.path) == ("POST", "/v1/responses")
    assert {name: sent.headers[name] for name in ("authorization", "x-gateway", "x-mine", "accept")} == {
        "authorization": "Bearer sk-private",
        "x-gateway": "g",
        "x-mine": "1",
        "accept": "text/event-stream",
    }
    assert sent.body["model"] == "gpt-6"


async def test_without_a_key_none_is_sent_and_shared_connections_stay_open() -> None:
    http = ConnectionPool()
    async with FakeProvider(say("Yes.")) as provider:
        asked = OpenAIResponses("m", Account(base_url=provider.url), http=http, name="mine")
        assert asked.name == "mine"
        assert OpenAIResponses("m", Account(base_url=provider.url)).name == "openai/m"
        await collect_stream(asked)
        await asked.close()
        assert not http.client.is_closed
        await http.close()
        assert "authorization" not in provider.requests[0].headers


async def test_the_length_limit_is_detected_by_the_facts_of_the_server() -> None:
    answer = say("Once upon a", usage={"input": 3, "output": 4})
    prompt = Prompt(messages=PROMPT.messages, options={"max_tokens": 4})
    async with FakeProvider(answer) as provider:
        account = Account(base_url=provider.url)
        for facts, stop in ((ResponsesCapabilities(), "end"), (LLAMA, "length")):
            asked = OpenAIResponses("m", account, facts=facts)
            assert (await collect_stream(asked, prompt)).stops == [stop]
            await asked.close()


@pytest.mark.parametrize("answer", [say("It rains."), call("weather", city="Hilo")])
async def test_nothing_is_read_after_the_end_and_a_cut_is_not_an_end(answer: ScriptLine) -> None:
    async with FakeProvider(answer) as provider:
        asked = model_of(provider)
        whole = await drain_stream(asked)
        await asked.close()
    assert isinstance(whole[-1], StopChunk)
    async with FakeProvider({"chunks": ["It", " rains."], "cut_after": 1}) as provider:
        asked = model_of(provider)
        with pytest.raises(StreamCut, match="openai/gpt-6 was cut"):
            await drain_stream(asked)
        await asked.close()


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault(status=429, body=b'{"error": {"message": "slow", "type": "rate_limit"}}'), RateLimited),
        (Fault(status=400, body=b'{"error": {"message": "bad key sk-private-key"}}'), ModelRefused),
        (Fault(html=True), ModelUnavailable),
        (
            Fault(body=b'{"id": "resp_1", "object": "response"}', headers={"content-type": "application/json"}),
            StreamCut,
        ),
    ],
)
async def test_a_server_that_does_not_stream_is_an_error_without_the_key(fault: Fault, kind: type[ModelError]) -> None:
    async with FakeProvider(say("x"), fault=fault) as provider:
        asked: Model = model_of(provider)
        with pytest.raises(kind) as caught:
            await drain_stream(asked)
        assert "sk-private" not in str(caught.value)
        assert isinstance(asked, OpenAIResponses)
        await asked.close()
