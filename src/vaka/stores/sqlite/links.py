"""The follower's side of the socket: a connection to whoever writes a session."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import msgspec

from vaka.core.types.errors import Corrupt
from vaka.core.types.event import Event, decode
from vaka.stores.sqlite.peers import Line
from vaka.stores.sqlite.rows import Key
from vaka.stores.sqlite.socket import dial

LONGEST_LINE = 16 << 20
IDLE_LOOKS = 5
"""Looks after which a connection nobody needs is closed."""


class Link:
    """One connection to the writer ``owner`` of a session."""

    def __init__(self, key: Key, owner: str, connection: socket.socket, links: "Links") -> None:
        self._key, self.owner, self._connection, self._links = key, owner, connection, links
        self._buffer = bytearray()
        self.idle = 0
        asyncio.get_running_loop().add_reader(connection, self._readable)

    def close(self) -> None:
        """Hang up."""
        asyncio.get_running_loop().remove_reader(self._connection)
        self._connection.close()

    def again(self) -> bool:
        """Ask once more for the open blocks; false when that is not possible."""
        try:
            line = _follow(self._key)
            return self._connection.send(line) == len(line)
        except OSError:
            return False

    def _readable(self) -> None:
        try:
            data = self._connection.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data or not self._take(data):
            self._links.lost(self._key, self)

    def _take(self, data: bytes) -> bool:
        """Pass on every whole line; false when that is not what a writer says."""
        searched = len(self._buffer)
        self._buffer += data
        end = self._buffer.find(b"\n", searched)
        if end < 0:
            return len(self._buffer) <= LONGEST_LINE
        *lines, rest = bytes(self._buffer).split(b"\n")
        self._buffer = bytearray(rest)
        try:
            for line in lines:
                self._links.heard(self._key, line)
        except Corrupt:
            return False
        return True


class Links:
    """The connections of one handle. ``look`` and ``deliver`` are called with what writers say."""

    def __init__(self, folder: Path, look: Callable[[Key], None], deliver: Callable[[Key, Event], None]) -> None:
        self._folder, self._look, self._deliver = folder, look, deliver
        self._links: dict[Key, Link] = {}

    def follow(self, key: Key, owner: str, *, again: bool = False) -> None:
        """Be connected to ``owner``, the session's writer; ``again``: also if we are, to get the open blocks anew."""
        link = self._links.get(key)
        if link is not None and link.owner == owner and (not again or link.again()):
            link.idle = 0
            return
        self.drop(key)
        connection = dial(self._folder, f"{owner}.sock", _follow(key)) if owner else None
        if connection is not None:
            self._links[key] = Link(key, owner, connection, self)

    def wake(self, key: Key, owner: str, head: int) -> None:
        """Tell ``owner`` that its session has grown, without waiting for anything."""
        line = msgspec.json.encode(Line(wake=key[1], namespace=key[0], head=head)) + b"\n"
        connection = dial(self._folder, f"{owner}.sock", line)
        if connection is not None:
            connection.close()

    def unused(self, key: Key) -> None:
        """A look has found nobody who needs this connection."""
        link = self._links[key]
        link.idle += 1
        if link.idle >= IDLE_LOOKS:
            self.drop(key)

    def following(self) -> list[Key]:
        """Return which sessions we are connected for."""
        return list(self._links)

    def drop(self, key: Key) -> None:
        """Hang up."""
        link = self._links.pop(key, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Hang up everywhere."""
        for key in self.following():
            self.drop(key)

    def lost(self, key: Key, link: Link) -> None:
        """The other side is gone: look whether it said all it had to."""
        if self._links.get(key) is link:
            self.drop(key)
            self._look(key)

    def heard(self, key: Key, line: bytes) -> None:
        """Pass on what a writer says."""
        if line.startswith(b'{"head":'):
            self._look(key)
        else:
            self._deliver(key, decode(line))


def _follow(key: Key) -> bytes:
    return msgspec.json.encode(Line(follow=key[1], namespace=key[0])) + b"\n"
