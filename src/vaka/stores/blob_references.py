"""The blobs that events refer to, and the events that have a key: a store indexes both. Pure."""

from collections.abc import Iterable
from typing import Any

import msgspec

from vaka.core.ports.tool import CHANGED_FILE_KEY, COMMAND_FILES_KEY, LINK_PREFIX
from vaka.core.types import control, progress
from vaka.core.types.context import ContextCompacted
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, Digest
from vaka.core.types.message import Content, ToolResult
from vaka.core.types.monitor import ScriptAnswered

_DIGEST_LENGTH = 64
_WITH_CONTENT = {
    control.InputAdded,
    progress.TurnStarted,
    progress.MessageCompleted,
    progress.SubagentStarted,
    progress.ToolReturned,
    progress.ToolCompleted,
    progress.ToolFailed,
}
_WITH_KEY_OR_BLOBS = _WITH_CONTENT | {
    progress.StepStarted,
    ScriptAnswered,
    progress.SubagentCompleted,
    control.InterruptRequested,
    control.ApprovalResolved,
    control.ApprovalExpired,
    control.QuestionAnswered,
    control.StateChanged,
    ContextCompacted,
}


def select_keyed_or_blob_events(events: Iterable[Event]) -> list[Event]:
    """Return the events that may have a key or refer to blobs."""
    return [event for event in events if type(event.data) in _WITH_KEY_OR_BLOBS]


def blobs_of(event: Event) -> list[Digest]:
    """Return the blobs an event refers to."""
    body: Any = event.data
    kind = type(event.data)
    blobs: list[Digest | None] = []
    if kind is progress.StepStarted or kind is progress.MessageCompleted:
        blobs += [body.system, body.tools]
    if kind in _WITH_CONTENT:
        result: ToolResult | None = getattr(body, "result", None)
        content: Content = (result.content if result else getattr(body, "content", None)) or ()
        blobs += [getattr(part, "blob", None) for part in content]
    if kind is ScriptAnswered or kind is progress.SubagentCompleted:
        blobs.append(body.blob)
    if kind is control.QuestionAnswered and body.answer is not None:
        blobs += _result_blobs(body.answer)
    if kind is control.StateChanged and body.key == CHANGED_FILE_KEY:
        blobs.append(_copied_blob(body.value))
    if kind is control.StateChanged and body.key == COMMAND_FILES_KEY:
        blobs += _packed_blobs(body.value)
    if kind is ContextCompacted:
        contents = (*body.opening, *body.inputs, *(call.content or () for call in body.calls))
        blobs += [getattr(part, "blob", None) for content in contents for part in content]
        blobs += [digest for call in body.calls for digest in call.blobs]
    return [digest for digest in blobs if digest]


def _result_blobs(answer: JSON) -> list[Digest | None]:
    """Return the blobs of the result that a client has given; another answer names none."""
    try:
        result = msgspec.convert(answer, ToolResult)
    except msgspec.ValidationError:
        return []
    return [getattr(part, "blob", None) for part in result.content]


class _FileCopy(msgspec.Struct):
    was: str


def _copied_blob(value: JSON) -> Digest | None:
    """Return the copy of a file that a session value refers to; the value may have another format."""
    try:
        was = msgspec.convert(value, _FileCopy).was
    except msgspec.ValidationError:
        return None
    was = was.removeprefix(LINK_PREFIX)
    return Digest(was) if len(was) == _DIGEST_LENGTH else None


class _CommandPacks(msgspec.Struct):
    packs: tuple[Digest, ...] = ()


def _packed_blobs(value: JSON) -> tuple[Digest, ...]:
    """Return the blobs with the files that a command has changed; the value may have another format."""
    try:
        return msgspec.convert(value, _CommandPacks).packs
    except msgspec.ValidationError:
        return ()
