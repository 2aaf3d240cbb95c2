"""The events and items of the OpenAI Responses stream as Structs, and how they are decoded. Pure."""

from typing import Any, TypeVar, cast

import msgspec

from vaka.core.types.errors import ModelError, StreamCut
from vaka.core.types.message import Usage
from vaka.models.transport import errors

WIRE = "responses"
"""The name under which this wire's own items are kept."""

MAX_TOKENS = 2**53
"""Tokens that anyone can have used."""

_EMPTY = msgspec.Raw()

_T = TypeVar("_T")


class ResponsesEvent(msgspec.Struct, gc=False):
    """Any event; its type says which of the fields it has."""

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
    """What every item has."""

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
    """An item of words."""

    content: list[ItemPart] | None = None


class FunctionCallItem(msgspec.Struct):
    """An item that calls a function."""

    call_id: str | None = None
    name: str | None = None
    arguments: Any = None

    @property
    def arguments_json(self) -> str | None:
        """The arguments as JSON text, also where a server wrote them as an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class ReasoningItem(msgspec.Struct):
    """An item of reasoning."""

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
    """The whole answer, as it is told at the end."""

    status: str | None = None
    model: str | None = None
    usage: _ResponseUsage | None = None
    output: list[msgspec.Raw] | None = None
    incomplete_details: _IncompleteDetails | None = None
    error: Any = None

    @property
    def token_usage(self) -> Usage:
        """What the answer took."""
        said = self.usage or _ResponseUsage()
        read, made = said.input_tokens_details or _InputDetails(), said.output_tokens_details or _OutputDetails()
        return Usage(
            input=_clamp_tokens(said.input_tokens),
            output=_clamp_tokens(said.output_tokens),
            cache_read=_clamp_tokens(read.cached_tokens),
            cache_write=_clamp_tokens(read.cache_write_tokens),
            reasoning=_clamp_tokens(made.reasoning_tokens),
        )


def _clamp_tokens(count: int | None) -> int:
    """Return a count that can be one: a server must not be able to give a budget back, or to break the log."""
    return min(max(count or 0, 0), MAX_TOKENS)


class _TypeOnly(msgspec.Struct):
    type: str = ""


_EVENT_DECODER = msgspec.json.Decoder(ResponsesEvent)


def decode_event(data: bytes, name: str, known: frozenset[str]) -> ResponsesEvent | None:
    """Return an event; nothing for one that cannot be read and is not ``known``, since nobody would read it."""
    if data == b"[DONE]":
        raise StreamCut("the answer was cut: the stream ended before response.completed")
    try:
        return _EVENT_DECODER.decode(data)
    except msgspec.ValidationError as error:
        kind = decode_part(data, _TypeOnly).type or name
        if kind in known:
            raise garbled_error(f"an event {kind} cannot be read: {error}") from error
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise garbled_error(f"an event cannot be read: {error}") from error


def decode_part(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return a part of an event. Raises ``StreamCut`` when it is none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise garbled_error(f"a part of an event cannot be read: {error}") from error


def decode_object(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object as it was written; an empty one for anything else."""
    value = decode_part(raw, object)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def error_of_event(data: bytes) -> ModelError:
    """Return the error that an event tells."""
    said = decode_object(data)
    return errors.error_from_event(
        said.get("error") or {name: said[name] for name in ("code", "message") if name in said}
    )


def garbled_error(message: str) -> StreamCut:
    """Return what to raise for a stream that contradicts itself."""
    return StreamCut(f"the answer was garbled: {message}")


def is_same_json(one: str, other: str) -> bool:
    """Whether two texts are the same JSON; a server may write it anew."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
