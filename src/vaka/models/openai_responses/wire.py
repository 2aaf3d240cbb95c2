"""The events and items of the OpenAI Responses stream as Structs, and how they are decoded. Pure."""

from typing import Any, TypeVar

import msgspec

from vaka.core.types.errors import ModelError, StreamCut
from vaka.core.types.message import Usage
from vaka.models.json_values import DECODE_ERRORS, as_object, clamp_tokens
from vaka.models.transport import errors

WIRE = "responses"
"""The key of this provider's items in ``opaque``."""

_EMPTY = msgspec.Raw()
_T = TypeVar("_T")


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event; which of the fields it has depends on its type."""

    type: str = ""
    delta: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    item_id: str | None = None
    text: str | None = None
    refusal: str | None = None
    arguments: str | None = None
    name: str | None = None
    item: msgspec.Raw = _EMPTY
    part: msgspec.Raw = _EMPTY
    annotation: msgspec.Raw = _EMPTY
    response: msgspec.Raw = _EMPTY
    error: msgspec.Raw = _EMPTY


class ItemHeader(msgspec.Struct):
    """The fields that every item has."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class ItemPart(msgspec.Struct):
    """A part of a message or of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[msgspec.Raw] | None = None


class MessageItem(msgspec.Struct):
    content: list[ItemPart] | None = None


class FunctionCallItem(msgspec.Struct):
    call_id: str | None = None
    name: str | None = None
    arguments: Any = None

    @property
    def arguments_json(self) -> str | None:
        """The arguments as JSON text, also of a server that sends an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class ReasoningItem(msgspec.Struct):
    summary: list[ItemPart] | None = None
    content: list[ItemPart] | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _ResponseUsage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _IncompleteDetails(msgspec.Struct):
    reason: str | None = None


class ResponseBody(msgspec.Struct):
    """The complete answer, as the last event repeats it."""

    status: str | None = None
    model: str | None = None
    usage: _ResponseUsage | None = None
    output: list[msgspec.Raw] | None = None
    incomplete_details: _IncompleteDetails | None = None
    error: Any = None

    @property
    def token_usage(self) -> Usage:
        usage = self.usage or _ResponseUsage()
        input, output = usage.input_tokens_details or _InputDetails(), usage.output_tokens_details or _OutputDetails()
        return Usage(
            input=clamp_tokens(usage.input_tokens), output=clamp_tokens(usage.output_tokens),
            cache_read=clamp_tokens(input.cached_tokens), cache_write=clamp_tokens(input.cache_write_tokens),
            reasoning=clamp_tokens(output.reasoning_tokens),
        )  # fmt: skip


class _TypeOnly(msgspec.Struct):
    type: str = ""


_EVENT_DECODER = msgspec.json.Decoder(ResponsesEvent)


def decode_event(data: bytes, name: str, known: frozenset[str]) -> ResponsesEvent | None:
    """Return an event; ``None`` for an invalid one of a type that is not ``known``, which would be ignored anyway."""
    if data == b"[DONE]":
        raise StreamCut("the answer was cut: the stream ended before response.completed")
    try:
        return _EVENT_DECODER.decode(data)
    except msgspec.ValidationError as error:
        kind = decode_part(data, _TypeOnly).type or name
        if kind in known:
            raise garbled_error(f"an event {kind} cannot be read: {error}") from error
        return None
    except DECODE_ERRORS as error:
        raise garbled_error(f"an event cannot be read: {error}") from error


def decode_part(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return a part of an event. Raises ``StreamCut`` when it is malformed."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except DECODE_ERRORS as error:
        raise garbled_error(f"a part of an event cannot be read: {error}") from error


def decode_object(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object with all its fields; an empty one for anything else."""
    return as_object(decode_part(raw, object))


def error_of_event(data: bytes) -> ModelError:
    """Return the error that an event reports."""
    event = decode_object(data)
    return errors.error_from_event(
        event.get("error") or {name: event[name] for name in ("code", "message") if name in event}
    )


def garbled_error(message: str) -> StreamCut:
    """Return the error for a stream that contradicts itself."""
    return StreamCut(f"the answer was garbled: {message}")


def is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON: a server may format it differently when it repeats it."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
