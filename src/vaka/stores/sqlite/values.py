"""Small JSON values by name, in one namespace."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from functools import partial

import msgspec

from vaka.core.types.errors import Corrupt, InvalidInput
from vaka.core.types.ids import JSON
from vaka.stores.sqlite.part import Part
from vaka.stores.sqlite.rows import checksum


class Values(Part):
    """Get, put, list."""

    async def get(self, key: str) -> JSON:
        """Return the value."""
        return await self._database.ask(partial(_get, namespace=self._namespace, key=key))

    async def put(self, key: str, value: JSON) -> None:
        """Keep the value."""
        try:
            raw = None if value is None else msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"value of {key!r} is not JSON: {error}") from error
        await self._database.write(partial(_put, self._namespace, key, raw), size=len(raw or b""))

    async def keys(self, prefix: str = "") -> Sequence[str]:
        """Return the names that begin with ``prefix``."""
        return await self._database.ask(partial(_keys, namespace=self._namespace, prefix=prefix))


def _get(connection: sqlite3.Connection, namespace: str, key: str) -> JSON:
    query = "select checksum, value from pairs where namespace = ? and key = ?"
    found = connection.execute(query, (namespace, key)).fetchone()
    if found is None:
        return None
    crc, raw = found
    if not isinstance(raw, bytes) or checksum(namespace, key, raw) != crc:
        raise Corrupt(f"value of {key!r} is not what was written")
    return msgspec.json.decode(raw)


def _put(namespace: str, key: str, raw: bytes | None, connection: sqlite3.Connection) -> None:
    if raw is None:
        connection.execute("delete from pairs where namespace = ? and key = ?", (namespace, key))
    else:
        connection.execute(
            "insert or replace into pairs (namespace, key, checksum, value) values (?,?,?,?)",
            (namespace, key, checksum(namespace, key, raw), raw),
        )


def _keys(connection: sqlite3.Connection, namespace: str, prefix: str) -> list[str]:
    names: list[str] = []
    query = "select key from pairs where namespace = ? and key >= ? order by key"
    with closing(connection.execute(query, (namespace, prefix))) as found:
        for (key,) in found:
            if not key.startswith(prefix):  # sorted by code point: those with the prefix come first, in one row
                break
            names.append(key)
    return names
