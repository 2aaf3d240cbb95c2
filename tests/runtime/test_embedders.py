"""Embedders by name."""

import pytest

from tests.runtime.scene import runtime
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ConfigError
from vaka.core.types.usage import Usage
from vaka.testing.models import say
from vaka.testing.provider import Fault, Provider


@pytest.mark.parametrize(("name", "length"), [("hashing", 512), ("hashing:64", 64), ("minilm", 384)])
async def test_an_embedder_on_this_machine_needs_nothing_but_its_name(name: str, length: int) -> None:
    async with runtime() as rt:
        embedder = rt.models.embedder(name)
        assert [len(vector) for vector in await embedder.embed(["one", "two"])] == [length, length]
        assert rt.models.embedder(name) is embedder


async def test_an_embedder_of_a_provider_is_asked_with_its_key() -> None:
    answer = b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "model": "e"}'
    fault = Fault(body=answer, headers={"content-type": "application/json"})
    async with Provider(say("unused"), fault=fault) as provider:
        environ = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-of-mine"}
        async with runtime(environ=environ) as rt:
            vectors = await rt.models.embedder("openai/text-embedding-3-small").embed(["a"])
        request = provider.requests[0]
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", "Bearer sk-of-mine")
    assert vectors == [pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize("name", ["hashin", "hashing:x", "anthropic/x", "openai", ""])
async def test_a_name_that_is_none_is_told_with_those_there_are(name: str) -> None:
    async with runtime(environ={}) as rt:
        with pytest.raises(ConfigError, match="there are hashing, minilm"):
            rt.models.embedder(name)


async def test_a_key_that_is_missing_is_named() -> None:
    async with runtime(environ={}) as rt:
        with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
            rt.models.embedder("openai/text-embedding-3-small")


async def test_what_an_embedder_used_is_in_the_stats_of_the_runtime() -> None:
    counted = (
        b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": {"prompt_tokens": 500000, "total_tokens": 1}}'
    )
    silent = b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": "none of yours"}'
    broken = b'{"error": {"message": "bad input", "type": "invalid_request_error"}}'
    kind = {"content-type": "application/json"}
    faults = [Fault(body=body, headers=kind) for body in (counted, silent, broken)]
    keys = {"OPENAI_API_KEY": "sk-of-mine"}
    async with (
        Provider(say("unused"), fault=faults) as provider,
        runtime(environ={"OPENAI_BASE_URL": provider.url, **keys}) as rt,
    ):
        embedder = rt.models.embedder("openai/text-embedding-3-small")
        await embedder.embed(["a"])
        await embedder.embed(["some 20 characters …"])
        with pytest.raises(BadRequest, match="bad input"):
            await embedder.embed(["a"])
        stats = await rt.total_stats()
    assert stats.request_count == 2
    assert stats.usage == Usage(input=500_005, cost=stats.usage.cost)
    assert stats.usage.cost == pytest.approx(0.0100001)
    assert stats.by_model["openai/text-embedding-3-small"].usage == stats.usage
