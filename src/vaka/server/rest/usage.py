"""Tokens, cost and calls: of all sessions, per day and model, and of one session."""

from collections.abc import Collection
from functools import reduce
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from vaka.core.ports.env import format_timestamp
from vaka.runtime.stats import CacheLoss, merge_sums
from vaka.server.kit.bodies import json_response
from vaka.server.kit.guard import principal_of
from vaka.server.kit.operation import Operation, read_query
from vaka.server.kit.pages import Page
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService
from vaka.server.kit.sessions import find_session
from vaka.server.rest.documents import UsageDocument, usage_document
from vaka.server.usage_totals import SessionUsage, UsageCount, sum_counts

MAX_DAYS = 3660
DAY_SECONDS = 86_400


class UsageQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How many days, today included."""

    days: Annotated[int, msgspec.Meta(extra_json_schema={"minimum": 1, "maximum": MAX_DAYS})] = 30


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of one model on one day (UTC)."""

    day: str
    model: str
    calls: int
    input: int
    output: int
    cache_read: int
    cache_write: int
    reasoning: int
    total: int
    cost: float


class CountedUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a model or an agent."""

    usage: UsageDocument
    calls: int


class StatsDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The usage of a session, or of all sessions that the caller sees."""

    sessions: int
    calls: int
    """Model calls, with the calls of child agents and repeated calls."""
    usage: UsageDocument
    first_day: str
    last_day: str
    by_model: dict[str, CountedUsage]
    by_agent: dict[str, CountedUsage]
    cache_hit_ratio: float
    """The part of the input that came from providers' caches."""
    cache_busts: dict[str, CacheLoss]
    """Tokens that were not read from providers' caches, by cause."""
    cache_loss: CacheLoss
    """The sum of all causes."""
    compactions: int


def _count_document(count: UsageCount) -> CountedUsage:
    return CountedUsage(usage=usage_document(count.usage), calls=count.calls)


def _describe(sessions: Collection[SessionUsage]) -> StatsDocument:
    """Return the sums over some sessions."""
    rows = [row for session in sessions for row in session.counts.items()]
    busts = reduce(merge_sums, [session.cache_busts for session in sessions], dict[str, CacheLoss]())
    total = sum((count for _, count in rows), UsageCount())
    days = [key.day for key, _ in rows]
    return StatsDocument(
        sessions=len(sessions),
        calls=total.calls,
        usage=usage_document(total.usage),
        first_day=min(days, default=""),
        last_day=max(days, default=""),
        by_model={name: _count_document(each) for name, each in sum_counts((key.model, n) for key, n in rows).items()},
        by_agent={name: _count_document(each) for name, each in sum_counts((key.agent, n) for key, n in rows).items()},
        cache_hit_ratio=total.usage.cache_read / total.usage.input if total.usage.input else 0.0,
        cache_busts=busts,
        cache_loss=sum(busts.values(), CacheLoss()),
        compactions=sum(session.compactions for session in sessions),
    )


async def get_stats(service: AgentService, request: Request) -> Response:
    """Reads the logs of all sessions once, and then what is new in them."""
    principal = principal_of(request)
    totals = service.usage_of(await service.runtime_of(principal))
    sessions = await totals.read(owner=principal.visible_owner)
    return json_response(_describe(sessions.values()))


async def get_session_stats(service: AgentService, request: Request) -> Response:
    """Reads the log of the session once, and then what is new in it."""
    runtime, info = await find_session(service, request)
    return json_response(_describe([await service.usage_of(runtime).read_session(info)]))


async def get_usage(service: AgentService, request: Request) -> Response:
    """Reads the logs of the sessions that changed in these days once, and then what is new in them."""
    days, principal = read_query(request, UsageQuery).days, principal_of(request)
    if not 1 <= days <= MAX_DAYS:
        raise Problem(422, "invalid_query", f"days must be 1 to {MAX_DAYS}", errors=[{"field": "days"}])
    runtime = await service.runtime_of(principal)
    first = format_timestamp(runtime.env.clock.time() - (days - 1) * DAY_SECONDS)[:10]
    owner = principal.visible_owner
    sessions = await service.usage_of(runtime).read(since=f"{first}T00:00:00.000Z", owner=owner)
    sums: dict[tuple[str, str], UsageCount] = {}
    for session in sessions.values():
        for key, count in session.counts.items():
            if key.day >= first:
                sums[key.day, key.model] = sums.get((key.day, key.model), UsageCount()) + count
    data = [
        UsageRow(day=day, model=model, calls=count.calls, **msgspec.structs.asdict(usage_document(count.usage)))
        for (day, model), count in sorted(sums.items(), key=lambda item: item[0])
    ]
    return json_response(Page(data=data))


OPERATIONS = (
    Operation(
        method="GET",
        path="/stats",
        scope="runs:read",
        handler=get_stats,
        summary="Sum the usage of all sessions",
        result=StatsDocument,
    ),
    Operation(
        method="GET",
        path="/usage",
        scope="runs:read",
        handler=get_usage,
        summary="List usage per day and model",
        query=UsageQuery,
        result=Page[UsageRow],
    ),
    Operation(
        method="GET",
        path="/sessions/{session}/stats",
        scope="runs:read",
        handler=get_session_stats,
        summary="Sum the usage of a session",
        result=StatsDocument,
    ),
)
