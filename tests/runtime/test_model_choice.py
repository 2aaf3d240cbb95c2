"""The model of a turn: requests, tiers, child agents, and turns resumed after a crash."""

from typing import Any

import pytest

import vaka
from tests.runtime.runtime_fixtures import collect, count_events, read_log, runtime, wait_until
from tests.runtime.test_model_registry import environ_for
from vaka.config.options import Models
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import AuthenticationFailed, ConfigError
from vaka.core.types.message import Usage, as_content
from vaka.core.types.monitor import ModelSelected
from vaka.core.types.progress import StepStarted
from vaka.runtime.options import Environment
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.fake_provider import FakeProvider
from vaka.testing.models import ScriptedModel, call, say, stall

POOL = {"low": "Low.", "mid": "Mid.", "high": "High."}


def make_pool(*tiers: str) -> dict[str, ScriptedModel]:
    """Return a model for each tier that says which it is."""
    return {tier: ScriptedModel(say(POOL[tier], repeat=True), name=f"m-{tier}") for tier in tiers}


async def test_a_request_is_answered_by_the_model_of_its_tier() -> None:
    store = MemoryStore()
    async with runtime(
        store, model=ScriptedModel(say("Default.", repeat=True)), models=Models(tiers=make_pool("low", "high"))
    ) as rt:
        for model, text in (("", "Default."), ("low", "Low."), ("Opus", "High."), ("mid", "Default.")):
            assert (await (await rt.open(id="s")).run("Hi.", model=model)).text == text
    selected = [event.data for event in await read_log(store, "s") if isinstance(event.data, ModelSelected)]
    assert [(event.model, event.tier) for event in selected] == [("m-low", "low"), ("m-high", "high"), ("scripted", "")]
    assert "tier 'mid' (asked for) is not in the pool, which has low, high" in selected[-1].reason


async def test_an_agent_may_name_a_tier_and_only_the_needed_model_is_created() -> None:
    tiers: dict[str, Any] = {**make_pool("low"), "high": "mistral/x"}
    async with runtime(models=Models(tiers=tiers), environment=Environment(environ={})) as rt:
        assert (await (await rt.open(vaka.Agent("a", model="low"))).run("Hi.")).text == "Low."
        with pytest.raises(AuthenticationFailed, match="MISTRAL_API_KEY"):
            await (await rt.open(vaka.Agent("a", model="high"))).run("Hi.")
        with pytest.raises(ConfigError, match=r"\(there are low, high\), and no default; name one in the settings"):
            await (await rt.open(vaka.Agent("a", model="mid"))).run("Hi.")
    async with runtime(model="mid", models=Models(tiers=tiers)) as rt:
        with pytest.raises(ConfigError, match="no model for the tier 'mid'"):
            await (await rt.open(vaka.Agent("a"))).run("Hi.")
        with pytest.raises(ConfigError, match="no model for the tier 'mid'"):
            await (await rt.open(vaka.Agent("a", model="mid"))).run("Hi.")


async def test_child_agents_have_the_tier_of_their_name() -> None:
    store = MemoryStore()
    children = [
        vaka.Agent("Explore"),
        vaka.Agent("plan", model=ScriptedModel(agents={"plan": [say("Own.")]})),
        vaka.Agent("other"),
    ]
    boss = ScriptedModel(
        call("Explore", prompt="Look."), call("plan", prompt="Plan."), call("other", prompt="Do."), say("Done.")
    )
    options: dict[str, Any] = {
        "models": Models(tiers=make_pool("low", "mid"), subagents={"explore": "haiku", "plan": "mid"}),
    }
    async with runtime(store, model=ScriptedModel({**say("Default."), "agent": "other"}), **options) as rt:
        session = await rt.open(vaka.Agent("boss", model=boss, tools=children), id="s")
        assert (await session.run("Go.")).text == "Done."
    log = await read_log(store, "s")
    models = {event.data.agent: event.data.model for event in log if isinstance(event.data, StepStarted)}
    assert models == {"boss": "scripted", "Explore": "m-low", "plan": "scripted", "other": "scripted"}
    assert [e.data.reason for e in log if isinstance(e.data, ModelSelected)] == ["subagent 'Explore'"]


def test_an_unknown_tier_is_an_error() -> None:
    with pytest.raises(ConfigError, match="there is no tier 'hihg'; the tiers are low, mid, high"):
        runtime(models=Models(tiers={"hihg": "openai/x"}))
    with pytest.raises(ConfigError, match="there is no tier 'x'"):
        runtime(models=Models(subagents={"explore": "x"}))


async def test_a_session_changes_its_model_by_request_and_keeps_its_history() -> None:
    store = MemoryStore()
    async with FakeProvider(say("From there.")) as provider:
        one = ScriptedModel(say("One."), say("Not asked."), say("Three."))
        async with runtime(store, model=one, environment=Environment(environ=environ_for(provider.url))) as rt:
            session = await rt.open(id="s")
            await session.run("First.")
            second = await session.run("Second.", model="openai-chat/gpt-x", options={"temperature": 0.5})
            assert second.text == "From there."
            await session.run("Third.")
    body = provider.requests[0].body
    assert [message["content"] for message in body["messages"]] == ["First.", "One.", "Second."]
    assert body["temperature"] == 0.5
    assert (one.prompts[-1].options, len(one.prompts[-1].messages)) == ({}, 5)
    selected = [event.data for event in await read_log(store, "s") if isinstance(event.data, ModelSelected)]
    assert [(event.model, event.reason) for event in selected] == [("openai-chat/gpt-x", "asked for")]


async def test_a_queued_input_uses_its_model_and_options_in_its_own_turn() -> None:
    gate = ScriptedModel(stall(0.0, text="Slow."), say("Default."))
    async with runtime(model=gate, models=Models(tiers=make_pool("high"))) as rt:
        session = await rt.open(id="s")
        await session.send("First.")
        assert (await session.run("Second.", model="high", options={"seed": 1})).text == "High."


async def test_a_turn_resumed_after_a_crash_uses_the_requested_model() -> None:
    store, tiers = MemoryStore(), make_pool("high")
    async with runtime(
        store, model=ScriptedModel(say("x")), models=Models(tiers={"high": ScriptedModel(stall())})
    ) as dying:
        session = await dying.open(id="s")
        await session.send("Go.", model="high", options={"seed": 7})
        driver = dying._drivers.active.get(session.id)
        assert driver is not None
        await wait_until(lambda: count_events(store, "s", "step.started") == 1)
        driver.abort()
        await driver.wait()
    async with runtime(store, model=ScriptedModel(say("x")), models=Models(tiers=tiers)) as rt:
        events = await collect((await rt.open(id="s")).resume())
    assert events[-1].data.text == "High."  # type: ignore[attr-defined]  # a turn that was completed
    assert tiers["high"].prompts[0].options == {"seed": 7}


async def test_a_request_for_an_unknown_model_raises_and_writes_nothing() -> None:
    store = MemoryStore()
    async with runtime(store, model=ScriptedModel(say("x")), environment=Environment(environ={})) as rt:
        for model, error in (("opnai/x", ConfigError), ("openai/x", AuthenticationFailed)):
            with pytest.raises(error):
                await (await rt.open(id="s")).run("Hi.", model=model)
    assert await read_log(store, "s") == []


async def test_an_offered_input_with_an_unavailable_model_fails_only_its_own_turn() -> None:
    here = ScriptedModel(say("Here.", repeat=True))
    async with runtime(model=here, environment=Environment(environ={})) as rt:
        session = await rt.open(id="s")
        await session.run("First.")
        for model, code in (("mistral/x", "authentication"), ("unknown", "config")):
            await rt._drivers.offer(session.id, InputAdded(key=model, content=as_content("Hi."), model=model), model)
            events = await collect(session.resume())
            assert (events[-1].type, getattr(events[-1].data, "code", "")) == ("turn.failed", code)
        assert (await session.run("Second.")).text == "Here."


@pytest.mark.parametrize(("default", "option", "seen"), [(None, None, None), (True, None, True), (True, False, False)])
async def test_the_option_of_a_turn_overrides_the_cache_option_of_the_runtime(
    default: bool | None, option: bool | None, seen: bool | None
) -> None:
    model = ScriptedModel(say("Hi."))
    async with runtime(model=model, models=Models(cache=default)) as rt:
        await (await rt.open()).run("Hi.", options={} if option is None else {"cache": option})
    assert model.prompts[0].options.get("cache") is seen


USED = {"input": 5, "output": 1, "cost": 0.5}


async def test_stats_sum_the_usage_by_model_and_agent_with_children() -> None:
    child = vaka.Agent("child", model=ScriptedModel({**say("Yes."), "agent": "child", "usage": USED}))
    lines = ({**call("child", prompt="?"), "usage": {"input": 10, "output": 2}}, {**say("Ok."), "usage": {"input": 20}})
    store = MemoryStore()
    async with runtime(store, environment=Environment(clock=FakeClock())) as rt:
        session = await rt.open(vaka.Agent("boss", model=ScriptedModel(*lines, name="big"), tools=[child]), id="s")
        await session.run("Go.")
        stats = await rt.stats("s")
        fork = await session.fork(id="f")
        assert (await rt.stats(fork.id)).request_count == 0
        assert stats.usage == Usage(input=35, output=3, cost=0.5)
        assert (stats.total_tokens, stats.request_count, stats.cache_read, stats.cache_created) == (38, 3, 0, 0)
        assert {name: (one.usage.input, one.request_count) for name, one in stats.by_model.items()} == {
            "big": (30, 2),
            "scripted": (5, 1),
        }
        assert {name: one.request_count for name, one in stats.by_agent.items()} == {"boss": 2, "child": 1}
        assert stats.first_request <= stats.last_request != ""
        other = await rt.open(vaka.Agent("a", model=ScriptedModel({**say("x"), "usage": {"output": 4}})))
        await other.run("Go.")
        total = await rt.total_stats()
    assert (total.session_id, total.request_count, total.total_input, total.total_output) == ("_total", 4, 35, 7)
    with pytest.raises(vaka.VakaError, match="there is no session 'missing'"):
        async with runtime(store) as rt:
            await rt.stats("missing")
