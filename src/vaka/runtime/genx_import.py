"""Write messages and state documents of GenX to the log of a session."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from vaka.agents.context_layers import SUMMARY_KEY
from vaka.agents.match.router_state import ROUTER_KEY, Intent, RouterState
from vaka.agents.quit_tools import FINISHED_KEY
from vaka.core.loop.blobs import BlobContext, offload
from vaka.core.ports.env import format_timestamp
from vaka.core.session.invariants import InvariantChecker
from vaka.core.session.snapshot import OpenedSession
from vaka.core.types import progress
from vaka.core.types.control import InputAdded, StateChanged
from vaka.core.types.errors import Busy
from vaka.core.types.event import Body
from vaka.core.types.ids import JSON, EventScope, SessionId
from vaka.core.types.state import SessionState
from vaka.runtime.runtime import Runtime
from vaka.runtime.session import Session, binding_of
from vaka.runtime.session_edits import TimedEntry
from vaka.views.genx_import import ImportedChild, ImportedTurns, LogEntry
from vaka.views.genx_state import StateDocument, merge_messages


def import_entries(document: StateDocument, new_id: Callable[[str], str]) -> list[LogEntry]:
    """Return the entries of a new log that has the conversation and the values of a document.

    Raises ``InvalidInput`` for results without a call.
    """
    failed = [result.id for result in document.tool_results if result.is_error]
    turns = ImportedTurns(document.agent_def, new_id, failed=failed)
    for message in merge_messages(document.messages):
        turns.add(message)
    turns.end_turn()
    entries = [*turns.entries, *_value_entries(document, "")]
    if document.state_type == "match" and document.matches:
        entries += _router_entries(document, turns.calls, new_id)
    return entries


def _router_entries(document: StateDocument, calls: int, new_id: Callable[[str], str]) -> list[LogEntry]:
    """Return the entries of the active agent of a router, and the state of the router."""
    intents = tuple(Intent(match.rule_name, match.agent_name, match.args) for match in document.matches)
    index, calling = min(document.current_index, len(intents) - 1), document.calling_state
    entries: list[LogEntry] = []
    child = ""
    if calling is not None and calling.messages:
        runs = ImportedChild(document.agent_def, calling.agent_def, new_id, calls)
        entries = [*runs.import_messages(merge_messages(calling.messages))]
        child = runs.children[-1]
        entries += _value_entries(calling, f"$agent/{runs.children[0]}/:")
    state = RouterState(intents, index, child)
    change = StateChanged(key=ROUTER_KEY, value=msgspec.to_builtins(state))
    return [*entries, (0, EventScope(), change)]


def _value_entries(document: StateDocument, prefix: str) -> list[LogEntry]:
    values: dict[str, JSON] = dict(document.properties)
    if document.summary:
        values[SUMMARY_KEY] = document.summary
    if document.finished:
        values[FINISHED_KEY] = {"turn": "", "path": "", "tool": ""}
    return [(0, EventScope(), StateChanged(key=prefix + key, value=value)) for key, value in values.items()]


async def write_imported(
    runtime: Runtime, session: Session[Any], compose: Callable[[OpenedSession], list[LogEntry]]
) -> None:
    """Append the entries that ``compose`` returns for the current state; large texts become blobs first.

    Raises as ``store_entries`` does.
    """

    async def compose_stored(now: OpenedSession) -> list[TimedEntry]:
        return await store_entries(runtime, session.id, now.state, compose(now))

    await binding_of(session).append_entries(compose_stored)


async def store_entries(
    runtime: Runtime, session: SessionId, state: SessionState, entries: Sequence[LogEntry]
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
