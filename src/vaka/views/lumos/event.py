"""A Lumosai event, its wire form, and what a stream of such events shows."""

from collections.abc import Mapping
from typing import Any

import msgspec

from vaka.core.types.decode import decode
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event

CARRIED = "vaka.event"
"""The key of the ``Metadata`` event that carries an event of the log without a counterpart."""

DISCARDED = "text_discarded"
"""The key of the ``Metadata`` event after text that does not count, because the model is asked again."""

CUSTOM_PREFIX = "lumos."
"""Begins the name of the custom event that an event of another Lumosai server becomes."""

_REQUIRED: dict[str, tuple[str, ...]] = {
    "TextDelta": ("delta",),
    "ToolCallStart": ("call",),
    "ToolCallComplete": ("call_id", "result"),
    "StepComplete": ("step",),
    "GenerationComplete": ("result",),
    "Error": ("error",),
    "AgentStarted": ("agent_id",),
    "AgentStopped": ("agent_id",),
    "MemoryUpdate": ("key", "operation"),
    "Metadata": ("key",),
}
"""The fields without which an event of a type means nothing."""


class StreamingConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a stream of Lumosai events."""

    text_buffer_size: int = 1
    """Text is sent once this many characters have come; an answer that was not streamed is cut into such pieces."""
    emit_metadata: bool = False
    """Whether ``Metadata``, ``MessageSent`` and ``ToolCalled`` events are sent."""
    emit_memory_updates: bool = True
    """Whether changes of the values of a session are sent, as ``MemoryUpdate``."""
    text_delta_delay_ms: int | None = None
    """Milliseconds between two pieces of an answer that was not streamed; only ``StreamingAgent`` waits."""

    def __post_init__(self) -> None:
        if self.text_buffer_size < 1:
            raise InvalidInput(f"text_buffer_size must be at least 1 character, got {self.text_buffer_size!r}")
        if self.text_delta_delay_ms is not None and self.text_delta_delay_ms < 0:
            raise InvalidInput(f"text_delta_delay_ms must not be negative, got {self.text_delta_delay_ms!r}")


class LumosEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A Lumosai ``AgentEvent``: its name and its fields."""

    type: str
    data: dict[str, Any]
    source: Event | None = None
    """The event of the log that it was made of, if the encoder is lossless."""

    def to_json(self) -> bytes:
        wire: dict[str, Any] = {"type": self.type, "data": self.data}
        if self.source is not None:
            wire["event"] = msgspec.Raw(self.source.to_json())
        return msgspec.json.encode(wire)

    @classmethod
    def from_json(cls, message: "bytes | str | Mapping[str, Any]") -> "LumosEvent":
        """Return the event of a message. Raises ``InvalidInput`` if it is not one, ``Corrupt`` for a damaged source."""
        encoded = msgspec.json.encode(dict(message)) if isinstance(message, Mapping) else message
        try:
            wire = msgspec.json.decode(encoded, type=_WireEvent)
        except msgspec.DecodeError as error:
            raise InvalidInput(f"this is not a Lumosai event: {error}; it begins with {encoded[:60]!r}") from error
        data = _rename_fields(wire.type, wire.data)
        missing = [name for name in _REQUIRED.get(wire.type, ()) if name not in data]
        if missing:
            raise InvalidInput(f"the Lumosai event {wire.type} has no field {missing[0]!r}")
        return cls(type=wire.type, data=data, source=decode(bytes(wire.event)) if wire.event else None)


class _WireEvent(msgspec.Struct, frozen=True):
    type: str
    data: dict[str, Any] = {}
    event: msgspec.Raw = msgspec.Raw()


def _rename_fields(type: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an event under the names of the specification; the published crate has others."""
    if type == "ToolCallStart" and "tool_call" in data:
        return {**data, "call": data["tool_call"]}
    if type == "ToolCallComplete" and isinstance(data.get("tool_result"), dict):
        return {**data, "call_id": data["tool_result"].get("call_id"), "result": data["tool_result"]}
    if type == "GenerationComplete" and "final_response" in data:
        return {**data, "result": {"response": data["final_response"]}}
    return data
