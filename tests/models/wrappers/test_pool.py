"""Tiers: the model of each request, and the notice about the choice."""

import logging

import pytest

from tests.runtime.runtime_fixtures import agent, read_log, runtime
from vaka.core.ports.model import NoticeChunk
from vaka.core.types.errors import ConfigError
from vaka.core.types.monitor import ModelSelected
from vaka.models.wrappers.pool import ModelPool, tier_of
from vaka.stores.memory import MemoryStore
from vaka.testing.models import ScriptedModel, drain_stream, say


def named_model(name: str) -> ScriptedModel:
    return ScriptedModel(say(f"I am {name}."), name=name)


LOW = named_model("small")
HIGH = named_model("large")
DEFAULT = named_model("usual")
POOL = ModelPool({"low": LOW, "high": HIGH}, DEFAULT, {"Explore": "low", "plan": "sonnet"})


async def selection_of(tier: str = "", subagent: str = "") -> ModelSelected | str:
    """Return what a chosen model says of itself, or its name if it says nothing."""
    model = POOL.choose(tier, subagent)
    first, *_, last = await drain_stream(model)
    assert not isinstance(last, NoticeChunk)
    assert not isinstance(first, NoticeChunk) or first.event.model == model.name  # type: ignore[union-attr]  # selected
    return first.event if isinstance(first, NoticeChunk) else model.name  # type: ignore[return-value]  # selected


async def test_the_requested_tier_comes_first() -> None:
    assert await selection_of("high") == ModelSelected(model="large", tier="high", reason="asked for")
    assert await selection_of("high", "explore") == ModelSelected(model="large", tier="high", reason="asked for")


async def test_a_subagent_is_served_by_the_tier_of_its_type_whatever_the_case() -> None:
    assert await selection_of(subagent="EXPLORE") == ModelSelected(
        model="small", tier="low", reason="subagent 'EXPLORE'"
    )


async def test_the_default_serves_the_rest_without_a_notice() -> None:
    assert await selection_of() == "usual"
    assert await selection_of(subagent="general-purpose") == "usual"
    assert POOL.choose() is POOL.default is DEFAULT


async def test_haiku_sonnet_and_opus_are_names_of_tiers() -> None:
    assert await selection_of("opus") == ModelSelected(model="large", tier="high", reason="asked for")
    assert await selection_of("Haiku") == ModelSelected(model="small", tier="low", reason="asked for")
    assert [tier_of(name) for name in ("sonnet", "MID", "gpt")] == ["mid", "mid", "gpt"]


async def test_a_missing_tier_is_skipped_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    why = "tier 'mid' (asked for) is not in the pool, which has low, high"
    with caplog.at_level(logging.WARNING):
        assert await selection_of("mid") == ModelSelected(model="usual", reason=f"default; {why}")
        assert await selection_of("mid", "explore") == ModelSelected(
            model="small", tier="low", reason=f"subagent 'explore'; {why}"
        )
        assert await selection_of(subagent="plan") == ModelSelected(
            model="usual",
            reason="default; tier 'mid' (subagent 'plan') is not in the pool, which has low, high",
        )
    assert caplog.messages[:2] == [why, why]
    assert len(caplog.messages) == 3


async def test_an_unknown_tier_is_skipped_with_a_warning() -> None:
    empty = ModelPool({}, DEFAULT)
    first = (await drain_stream(empty.choose("huge")))[0]
    why = "default; tier 'huge' (asked for) is not in the pool, which has no tiers"
    assert first == NoticeChunk(ModelSelected(model="usual", reason=why))


def test_the_tiers_of_a_pool_are_in_order() -> None:
    assert POOL.tiers == ("low", "high")


@pytest.mark.parametrize(
    ("models", "subagents", "said"),
    [
        ({"hihg": HIGH}, {}, "a model of the pool cannot be called 'hihg'; did you mean 'high'?"),
        ({"1": HIGH}, {}, "a model of the pool cannot be called '1'; the tiers are low, mid, high"),
        ({"low": LOW, "haiku": HIGH}, {}, "a pool has one model for each tier, got low, haiku"),
        ({}, {"plan": "hi"}, "the tier of subagent 'plan' cannot be called 'hi'; did you mean 'high'?"),
    ],
)
def test_an_invalid_pool_is_refused(models: dict[str, ScriptedModel], subagents: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ModelPool(models, DEFAULT, subagents)
    assert str(caught.value) == said


async def test_closing_a_pool_closes_each_of_its_models_once() -> None:
    closed: list[str] = []

    class Held(ScriptedModel):
        async def close(self) -> None:
            closed.append(self.name)

    shared = Held(say("Hi."), name="shared")
    await ModelPool({"low": shared, "mid": Held(say("Hi."), name="mid"), "high": shared}, shared).close()
    assert sorted(closed) == ["mid", "shared"]


async def test_the_choice_is_in_the_log() -> None:
    store = MemoryStore()
    async with runtime(store) as rt:
        session = await rt.open(agent(POOL.choose("high")), id="s")
        assert (await session.run("Who?")).text == "I am large."
    found = [event.data for event in await read_log(store, "s") if isinstance(event.data, ModelSelected)]
    assert found == [ModelSelected(model="large", tier="high", reason="asked for")]
