"""Messages of a conversation as JSON documents, made from the events of a log. Pure."""

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from vaka.core.types.control import InputAdded, InputWithdrawn
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath, MessageId
from vaka.core.types.message import Content, ToolCall, text_of
from vaka.core.types.progress import (
    MessageCompleted,
    StepStarted,
    ToolCalled,
    ToolCompleted,
    ToolFailed,
    TurnStarted,
)

MessageRole: TypeAlias = Literal["user", "assistant", "tool"]


class CallDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The tool call that a decision is about, or that a message has made."""

    id: str
    name: str
    arguments: dict[str, Any] = {}


class MessageDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A message: of the user, of a model with its tool calls, or the result of one call."""

    id: str
    role: MessageRole
    content: Content
    turn: str
    cursor: str
    ts: str
    path: AgentPath
    tool_calls: list[CallDocument] | UnsetType = UNSET
    failed: bool | UnsetType = UNSET
    """Only of a result: whether the call failed; ``id`` is the id of the call."""
    metadata: dict[str, Any] | UnsetType = UNSET


def is_message(event: Event) -> bool:
    """Return whether an event has a message of the conversation."""
    return isinstance(event.data, InputAdded | MessageCompleted | ToolCompleted | ToolFailed)


class MessageContext:
    """Facts about messages from later events: their calls, their turns, and which inputs were taken back."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.calls: dict[MessageId, list[ToolCall]] = {}
        self.turns: dict[str, str] = {}
        self.withdrawn: set[str] = set()
        for event in events:
            match event.data:
                case ToolCalled(call=call, message_id=message):
                    self.calls.setdefault(message, []).append(call)
                case TurnStarted(inputs=inputs) | StepStarted(inputs=inputs):
                    self.turns.update(dict.fromkeys(inputs, event.turn))
                case InputWithdrawn(input=key):
                    self.withdrawn.add(key)
                case _:
                    continue

    def describe(self, event: Event) -> MessageDocument | None:
        """Return the message of an event; ``None`` for an input that was taken back."""
        role: MessageRole
        more: dict[str, Any] = {}
        match event.data:
            case InputAdded(key=key, content=content, metadata=metadata):
                id = key
                role = "user"
                turn = self.turns.get(key, "")
                more["metadata"] = metadata or UNSET
                if key in self.withdrawn:
                    return None
            case MessageCompleted(message_id=message, content=content, metadata=metadata):
                id = message
                role = "assistant"
                turn = event.turn
                more["metadata"] = metadata or UNSET
                if calls := self.calls.get(message):
                    more["tool_calls"] = [CallDocument(id=c.id, name=c.name, arguments=c.arguments) for c in calls]
            case ToolCompleted(result=result) | ToolFailed(result=result):
                id = result.call
                role = "tool"
                turn = event.turn
                content = result.content
                more["failed"] = result.failed
            case _:
                return None
        return MessageDocument(
            id=id, role=role, content=content, turn=turn, cursor=event.id, ts=event.ts, path=event.path, **more
        )


def message_id(event: Event) -> str:
    """Return the id of the message of an event, ``""`` when it has none."""
    match event.data:
        case InputAdded(key=key):
            return key
        case MessageCompleted(message_id=id):
            return id
        case ToolCompleted(result=result) | ToolFailed(result=result):
            return result.call
        case _:
            return ""


def message_text(event: Event) -> str:
    """Return the text of the message of an event; large texts may be cut."""
    match event.data:
        case InputAdded(content=content) | MessageCompleted(content=content):
            return text_of(content)
        case ToolCompleted(result=result) | ToolFailed(result=result):
            return text_of(result.content)
        case _:
            return ""
