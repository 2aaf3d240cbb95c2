"""Entries of conversations that were held elsewhere, for the log of a session."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from vaka.core.loop.blobs import BlobContext, offload
from vaka.core.ports.env import format_timestamp
from vaka.core.session.branches import TimedEntry
from vaka.core.session.invariants import InvariantChecker
from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import Busy
from vaka.core.types.event import Body
from vaka.core.types.ids import SessionId
from vaka.core.types.imported_turns import LogEntry
from vaka.core.types.state import SessionState

if TYPE_CHECKING:
    from vaka.runtime.runtime import Runtime


async def store_entries(
    runtime: "Runtime", session: SessionId, state: SessionState, entries: Sequence[LogEntry]
) -> list[TimedEntry]:
    """Return entries that can follow a state of a session, and store large texts as blobs of the session.

    Raises ``Busy`` if the entries begin a turn and the session has an unfinished turn (after a crash, or with an open
    approval), and ``LogError`` for entries that break another invariant of the log.
    """
    if state.turn is not None and any(isinstance(body, progress.TurnStarted) for _, _, body in entries):
        raise Busy(
            f"session {session!r} has an unfinished turn; finish it with `vaka run --session {session} --resume`, or "
            f"take it back with a rewind, and try again"
        )
    owner = BlobContext(runtime.store, runtime.secrets, session)
    timed: list[TimedEntry] = []
    for time, scope, body in entries:
        timed.append((format_timestamp(time) if time else "", scope, await _offload(owner, body)))
    InvariantChecker(state).check([(scope, body) for _, scope, body in timed])
    return timed


async def _offload(owner: BlobContext, body: Body) -> Body:
    if isinstance(body, InputAdded | progress.MessageCompleted):
        return msgspec.structs.replace(body, content=await offload(owner, body.content))
    if isinstance(body, progress.ToolCompleted | progress.ToolFailed):
        content = await offload(owner, body.result.content)
        return msgspec.structs.replace(body, result=msgspec.structs.replace(body.result, content=content))
    return body
