"""Bytes by their digest, in one namespace."""

import hashlib
import sqlite3
from datetime import UTC, datetime
from functools import partial

from vaka.core.types.errors import Corrupt, NotFound
from vaka.core.types.ids import Digest
from vaka.stores.sqlite.part import Part


class Blobs(Part):
    """Put and get."""

    async def put(self, data: bytes) -> Digest:
        """Keep ``data``; what is there already becomes young again, so that ``gc`` leaves it alone."""
        digest = Digest(hashlib.sha256(data).hexdigest())
        await self._database.write(partial(_put, self._namespace, digest, data), size=len(data))
        return digest

    async def get(self, digest: Digest) -> bytes:
        """Return the bytes."""
        return await self._database.ask(partial(_get, namespace=self._namespace, digest=digest))


def now() -> str:
    """Return the time as events carry it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(namespace: str, digest: Digest, data: bytes, connection: sqlite3.Connection) -> None:
    connection.execute(
        "insert into blobs (namespace, digest, created, data) values (?,?,?,?) "
        "on conflict (namespace, digest) do update set created = excluded.created, data = excluded.data",
        (namespace, digest, now(), data),
    )


def _get(connection: sqlite3.Connection, namespace: str, digest: Digest) -> bytes:
    query = "select data from blobs where namespace = ? and digest = ?"
    found = connection.execute(query, (namespace, digest)).fetchone()
    if found is None:
        raise NotFound(f"there is no blob {digest[:64]!r}")
    data: object = found[0]
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
        raise Corrupt(f"blob {digest!r} is not what was written")
    return data
