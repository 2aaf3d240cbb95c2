"""The result of an erasure."""

import msgspec

from vaka.core.types.ids import SessionId


class EraseResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of ``erase``."""

    sessions: tuple[SessionId, ...] = ()
    """The sessions whose data it has erased."""
    events: int = 0
    blobs: int = 0
    bytes: int = 0
    """The sizes of the blobs, and by how much events have become shorter."""
    failed: dict[SessionId, str] = {}
    """The sessions that it could not erase, and why: they have a writer, are damaged or do not exist."""
    busy: tuple[SessionId, ...] = ()
    """The sessions of ``failed`` that have a writer, and can be erased when it has ended."""
    overwritten: bool = True
    """False if the database may still have copies of erased bytes in places that it no longer uses."""
