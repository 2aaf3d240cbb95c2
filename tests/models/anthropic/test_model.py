"""The adapter for Anthropic Messages over real connections."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.ports.model import Closeable, Model, Prompt, StopChunk
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ModelError, StreamCut
from vaka.models.anthropic.model import Anthropic
from vaka.models.catalog import PriceList
from vaka.models.transport.client import Account
from vaka.models.transport.pool import ConnectionPool
from vaka.models.wrappers.meter import MeteredModel
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import PROMPT, ScriptLine, call, collect_stream, drain_stream, fail, say


@asynccontextmanager
async def request_of(
    *answers: ScriptLine, path: str = "", model: str = "claude-haiku-4-5", fault: Fault | None = None, **facts: Any
) -> AsyncGenerator[tuple[Anthropic, FakeProvider]]:
    """A provider with these answers, and a model that asks it."""
    async with FakeProvider(*(answers or (say("Hi."),)), fault=fault) as provider:
        made = Anthropic(model, Account(base_url=provider.url + path, key="sk-ant-secret"), **facts)
        try:
            yield made, provider
        finally:
            await made.close()


@pytest.mark.parametrize("path", ["", "/", "/v1", "/v1/", "/gateway/anthropic"])
async def test_the_address_is_found_with_and_without_its_version(path: str) -> None:
    async with request_of(path=path) as (model, provider):
        assert (await collect_stream(model)).text == "Hi."
        (request,) = provider.requests
    assert request.path == path.rstrip("/").removesuffix("/v1") + "/v1/messages"


async def test_the_key_is_sent_in_a_header() -> None:
    async with request_of() as (model, provider):
        await drain_stream(model)
        head = provider.requests[0].headers
    assert (head["x-api-key"], head["anthropic-version"]) == ("sk-ant-secret", "2023-06-01")
    assert "authorization" not in head
    async with request_of(bearer=True) as (model, provider):
        await drain_stream(model)
        head = provider.requests[0].headers
    assert head["authorization"] == "Bearer sk-ant-secret"
    assert "x-api-key" not in head


async def test_without_a_key_none_is_sent() -> None:
    async with FakeProvider(say("Hi.")) as provider:
        model = Anthropic("m", Account(base_url=provider.url))
        await drain_stream(model)
        await model.close()
        assert provider.requests[0].headers.keys() & {"x-api-key", "authorization"} == set()


async def test_the_facts_of_a_model_are_in_its_requests() -> None:
    facts: dict[str, Any] = {"max_tokens": 77, "cache_ttl": "1h", "name": "mine"}
    beta = msgspec.structs.replace(PROMPT, options={"headers": {"anthropic-beta": "x-2026-01-01"}})
    async with request_of(**facts) as (model, provider):
        await drain_stream(model, beta)
        request = provider.requests[0]
    assert model.name == "mine"
    assert request.headers["anthropic-beta"] == "x-2026-01-01"
    assert request.body["max_tokens"] == 77
    assert request.body["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    async with request_of(cache=False) as (model, provider):
        await drain_stream(model)
        assert b"cache_control" not in provider.requests[0].raw
    assert model.name == "anthropic/claude-haiku-4-5"


async def test_shared_connections_stay_open() -> None:
    http = ConnectionPool()
    async with FakeProvider(say("Hi.")) as provider:
        one, two = (Anthropic(name, Account(base_url=provider.url), http=http) for name in ("a", "b"))
        assert isinstance(one, Model)
        assert isinstance(one, Closeable)
        await drain_stream(one)
        await one.close()
        assert (await collect_stream(two)).text == "Hi."
        await http.close()


async def test_an_invalid_request_is_never_sent() -> None:
    async with request_of(model="claude-opus-5-5") as (model, provider):
        with pytest.raises(BadRequest, match="cannot be forced"):
            await drain_stream(model, msgspec.structs.replace(PROMPT, tool_choice="required"))
        assert provider.requests == []


async def test_a_stream_without_its_last_event_was_cut() -> None:
    async with request_of(say("Hello there.")) as (model, _):
        assert (await drain_stream(model))[-1] == StopChunk("end")
    async with request_of(say("Hello there."), fault=Fault(cut=900)) as (model, _):
        with pytest.raises(StreamCut):
            await drain_stream(model)
    async with request_of({"chunks": ["He", "llo"], "cut_after": 1}) as (model, _):
        with pytest.raises(StreamCut, match="anthropic/claude-haiku-4-5 was cut: it ended without message_stop"):
            await drain_stream(model)


async def test_errors_do_not_contain_the_key() -> None:
    async with request_of(fail(401, "invalid x-api-key: sk-ant-secret")) as (model, _):
        with pytest.raises(AuthenticationFailed) as caught:
            await drain_stream(model)
    assert "sk-ant-secret" not in str(caught.value)
    assert "sk-ant-secret" not in repr(model)


async def test_every_garbled_byte_ends_in_the_same_calls_or_in_an_error() -> None:
    answer = call("weather", city="Hilo")
    async with request_of(answer) as (model, _):
        wanted = (await collect_stream(model)).calls
    for at in range(0, 1600, 7):
        async with request_of(answer, fault=Fault(garble=(at, b"\x00"))) as (model, _):
            try:
                said = await collect_stream(model)
            except ModelError:
                continue
            assert [name for name, _ in said.calls] == [name for name, _ in wanted]
            assert said.stops == ["calls"]


async def test_a_session_with_thinking_and_calls_continues() -> None:
    @vaka.tool(effect="read")
    async def look(at: str) -> str:
        """Look."""
        return f"{at} is fine"

    thinking = call("look", at="Hilo") | {"reasoning": "I had better look.", "text": "Let me look."}
    usage = {"input": 1000, "output": 100, "cache_read": 400, "cache_write": 500}
    async with request_of(thinking, say("Fine.", usage=usage)) as (model, provider):
        metered = MeteredModel(model, PriceList())
        async with runtime() as rt:
            session = await rt.open(agent(metered, look, options={"reasoning": "low"}), id="s")
            response = await session.run("How is Hilo?")
        second = provider.requests[1].body["messages"]
    assert response.text == "Fine."
    assert response.usage.cost > 100 * 5 / 1e6
    assert [block["type"] for block in second[1]["content"]] == ["thinking", "text", "tool_use"]
    assert second[1]["content"][0]["thinking"] == "I had better look."
    assert second[2]["content"] == [
        {
            "type": "tool_result",
            "tool_use_id": second[1]["content"][2]["id"],
            "content": [{"type": "text", "text": "Hilo is fine"}],
            "cache_control": {"type": "ephemeral"},
        }
    ]


async def test_structured_output_is_text_for_both_kinds_of_model() -> None:
    shape = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    prompt = Prompt(
        messages=PROMPT.messages, tools=PROMPT.tools, options={"output": {"schema": shape, "name": "place"}}
    )
    async with request_of(say('{"city":"Hilo"}'), model="claude-opus-5-5") as (model, provider):
        native = await collect_stream(model, prompt)
        assert provider.requests[0].body["output_config"]["format"]["type"] == "json_schema"
    async with request_of(call("place", city="Hilo"), model="claude-3-5-haiku-latest") as (model, provider):
        forced = await collect_stream(model, prompt)
        assert provider.requests[0].body["tool_choice"] == {"type": "any"}
    assert [(said.stops, said.calls, msgspec.json.decode(said.text)) for said in (native, forced)] == [
        (["end"], [], {"city": "Hilo"})
    ] * 2
