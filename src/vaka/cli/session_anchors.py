"""Anchors: the heads of sessions in a file that is kept elsewhere, which prove that a log was not cut or rewritten."""

import os
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from vaka.cli.kit.errors import UsageError
from vaka.config.documents import replace_file
from vaka.core.ports.store import SessionInfo
from vaka.core.types.event import Event

MAX_ANCHOR_BYTES = 256 * 1024 * 1024
"""The largest anchor file that is read: about a million sessions."""

AnchorState: TypeAlias = Literal["new", "kept", "moved", "truncated", "rewritten", "restored", "missing"]
"""``new``: first seen; ``kept``: has not grown; ``moved``: has grown. The others are what an anchor detects."""


class Anchor(msgspec.Struct, frozen=True, kw_only=True):
    """The head that a session had at some time."""

    namespace: str = ""
    session: str
    epoch: int
    seq: int
    hash: str
    time: str


class AnchorCheck(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The comparison of a session with its anchor."""

    state: AnchorState
    seq: int = 0
    """The event that the anchor names."""
    time: str = ""
    error: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Anchor).decode


class AnchorFile:
    """A file of anchors, one JSON object in each line."""

    def __init__(self, path: Path, *, must_exist: bool = False) -> None:
        """Read the file. Raises ``UsageError`` if it is not a file of anchors."""
        self.path = Path(os.path.realpath(path))  # a link stays a link when the file is replaced
        self.anchors: dict[tuple[str, str], Anchor] = {}
        for number, line in enumerate(_read_lines(self.path, must_exist=must_exist), 1):
            if line.strip():
                self._add(number, line)
        self._changed = False

    def _add(self, number: int, line: bytes) -> None:
        try:
            anchor = _decode(line)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise UsageError(f"{self.path}, line {number} is not an anchor: {error}") from error
        is_hash = len(anchor.hash) == 64 and set(anchor.hash) <= set("0123456789abcdef")  # SHA-256
        if not is_hash or anchor.seq < 1 or anchor.epoch < 1 or not anchor.session:
            raise UsageError(
                f"{self.path}, line {number} is not an anchor: it needs a session, an epoch and a seq of at least 1, "
                "and a hash of 64 hexadecimal digits"
            )
        key = (anchor.namespace, anchor.session)
        if key in self.anchors:
            raise UsageError(f"{self.path}, line {number}: session {anchor.session!r} has two anchors; remove one")
        self.anchors[key] = anchor

    def watch(self, namespace: str, session: str) -> "AnchorWatch":
        """Return what compares the events of a session with its anchor."""
        return AnchorWatch(self.anchors.get((namespace, session)))

    def find_missing(self, namespace: str, found: Iterable[str]) -> list[Anchor]:
        """Return the anchors of a namespace whose sessions are not among ``found``."""
        names = set(found)
        return [
            anchor for (owner, session), anchor in self.anchors.items() if owner == namespace and session not in names
        ]

    def move(self, namespace: str, info: SessionInfo, time: str) -> None:
        """Set the anchor of a session to its head."""
        key = (namespace, str(info.id))
        old = self.anchors.get(key)
        if old is None or (old.epoch, old.seq, old.hash) != (info.epoch, info.head, info.hash):
            self.anchors[key] = Anchor(
                namespace=namespace, session=info.id, epoch=info.epoch, seq=info.head, hash=info.hash, time=time
            )
            self._changed = True

    def save(self) -> None:
        """Replace the file in one step, durable on return, if an anchor has changed."""
        if not self._changed:
            return
        try:
            replace_file(self.path, b"".join(_encode(anchor) + b"\n" for anchor in self.anchors.values()))
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise UsageError(f"the anchors cannot be written to {self.path}: {error.strerror}") from error


class AnchorWatch:
    """Compares the events of one session, as they are read, with its anchor."""

    def __init__(self, anchor: Anchor | None) -> None:
        self.anchor = anchor
        self._found: tuple[int, str] | None = None

    def see(self, event: Event) -> None:
        if self.anchor is not None and event.seq == self.anchor.seq:
            self._found = event.epoch, event.hash

    def result(self, info: SessionInfo) -> AnchorCheck:
        """Return the comparison, after all events were seen."""
        anchor = self.anchor
        if anchor is None:
            return AnchorCheck(state="new")
        state, error = self._judge(anchor, info)
        return AnchorCheck(state=state, seq=anchor.seq, time=anchor.time, error=error)

    def _judge(self, anchor: Anchor, info: SessionInfo) -> tuple[AnchorState, str | None]:
        since = f"on {anchor.time} the log had event {anchor.seq} with the hash {anchor.hash}"
        if info.head < anchor.seq or self._found is None:
            return "truncated", f"truncated: the log ends at {info.head}, but {since}"
        epoch, hash = self._found
        if hash == anchor.hash and epoch == anchor.epoch:
            return ("kept" if info.head == anchor.seq else "moved"), None
        if epoch != anchor.epoch:
            return "restored", (
                f"restored or imported: event {anchor.seq} is of epoch {epoch}, the anchor is of epoch {anchor.epoch}; "
                f"{since}"
            )
        return "rewritten", f"rewritten: event {anchor.seq} has the hash {hash}, but {since}"


def describe_missing(anchor: Anchor, path: Path) -> AnchorCheck:
    """Return the result for an anchor whose session is not in the store."""
    return AnchorCheck(
        state="missing",
        seq=anchor.seq,
        time=anchor.time,
        error=f"missing: there is no such session, but on {anchor.time} it had {anchor.seq} events; "
        f"if it was deleted on purpose, remove its line from {path}",
    )


def _read_lines(path: Path, *, must_exist: bool) -> list[bytes]:
    try:
        with open(path, "rb", opener=_open_regular_file) as file:  # Path.open takes no opener
            data = file.read(MAX_ANCHOR_BYTES + 1)
    except FileNotFoundError:
        if must_exist:
            raise UsageError(f"there is no anchor file {path}; the first run without --check-only writes it") from None
        return []
    except OSError as error:
        raise UsageError(f"the anchor file {path} cannot be read: {error.strerror}") from error
    if len(data) > MAX_ANCHOR_BYTES:
        raise UsageError(f"{path} is too large; an anchor file has at most {MAX_ANCHOR_BYTES} bytes")
    return data.split(b"\n")


def _open_regular_file(path: str, flags: int) -> int:
    """Open a file, without waiting for the writer of a pipe."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UsageError(f"{path} is not a file; --anchor names the file of the anchors")
    return descriptor
