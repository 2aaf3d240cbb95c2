"""What a session costs: round trips and transactions, counted on the wire."""

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from tests.stores.postgres.conftest import PATIENCE
from tests.stores.postgres.counting_proxy import RoundTrips, count_round_trips
from vaka.core.types.errors import Busy, ConflictError
from vaka.core.types.ids import SessionId, Term
from vaka.stores.postgres import PostgresStore
from vaka.stores.postgres.database import PostgresDatabase
from vaka.testing.stores.sealed_events import (
    EventSealer,
    approval_requested,
    begin_session,
    input_added,
    read_log,
    write_session,
)

COMMITS = 4


@pytest.fixture
async def counts(postgres_dsn: str) -> AsyncIterator[RoundTrips]:
    async with count_round_trips(postgres_dsn) as counts:
        yield counts


@pytest.fixture
async def counted(counts: RoundTrips) -> AsyncIterator[PostgresStore]:
    """A store that has connected and prepared its statements."""
    store = PostgresStore(counts.dsn)
    await _write_session(store, "warm")
    counts.reset()
    yield store
    await store.close()


async def _write_session(store: PostgresStore, name: str) -> EventSealer:
    """Write what a run does: a claim and four commits, the last of them with the release."""
    log = EventSealer(name)
    term = await store.events.claim(log.session)
    for number in range(COMMITS):
        bodies = input_added("a", f"a{number}"), approval_requested(f"b{number}")
        await log.append_to(store, term, *bodies, release=number == COMMITS - 1)
    return log


async def test_a_claim_and_each_commit_are_one_round_trip(counted: PostgresStore, counts: RoundTrips) -> None:
    await _write_session(counted, "new")
    assert counts.round_trips == counts.transactions == 1 + COMMITS
    counts.reset()
    term = await counted.events.claim(SessionId("new"))
    assert (term, counts.round_trips) == (2, 1)


async def test_sessions_written_at_once_share_round_trips(counted: PostgresStore, counts: RoundTrips) -> None:
    names = [f"s{number}" for number in range(50)]
    logs = await asyncio.gather(*[_write_session(counted, name) for name in names])
    prepared = 2 * counts.connections * 4  # of another connection: its start, and its statements
    assert counts.round_trips <= 2 * (1 + COMMITS) + prepared
    assert [await read_log(counted, name) for name in names] == [log.stored for log in logs]


async def test_waits_that_begin_at_once_share_a_round_trip(counted: PostgresStore, counts: RoundTrips) -> None:
    names = [SessionId(f"w{number}") for number in range(20)]
    for name in names:
        await write_session(counted, name)
    await counted.events.wait(names[0], after=0)
    counts.reset()
    assert await asyncio.gather(*[counted.events.wait(name, after=0) for name in names]) == [1] * 20
    assert counts.round_trips == 1


async def test_of_claims_at_once_each_has_its_own_answer(store: PostgresStore, other: PostgresStore) -> None:
    for name in ("free", "held"):
        await write_session(store, name)
    held = await other.events.claim(SessionId("held"))
    names = [SessionId(name) for name in ("held", "new", "free")]
    answers = await asyncio.gather(*[store.events.claim(name) for name in names], return_exceptions=True)
    assert isinstance(answers[0], Busy)
    assert answers[1:] == [1, 2]
    assert other.events.is_held(SessionId("held"), held)
    assert store.events.is_held(SessionId("free"), Term(2))


async def test_handles_of_one_store_that_claim_a_session_at_once_are_one_writer(store: PostgresStore) -> None:
    await write_session(store, "s")
    handles = [store, *(store.with_namespace("") for _ in range(3))]
    answers = await asyncio.gather(*[handle.events.claim(SessionId("s")) for handle in handles], return_exceptions=True)
    assert sorted(type(answer).__name__ for answer in answers) == ["Busy", "Busy", "Busy", "int"]


async def test_of_commits_at_once_a_stale_one_fails_alone(store: PostgresStore, postgres_dsn: str) -> None:
    logs = [await begin_session(store, f"s{number}") for number in range(5)]
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("update vaka.sessions set owner = null where id = 's2'")
    await connection.close()
    appends = [log.append_to(store, term, input_added("b", "b")) for log, term in logs]
    answers = await asyncio.gather(*appends, return_exceptions=True)
    assert isinstance(answers.pop(2), ConflictError)
    assert answers == [2] * 4
    assert len(await read_log(store, "s2")) == 1


async def test_statements_in_sequence_use_one_connection(counted: PostgresStore, counts: RoundTrips) -> None:
    for _ in range(20):
        await counted.sessions.find(SessionId("warm"))
    assert counts.connections == 0
    counts.reset()
    await counted.sessions.find(SessionId("warm"))
    assert counts.round_trips == 1


async def test_more_statements_at_once_than_connections_all_finish(postgres_dsn: str) -> None:
    database = PostgresDatabase(postgres_dsn, "power", PATIENCE)
    async with asyncio.timeout(PATIENCE):
        rows = await asyncio.gather(*[database.fetch("select $1::int, pg_sleep(0.01)", n) for n in range(60)])
    assert [row[0][0] for row in rows] == list(range(60))
    connections = await database.fetch("select count(*) from pg_stat_activity where application_name = 'vaka'")
    assert connections[0][0] <= 10
    await database.close()


async def test_a_connection_that_the_server_closed_is_not_used_again(store: PostgresStore, postgres_dsn: str) -> None:
    log, term = await begin_session(store, "s")
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute(
        "select pg_terminate_backend(pid, 60000) from pg_stat_activity "
        "where application_name = 'vaka' and datname = current_database()"
    )
    await connection.close()
    assert await log.append_to(store, term, input_added("b", "b")) == 2
