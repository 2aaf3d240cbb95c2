"""The raw limit: the same run in a bare loop.

The same fifteen events in the same four commits, encoded and chained by hash as vaka's are, a tool in a task with a
timeout, and one reader. No recovery, rules, limits, middleware or second process: what Python, asyncio, msgspec and
the database cost by themselves."""

import asyncio
import hashlib
import itertools
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import asyncpg
import msgspec

from bench.agents import ARGUMENTS, AddingModel, add
from vaka.core.ports.model import CallChunk, Prompt, TextChunk
from vaka.core.types.message import Text, ToolMessage, UserMessage

_FIRST_PROMPT = Prompt(messages=(UserMessage(content=(Text(text="hi"),)),))
_SECOND_PROMPT = Prompt(messages=(ToolMessage(results=()),))
_PADDING = "x" * 180
"""Additional bytes of a vaka event: ids, times, digests."""


class BareEvent(msgspec.Struct):
    """An event."""

    seq: int
    session: str
    type: str
    data: Any
    prev: str


_encode = msgspec.json.Encoder().encode


class Sink(Protocol):
    """A destination of batches; durable on return."""

    async def append(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        """Write one batch."""
        ...

    async def close(self) -> None:
        """Close it."""
        ...


class MemorySink:
    """Stores the bytes in memory."""

    def __init__(self) -> None:
        self.logs: dict[str, list[bytes]] = {}

    async def append(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        """Write one batch."""
        self.logs.setdefault(session, []).extend(rows)

    async def close(self) -> None:
        """Close it."""


_TABLES = (
    "create table heads (session text primary key, head integer not null) without rowid",
    "create table events (session text, seq integer, body blob, primary key (session, seq)) without rowid",
)
_HEAD = "insert into heads values (?, ?) on conflict (session) do update set head = excluded.head"
_EVENT = "insert into events values (?, ?, ?)"


class SqliteSink:
    """One transaction for all batches of one tick of the event loop."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("pragma journal_mode = wal")
        self._connection.execute(f"pragma synchronous = {synchronous}")
        for statement in _TABLES:
            self._connection.execute(statement)
        self._waiting: list[tuple[str, int, Sequence[bytes], asyncio.Future[None]]] = []

    async def append(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        """Write one batch."""
        loop = asyncio.get_running_loop()
        done = loop.create_future()
        self._waiting.append((session, head, rows, done))
        if len(self._waiting) == 1:
            loop.call_soon(self._flush)
        await done

    def commit(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        """Write one batch at once."""
        self._connection.execute("begin immediate")
        self._write(session, head, rows)
        self._connection.execute("commit")

    async def close(self) -> None:
        self._connection.close()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._connection.execute("begin immediate")
        for session, head, rows, _ in waiting:
            self._write(session, head, rows)
        self._connection.execute("commit")
        for *_, done in waiting:
            done.set_result(None)

    def _write(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        self._connection.execute(_HEAD, (session, head + len(rows)))
        self._connection.executemany(_EVENT, [(session, seq, row) for seq, row in enumerate(rows, head + 1)])


class PostgresSink:
    """One connection; waiting batches share the next transaction."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        self._connection = connection
        self._lock = asyncio.Lock()
        self._waiting: list[tuple[str, int, Sequence[bytes]]] = []

    @classmethod
    async def open(cls, dsn: str) -> "PostgresSink":
        """Connect and make the tables."""
        connection = await asyncpg.connect(dsn)
        await connection.execute(
            "create table bare_heads (session text primary key, head bigint not null);"
            "create table bare_events (session text, seq bigint, body bytea, primary key (session, seq))"
        )
        return cls(connection)

    async def append(self, session: str, head: int, rows: Sequence[bytes]) -> None:
        """Write one batch."""
        mine = (session, head, rows)
        self._waiting.append(mine)
        async with self._lock:
            if mine in self._waiting:
                waiting, self._waiting = self._waiting, []
                await self._write(waiting)

    async def close(self) -> None:
        await self._connection.close()

    async def _write(self, waiting: Sequence[tuple[str, int, Sequence[bytes]]]) -> None:
        events = [(name, seq, row) for name, head, rows in waiting for seq, row in enumerate(rows, head + 1)]
        await self._connection.execute(
            "with h as (insert into bare_heads select * from unnest($1::text[], $2::bigint[])"
            " on conflict (session) do update set head = excluded.head)"
            " insert into bare_events select * from unnest($3::text[], $4::bigint[], $5::bytea[])",
            [name for name, _, _ in waiting],
            [head + len(rows) for _, head, rows in waiting],
            [event[0] for event in events],
            [event[1] for event in events],
            [event[2] for event in events],
        )


class BareLoop:
    """Runs the same conversation as the agents that are measured."""

    def __init__(self, sink: Sink, model: AddingModel) -> None:
        self._sink, self._model = sink, model
        self._numbers = itertools.count()

    async def run(self) -> None:
        session = _Session(self._sink, f"ses_{next(self._numbers):020d}")
        reader = asyncio.create_task(session.read())
        await session.append("session.opened", "input.added", "turn.started", "step.started")
        arguments = ""
        async for chunk in self._model.stream(_FIRST_PROMPT):
            if isinstance(chunk, CallChunk):
                arguments += chunk.arguments
        await session.append("message.completed", "usage", "tool.called", "tool.started")
        async with asyncio.timeout(60):
            result = await asyncio.create_task(add(**msgspec.json.decode(arguments)))
        await session.append("tool.completed", "step.completed", "step.started", data=result)
        text = ""
        async for chunk in self._model.stream(_SECOND_PROMPT):
            if isinstance(chunk, TextChunk):
                text += chunk.text
        await session.append("message.completed", "usage", "step.completed", "turn.completed", data=text)
        await reader


class _Session:
    def __init__(self, sink: Sink, name: str) -> None:
        self._sink = sink
        self._name = name
        self._head = 0
        self._prev = ""
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()

    async def append(self, *types: str, data: object = None) -> None:
        rows: list[bytes] = []
        for kind in types:
            wire = BareEvent(self._head + len(rows) + 1, self._name, kind, [data, _PADDING], self._prev)
            rows.append(_encode(wire))
            self._prev = hashlib.sha256(rows[-1]).hexdigest()
        await self._sink.append(self._name, self._head, rows)
        self._head += len(rows)
        for row in rows:
            self._queue.put_nowait(row)

    async def read(self) -> None:
        while b'"turn.completed"' not in await self._queue.get():
            pass


def make_batch() -> list[bytes]:
    """Return the bytes of one typical commit: four events of the size of vaka's."""
    return [_encode(BareEvent(number, "ses_1", "tool.called", [ARGUMENTS, _PADDING], "0" * 64)) for number in range(4)]
