"""Unix sockets beside the database: a session's writer sends heads and snapshots of open blocks to its followers.

A follower, or a process that offered an event, sends the lines ``{"follow": session, "namespace": …}`` and
``{"wake": session, "namespace": …, "head": n}``. The writer sends ``{"head": n}`` after each commit, and snapshots as
events. Incoming data is not trusted: a head is only a hint to read the database. A path that is too long for a socket
address is reached through ``/proc/self/fd``.
"""

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import cast

import msgspec

from vaka.core.types.decode import decode
from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.stores.followers import SharedBlocks
from vaka.stores.sqlite.rows import SqliteKey

MAX_PATH_BYTES = 100
"""Bytes of a socket path that every system accepts."""

SUPPORTED = hasattr(socket, "AF_UNIX") and sys.platform != "win32"


def listen(folder: Path, name: str) -> socket.socket:
    """Return a socket that listens in ``folder``, for this user only. Raises ``OSError``."""
    with _short_address(folder, name) as address:
        listener = _new_socket()
        try:
            listener.bind(address)
            (folder / name).chmod(0o600)
            listener.listen(128)
        except OSError:
            listener.close()
            raise
    return listener


def connect_and_send(folder: Path, name: str, line: bytes) -> socket.socket | None:
    """Return a connection that has sent ``line``, ``None`` when no process listens or its buffer is full."""
    if not SUPPORTED:
        return None
    connection = _new_socket()
    try:
        with _short_address(folder, name) as address:
            connection.connect(address)
        if connection.send(line) == len(line):
            return connection
    except OSError:
        pass
    connection.close()
    return None


def _new_socket() -> socket.socket:
    unix_socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    unix_socket.setblocking(False)
    return unix_socket


@contextlib.contextmanager
def _short_address(folder: Path, name: str) -> Generator[str]:
    path = str(folder / name)
    if len(os.fsencode(path)) <= MAX_PATH_BYTES or not Path("/proc/self/fd").is_dir():
        yield path
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


MAX_LINE = 4096

MAX_BUFFERED_BYTES = 256 * 1024
"""Bytes buffered for a slow follower; beyond that its snapshots are dropped and its wake-ups merged."""


class SocketMessage(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A message of a follower, or of a process that offered an event."""

    follow: str = ""
    wake: str = ""
    namespace: str = ""
    head: int = 0


_decode_message = msgspec.json.Decoder(SocketMessage).decode


class FollowerConnection(asyncio.Protocol):
    """The server's side of one connection."""

    def __init__(self, server: "SocketServer") -> None:
        self._server = server
        self._buffer = b""
        self._writable = True
        self._unsent_head = 0
        self.key: SqliteKey | None = None
        self.closed_future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is one only by its methods
        self.transport.set_write_buffer_limits(high=MAX_BUFFERED_BYTES)
        self._server.connections.add(self)
        if self._server.closed:
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.remove_connection(self)
        if not self.closed_future.done():
            self.closed_future.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Handle lines; anything else ends the connection."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            for line in lines:
                if len(line) > MAX_LINE:
                    raise msgspec.ValidationError("too long")
                self._server.handle_message(self, _decode_message(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self.abort()
        if len(self._buffer) > MAX_LINE:
            self.abort()

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        """Send the head and the open blocks that the follower has missed."""
        self._writable = True
        if self._unsent_head:
            self.send_head(self._unsent_head)
        if self.key is not None:
            self._server.blocks.touch(self.key)

    def send_head(self, head: int) -> None:
        if self._writable and self.transport is not None:
            self._unsent_head = 0
            self.transport.write(b'{"head":%d}\n' % head)
        else:
            self._unsent_head = head

    def send_blocks(self, lines: bytes) -> None:
        """Send the open blocks unless the follower's buffer is full."""
        if self._writable and lines and self.transport is not None:
            self.transport.write(lines)

    def abort(self) -> None:
        self._buffer = b""
        if self.transport is not None:
            self.transport.abort()


class SocketServer:
    """All connections to this handle; ``schedule_poll`` is called with the session of each ``wake`` message."""

    def __init__(self, schedule_poll: Callable[[SqliteKey], None]) -> None:
        self._schedule_poll, self.closed = schedule_poll, False
        self.connections: set[FollowerConnection] = set()
        self._followers: dict[SqliteKey, set[FollowerConnection]] = {}
        self.blocks: SharedBlocks[SqliteKey] = SharedBlocks(self.has_followers, self._send_blocks)

    def handle_message(self, peer: FollowerConnection, message: SocketMessage) -> None:
        if message.wake:
            self._schedule_poll((message.namespace, SessionId(message.wake)))
        if message.follow:
            self._unfollow(peer)
            peer.key = key = (message.namespace, SessionId(message.follow))
            self._followers.setdefault(key, set()).add(peer)
            peer.send_head(0)
            peer.send_blocks(_encode_blocks(self.blocks.current_blocks(key)))

    def remove_connection(self, peer: FollowerConnection) -> None:
        self.connections.discard(peer)
        self._unfollow(peer)

    def notify_head(self, key: SqliteKey, head: int) -> None:
        for peer in self._followers.get(key, ()):
            peer.send_head(head)

    def has_followers(self, key: SqliteKey) -> bool:
        return key in self._followers

    async def close(self) -> None:
        """Abort all connections, and every connection that is accepted from now on."""
        self.closed = True
        self.blocks.close()
        peers = list(self.connections)
        for peer in peers:
            peer.abort()
        await asyncio.gather(*(peer.closed_future for peer in peers))

    def _send_blocks(self, key: SqliteKey, events: Sequence[Event]) -> None:
        lines = _encode_blocks(events)
        for peer in self._followers.get(key, ()):
            peer.send_blocks(lines)

    def _unfollow(self, peer: FollowerConnection) -> None:
        if peer.key is not None:
            followers = self._followers[peer.key]
            followers.discard(peer)
            if not followers:
                del self._followers[peer.key]
            peer.key = None


def _encode_blocks(events: Sequence[Event]) -> bytes:
    return b"".join(event.to_json() + b"\n" for event in events)


MAX_RECEIVED_LINE = 16 << 20

MAX_IDLE_POLLS = 5
"""Polls after which an unused connection is closed."""


class WriterConnection:
    """One connection to the writer ``owner`` of a session."""

    def __init__(self, key: SqliteKey, owner: str, connection: socket.socket, client: "SocketClient") -> None:
        self._key = key
        self.owner = owner
        self._connection = connection
        self._client = client
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
        self._folder = folder
        self._schedule_poll = schedule_poll
        self._deliver = deliver
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
