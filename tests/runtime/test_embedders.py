"""Embedders by name."""

import asyncio
from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import agent, read_log, results_by_call, runtime
from vaka.core.ports.model import Estimate, Prompt
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ConfigError
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.fake_provider import FakeProvider, Fault
from vaka.testing.models import FunctionModel, ScriptedModel, call, calls, say


@pytest.mark.parametrize(("name", "length"), [("hashing", 512), ("hashing:64", 64), ("minilm", 384)])
async def test_an_embedder_on_this_machine_needs_nothing_but_its_name(name: str, length: int) -> None:
    async with runtime() as rt:
        embedder = rt.models.embedder(name)
        assert [len(vector) for vector in await embedder.embed(["one", "two"])] == [length, length]
        assert rt.models.embedder(name) is embedder


async def test_an_embedder_of_a_provider_sends_its_key() -> None:
    answer = b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "model": "e"}'
    fault = Fault(body=answer, headers={"content-type": "application/json"})
    async with FakeProvider(say("unused"), fault=fault) as provider:
        environ = {"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-of-mine"}
        async with runtime(environment=Environment(environ=environ)) as rt:
            vectors = await rt.models.embedder("openai/text-embedding-3-small").embed(["a"])
        request = provider.requests[0]
    assert (request.path, request.headers["authorization"]) == ("/v1/embeddings", "Bearer sk-of-mine")
    assert vectors == [pytest.approx([0.6, 0.8])]


@pytest.mark.parametrize("name", ["hashin", "hashing:x", "anthropic/x", "openai", ""])
async def test_the_error_for_an_unknown_embedder_lists_the_known_ones(name: str) -> None:
    async with runtime(environment=Environment(environ={})) as rt:
        with pytest.raises(ConfigError, match="there are hashing, minilm"):
            rt.models.embedder(name)


async def test_the_error_for_a_missing_key_names_its_variable() -> None:
    async with runtime(environment=Environment(environ={})) as rt:
        with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
            rt.models.embedder("openai/text-embedding-3-small")


async def test_the_usage_of_an_embedder_is_in_the_stats_of_the_runtime() -> None:
    counted = (
        b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": {"prompt_tokens": 500000, "total_tokens": 1}}'
    )
    silent = b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": "none of yours"}'
    broken = b'{"error": {"message": "bad input", "type": "invalid_request_error"}}'
    kind = {"content-type": "application/json"}
    faults = [Fault(body=body, headers=kind) for body in (counted, silent, broken)]
    keys = {"OPENAI_API_KEY": "sk-of-mine"}
    async with (
        FakeProvider(say("unused"), fault=faults) as provider,
        runtime(environment=Environment(environ={"OPENAI_BASE_URL": provider.url, **keys})) as rt,
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


VECTOR = Fault(
    body=b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}], "usage": {"prompt_tokens": 500000}}',
    headers={"content-type": "application/json"},
)
SMALL = "openai/text-embedding-3-small"


async def run_embedding_tool(text: str, model: str = SMALL, **limits: Any) -> tuple[list[UsageRecorded], Any, Any, int]:
    """Let a tool embed a text: return the usage in the log, the tool's result, all stats, and how often it asked."""
    store = MemoryStore()
    async with (
        FakeProvider(say("unused"), fault=VECTOR) as provider,
        runtime(
            store, environment=Environment(environ={"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-of-mine"})
        ) as rt,
    ):

        @vaka.tool(effect="read")
        async def remember() -> str:
            """Remember."""
            await asyncio.gather(rt.models.embedder(model).embed([text]))
            return "kept"

        who = agent(ScriptedModel(call("remember"), say("done")), remember, limits=vaka.Limits(**limits))
        response = await (await rt.open(who, id="s")).run("Go.")
        total = await rt.total_stats()
        asked = len(provider.requests)
    log = await read_log(store, "s")
    found = [event.data for event in log if isinstance(event.data, UsageRecorded) and event.data.call]
    assert response.usage.cost == pytest.approx(sum(body.usage.cost for body in found))
    return found, results_by_call(log)["call_1"], total, asked


async def test_usage_of_an_embedder_in_a_tool_is_logged_and_counted_once() -> None:
    (body,), result, total, _ = await run_embedding_tool("a")
    assert (body.model, body.agent, body.call, body.usage.input) == (SMALL, "assistant", "call_1", 500_000)
    assert result.text == "kept"
    assert total.by_model[SMALL].request_count == 1
    assert total.by_model[SMALL].usage.cost == pytest.approx(0.01)


@pytest.mark.parametrize("limits", [{"max_tokens": 200_000}, {"max_cost": 0.001}])
async def test_a_text_that_the_budget_cannot_pay_is_not_embedded(limits: dict[str, Any]) -> None:
    found, result, _, asked = await run_embedding_tool("x" * 4 * 250_000, **limits)
    assert (found, asked) == ([], 0)
    assert (result.failed, result.reason) == (True, "limit")


async def test_a_budget_in_money_needs_the_price_of_an_embedder() -> None:
    found, result, _, asked = await run_embedding_tool("a", "openai/unheard-of", max_cost=1.0)
    assert (found, asked, result.failed) == ([], 0, True)
    assert 'prices."openai/unheard-of" = { input = ' in result.text


class WideEstimateModel(FunctionModel):
    """May write as much as any budget here has room for."""

    def estimate(self, prompt: Prompt) -> Estimate:
        return Estimate(usage=Usage(input=100), max_tokens=1_000_000)


async def test_an_embedding_waits_until_a_concurrent_model_call_has_reported_its_cost() -> None:
    begun, store = asyncio.Event(), MemoryStore()

    async def answer(prompt: Prompt) -> str:
        begun.set()
        for _ in range(100):
            await asyncio.sleep(0)
        return "Four."

    async with (
        FakeProvider(say("unused"), fault=VECTOR) as provider,
        runtime(
            store, environment=Environment(environ={"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-of-mine"})
        ) as rt,
    ):

        @vaka.tool(effect="read")
        async def think(context: ToolContext) -> str:
            """Think."""
            return await context.ask_model(WideEstimateModel(answer), Prompt(messages=(), agent="think"))

        @vaka.tool(effect="read")
        async def remember() -> str:
            """Remember."""
            await begun.wait()
            await rt.models.embedder(SMALL).embed(["a"])
            return "kept"

        model = ScriptedModel(calls(call("think"), call("remember")), say("done"))
        who = agent(model, think, remember, limits=vaka.Limits(max_tokens=600_000))
        await (await rt.open(who, id="s")).run("Go.")
    assert {result.text for result in results_by_call(await read_log(store, "s")).values()} == {"Four.", "kept"}


async def test_a_model_that_embeds_does_not_wait_for_itself() -> None:
    async with (
        FakeProvider(say("unused"), fault=VECTOR) as provider,
        runtime(
            environment=Environment(environ={"OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "sk-of-mine"})
        ) as rt,
    ):

        async def answer(prompt: Prompt) -> str:
            await asyncio.gather(rt.models.embedder(SMALL).embed(["a"]))
            return "never"

        who = agent(WideEstimateModel(answer), limits=vaka.Limits(max_tokens=1000))
        response = await (await rt.open(who, id="s")).run("Go.")
    assert (response.stop, response.limit, provider.requests) == ("limit", "tokens", [])
