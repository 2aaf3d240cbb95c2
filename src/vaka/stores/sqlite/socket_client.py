"""The follower's side of the Unix socket: a connection to the process that writes a session."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event, decode
from vaka.stores.sqlite.rows import SqliteKey
from vaka.stores.sqlite.socket_server import SocketMessage, connect_and_send

MAX_RECEIVED_LINE = 16 << 20
MAX_IDLE_POLLS = 5
"""Polls after which an unused connection is closed."""


class WriterConnection:
    """One connection to the writer ``owner`` of a session."""

    def __init__(self, key: SqliteKey, owner: str, connection: socket.socket, client: "SocketClient") -> None:
        self._key, self.owner, self._connection, self._client = key, owner, connection, client
        self._buffer = bytearray()
        self.idle_polls = 0
        asyncio.get_running_loop().add_reader(connection, self._on_readable)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()

    def request_blocks(self) -> bool:
        """Request the open blocks again; false when the message cannot be sent."""
        try:
            line = _encode_follow(self._key)
            return self._connection.send(line) == len(line)
        except OSError:
            return False

    def _on_readable(self) -> None:
        try:
            data = self._connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or not self._split_lines(data):
            self._client.on_disconnect(self._key, self)

    def _split_lines(self, data: bytes) -> bool:
        """Handle every complete line; false for data that is not from a writer."""
        searched = len(self._buffer)
        self._buffer += data
        end = self._buffer.find(b"\n", searched)
        if end < 0:
            return len(self._buffer) <= MAX_RECEIVED_LINE
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        try:
            for line in lines:
                self._client.handle_line(self._key, line)
        except Corrupt:
            return False
        return True


class SocketClient:
    """The connections of one handle to writers; ``schedule_poll`` and ``deliver`` get their messages."""

    def __init__(
        self, folder: Path, schedule_poll: Callable[[SqliteKey], None], deliver: Callable[[SqliteKey, Event], None]
    ) -> None:
        self._folder, self._schedule_poll, self._deliver = folder, schedule_poll, deliver
        self._connections: dict[SqliteKey, WriterConnection] = {}

    def follow(self, key: SqliteKey, owner: str, *, resend_blocks: bool = False) -> None:
        """Connect to ``owner``, the session's writer; ``resend_blocks`` requests the open blocks from it again."""
        link = self._connections.get(key)
        if link is not None and link.owner == owner and (not resend_blocks or link.request_blocks()):
            link.idle_polls = 0
            return
        self.disconnect(key)
        connection = connect_and_send(self._folder, f"{owner}.sock", _encode_follow(key)) if owner else None
        if connection is not None:
            self._connections[key] = WriterConnection(key, owner, connection, self)

    def wake_writer(self, key: SqliteKey, owner: str, head: int) -> None:
        """Send ``owner`` the new head of its session, without waiting for an answer."""
        line = msgspec.json.encode(SocketMessage(wake=key[1], namespace=key[0], head=head)) + b"\n"
        if connection := connect_and_send(self._folder, f"{owner}.sock", line):
            connection.close()

    def count_idle_poll(self, key: SqliteKey) -> None:
        """Count a poll that found no follower of this connection; close it after ``MAX_IDLE_POLLS``."""
        link = self._connections[key]
        link.idle_polls += 1
        if link.idle_polls >= MAX_IDLE_POLLS:
            self.disconnect(key)

    def connected_keys(self) -> list[SqliteKey]:
        return list(self._connections)

    def disconnect(self, key: SqliteKey) -> None:
        if link := self._connections.pop(key, None):
            link.close()

    def close(self) -> None:
        for key in self.connected_keys():
            self.disconnect(key)

    def on_disconnect(self, key: SqliteKey, link: WriterConnection) -> None:
        """Poll the head: the writer's last messages may be lost."""
        if self._connections.get(key) is link:
            self.disconnect(key)
            self._schedule_poll(key)

    def handle_line(self, key: SqliteKey, line: bytes) -> None:
        if line.startswith(b'{"head":'):
            self._schedule_poll(key)
        else:
            self._deliver(key, decode(line))


def _encode_follow(key: SqliteKey) -> bytes:
    return msgspec.json.encode(SocketMessage(follow=key[1], namespace=key[0])) + b"\n"
