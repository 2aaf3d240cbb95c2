"""Usage statistics of sessions: a fold over their ``usage`` events, one per model call."""

from collections.abc import Iterable, Mapping
from contextlib import aclosing

import msgspec

from vaka.core.ports.store import SessionQuery, Store
from vaka.core.types.errors import NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded

TOTAL_ID = "_total"
"""The id of the statistics over all sessions."""
_PAGE_SIZE = 200


class ModelStats(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model or one agent."""

    usage: Usage = Usage()
    request_count: int = 0

    def __add__(self, other: "ModelStats") -> "ModelStats":
        return ModelStats(usage=self.usage + other.usage, request_count=self.request_count + other.request_count)


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

    def __add__(self, other: "SessionStats") -> "SessionStats":
        """Return the sum of both, with the id of the first."""
        times = [time for time in (self.first_request, other.first_request) if time]
        return SessionStats(
            session_id=self.session_id, usage=self.usage + other.usage,
            request_count=self.request_count + other.request_count, first_request=min(times, default=""),
            last_request=max(self.last_request, other.last_request),
            by_model=_merge_stats(self.by_model, other.by_model), by_agent=_merge_stats(self.by_agent, other.by_agent),
        )  # fmt: skip


def sum_usage(session: str, events: Iterable[Event]) -> SessionStats:
    """Return the usage that the events of a session record. Pure."""
    stats = SessionStats(session_id=session)
    for event in events:
        body = event.data
        if isinstance(body, UsageRecorded) and event.session == session:
            one = ModelStats(usage=body.usage, request_count=1)
            stats += SessionStats(
                session_id=session, usage=body.usage, request_count=1, first_request=event.ts, last_request=event.ts,
                by_model={body.model: one}, by_agent={body.agent: one},
            )  # fmt: skip
    return stats


async def read_session_stats(store: Store, session: SessionId) -> SessionStats:
    """Return the usage of a session. Raises ``NotFound``."""
    if await store.sessions.find(session) is None:
        raise NotFound(f"there is no session {session!r}")
    async with aclosing(store.events.read(session)) as events:
        return sum_usage(session, [event async for event in events if isinstance(event.data, UsageRecorded)])


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


def _merge_stats(one: dict[str, ModelStats], other: dict[str, ModelStats]) -> dict[str, ModelStats]:
    merged = dict(one)
    for name, stats in other.items():
        merged[name] = merged.get(name, ModelStats()) + stats
    return merged
