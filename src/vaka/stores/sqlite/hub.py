"""One store handle with all its namespaces: its claims, who waits in it, and what it hears from others."""

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import Closed, Corrupt, StoreError
from vaka.core.types.event import Event
from vaka.core.types.ids import Term
from vaka.stores.mailbox import Mailbox
from vaka.stores.sqlite import rows, socket
from vaka.stores.sqlite.connection import Durability
from vaka.stores.sqlite.database import Database
from vaka.stores.sqlite.links import Links
from vaka.stores.sqlite.owner import Owner
from vaka.stores.sqlite.peers import Peer, Peers
from vaka.stores.sqlite.rows import Key, Row
from vaka.stores.waiters import Waiters

LOOK_EVERY = 1.0
"""Seconds between two looks at what is waited for: the safety net under the sockets."""

_log = logging.getLogger(__name__)


class Claim:
    """A session this handle writes. ``info`` is its row as we know it; ``by`` is the store that claimed it."""

    __slots__ = ("_known", "by", "info", "news", "term")

    def __init__(self, term: Term, info: SessionInfo, by: object) -> None:
        self.term, self.info, self.by = term, info, by
        self.news = 0
        self._known = -1 if info.head else 0

    def doubt(self) -> None:
        """The row may no longer be what we know: an append of ours has failed, or somebody says so."""
        self.news += 1

    def settle(self, info: SessionInfo, news: int) -> None:
        """An append has succeeded, so this is the row, unless there was other news since it began."""
        self.info, self._known = info, news

    @property
    def certain(self) -> bool:
        """Whether nobody has given us a reason to look at the row again."""
        return self._known == self.news


class Hub:
    """What the stores made from one handle share."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.database = Database(path, durability)
        self.owner = Owner(path)
        self.claims: dict[Key, Claim] = {}
        self.claiming: set[Key] = set()
        self.waiters: Waiters[Key] = Waiters()
        self.boxes: dict[Key, list[Mailbox]] = {}
        self.peers = Peers(self.look)
        self.links = Links(self.owner.folder, self.look, self._deliver)
        self._starting = asyncio.Lock()
        self._server: asyncio.Server | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looks: set[Key] = set()
        self._closed = False

    async def ready(self) -> None:
        """Be able to own sessions: have a name, and be reachable under it."""
        if self.owner.name:
            return
        async with self._starting:
            if not self.owner.name:
                self.owner.take()
                await self.listen()

    def changed(self, key: Key, head: int) -> None:
        """A commit of ours has made a log grow."""
        self.waiters.wake(key, head)
        self.peers.changed(key, head)

    def look(self, key: Key) -> None:
        """Somebody says that a log has grown: look at it soon, if anyone wants to know."""
        self.doubt(key)
        if not self._looks and not self._closed:
            asyncio.get_running_loop().call_soon(self._look_now)
        self._looks.add(key)

    def doubt(self, key: Key) -> None:
        """Somebody else has written to a log."""
        claim = self.claims.get(key)
        if claim is not None:
            claim.doubt()

    def head(self, key: Key) -> int | None:
        """Return how long a log of ours is; ``None`` when only its row knows: others may have written to it."""
        claim = self.claims.get(key)
        return claim.info.head if claim is not None and claim.certain and self._server is not None else None

    def follow(self, key: Key, row: Row | None, *, again: bool = False) -> None:
        """Hear from whoever writes the session, if that is somebody else; and look at it every second."""
        self._tune(key, row, again=again)
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look_at_all)

    def writes(self, key: Key, owner: str) -> bool:
        """Whether ``owner``, whom a session's row names, is alive and writes it."""
        return key in self.claims if owner == self.owner.name else self.owner.alive(owner)

    async def release(self, claims: Sequence[Key]) -> None:
        """End claims, all in one transaction."""
        written = [(key, self.claims[key].term) for key in claims if self.claims[key].info.head]
        if written:
            await self.database.write(partial(self._release, written), rows=len(written))
        for key in claims:
            self.claims.pop(key, None)

    async def close(self) -> None:
        """End everything this handle has begun."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(StoreError):  # the lock is given back below: that ends the claims as well
            await self.release(list(self.claims))
        self.claims.clear()
        if self._timer is not None:
            self._timer.cancel()
        self.links.close()
        self.waiters.fail(self.waiters.keys(), Closed("the store was closed"))
        for boxes in self.boxes.values():
            for box in boxes:
                box.close()
        if self._server is not None:
            self._server.close()
        await self.peers.close()
        await self.database.close()
        self.owner.release()

    def _release(self, claims: Sequence[tuple[Key, Term]], connection: sqlite3.Connection) -> None:
        for key, term in claims:
            row = rows.load(connection, key)
            if row is not None and row.owner == self.owner.name and row.info.term == term:
                rows.update(connection, key, row.info, "", row)

    async def listen(self) -> None:
        """Open the socket others reach this handle by, if that is possible."""
        if not socket.SUPPORTED:
            return
        try:
            listener = socket.listen(self.owner.folder, f"{self.owner.name}.sock")
        except OSError as error:
            _log.warning("no socket beside the database (%s): followers elsewhere see changes within a second", error)
            return
        try:
            self._server = await asyncio.get_running_loop().create_unix_server(lambda: Peer(self.peers), sock=listener)
        except BaseException:
            listener.close()
            raise

    def _deliver(self, key: Key, event: Event) -> None:
        for box in self.boxes.get(key, ()):
            box.put(event)

    def _look_now(self) -> None:
        keys, self._looks = self._looks, set()
        for key, head in self._heads([key for key in keys if key in self.waiters or self.peers.followed(key)]):
            self.changed(key, head)

    def _look_at_all(self) -> None:
        self._timer = None
        wanted = {*self.waiters.keys(), *self.boxes}
        for key, head in self._heads(list(wanted)):
            self.waiters.wake(key, head)
        for key in self.links.following():
            if key not in wanted:
                self.links.unused(key)
        if wanted or self.links.following():
            self._timer = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look_at_all)

    def _heads(self, keys: Sequence[Key]) -> list[tuple[Key, int]]:
        """Look at the rows of these sessions: return their heads, and be connected to whoever writes them now."""
        if self._closed or not keys:
            return []
        try:
            found = self.database.look(partial(_rows, keys=keys)) or {}
        except StoreError as error:
            self.waiters.fail(keys, error)
            return []
        heads: list[tuple[Key, int]] = []
        for key, row in found.items():
            if isinstance(row, Corrupt):
                self.waiters.fail([key], row)
            else:
                self._tune(key, row)
                heads.append((key, row.info.head))
        return heads

    def _tune(self, key: Key, row: Row | None, *, again: bool = False) -> None:
        self.links.follow(key, row.owner if row is not None and row.owner != self.owner.name else "", again=again)


def _rows(connection: sqlite3.Connection, keys: Sequence[Key]) -> dict[Key, Row | Corrupt]:
    """Return the rows of many sessions, in one query for every few hundred."""
    found: dict[Key, Row | Corrupt] = {}
    for start in range(0, len(keys), 400):
        some = keys[start : start + 400]
        places = ",".join(["(?,?)"] * len(some))
        query = (
            f"select namespace, session, {rows.COLUMNS} from sessions where (namespace, session) in (values {places})"  # noqa: S608  # nosec B608  # constants
        )
        for namespace, session, *record in connection.execute(query, [part for key in some for part in key]):
            try:
                found[namespace, session] = rows.row_of((namespace, session), tuple(record))
            except Corrupt as error:
                found[namespace, session] = error
    return found
