"""The statistics of a session know what prompt caches saved and lost, and how often it was compacted."""

from typing import Any

import pytest

import vaka
from tests.caching_model import CachingModel, PromptCache
from tests.runtime.runtime_fixtures import agent, runtime
from vaka.core.types.context import ContextCompacted
from vaka.core.types.monitor import CacheBusted
from vaka.models.catalog import Price, PriceList
from vaka.models.wrappers.meter import MeteredModel
from vaka.runtime.options import Environment
from vaka.runtime.stats import CacheLoss, loss_by_cause
from vaka.stores.memory import MemoryStore
from vaka.testing.clock import FakeClock
from vaka.testing.models import ScriptedModel, say

PRICES = PriceList({"mine/*": Price(input=1, output=10, cache_read=0.1, cache_write=2)})


class CompactingOnce(vaka.Middleware):
    """Compacts the conversation before the second turn."""

    async def before_step(self, turn: Any) -> Any:
        if turn.state.models.get(turn.agent) != 1:
            return ()
        return [ContextCompacted(summary="They talked.", keep_from=turn.state.seq + 1)]


async def test_stats_have_the_hit_ratio_the_losses_by_cause_and_the_compactions_of_the_session_itself() -> None:
    store, clock = MemoryStore(), FakeClock()
    cache = PromptCache(clock)
    async with runtime(store, environment=Environment(clock=clock)) as rt:
        for instructions in ("Be brief. " * 40, "Be brief. " * 40, "Be kind. " * 40, "Be kind. " * 40):
            model = MeteredModel(CachingModel(ScriptedModel(say("Yes.", repeat=True)), cache, "mine/x"), PRICES)
            bot = agent(model, instructions=instructions, middleware=[CompactingOnce()])
            session = await rt.open(bot, id="s")
            await session.run("What do you see? " * 20)
        stats = await rt.stats("s")
        copied, total = await rt.stats(await rt.fork("s", id="f")), await rt.total_stats()
    assert stats.request_count == 4
    assert {cause: loss.count for cause, loss in stats.cache_busts.items()} == {"compaction": 1, "system": 1}
    assert stats.compactions == 1
    assert stats.cache_loss.tokens == sum(loss.tokens for loss in stats.cache_busts.values()) > 0
    assert stats.cache_loss.cost == pytest.approx(stats.cache_loss.tokens * 1.9 / 1e6)
    assert stats.cache_hit_ratio == stats.usage.cache_read / stats.usage.input > 0
    assert (copied.cache_busts, copied.compactions, copied.cache_hit_ratio) == ({}, 0, 0.0)
    assert (total.cache_busts, total.compactions) == (stats.cache_busts, 1)


def test_the_events_of_older_logs_are_counted_by_the_part_that_changed() -> None:
    assert loss_by_cause(CacheBusted(part="tools", tokens=9)) == {"tools": CacheLoss(count=1, tokens=9)}
