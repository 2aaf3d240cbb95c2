"""The events of OpenAI's Responses API as they come, with only the fields that somebody reads. Pure."""

from typing import Any, TypeVar, cast

import msgspec

from vaka.core.types.errors import ModelError, StreamCut
from vaka.core.types.usage import Usage
from vaka.models import faults

MOST = 2**53
"""Tokens that anyone can have used."""

_NONE = msgspec.Raw()
_T = TypeVar("_T")


class Event(msgspec.Struct, gc=False):
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
    item: msgspec.Raw = _NONE
    part: msgspec.Raw = _NONE
    annotation: msgspec.Raw = _NONE
    response: msgspec.Raw = _NONE
    error: msgspec.Raw = _NONE


class Head(msgspec.Struct):
    """What every item has."""

    type: str = ""
    id: str | None = None
    status: str | None = None
    phase: str | None = None


class Part(msgspec.Struct):
    """A part of a message or of reasoning."""

    type: str = ""
    text: str | None = None
    refusal: str | None = None
    annotations: list[msgspec.Raw] | None = None


class Message(msgspec.Struct):
    """An item of words."""

    content: list[Part] | None = None


class Call(msgspec.Struct):
    """An item that calls a function."""

    call_id: str | None = None
    name: str | None = None
    arguments: Any = None

    @property
    def text(self) -> str | None:
        """The arguments as JSON text, also where a server wrote them as an object."""
        if self.arguments is None or isinstance(self.arguments, str):
            return self.arguments
        return msgspec.json.encode(self.arguments).decode()


class Thought(msgspec.Struct):
    """An item of reasoning."""

    summary: list[Part] | None = None
    content: list[Part] | None = None


class _Input(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Output(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Spent(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Input | None = None
    output_tokens_details: _Output | None = None


class _Why(msgspec.Struct):
    reason: str | None = None


class Response(msgspec.Struct):
    """The whole answer, as it is told at the end."""

    status: str | None = None
    model: str | None = None
    usage: _Spent | None = None
    output: list[msgspec.Raw] | None = None
    incomplete_details: _Why | None = None
    error: Any = None

    @property
    def cost(self) -> Usage:
        """What the answer took."""
        said = self.usage or _Spent()
        read, made = said.input_tokens_details or _Input(), said.output_tokens_details or _Output()
        return Usage(
            input=_tokens(said.input_tokens),
            output=_tokens(said.output_tokens),
            cache_read=_tokens(read.cached_tokens),
            cache_write=_tokens(read.cache_write_tokens),
            reasoning=_tokens(made.reasoning_tokens),
        )


def _tokens(count: int | None) -> int:
    """Return a count that can be one: a server must not be able to give a budget back, or to break the log."""
    return min(max(count or 0, 0), MOST)


class _Kind(msgspec.Struct):
    type: str = ""


_events = msgspec.json.Decoder(Event)


def read(data: bytes, name: str, known: frozenset[str]) -> Event | None:
    """Return an event; nothing for one that cannot be read and is not ``known``, since nobody would read it."""
    if data == b"[DONE]":
        raise StreamCut("the answer was cut: the stream ended before response.completed")
    try:
        return _events.decode(data)
    except msgspec.ValidationError as error:
        kind = decode(data, _Kind).type or name
        if kind in known:
            raise garbled(f"an event {kind} cannot be read: {error}") from error
        return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise garbled(f"an event cannot be read: {error}") from error


def decode(raw: bytes | msgspec.Raw, kind: type[_T]) -> _T:
    """Return a part of an event. Raises ``StreamCut`` when it is none."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise garbled(f"a part of an event cannot be read: {error}") from error


def plain(raw: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return an object as it was written; an empty one for anything else."""
    value = decode(raw, object)
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def failure(data: bytes) -> ModelError:
    """Return the error that an event tells."""
    said = plain(data)
    return faults.of_event(said.get("error") or {name: said[name] for name in ("code", "message") if name in said})


def garbled(words: str) -> StreamCut:
    """Return what to raise for a stream that contradicts itself."""
    return StreamCut(f"the answer was garbled: {words}")


def same(one: str, other: str) -> bool:
    """Whether two texts are the same JSON; a server may write it anew."""
    try:
        return bool(msgspec.json.decode(one) == msgspec.json.decode(other))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
