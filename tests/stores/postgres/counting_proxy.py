"""A proxy in front of PostgreSQL that counts round trips and transactions, from the bytes that the server sends."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SOCKET_NAME = ".s.PGSQL.5432"


class RoundTrips:
    """Counts of all connections but those that listen for notifications."""

    def __init__(self, dsn: str, folder: str) -> None:
        self._server = Path(parse_qs(urlsplit(dsn).query)["host"][0]) / SOCKET_NAME
        self.dsn = f"{dsn.partition('?')[0]}?host={folder}"
        self.round_trips = self.transactions = self.connections = 0

    def reset(self) -> None:
        self.round_trips = self.transactions = self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._server))
        connection = _Connection(self)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(connection.copy_requests(reader, server_writer))
                tasks.create_task(connection.copy_answers(server_reader, writer))
        except* OSError:
            pass


class _Connection:
    def __init__(self, counts: RoundTrips) -> None:
        self._counts = counts
        self._started = False
        self._listens = False

    async def copy_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self._listens = self._listens or b"LISTEN" in data
            writer.write(data)
        writer.close()

    async def copy_answers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if head[:1] == b"Z":  # ready for the next query
                    self._count(in_transaction=body != b"I")
                writer.write(head + body)
        writer.close()

    def _count(self, *, in_transaction: bool) -> None:
        if self._started and not self._listens:
            self._counts.round_trips += 1
            self._counts.transactions += not in_transaction
        self._started = True


@contextlib.asynccontextmanager
async def count_round_trips(dsn: str) -> AsyncGenerator[RoundTrips]:
    """Yield counts and the address of a database; only what is sent to that address counts."""
    with tempfile.TemporaryDirectory(prefix="vaka-pg-", dir="/tmp") as folder:
        counts = RoundTrips(dsn, folder)
        server = await asyncio.start_unix_server(counts.serve, Path(folder) / SOCKET_NAME)
        try:
            yield counts
        finally:
            server.close()
