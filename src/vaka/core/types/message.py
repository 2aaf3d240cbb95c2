"""Messages, calls and results, as a model and a tool see them."""

from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.types.content import Content, text_of
from vaka.core.types.ids import JSON, CallId, MessageId

Reason: TypeAlias = Literal[
    "", "error", "unknown_tool", "invalid_arguments", "denied", "expired", "timeout", "cancelled", "interrupted",
    "sealed", "outcome_unknown", "repeated", "limit", "middleware",
]  # fmt: skip
"""Why a call has no ordinary result."""


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """A model's wish to run a tool. ``id`` is ours and unique in the session; ``provider_id`` is the model's."""

    id: CallId
    name: str
    arguments: dict[str, Any] = {}
    raw: str = ""
    """What the model wrote, kept only when it was not plain valid JSON."""
    repaired: str = ""
    """What was mended in ``raw``, when something was."""
    provider_id: str = ""
    truncated: bool = False
    """The answer broke off at its length limit, so the call may be half of one and must not run."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """What a call came to: the one answer the model gets to it."""

    call: CallId
    content: Content = ()
    failed: bool = False
    reason: Reason = ""
    value: JSON = None
    """The result as data, for programs; the model reads ``content``."""

    @property
    def text(self) -> str:
        """The words of the result."""
        return text_of(self.content)


class UserMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="user", tag_field="role"):
    """What a person, or a program in their place, said."""

    content: Content


class AssistantMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="assistant", tag_field="role"):
    """What a model said, with the calls it made in order."""

    id: MessageId
    content: Content = ()
    calls: tuple[ToolCall, ...] = ()
    model: str = ""
    stop: str = ""

    @property
    def text(self) -> str:
        """The words of the message, without reasoning."""
        return text_of(self.content)


class ToolMessage(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="tool", tag_field="role"):
    """The results of the calls of the message before, in the order of the calls."""

    results: tuple[ToolResult, ...]


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage
