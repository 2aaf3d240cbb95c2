"""The rows of the message index, computed from the events. Pure."""

from collections.abc import Callable, Iterable, Mapping
from operator import attrgetter
from typing import Any

import msgspec

from vaka.core.ports.messages import MessageRole, MessageRow
from vaka.core.types import control, progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import AgentPath, Digest, SessionId
from vaka.core.types.message import Content, Stored, Text, ToolCall, ToolResult, text_of

MAX_INDEXED_CHARACTERS = 64 * 1024
"""Characters of a message that a search finds."""

MESSAGE_ROLES: dict[type[Body], MessageRole] = {
    control.InputAdded: "user",
    progress.SubagentStarted: "user",
    progress.MessageCompleted: "assistant",
    progress.ToolCalled: "call",
    progress.ToolCompleted: "tool",
    progress.ToolFailed: "tool",
}
"""The events that are messages. A child agent gets its task as the message of a user."""


def select_messages(events: Iterable[Event]) -> list[Event]:
    """Return the events that are messages."""
    return [event for event in events if type(event.data) in MESSAGE_ROLES]


_IDS: dict[type[Body], Callable[[Body], str]] = {
    control.InputAdded: attrgetter("key"),
    progress.SubagentStarted: attrgetter("child"),
    progress.MessageCompleted: attrgetter("message_id"),
    progress.ToolCalled: attrgetter("call.id"),
    progress.ToolCompleted: attrgetter("result.call"),
    progress.ToolFailed: attrgetter("result.call"),
}


def message_id_of(event: Event) -> str:
    """Return the id of the message that an event is."""
    return _IDS[type(event.data)](event.data)


def message_path_of(event: Event) -> AgentPath:
    """Return the agent whose conversation the message is part of."""
    body = event.data
    return (*event.path, body.child) if isinstance(body, progress.SubagentStarted) else event.path


def message_of(session: SessionId, event: Event, *, name: str = "") -> MessageRow | None:
    """Return the message that an event of a session is, ``None`` when it is none; ``name`` is the tool of a result.

    The event may name another session: a fork begins with copied events.
    """
    role = MESSAGE_ROLES.get(type(event.data))
    if role is None:
        return None
    body: Any = event.data
    call: ToolCall | None = body.call if role == "call" else None
    result: ToolResult | None = body.result if role == "tool" else None
    content: Content = result.content if result is not None else () if call is not None else body.content
    return MessageRow(
        session=session,
        seq=event.seq,
        epoch=event.epoch,
        role=role,
        id=message_id_of(event),
        turn=event.turn,
        path=message_path_of(event),
        ts=event.ts,
        name=call.name if call else name,
        content=content,
        text=_arguments_text(call) if call else text_of(content),
        metadata=getattr(body, "metadata", None) or {},
        failed=result is not None and result.failed,
    )


def without_content(message: MessageRow) -> MessageRow:
    """Return a message without its text and content."""
    return msgspec.structs.replace(message, text="", content=())


def content_of(event: Event) -> Content:
    """Return the content of the message that an event is; a call has none."""
    body: Any = event.data
    role = MESSAGE_ROLES[type(event.data)]
    content: Content = body.result.content if role == "tool" else () if role == "call" else body.content
    return content


def indexed_blobs_of(content: Content) -> list[Digest]:
    """Return the blobs whose text a search finds."""
    return [part.blob for part in content if type(part) is Stored and _is_text(part.media_type)]


def searchable_text(message: MessageRow, blobs: Mapping[Digest, bytes]) -> str:
    """Return the text that a search finds: with the name of the tool, and with the text of blobs that are given."""
    if message.role == "call":
        return f"{message.name}\n{message.text}"[:MAX_INDEXED_CHARACTERS]
    return _join_texts(message.content, blobs)


def searchable_text_of(event: Event, blobs: Mapping[Digest, bytes]) -> str:
    """Return the ``searchable_text`` of the message that an event is."""
    body = event.data
    if type(body) is progress.ToolCalled:
        return f"{body.call.name}\n{_arguments_text(body.call)}"[:MAX_INDEXED_CHARACTERS]
    return _join_texts(content_of(event), blobs)


def _join_texts(content: Content, blobs: Mapping[Digest, bytes]) -> str:
    texts: list[str] = []
    for part in content:
        if type(part) is Text:
            texts.append(part.text)
        elif type(part) is Stored:
            data = blobs.get(part.blob)
            begin = part.preview if data is None else data[: 4 * MAX_INDEXED_CHARACTERS].decode("utf-8", "replace")
            texts.append(begin)
    return "\n".join(texts)[:MAX_INDEXED_CHARACTERS]


def _arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as text: a line for each, strings as they are."""
    if call.raw:
        return call.raw
    return "\n".join(
        f"{key}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in call.arguments.items()
    )


def _is_text(media_type: str) -> bool:
    return media_type.startswith("text/") or media_type in {"application/json", "application/xml"}
