"""One store handle with all its namespaces: its claims, its waits, and the open blocks it shares across processes."""

import asyncio
import logging
import sqlite3
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vaka.core.ports.store import SessionInfo
from vaka.core.types.errors import Closed, Corrupt, StoreError, VakaError
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId, Term
from vaka.stores.common import Durability, ShieldedTasks
from vaka.stores.followers import BlockGetter, HeadWaiters, Mailboxes
from vaka.stores.sqlite import rows, sockets
from vaka.stores.sqlite.database import SqliteDatabase
from vaka.stores.sqlite.rows import SessionRow, SqliteKey
from vaka.stores.sqlite.sockets import FollowerConnection, SocketClient, SocketServer
from vaka.stores.sqlite.writer_lock import WriterLock, file_identity

if TYPE_CHECKING:
    from vaka.stores.sqlite.message_words import WaitingWords

POLL_INTERVAL = 1.0
"""Seconds between polls of the awaited heads, in case a socket message is lost."""

_SELECT_ROWS = f"select namespace, session, {rows.COLUMNS} from sessions where (namespace, session) in"  # noqa: S608  # nosec B608  # constants

_log = logging.getLogger(__name__)


class SqliteClaim:
    """A session this handle writes. ``info`` caches its row; ``by`` is the store that claimed it."""

    __slots__ = ("_known", "by", "info", "news", "predecessor_died", "term")

    def __init__(self, term: Term, info: SessionInfo, by: object) -> None:
        self.term = term
        self.info = info
        self.by = by
        self.news = 0
        self.predecessor_died = False
        self._known = -1 if info.head else 0

    def mark_stale(self) -> None:
        """Note that the row may differ from ``info``: an append has failed, or another process has written."""
        self.news += 1

    def set_info(self, info: SessionInfo, news: int) -> None:
        """Cache the row of a successful append that began when ``news`` was this number."""
        self.info, self._known = info, news

    @property
    def may_have_row(self) -> bool:
        """Whether the session may have a row: it was written, or an append of unknown outcome may have written it."""
        return bool(self.info.head) or not self.is_current

    @property
    def is_current(self) -> bool:
        """Whether ``info`` is the row."""
        return self._known == self.news


class SqliteHub:
    """The state that the namespaces of one handle share."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self.database = SqliteDatabase(path, durability)
        self.writer_lock = WriterLock(path)
        self.claims: dict[SqliteKey, SqliteClaim] = {}
        self.claiming: set[SqliteKey] = set()
        self.waiters: HeadWaiters[SqliteKey] = HeadWaiters()
        self.mailboxes: Mailboxes[SqliteKey] = Mailboxes()
        self.server = SocketServer(self.schedule_poll)
        self.client = SocketClient(self.writer_lock.folder, self.schedule_poll, self.mailboxes.put)
        self.tasks = ShieldedTasks()
        self._start_lock = asyncio.Lock()
        self._started = False
        """Whether this handle has a name, under which it listens."""
        self._unix_server: asyncio.Server | None = None
        self._socket_identity: tuple[int, int] | None = None
        self._unreleased: dict[SqliteKey, Term] = {}
        """Claims that have ended, but whose rows still name this handle because the write that clears them failed."""
        self._timer: asyncio.TimerHandle | None = None
        self._keys_to_poll: set[SqliteKey] = set()
        self._closed = False
        self._waiting: int | None = None
        """About how many messages wait for their words to be indexed; ``None`` until this handle has written one."""
        self._indexing = False
        self._index_lock = asyncio.Lock()
        self._waiting_words: WaitingWords | None = None

    @property
    def waiting_words(self) -> "WaitingWords":
        """The messages that wait for their words to be indexed, as searches need them."""
        if self._waiting_words is None:
            from vaka.stores.sqlite.message_words import WaitingWords  # noqa: PLC0415  # most programs do not search

            self._waiting_words = WaitingWords()
        return self._waiting_words

    def count_messages(self, connection: sqlite3.Connection, count: int) -> None:
        """Count messages that this handle has inserted; the first time, also messages that waited before."""
        if count:
            self._waiting = rows.count_waiting(connection) if self._waiting is None else self._waiting + count

    def index_words(self) -> None:
        """Begin to index the words of messages when a batch of them waits."""
        if self._waiting is not None and self._waiting >= rows.WORDS_BATCH and not self._indexing:
            self._waiting, self._indexing = 0, True
            _ = self.tasks.start(self._index_words())

    async def index_until(self, rest: int) -> None:
        """Index the words of messages until at most ``rest`` wait.

        A file that cannot be written stays as it is, and so do messages that wait when the store closes: a search
        reads them.
        """
        from vaka.stores.sqlite.message_words import index_batches  # noqa: PLC0415  # few runs need it

        async with self._index_lock:
            try:
                await index_batches(self.database, rest, lambda: self._closed)
            except StoreError as error:
                _log.warning("the words of messages were not indexed: %s", error)

    async def _index_words(self) -> None:
        try:
            await self.index_until(rows.WORDS_BATCH // 2)
        finally:
            self._indexing = False

    async def start_owning(self) -> None:
        """Acquire the writer lock and listen on its socket, once; restore them after their files were removed."""
        if self._started and self.writer_lock.is_held():
            return
        async with self._start_lock:
            if self._started and not self.keep_lock():
                self._give_up_name()
            if not self._started:
                self.writer_lock.acquire()
                await self.listen()
                self._started = True

    def keep_lock(self) -> bool:
        """Return whether this handle has its lock; make the lock again if its file was removed or replaced."""
        if self.writer_lock.is_held():
            return True
        restored = self.writer_lock.restore()
        _log.warning(
            "the lock file of this process in %s was removed or replaced: %s. Leave the files there while a process "
            "uses the database",
            self.writer_lock.folder,
            "it was made again" if restored else "the sessions it writes may be taken over",
        )
        return restored

    def notify_head(self, key: SqliteKey, head: int) -> None:
        """Wake all followers of a log that a commit of this handle has extended."""
        self.waiters.wake(key, head)
        self.server.notify_head(key, head)

    def schedule_poll(self, key: SqliteKey) -> None:
        """Read the head of a log soon, if it has followers: another process reports that it has grown."""
        self.mark_stale(key)
        if not self._keys_to_poll and not self._closed:
            asyncio.get_running_loop().call_soon(self._poll_scheduled)
        self._keys_to_poll.add(key)

    def mark_stale(self, key: SqliteKey) -> None:
        if claim := self.claims.get(key):
            claim.mark_stale()

    def known_head(self, key: SqliteKey) -> int | None:
        """Return the head of a log this handle writes; ``None`` when the row must be read for it."""
        claim = self.claims.get(key)
        return claim.info.head if claim is not None and claim.is_current and self._unix_server is not None else None

    def follow(self, key: SqliteKey, row: SessionRow | None, *, resend_blocks: bool = False) -> None:
        """Connect to the session's writer if it is another process, and poll the head every second."""
        self._connect_to_writer(key, row, resend_blocks=resend_blocks)
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_all)

    def is_written_by(self, key: SqliteKey, owner: str) -> bool:
        """Whether ``owner``, from a session's row, is alive and writes the session, or is about to."""
        if owner == self.writer_lock.name:
            return key in self.claims or key in self.claiming
        return self.writer_lock.is_alive(owner)

    def has_died(self, owner: str) -> bool:
        """Whether the handle that a row names is one of a process that died with its claim."""
        return bool(owner) and owner != self.writer_lock.name and not self.writer_lock.is_alive(owner)

    async def release(self, claims: Sequence[SqliteKey]) -> None:
        """End claims, all in one transaction, even if the caller is cancelled or the write fails."""
        await self.tasks.finish(self._release({key: self.claims[key] for key in claims}))

    async def _release(self, claims: Mapping[SqliteKey, SqliteClaim]) -> None:
        try:
            await self._clear_owners({key: claim.term for key, claim in claims.items() if claim.may_have_row})
        finally:
            for key, claim in claims.items():
                if self.claims.get(key) is claim:
                    del self.claims[key]
        self._retry_release()

    def undo_claim(self, key: SqliteKey, committed: "asyncio.Future[SessionInfo | None]") -> None:
        """End a claim that was committed when its caller had been cancelled."""
        info = committed.result()
        if info is not None:
            self.end_claims({key: Term(info.term)})

    async def _clear_owners(self, claims: Mapping[SqliteKey, Term]) -> None:
        if not claims:
            return
        try:
            await self.database.write(partial(self._clear_owner, list(claims.items())), rows=len(claims))
        except VakaError as error:
            if self.database.is_replaced:
                return
            _log.warning("the end of a claim could not be written, it is tried again: %s", error)
            self._unreleased.update(claims)

    def _retry_release(self) -> None:
        """Make sure that other processes can claim the sessions whose rows still name this handle.

        Without claims, the handle gives up its name, which needs no write. Otherwise it repeats the write every second.
        """
        if not self._unreleased or self._closed:
            return
        if self.claims or self.claiming:
            asyncio.get_running_loop().call_later(POLL_INTERVAL, self._release_again)
        else:
            self._unreleased.clear()
            self._give_up_name()

    def _release_again(self) -> None:
        claims, self._unreleased = self._unreleased, {}
        self.end_claims(claims)

    def end_claims(self, claims: Mapping[SqliteKey, Term]) -> None:
        """End claims of which no caller knows, in the background; the term 0 stands for an unknown one."""
        if claims and not self._closed:
            _ = self.tasks.start(self._end_claims(claims))

    async def _end_claims(self, claims: Mapping[SqliteKey, Term]) -> None:
        await self._clear_owners(claims)
        self._retry_release()

    def _give_up_name(self) -> None:
        """End all claims under the name of this handle; the next claim gets it a new one."""
        self._started = False
        self._stop_listening()
        self.writer_lock.release()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self.release(list(self.claims))
        await self.tasks.wait()
        if self._timer is not None:
            self._timer.cancel()
        self.client.close()
        self.waiters.fail(self.waiters.keys(), Closed("the store was closed"))
        self.mailboxes.close()
        self._stop_listening()
        await self.server.close()
        await self.database.close()
        self._give_up_name()

    def _clear_owner(self, claims: Sequence[tuple[SqliteKey, Term]], connection: sqlite3.Connection) -> None:
        for key, term in claims:
            row = rows.load_row(connection, key)
            ended = row is not None and (row.info.term == term or not (term or key in self.claims))
            if row is not None and row.owner == self.writer_lock.name and ended:
                rows.update_row(connection, key, row.info, "", row)

    async def listen(self) -> None:
        """Open the socket of this handle, if the platform has Unix sockets."""
        if not sockets.SUPPORTED:
            return
        try:
            listener = sockets.listen(self.writer_lock.folder, f"{self.writer_lock.name}.sock")
        except OSError as error:
            _log.warning("no socket beside the database (%s): followers elsewhere see changes within a second", error)
            return
        try:
            self._unix_server = await asyncio.get_running_loop().create_unix_server(
                lambda: FollowerConnection(self.server), sock=listener
            )
        except BaseException:
            listener.close()
            self._socket_file.unlink(missing_ok=True)
            raise
        self._socket_identity = file_identity(self._socket_file)

    @property
    def _socket_file(self) -> Path:
        return self.writer_lock.folder / f"{self.writer_lock.name}.sock"

    def _stop_listening(self) -> None:
        if self._unix_server is not None:
            self._unix_server.close()
            self._unix_server = None

    def _restore_files(self) -> None:
        """Make the lock and the socket again if their files were removed or replaced."""
        if not self._started or self._start_lock.locked() or not self.keep_lock() or self._unix_server is None:
            return
        if file_identity(self._socket_file) != self._socket_identity:
            self._stop_listening()
            self._socket_file.unlink(missing_ok=True)
            _ = self.tasks.start(self.listen())

    def _poll_scheduled(self) -> None:
        keys, self._keys_to_poll = self._keys_to_poll, set()
        for key, head in self._read_heads(
            [key for key in keys if key in self.waiters or self.server.has_followers(key)]
        ):
            self.notify_head(key, head)

    def _poll_all(self) -> None:
        self._timer = None
        self._restore_files()
        wanted = {*self.waiters.keys(), *self.mailboxes.keys()}
        for key, head in self._read_heads(list(wanted)):
            self.waiters.wake(key, head)
        for key in self.client.connected_keys():
            if key not in wanted:
                self.client.count_idle_poll(key)
        if wanted or self.client.connected_keys():
            self._timer = asyncio.get_running_loop().call_later(POLL_INTERVAL, self._poll_all)

    def _read_heads(self, keys: Sequence[SqliteKey]) -> list[tuple[SqliteKey, int]]:
        """Return the heads of these sessions, and connect to their current writers."""
        if self._closed or not keys:
            return []
        try:
            loaded = self.database.try_read(partial(_load_rows, keys=keys)) or {}
        except StoreError as error:
            self.waiters.fail(keys, error)
            return []
        heads: list[tuple[SqliteKey, int]] = []
        for key, row in loaded.items():
            if isinstance(row, Corrupt):
                self.waiters.fail([key], row)
            else:
                self._connect_to_writer(key, row)
                heads.append((key, row.info.head))
        return heads

    def _connect_to_writer(self, key: SqliteKey, row: SessionRow | None, *, resend_blocks: bool = False) -> None:
        owner = row.owner if row is not None and row.owner != self.writer_lock.name else ""
        self.client.follow(key, owner, resend_blocks=resend_blocks)


def _load_rows(connection: sqlite3.Connection, keys: Sequence[SqliteKey]) -> dict[SqliteKey, SessionRow | Corrupt]:
    """Return the rows of many sessions, 400 in one query; the error of a damaged row stands in its place."""
    loaded: dict[SqliteKey, SessionRow | Corrupt] = {}
    for start in range(0, len(keys), 400):
        page = keys[start : start + 400]
        places = ",".join(["(?,?)"] * len(page))
        query = f"{_SELECT_ROWS} (values {places})"
        for namespace, session, *record in connection.execute(query, [part for key in page for part in key]):
            try:
                loaded[namespace, session] = rows.parse_row((namespace, session), tuple(record))
            except Corrupt as error:
                loaded[namespace, session] = error
    return loaded


class OpenSqliteStore(Protocol):
    """The store that a port belongs to."""

    namespace: str
    hub: SqliteHub
    closed: bool


class SqlitePort:
    """Base of the ports of a store."""

    def __init__(self, store: OpenSqliteStore) -> None:
        self._store = store
        self._hub = store.hub
        self._namespace = store.namespace

    @property
    def _database(self) -> SqliteDatabase:
        if self._store.closed:
            raise Closed("the store was closed")
        return self._hub.database

    def _key(self, session: SessionId) -> SqliteKey:
        return self._namespace, session

    async def _fetch(self, query: str, *parameters: object) -> list[Any]:
        """Return the rows of a query; its first parameter is the namespace."""
        values = (self._namespace, *parameters)
        return await self._database.read(lambda connection: connection.execute(query, values).fetchall())

    async def _write(self, statement: str, *parameters: object, size: int = 0) -> None:
        """Run a statement; its first parameter is the namespace."""
        values = (self._namespace, *parameters)
        await self._database.write_again(lambda connection: connection.execute(statement, values).close(), size=size)


class SqliteLive(SqlitePort):
    def share(self, session: SessionId, blocks: BlockGetter | None) -> None:
        self._hub.server.blocks.share(self._key(session), blocks)

    def touch(self, session: SessionId) -> None:
        self._hub.server.blocks.touch(self._key(session))

    async def watch(self, session: SessionId) -> AsyncGenerator[Event]:
        database, key = self._database, self._key(session)
        with self._hub.mailboxes.open(key) as box:
            self._hub.follow(key, await database.read(partial(rows.load_row, key=key)), resend_blocks=True)
            async with aclosing(box.receive()) as events:
                async for event in events:
                    yield event
