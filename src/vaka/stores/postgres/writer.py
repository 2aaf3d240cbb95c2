"""Group commit: appends of one moment share a transaction."""

import asyncio
import math
from collections.abc import Callable, Sequence
from functools import partial
from uuid import uuid4

import msgspec

from vaka.core.ports.store import SessionInfo
from vaka.core.session.index_rows import LABELLING_TYPES
from vaka.core.types.errors import CannotOpen, Closed, Unavailable, VakaError
from vaka.core.types.event import Event
from vaka.stores import common
from vaka.stores.postgres.database import PostgresConnection, PostgresDatabase, PostgresRecord, boot_time
from vaka.stores.postgres.encoding import (
    LABEL_COLUMNS,
    IndexEntries,
    PostgresKey,
    hex_bytes,
    hex_text,
    label_columns,
)
from vaka.stores.postgres.leases import Lease

MAX_TRANSACTIONS = 4
"""Concurrent transactions, so that one waiting for a row lock does not delay the others."""
MAX_SESSIONS, MAX_ROWS = 64, 512
"""Limits of one transaction."""

_WRITE = "select * from vaka.write_events($1, $2, $3)"
_WRITE_MESSAGES = "select * from vaka.write_messages($1, $2, $3, $4)"
_encode_json = msgspec.json.Encoder().encode


class PendingWrite:
    """Events for one session, right after ``base``: under a claim, offered under ``key``, or to an ``idle`` session."""

    __slots__ = (
        "answer",
        "base",
        "claim",
        "events",
        "idle",
        "info",
        "key",
        "messages",
        "notice",
        "place",
        "release",
        "sent",
    )

    def __init__(self, place: PostgresKey, events: Sequence[Event], *, base: int, info: SessionInfo) -> None:
        self.place = place
        self.events = events
        self.base = base
        self.info = info
        self.claim: Lease | None = None
        self.key: bytes | None = None
        self.idle = self.release = False
        self.messages: Sequence[dict[str, object]] = ()
        """The columns of the messages among the events."""
        self.notice: str | None = None
        self.sent = 0.0
        self.answer: asyncio.Future[tuple[str, int]] = asyncio.get_running_loop().create_future()


class GroupWriter:
    """Sends writes in batches and gives each its answer: a status of ``vaka.write_events`` and a seq."""

    def __init__(self, database: PostgresDatabase, lease: float, on_commit: Callable[[PendingWrite], None]) -> None:
        self._database = database
        self._lease = lease
        self._on_commit = on_commit
        self._queue: list[PendingWrite] = []
        self._transactions: set[asyncio.Task[None]] = set()
        self._start_scheduled = self._closed = False

    async def write(self, write: PendingWrite) -> tuple[str, int]:
        """Return the answer to a write. ``Unavailable`` when its outcome is unknown."""
        if self._closed:
            raise Closed("this store was closed")
        self._queue.append(write)
        self._start_transaction()
        return await write.answer

    async def close(self) -> None:
        """Wait for running transactions; queued writes fail with ``Closed``."""
        self._closed = True
        self._fail_batch(self._queue, Closed("this store was closed"))
        self._queue.clear()
        while self._transactions:
            await asyncio.wait(self._transactions)

    def _start_transaction(self) -> None:
        """Start a task that writes the queue; it runs after the other tasks of this tick have queued their writes."""
        if self._queue and not self._start_scheduled and len(self._transactions) < MAX_TRANSACTIONS:
            self._start_scheduled = True
            transaction = asyncio.create_task(self._write_queued())
            self._transactions.add(transaction)
            transaction.add_done_callback(self._transaction_done)

    def _transaction_done(self, transaction: "asyncio.Task[None]") -> None:
        self._transactions.discard(transaction)
        self._start_transaction()

    async def _write_queued(self) -> None:
        self._start_scheduled = False
        batch = self._take_batch()
        self._start_transaction()
        if batch:
            await self._write_batch(batch)

    def _take_batch(self) -> list[PendingWrite]:
        """Return the next writes, sorted: all transactions lock sessions in one order, so they cannot deadlock."""
        self._queue = [write for write in self._queue if not write.answer.done()]  # the others were cancelled
        rows, count = 0, 0
        for write in self._queue[:MAX_SESSIONS]:
            rows += len(write.events)
            if count and rows > MAX_ROWS:
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return sorted(batch, key=lambda write: write.place)

    async def _write_batch(self, batch: list[PendingWrite]) -> None:
        send = partial(self._send_batch, batch=batch, arguments=_write_arguments(batch, self._lease))
        try:
            answers = await self._database.run(send, retry=False)
        except VakaError as error:
            if len(batch) == 1 or isinstance(error, CannotOpen | Unavailable | Closed):
                self._fail_batch(batch, error)
            else:  # nothing was written: one bad write must not fail the others
                for write in batch:
                    await self._write_batch([write])
        else:
            self._set_answers(batch, answers)
        finally:
            self._fail_batch(batch, Unavailable("the write was cancelled; its outcome is unknown"))

    @staticmethod
    async def _send_batch(
        connection: PostgresConnection, batch: list[PendingWrite], arguments: list[object]
    ) -> list[PostgresRecord]:
        sent = boot_time()
        for write in batch:
            write.sent = sent
            if write.claim is not None:
                write.claim.tried = True
        statement = _WRITE if len(arguments) == 3 else _WRITE_MESSAGES
        if common.on_failpoint is None:
            return await connection.fetch(statement, *arguments)
        common.on_failpoint("append.before_begin")
        async with connection.transaction():
            answers = await connection.fetch(statement, *arguments)
            common.on_failpoint("append.after_rows")
        common.on_failpoint("append.after_commit")
        return answers

    def _set_answers(self, batch: list[PendingWrite], answers: list[PostgresRecord]) -> None:
        if common.on_failpoint is not None:
            common.on_failpoint("append.before_ack")
        for write, (status, seq) in zip(batch, answers, strict=True):
            if status == "ok":
                self._on_commit(write)
            if not write.answer.done():
                write.answer.set_result((status, seq))

    @staticmethod
    def _fail_batch(batch: list[PendingWrite], error: VakaError) -> None:
        for write in batch:
            if write.claim is not None and write.claim.renewed == math.inf and write.claim.tried:
                write.claim.renewed = write.sent  # if the session was created, its lease began no earlier
            if not write.answer.done():
                write.answer.set_exception(error)


def _write_arguments(batch: list[PendingWrite], lease: float) -> list[object]:
    """Return the arguments of ``vaka.write_events``, and one more if there are messages.

    asyncpg encodes one JSON text faster than an array for each column.
    """
    bodies = [event.stored for write in batch for event in write.events]
    arguments: list[object] = [_encode_json([_encode_request(write) for write in batch]).decode(), bodies, lease]
    messages = [{"request": number, **row} for number, write in enumerate(batch, 1) for row in write.messages]
    return [*arguments, _encode_json(messages).decode()] if messages else arguments


def _encode_request(write: PendingWrite) -> dict[str, object]:
    info, place = write.info, write.place
    request: dict[str, object] = {
        "namespace": hex_bytes(place.namespace),
        "session": hex_bytes(place.session),
        "base": write.base,
        "release": write.release,
        "notice": write.notice,
        "head": info.head,
        "hash": info.hash,
        "epoch": info.epoch,
        "title": hex_text(info.title),
        "folded": hex_text(info.title.casefold()),
        "agent": hex_text(info.agent),
        "turn": hex_text(info.turn),
        "inputs": info.inputs,
        "pending": info.pending,
        "closed": info.closed,
        "created": hex_text(info.created),
        "updated": hex_text(info.updated),
        "origin": hex_text(info.origin),
        "folder": hex_text(info.folder),
    }
    if any(type(event.data) in LABELLING_TYPES for event in write.events):
        labels = zip(LABEL_COLUMNS, label_columns(info), strict=True)
        request |= {name: hex_bytes(value) for name, value in labels}
        request["version"] = info.version
    if write.claim is not None:
        request["owner"], request["term"] = str(write.claim.owner), write.claim.term
    if write.idle:
        request |= {"owner": str(uuid4()), "term": info.term, "idle": True}
    if write.key is not None:
        request["key"] = hex_bytes(write.key)
    extras = IndexEntries(info.id, write.events)
    if extras.keys:
        request["keys"] = [(hex_bytes(key), seq) for key, seq in extras.keys]
    if extras.settled:
        request["settled"] = [None if decision is None else hex_bytes(decision) for decision in extras.settled]
    if extras.asked:
        request["asked"] = [(hex_bytes(decision), seq) for decision, seq in extras.asked.items()]
    if extras.blobs:
        request["blobs"] = [hex_bytes(digest) for digest in extras.blobs]
    return request
