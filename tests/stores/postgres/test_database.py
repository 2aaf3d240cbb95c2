"""Opening and closing: errors contain no secrets, tables are created once, nothing is left behind."""

import asyncio

import asyncpg
import pytest

from tests.postgres_server import PostgresServer
from tests.stores.postgres.conftest import claim_when_free
from vaka.core.ports.store import Store
from vaka.core.types.errors import CannotOpen, Closed, ConfigError, StoreError
from vaka.core.types.ids import SessionId
from vaka.stores.common import migration_files
from vaka.stores.postgres import PostgresStore
from vaka.stores.postgres.database import MIGRATIONS
from vaka.testing.stores.sealed_events import EventSealer, begin_session, input_added, read_log, write_session

S = SessionId("s")


def test_the_url_has_no_password() -> None:
    shown = {
        "postgresql://ann:s3cret@db.example:5433/agents?sslmode=require&password=s3cret":  # not a secret
        "postgresql://ann@db.example:5433/agents?sslmode=require",
        "postgres://ann:p%40ss@h1:1,h2:2/x": "postgres://ann@h1:1,h2:2/x",  # not a secret
        "postgresql://ann:p@ss@host/x": "postgresql://ann@host/x",
        "postgresql://[::1]:5432/x": "postgresql://[::1]:5432/x",
        "postgresql:///x?host=/tmp/a%20b": "postgresql:///x?host=/tmp/a+b",
        "postgresql://": "postgresql://",
    }
    for dsn, url in shown.items():
        store: Store = PostgresStore(dsn)
        assert store.url == url


@pytest.mark.parametrize(
    "dsn",
    [
        "mysql://ann:s3cret@host/x",  # not a secret
        "postgresql+asyncpg://ann:s3cret@host/x",  # not a secret
        "postgresql://ann:s3cret/more@host/x",
        "postgresql://ann:s3cret#more@host/x",  # not a secret
        "postgresql://ann:12?s3cret@host/x",  # not a secret
        "postgresql://ann:12?s3cret=1@host/x&a.b=1",  # not a secret
        "postgresql://[s3cret/x",
        "s3cret",
    ],
)
def test_an_invalid_dsn_is_refused_and_not_quoted(dsn: str) -> None:
    with pytest.raises(ConfigError, match="postgresql://") as caught:
        PostgresStore(dsn)
    assert "s3cret" not in str(caught.value)


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="lease"):
        PostgresStore("postgresql://host/x", lease=0)
    with pytest.raises(ConfigError, match="durability"):
        PostgresStore("postgresql://host/x", durability="hope")  # type: ignore[arg-type]  # that is the point


async def test_an_unknown_user_or_database_is_a_config_error(
    postgres_dsn: str, postgres_server: PostgresServer
) -> None:
    unknown_user = postgres_dsn.replace("postgres@", "unknown:s3cret@")
    for dsn in (unknown_user, postgres_server.dsn("nowhere")):
        store = PostgresStore(dsn)
        with pytest.raises(ConfigError, match="does not exist") as caught:
            await store.sessions.find(S)
        assert "s3cret" not in str(caught.value)
        await store.close()


async def test_an_unknown_dsn_option_is_a_config_error(postgres_dsn: str) -> None:
    store = PostgresStore(f"{postgres_dsn}&sslmode=perhaps")
    with pytest.raises(ConfigError, match="has an option"):
        await store.sessions.find(S)
    await store.close()


async def test_an_unknown_host_is_an_error_that_names_it() -> None:
    store = PostgresStore("postgresql://unknown.invalid/x", patience=0.1)
    with pytest.raises((ConfigError, CannotOpen), match=r"unknown\.invalid"):
        await store.sessions.find(S)
    await store.close()


async def test_a_server_that_was_never_reached_is_a_store_that_cannot_be_opened(tmp_path: object) -> None:
    store = PostgresStore(f"postgresql:///x?host={tmp_path}", patience=0.1)
    with pytest.raises(CannotOpen, match=r"the store cannot be opened: PostgreSQL at .* is unreachable") as caught:
        await store.events.claim(S)
    assert caught.value.exit_code == 3
    await store.close()


async def test_a_user_without_permission_is_a_config_error(postgres_dsn: str, postgres_server: PostgresServer) -> None:
    postgres_server.sql("create role guest login")
    try:
        store = PostgresStore(postgres_dsn.replace("postgres@", "guest@"))
        with pytest.raises(ConfigError, match="permission denied"):
            await store.sessions.find(S)
        await store.close()
    finally:
        postgres_server.sql("drop role guest")


async def test_stores_that_open_a_new_database_concurrently_migrate_it_once(postgres_dsn: str) -> None:
    stores = [PostgresStore(postgres_dsn) for _ in range(8)]
    await asyncio.gather(*(write_session(store, f"s{n}") for n, store in enumerate(stores)))
    connection = await asyncpg.connect(postgres_dsn)
    rows = await connection.fetch("select version from vaka.migrations order by version")
    assert [row["version"] for row in rows] == [number for number, _ in migration_files(MIGRATIONS)]
    await connection.close()
    for store in stores:
        await store.close()


async def test_tables_of_a_newer_version_are_refused(postgres_dsn: str) -> None:
    old = PostgresStore(postgres_dsn)
    await write_session(old, "s")
    await old.close()
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("insert into vaka.migrations (version) values (1000)")
    await connection.close()
    store = PostgresStore(postgres_dsn)
    with pytest.raises(ConfigError, match="1000"):
        await store.sessions.find(S)
    await store.close()


async def test_durability_sets_synchronous_commit(postgres_dsn: str) -> None:
    connection = await asyncpg.connect(postgres_dsn)
    name = await connection.fetchval("select current_database()")
    await connection.execute(f"alter database {name} set synchronous_commit = off")
    await connection.close()
    asked = "select current_setting('synchronous_commit')"
    power, process = PostgresStore(postgres_dsn), PostgresStore(postgres_dsn, durability="process")
    got = [await store._hub.database.fetch(asked) for store in (power, process)]
    assert [row["current_setting"] for (row,) in got] == ["on", "off"]
    await begin_session(process, "s")
    for store in (power, process):
        await store.close()


async def test_a_closed_store_leaves_no_task_or_connection(postgres_dsn: str, postgres_server: PostgresServer) -> None:
    before = asyncio.all_tasks()
    store, other = PostgresStore(postgres_dsn), PostgresStore(postgres_dsn)
    log, term = await begin_session(store, "s")
    waiting = asyncio.create_task(other.events.wait(S, after=1))
    await log.append_to(store, term, input_added("x", "x"))
    await waiting
    store.live.share(S, list)
    for handle in (store, other):
        await handle.close()
        with pytest.raises(Closed):
            await handle.events.wait(S, after=0)
        with pytest.raises(Closed):
            await handle.events.append(S, [], head=2, term=term)
        with pytest.raises(Closed):
            await handle.values.get("x")
    assert asyncio.all_tasks() == before
    assert postgres_server.sql("select count(*) from pg_stat_activity where application_name = 'vaka'") == "0"


async def test_a_store_that_was_never_used_can_be_closed() -> None:
    store = PostgresStore("postgresql://unknown.invalid/x")
    await store.close()
    await store.close()
    with pytest.raises(Closed):
        await store.events.claim(S)


async def test_queued_appends_fail_when_the_store_closes(postgres_dsn: str) -> None:
    store = PostgresStore(postgres_dsn)
    logs = [await begin_session(store, f"s{n}") for n in range(3)]
    writing = [asyncio.create_task(log.append_to(store, term, input_added("x", "x"))) for log, term in logs]
    await asyncio.sleep(0)
    await store.close()
    for outcome in await asyncio.gather(*writing, return_exceptions=True):
        assert outcome == 2 or isinstance(outcome, Closed)


async def test_an_append_the_server_refuses_fails_alone(store: PostgresStore, postgres_dsn: str) -> None:
    logs = {name: await begin_session(store, name) for name in ("a", "b", "c")}
    connection = await asyncpg.connect(postgres_dsn)
    await connection.execute("insert into vaka.events values ('', 'b', 2, 'left over')")
    await connection.close()
    got = await asyncio.gather(
        *(log.append_to(store, term, input_added("x", "x")) for log, term in logs.values()), return_exceptions=True
    )
    assert got[0] == got[2] == 2  # a refused append does not fail those of the same transaction
    assert isinstance(got[1], StoreError)
    assert "23505" in str(got[1])
    assert len(await read_log(store, "b")) == 1


async def test_of_two_concurrent_claims_of_a_new_session_one_is_busy(store: PostgresStore) -> None:
    got = await asyncio.gather(store.events.claim(S), store.events.claim(S), return_exceptions=True)
    assert sorted(str(type(term).__name__) for term in got) == ["Busy", "int"]
    assert (
        await EventSealer(S).append_to(store, next(term for term in got if isinstance(term, int)), input_added("x"))
        == 1
    )


@pytest.mark.parametrize("turns", [0, 1, 2, 5, 10, 20])
async def test_a_cancelled_claim_does_not_block_other_handles(
    store: PostgresStore, other: PostgresStore, turns: int
) -> None:
    await write_session(store, "s")
    claiming = asyncio.create_task(store.events.claim(S))
    for _ in range(turns):
        await asyncio.sleep(0)
    claiming.cancel()
    await asyncio.gather(claiming, return_exceptions=True)
    if not claiming.cancelled():
        await store.events.release(S, claiming.result())
    assert await claim_when_free(other, S) > 1


async def test_a_cancelled_release_is_completed(store: PostgresStore, other: PostgresStore) -> None:
    _, term = await begin_session(store, "s")
    releasing = asyncio.create_task(store.events.release(S, term))
    await asyncio.sleep(0)
    releasing.cancel()
    await asyncio.gather(releasing, return_exceptions=True)
    assert not store.events.is_held(S, term)
    assert await claim_when_free(other, S) == 2
