"""Folded states of one namespace; a damaged one is as good as none."""

import sqlite3
from functools import partial

from vaka.core.types.ids import SessionId
from vaka.stores.sqlite.part import Part
from vaka.stores.sqlite.rows import Key, checksum

_FAR = (1 << 63) - 1


class Snapshots(Part):
    """Save and load."""

    async def save(self, session: SessionId, *, seq: int, version: str, data: bytes) -> None:
        """Keep the state of a session as of ``seq``; states of other folds go."""
        await self._database.write(partial(_save, self._key(session), seq, version, data), size=len(data))

    async def load(self, session: SessionId, *, version: str, upto: int | None = None) -> tuple[int, bytes] | None:
        """Return the newest state of this fold version."""
        return await self._database.ask(partial(_load, key=self._key(session), version=version, upto=upto))


def _save(key: Key, seq: int, version: str, data: bytes, connection: sqlite3.Connection) -> None:
    connection.execute("delete from snapshots where namespace = ? and session = ? and version <> ?", (*key, version))
    connection.execute(
        "insert or replace into snapshots (namespace, session, version, seq, checksum, data) values (?,?,?,?,?,?)",
        (*key, version, seq, checksum(key, version, seq, data), data),
    )


def _load(connection: sqlite3.Connection, key: Key, version: str, upto: int | None) -> tuple[int, bytes] | None:
    found = connection.execute(
        "select seq, checksum, data from snapshots "
        "where namespace = ? and session = ? and version = ? and seq <= ? order by seq desc",
        (*key, version, _FAR if upto is None else upto),
    )
    for seq, crc, data in found:
        if isinstance(data, bytes) and checksum(key, version, seq, data) == crc:
            return seq, data
    return None
