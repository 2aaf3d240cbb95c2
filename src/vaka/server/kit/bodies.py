"""Bodies of requests and responses as JSON."""

import codecs
import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import StructMeta
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from vaka.server.kit.problems import Problem

T = TypeVar("T")
MAX_REPORTED_CHARS = 500
MAX_DEPTH = 100
PIECE_BYTES = 64 * 1024
"""Bytes that are checked at a time, so that a check needs little memory besides the body."""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_WHOLE_STRINGS = re.compile(rb'(?:[^"]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL)
"""As much as is possible without a part of a string. Both patterns are possessive: neither goes back, and a string that
is not closed ends with the data, so the time grows with the length alone."""
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHER_BYTES = bytes(set(range(256)) - set(_STEPS))
_NAMED_FIELD = re.compile(r"field `(.{1,100}?)`$")
"""The field that is unknown or missing, in a message of msgspec."""
_CHOICES = ("Object contains unknown field", "Invalid enum value")
"""Messages of msgspec about a value that is not one of several."""


async def read_bytes(request: Request) -> bytes:
    """Return the body of a request, which is JSON.

    Raises ``Problem`` when it is too large, too slow, too deep or not UTF-8, or when the client has left.
    """
    try:
        body = await request.body()
    except ClientDisconnect as error:
        raise Problem(400, "disconnected", "the client left before the body had arrived") from error
    check_json(body)
    return body


def check_json(data: bytes) -> None:
    """Raise a ``Problem`` (400) for JSON that is not UTF-8 or too deep: what is stored must be readable everywhere."""
    if not data.isascii():
        _check_utf8(data)
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH and _is_deep(data):
        raise Problem(400, "invalid_json", f"the body has more than {MAX_DEPTH} objects and lists inside one another")


def _check_utf8(data: bytes) -> None:
    """Raise a ``Problem`` for bytes that are not UTF-8."""
    decoder, view = codecs.getincrementaldecoder("utf-8")(), memoryview(data)
    for start in range(0, len(data), PIECE_BYTES):
        kept = len(decoder.getstate()[0])
        try:
            decoder.decode(view[start : start + PIECE_BYTES], final=start + PIECE_BYTES >= len(data))
        except UnicodeDecodeError as error:
            place = start - kept + error.start
            raise Problem(400, "invalid_json", f"the body is not JSON: byte {place} is not UTF-8") from None


def _is_deep(data: bytes) -> bool:
    """Return whether more brackets are open at one place than is allowed. Reads the data once, piece by piece."""
    depth, start = 0, 0
    while start < len(data):
        whole = _WHOLE_STRINGS.match(data, start, start + PIECE_BYTES)
        end = whole.end() if whole is not None else start
        if end == start:  # a string that is longer than a piece or not closed
            string = _STRING.match(data, start)
            start = string.end() if string is not None else len(data)
            continue
        brackets = _STRING.sub(b"", data[start:end]).translate(None, _OTHER_BYTES)
        depths = accumulate(map(_STEPS.__getitem__, brackets), initial=depth)
        for depth in depths:
            if depth > MAX_DEPTH:
                return True
        start = end
    return False


async def read_json(request: Request, type: type[T], *, empty: T | None = None) -> T:
    """Return the body of a request, decoded and validated; ``empty`` is the value of an empty body.

    Raises ``Problem`` with status 400 for a body that is not JSON, and 422 for one of another form.
    """
    body = await read_bytes(request)
    if not body and empty is not None:
        return empty
    return decode_json(body, type)


def decode_json(body: bytes, type: type[T]) -> T:
    """Return JSON as a type. Raises ``Problem``, as ``read_json`` does."""
    try:
        return msgspec.json.decode(body, type=type)
    except msgspec.ValidationError as error:
        raise invalid_fields(error, "invalid_body", "the body is not valid", type) from error
    except (msgspec.DecodeError, RecursionError) as error:
        raise Problem(400, "invalid_json", f"the body is not JSON: {str(error)[:MAX_REPORTED_CHARS]}") from error


def invalid_fields(error: msgspec.ValidationError, code: str, what: str, type: object = None) -> Problem:
    """Return the answer (422) for values that are not valid, with the field and what ``type`` expects there."""
    message, _, place = str(error).partition(" - at `")
    expected = _expected_values(type, place.rstrip("`").removeprefix("$."))
    hint = f"; expected {', '.join(expected)}" if expected and message.startswith(_CHOICES) else ""
    named = _NAMED_FIELD.search(message)
    field = place.rstrip("`").removeprefix("$") + (f".{named[1]}" if named else "")
    errors = [{"field": field.removeprefix("."), "message": message[:MAX_REPORTED_CHARS] + hint}]
    return Problem(422, code, f"{what}: {str(error)[:MAX_REPORTED_CHARS]}{hint}", errors=errors)


def _expected_values(type: object, field: str) -> Sequence[str]:
    """Return the values of a field that is a choice, or without a field the names of all fields.

    The field may be of an element of a list, as ``messages[0].role``.
    """
    if not (isinstance(type, StructMeta) and issubclass(type, msgspec.Struct)):
        return ()
    fields = {each.encode_name: each.type for each in msgspec.structs.fields(type)}
    name, _, rest = field.partition(".")
    if not name:
        return tuple(fields)
    parts = get_args(fields.get(name.partition("[")[0]))
    if rest:
        return _expected_values(parts[0], rest) if parts else ()
    return [each for each in parts if each and isinstance(each, str)]


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a value as JSON."""
    return Response(msgspec.json.encode(value), status, dict(headers or {}), "application/json")
