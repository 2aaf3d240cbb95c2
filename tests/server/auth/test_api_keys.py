"""API keys: what is stored, which are accepted, and how soon a revoked one is refused."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from vaka.config.settings import PEPPER_VARIABLE
from vaka.core.ports.store import Store
from vaka.core.ports.values import KeyValueStore
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput, NotFound, Unavailable
from vaka.core.types.ids import JSON
from vaka.server.auth.api_keys import KEYS_PREFIX, USAGE_PREFIX, ApiKeys, KeyOptions, open_api_keys
from vaka.server.auth.errors import CredentialRefused
from vaka.server.auth.pepper import PEPPER_KEY, Pepper, load_pepper
from vaka.server.auth.read_cache import ReadCache
from vaka.server.kit.principal import Principal
from vaka.stores.memory import MemoryStore
from vaka.stores.postgres import PostgresStore
from vaka.stores.sqlite import SqliteStore
from vaka.testing.clock import FakeClock

ACME = KeyOptions(
    name="ci",
    namespace="acme",
    owner="kim",
    scopes=("runs:read", "operator"),
    own_sessions_only=True,
    requests_per_minute=7,
    lifetime=3600.0,
)
UNKNOWN = "the API key is not one of this server; `vaka keys create` with the server's --store makes one"


async def refusal_of(keys: ApiKeys, text: str) -> str:
    with pytest.raises(CredentialRefused) as refused:
        await keys.verify(text)
    return str(refused.value)


class CountedValues:
    """Values of a store whose reads and writes are counted; writes may fail."""

    def __init__(self, values: KeyValueStore) -> None:
        self._values = values
        self.reads: list[str] = []
        self.writes: list[str] = []
        self.fails = False

    async def get(self, key: str) -> JSON:
        self.reads.append(key)
        return await self._values.get(key)

    async def put(self, key: str, value: JSON) -> None:
        if self.fails:
            raise Unavailable("the disk is read-only")
        self.writes.append(key)
        await self._values.put(key, value)

    async def put_if_absent(self, key: str, value: JSON) -> JSON:
        return await self._values.put_if_absent(key, value)

    async def compare_and_set(self, key: str, old: JSON, new: JSON, *, expires: str = "") -> bool:
        return await self._values.compare_and_set(key, old, new, expires=expires)

    async def keys(self, prefix: str = "") -> Any:
        return await self._values.keys(prefix)


async def test_a_key_names_its_tenant_owner_and_scopes(keys: ApiKeys, store: MemoryStore) -> None:
    key, text = await keys.create(ACME)
    assert (await keys.verify(text)).principal == Principal(
        id="kim",
        namespace="acme",
        scopes=frozenset({"runs:read", "operator"}),
        key=f"ak_{key.id}",
        own_sessions_only=True,
        requests_per_minute=7,
    )
    assert text[:12] == f"ak_{key.id}_"
    assert len(text) == 3 + 8 + 1 + 43
    assert text[12:] not in json.dumps(await store.values.get(KEYS_PREFIX + key.id))
    plain, other = await keys.create(KeyOptions())
    assert (await keys.verify(other)).principal.id == f"ak_{plain.id}"
    assert [found.id for found in await keys.list()] == sorted([key.id, plain.id])


async def test_a_text_that_is_not_a_stored_key_is_refused(keys: ApiKeys) -> None:
    _, text = await keys.create(KeyOptions())
    _, other = await keys.create(KeyOptions())
    wrong = [text[:12] + other[12:], "ak_00000000" + text[11:], text[:-1] + ("A" if text[-1] != "A" else "B")]
    assert [await refusal_of(keys, one) for one in wrong] == [UNKNOWN] * 3
    cut = ["", "ak_", text[:-1], text + "A", f"{text}\n", f" {text}", text.upper(), text.replace("_", "ー"), "x" * 5000]
    refusals = [await refusal_of(keys, one) for one in cut]
    assert {refusal.partition(":")[0] for refusal in refusals} == {"the API key is cut off or is not one"}
    assert not any(text[20:] in refusal for refusal in refusals)


async def test_an_expired_key_is_refused_and_says_when_it_expired(keys: ApiKeys, clock: FakeClock) -> None:
    key, text = await keys.create(ACME)
    clock.advance(3599)
    assert (await keys.verify(text)).id == key.id
    clock.advance(1)
    assert await refusal_of(keys, text) == f"the API key expired at {key.expires}; `vaka keys create` makes a new one"
    assert await refusal_of(keys, text[:-1] + "_") == UNKNOWN
    assert not await keys.is_active(key.id)


async def test_a_revoked_key_is_refused_by_every_process_within_two_seconds(
    keys: ApiKeys, store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    key, text = await keys.create(KeyOptions())
    other = ApiKeys(store.values, pepper, clock)
    await other.verify(text)
    revoked = await keys.revoke(f"ak_{key.id}")
    assert await refusal_of(keys, text) == f"the API key was revoked at {revoked.revoked}"
    clock.advance(2)
    assert await refusal_of(other, text) == f"the API key was revoked at {revoked.revoked}"
    clock.advance(60)
    assert (await keys.revoke(text)).revoked == revoked.revoked
    assert [await other.is_active(id) for id in (key.id, "00000000")] == [False, False]


async def test_a_key_of_another_pepper_is_refused_and_listed_as_such(
    keys: ApiKeys, store: MemoryStore, clock: FakeClock
) -> None:
    key, text = await keys.create(KeyOptions())
    other = ApiKeys(store.values, Pepper("another pepper of the tests"), clock)
    assert await refusal_of(other, text) == UNKNOWN
    assert [other.status_of(found) for found in await other.list()] == ["other pepper"]
    with pytest.raises(InvalidInput, match=f"the key {key.id} is other pepper; create a new one"):
        await other.rotate(key.id, 60)


async def test_a_rotated_key_works_until_the_end_of_the_overlap(keys: ApiKeys, clock: FakeClock) -> None:
    old, text = await keys.create(ACME)
    new, new_text, changed = await keys.rotate(old.id, 60)
    assert (await keys.verify(text)).principal.id == (await keys.verify(new_text)).principal.id == "kim"
    assert (new.expires, new.scopes, changed.expires < old.expires) == (old.expires, old.scopes, True)
    clock.advance(61)
    assert (
        await refusal_of(keys, text) == f"the API key expired at {changed.expires}; `vaka keys create` makes a new one"
    )
    assert (await keys.verify(new_text)).id == new.id
    late, _, last = await keys.rotate(new.id, 7200)
    assert last.expires == new.expires  # a rotation never extends the life of the old key
    assert late.expires > last.expires


@pytest.mark.parametrize("lifetime", [None, 7776000.0])
async def test_a_key_that_is_rotated_twice_gives_a_key_with_the_same_lifetime_both_times(
    keys: ApiKeys, lifetime: float | None
) -> None:
    old, _ = await keys.create(KeyOptions(lifetime=lifetime))
    first, _, _ = await keys.rotate(old.id, 60)
    second, _, changed = await keys.rotate(old.id, 30)
    assert (first.expires, second.expires) == (old.expires, old.expires)
    assert changed.expires < (await keys.rotate(second.id, 60))[2].expires


async def test_a_rotated_key_without_an_owner_still_owns_its_sessions(keys: ApiKeys) -> None:
    old, _ = await keys.create(KeyOptions())
    new, text, changed = await keys.rotate(old.id, 60)
    assert (await keys.verify(text)).principal.id == old.principal.id == f"ak_{old.id}"
    assert (new.expires, bool(changed.expires)) == ("", True)


async def test_a_check_reads_the_store_once_in_two_seconds_and_writes_once_a_minute(
    store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    values = CountedValues(store.values)
    keys = ApiKeys(values, pepper, clock)
    key, text = await keys.create(KeyOptions())
    assert await keys.last_used(key.id) == ""
    values.reads.clear()
    for _ in range(61):
        await keys.verify(text)
        await keys.verify(text)
        clock.advance(1)
    assert values.reads == [KEYS_PREFIX + key.id] * 31
    assert values.writes == [USAGE_PREFIX + key.id] * 2
    assert await keys.last_used(key.id) == "2023-11-14T22:14:20.000Z"


async def test_the_use_of_a_key_is_recorded_apart_so_that_it_cannot_undo_a_revocation(
    keys: ApiKeys, store: MemoryStore, clock: FakeClock
) -> None:
    key, text = await keys.create(KeyOptions())
    before = await store.values.get(KEYS_PREFIX + key.id)
    await keys.verify(text)
    assert await store.values.get(KEYS_PREFIX + key.id) == before


async def test_a_store_that_cannot_be_written_does_not_refuse_a_key(
    store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    values = CountedValues(store.values)
    keys = ApiKeys(values, pepper, clock)
    key, text = await keys.create(KeyOptions())
    values.fails = True
    assert (await keys.verify(text)).id == key.id


async def test_many_texts_that_are_not_keys_are_not_remembered(
    store: MemoryStore, pepper: Pepper, clock: FakeClock
) -> None:
    async def read(name: str) -> str | None:
        return name if name.startswith("known") else None

    cache = ReadCache(read, clock, size=3)
    assert [await cache.get(f"fake{number}") for number in range(1000)] == [None] * 1000
    assert len(cache) == 0
    for number in range(10):
        assert await cache.get(f"known{number}") == f"known{number}"
    assert len(cache) == 3
    cache.forget("known9")
    cache.forget("fake1")
    assert len(cache) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (KeyOptions(scopes=("runs:reed",)), "'runs:reed' is not a scope; expected of: runs:read, runs:write"),
        (KeyOptions(scopes=()), "a key needs a scope"),
        (KeyOptions(name="a\nb"), "the name of a key has at most 128 printable characters"),
        (KeyOptions(namespace="x" * 129), "is not the name of a tenant"),
        (KeyOptions(lifetime=0), "the rate limit and the lifetime of a key are positive numbers"),
        (KeyOptions(requests_per_minute=-1), "the rate limit and the lifetime of a key are positive numbers"),
    ],
)
async def test_a_key_that_makes_no_sense_is_not_created(keys: ApiKeys, options: KeyOptions, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        await keys.create(options)
    assert await keys.list() == []


async def test_an_unknown_or_damaged_key_is_reported(keys: ApiKeys, store: MemoryStore) -> None:
    for id in ("00000000", "no such", "ak_00000000_x"):
        with pytest.raises(NotFound, match=r"there is no key '.*'; `vaka keys list` shows them"):
            await keys.find(id)
    await store.values.put(f"{KEYS_PREFIX}00000000", {"id": 1})
    with pytest.raises(Corrupt, match="the stored key '00000000' is damaged"):
        await keys.find("00000000")


# ------------------------------------------------------------------------------------------------------------- pepper


async def test_the_pepper_of_the_environment_wins_and_must_be_long(store: MemoryStore, clock: FakeClock) -> None:
    given = {PEPPER_VARIABLE: "0123456789abcdef"}
    _, text = await (await open_api_keys(store.values, given, clock)).create(KeyOptions())
    assert await store.values.get(PEPPER_KEY) is None
    await (await open_api_keys(store.values, given, clock)).verify(text)
    await refusal_of(await open_api_keys(store.values, {}, clock), text)
    with pytest.raises(ConfigError, match="VAKA_SERVER_PEPPER has 3 characters; expected at least 16"):
        await load_pepper(store.values, {PEPPER_VARIABLE: "abc"})
    await store.values.put(PEPPER_KEY, [1])
    with pytest.raises(Corrupt, match="'server/pepper' is not a text"):
        await load_pepper(store.values, {})


class PepperContract:
    """Processes that start at the same time agree on one pepper, whatever store they share."""

    async def test_all_processes_get_the_pepper_that_the_first_one_stored(self, store: Store, other: Store) -> None:
        handles = [store, other] * 4
        peppers = await asyncio.gather(*(load_pepper(handle.values, {}) for handle in handles))
        assert len({pepper.fingerprint for pepper in peppers}) == 1
        assert (await load_pepper(store.values, {})).fingerprint == peppers[0].fingerprint

    async def test_a_key_created_by_one_process_is_accepted_and_revoked_by_another(
        self, store: Store, other: Store, clock: FakeClock
    ) -> None:
        first, second = await asyncio.gather(*(open_api_keys(one.values, {}, clock) for one in (store, other)))
        key, text = await first.create(ACME)
        assert (await second.verify(text)).principal == key.principal
        await second.revoke(key.id)
        assert await refusal_of(first, text)


class TestPepperInSqlite(PepperContract):
    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        store = SqliteStore(tmp_path / "vaka.db", durability="process")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, tmp_path: Path) -> AsyncIterator[Store]:
        other = SqliteStore(tmp_path / "vaka.db", durability="process")
        yield other
        await other.close()


class TestPepperInPostgres(PepperContract):
    @pytest.fixture
    async def store(self, postgres_dsn: str) -> AsyncIterator[Store]:
        store = PostgresStore(postgres_dsn)
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, postgres_dsn: str) -> AsyncIterator[Store]:
        other = PostgresStore(postgres_dsn)
        yield other
        await other.close()
