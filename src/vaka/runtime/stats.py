"""Usage statistics of sessions: a fold over their events of model calls, lost caches and compactions."""

from collections.abc import Iterable, Mapping
from contextlib import aclosing
from typing import TypeVar

import msgspec

from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.context import ContextCompacted
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Usage
from vaka.core.types.monitor import CacheBusted, UsageRecorded

TOTAL_ID = "_total"
"""The id of the statistics over all sessions."""
COUNTED_EVENTS = (UsageRecorded, CacheBusted, ContextCompacted)
_PAGE_SIZE = 200

_Sum = TypeVar("_Sum", "ModelStats", "CacheLoss")


class ModelStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model or one agent."""

    usage: Usage = Usage()
    request_count: int = 0

    def __add__(self, other: "ModelStats") -> "ModelStats":
        return ModelStats(usage=self.usage + other.usage, request_count=self.request_count + other.request_count)


class CacheLoss(msgspec.Struct, frozen=True, kw_only=True):
    """The model calls that did not read what a provider had cached."""

    count: int = 0
    tokens: int = 0
    cost: float = 0.0
    """The additional cost of the tokens without the cache, in US dollars, where the price is known."""

    def __add__(self, other: "CacheLoss") -> "CacheLoss":
        return CacheLoss(count=self.count + other.count, tokens=self.tokens + other.tokens, cost=self.cost + other.cost)


class SessionStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one session. Usage before a fork counts for the original session only."""

    session_id: str
    usage: Usage = Usage()
    request_count: int = 0
    """The number of model calls, including retries and calls of subagents."""
    first_request: str = ""
    last_request: str = ""
    by_model: dict[str, ModelStats] = {}
    by_agent: dict[str, ModelStats] = {}
    """Usage by the name of the agent; a subagent has its own entry."""
    cache_busts: dict[str, CacheLoss] = {}
    """Tokens that were not read from providers' caches, by cause: ``tools``, ``system``, ``expired`` and others."""
    compactions: int = 0
    """How often a conversation was compacted, subagents included."""

    @property
    def total_input(self) -> int:
        """Tokens of all prompts, cached ones included."""
        return self.usage.input

    @property
    def total_output(self) -> int:
        """Tokens of all answers, reasoning included."""
        return self.usage.output

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.usage.total

    @property
    def cache_created(self) -> int:
        """Input tokens that providers put into their caches."""
        return self.usage.cache_write

    @property
    def cache_read(self) -> int:
        """Input tokens that came from providers' caches."""
        return self.usage.cache_read

    @property
    def cache_hit_ratio(self) -> float:
        """The part of all input tokens that came from providers' caches."""
        return self.usage.cache_read / self.usage.input if self.usage.input else 0.0

    @property
    def cache_loss(self) -> CacheLoss:
        """Tokens that were not read from providers' caches, for all causes."""
        return sum(self.cache_busts.values(), CacheLoss())

    def __add__(self, other: "SessionStats") -> "SessionStats":
        """Return the sum of both, with the id of the first."""
        times = [time for time in (self.first_request, other.first_request) if time]
        return SessionStats(
            session_id=self.session_id,
            usage=self.usage + other.usage,
            request_count=self.request_count + other.request_count,
            first_request=min(times, default=""),
            last_request=max(self.last_request, other.last_request),
            by_model=merge_sums(self.by_model, other.by_model),
            by_agent=merge_sums(self.by_agent, other.by_agent),
            cache_busts=merge_sums(self.cache_busts, other.cache_busts),
            compactions=self.compactions + other.compactions,
        )


def sum_usage(session: str, events: Iterable[Event]) -> SessionStats:
    """Return what the events of a session record of its model calls. Pure."""
    stats = SessionStats(session_id=session)
    for event in events:
        if event.session == session:  # not copied by a fork
            stats += _stats_of(event)
    return stats


def _stats_of(event: Event) -> SessionStats:
    body = event.data
    if isinstance(body, CacheBusted):
        return SessionStats(session_id=event.session, cache_busts=loss_by_cause(body))
    if isinstance(body, ContextCompacted):
        return SessionStats(session_id=event.session, compactions=1)
    if not isinstance(body, UsageRecorded):
        return SessionStats(session_id=event.session)
    one = ModelStats(usage=body.usage, request_count=1)
    return SessionStats(
        session_id=event.session,
        usage=body.usage,
        request_count=1,
        first_request=event.ts,
        last_request=event.ts,
        by_model={body.model: one},
        by_agent={body.agent: one},
    )


def loss_by_cause(body: CacheBusted) -> dict[str, CacheLoss]:
    """Return the loss that an event reports, by its cause; older logs have the part only."""
    return {body.cause or body.part: CacheLoss(count=1, tokens=body.tokens, cost=body.cost)}


async def read_session_stats(store: Store, session: SessionId) -> SessionStats:
    """Return the usage of a session. Raises ``NotFound``."""
    if await store.sessions.find(session) is None:
        raise NotFound(f"there is no session {session!r}")
    async with aclosing(store.events.read(session)) as events:
        return sum_usage(session, [event async for event in events if isinstance(event.data, COUNTED_EVENTS)])


async def read_total_stats(store: Store, embedders: Mapping[str, tuple[int, Usage]]) -> SessionStats:
    """Return the usage of all sessions of a store, and of embedders outside of sessions, by name."""
    total, after = SessionStats(session_id=TOTAL_ID), ""
    for model, (count, usage) in embedders.items():
        one = ModelStats(usage=usage, request_count=count)
        total += SessionStats(session_id=TOTAL_ID, usage=usage, request_count=count, by_model={model: one})
    while True:
        page = await store.sessions.list(SessionQuery(limit=_PAGE_SIZE, after=after))
        for info in page.sessions:
            total += await read_session_stats(store, info.id)
        after = page.next
        if not after:
            return total


def merge_sums(one: Mapping[str, _Sum], other: Mapping[str, _Sum]) -> dict[str, _Sum]:
    """Return the sums of both by name."""
    merged = dict(one)
    for name, value in other.items():
        merged[name] = merged[name] + value if name in merged else value
    return merged
