"""The writer's side of the socket: wake-ups for whoever follows from elsewhere, and snapshots of open blocks.

What comes in are lines: ``{"follow": session, "namespace": …}``, ``{"wake": session, "namespace": …, "head": n}``.
What goes out are lines too: ``{"head": n}`` after each commit, and snapshots as events. Nothing that comes in is
believed: a head is only a hint to look at the database.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from vaka.core.types.event import Event, encode
from vaka.core.types.ids import SessionId
from vaka.stores.mailbox import Pulse
from vaka.stores.sqlite.rows import Key

LONGEST_LINE = 4096
ROOM = 256 * 1024
"""Bytes that may wait for a slow follower; beyond it there are no snapshots for it, and one wake-up for many."""


class Line(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What a follower or petitioner says."""

    follow: str = ""
    wake: str = ""
    namespace: str = ""
    head: int = 0


_read = msgspec.json.Decoder(Line).decode


class Peer(asyncio.Protocol):
    """One connection."""

    def __init__(self, peers: "Peers") -> None:
        self._peers = peers
        self._buffer = b""
        self._room = True
        self._owed = 0
        self.key: Key | None = None
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  # what create_unix_server gives
        transport.set_write_buffer_limits(high=ROOM)
        self.transport = transport
        self._peers.all.add(self)
        if self._peers.closed:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._peers.forget(self)
        if not self.gone.done():
            self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Read lines; whoever sends anything else is cut off."""
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        try:
            for line in lines:
                if len(line) > LONGEST_LINE:
                    raise msgspec.ValidationError("too long")
                self._peers.said(self, _read(line))
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            self.cut()
        if len(self._buffer) > LONGEST_LINE:
            self.cut()

    def pause_writing(self) -> None:
        """It does not keep up."""
        self._room = False

    def resume_writing(self) -> None:
        """It does again: say what it has missed."""
        self._room = True
        if self._owed:
            self.head(self._owed)
        self._peers.touch(self.key)

    def head(self, head: int) -> None:
        """Tell it the log has grown."""
        if self._room and self.transport is not None:
            self._owed = 0
            self.transport.write(b'{"head":%d}\n' % head)
        else:
            self._owed = head

    def blocks(self, lines: bytes) -> None:
        """Show it the open blocks, if it has room for them."""
        if self._room and lines and self.transport is not None:
            self.transport.write(lines)

    def cut(self) -> None:
        """End the connection now."""
        self._buffer = b""
        if self.transport is not None:
            self.transport.abort()


class _Share:
    """The open blocks of one session."""

    def __init__(self, blocks: Callable[[], Sequence[Event]], send: Callable[[], None]) -> None:
        self.blocks, self.pulse = blocks, Pulse(send)

    def lines(self) -> bytes:
        """Return the snapshots as they are sent."""
        return b"".join(encode(event) + b"\n" for event in self.blocks())


class Peers:
    """Everyone connected to this handle. ``look`` is called when somebody says that a log has grown."""

    def __init__(self, look: Callable[[Key], None]) -> None:
        self._look, self.closed = look, False
        self.all: set[Peer] = set()
        self._followers: dict[Key, set[Peer]] = {}
        self._shares: dict[Key, _Share] = {}

    def said(self, peer: Peer, line: Line) -> None:
        """Do what a line asks for."""
        if line.wake:
            self._look((line.namespace, SessionId(line.wake)))
        if line.follow:
            self._unfollow(peer)
            peer.key = key = (line.namespace, SessionId(line.follow))
            self._followers.setdefault(key, set()).add(peer)
            peer.head(0)
            share = self._shares.get(key)
            if share is not None:
                peer.blocks(share.lines())

    def forget(self, peer: Peer) -> None:
        """A connection has ended."""
        self.all.discard(peer)
        self._unfollow(peer)

    def changed(self, key: Key, head: int) -> None:
        """Tell the followers of a session."""
        for peer in self._followers.get(key, ()):
            peer.head(head)

    def followed(self, key: Key) -> bool:
        """Whether anybody elsewhere follows."""
        return key in self._followers

    def share(self, key: Key, blocks: Callable[[], Sequence[Event]] | None) -> None:
        """Say where snapshots can be had, or that there are none any more."""
        old = self._shares.pop(key, None)
        if old is not None:
            old.pulse.stop()
        if blocks is not None:
            self._shares[key] = _Share(blocks, lambda: self._send(key))
            self.touch(key)

    def touch(self, key: Key | None) -> None:
        """An open block has grown."""
        if key in self._followers:
            share = self._shares.get(key)
            if share is not None:
                share.pulse.touch()

    async def close(self) -> None:
        """Cut everyone off, whoever may still come included."""
        self.closed = True
        for share in self._shares.values():
            share.pulse.stop()
        self._shares.clear()
        peers = list(self.all)
        for peer in peers:
            peer.cut()
        await asyncio.gather(*(peer.gone for peer in peers))

    def _send(self, key: Key) -> None:
        followers, share = self._followers.get(key), self._shares.get(key)
        if followers and share is not None:
            lines = share.lines()
            for peer in followers:
                peer.blocks(lines)

    def _unfollow(self, peer: Peer) -> None:
        if peer.key is not None:
            followers = self._followers[peer.key]
            followers.discard(peer)
            if not followers:
                del self._followers[peer.key]
            peer.key = None
