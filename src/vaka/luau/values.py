"""What a script can hand to its host, as JSON and back.

Most of it is JSON already. What is not is tagged, by a table with one field: ``{"$bytes": "/w=="}`` for a string that
is no text, ``$buffer``, ``$vector``, ``$number`` (``nan``, ``inf``, ``-inf``), ``$map`` for a table with other keys
than strings (as pairs), ``$several`` for several results. A script's own table that looks like a tag becomes
``{"$table": …}``.
"""

import base64
from collections.abc import Callable
from math import inf, isfinite, isnan
from typing import Any

from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.luau.script import Several

DEEPEST = 200
_EXACT = 2**53
_TAGS = frozenset({"$bytes", "$buffer", "$vector", "$number", "$map", "$several", "$table"})
_VECTOR = ("x", "y", "z")
_type: Callable[[Any], Any] = type


def pack(value: Any) -> JSON:
    """Return a value as JSON; raise ``ScriptError`` for one that no script could hold."""
    if type(value) is Several:
        return {"$several": [_pack(item, 1) for item in value]}
    return _pack(value, 0)


def unpack(value: JSON) -> Any:
    """Return what ``pack`` was given."""
    kind = _type(value)
    if kind is dict:
        return _unpack_table(value)
    if kind is list:
        return [unpack(item) for item in value]
    return value


def results(value: JSON) -> list[Any]:
    """Return what a script is given for a packed answer: its one result, or several."""
    several = unpack(value)
    return list(several) if isinstance(several, Several) else [several]


def _pack(value: Any, depth: int) -> JSON:
    kind = _type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else _large(value)
    if kind is float:
        return value if isfinite(value) else {"$number": str(value)}
    if depth >= DEEPEST:
        raise ScriptError(f"lists and tables are nested deeper than {DEEPEST}, or one holds itself")
    if issubclass(kind, dict):
        return _pack_table(value, depth + 1)
    if kind is list or kind is tuple:
        return [_pack(item, depth + 1) for item in value]
    return _pack_rare(value, depth)


def _pack_table(value: dict[Any, Any], depth: int) -> JSON:
    if all(type(key) is str for key in value):
        packed = {key if key.isascii() else _text(key): _pack(item, depth) for key, item in value.items()}
        return {"$table": packed} if len(packed) == 1 and not _TAGS.isdisjoint(packed) else packed
    pairs: list[JSON] = []
    for key, item in value.items():
        if not (isinstance(key, str | int | float | bytes) or _is_vector(key)) or (type(key) is float and isnan(key)):
            raise ScriptError(f"{key!r} cannot be a key of a script's table")
        pairs.append([_pack(key, depth), _pack(item, depth)])
    return {"$map": pairs}


def _pack_rare(value: Any, depth: int) -> JSON:
    kind = _type(value)
    if issubclass(kind, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if issubclass(kind, bytearray | memoryview):
        return {"$buffer": base64.b64encode(value).decode()}
    if _is_vector(value):
        return {"$vector": list(value)}
    for plain in (str, int, float):
        if issubclass(kind, plain):
            return _pack(plain(value), depth)
    if issubclass(kind, list | tuple):
        return [_pack(item, depth + 1) for item in value]
    raise ScriptError(f"a {kind.__name__} is nothing a script can have")


def _is_vector(value: Any) -> bool:
    kind = _type(value)
    return getattr(kind, "_fields", None) == _VECTOR and issubclass(kind, tuple)


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScriptError(f"a text with half a surrogate pair at {error.start} is nothing a script can have") from None
    return value


def _large(value: int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = inf
    if number != value:
        raise ScriptError(f"{str(value)[:40]} is not exactly a number of a script")
    return number


def _unpack_table(value: dict[str, JSON]) -> Any:
    if len(value) == 1:
        ((key, inner),) = value.items()
        read = _READERS.get(key)
        if read is not None:
            return read(inner)
    return {key: unpack(item) for key, item in value.items()}


def _bytes(value: JSON) -> bytes:
    return base64.b64decode(value, validate=True)


def _vector(value: JSON) -> Any:
    from pyluau import Vector  # noqa: PLC0415  # an extra; who has a vector has it

    return Vector(*value)


_READERS: dict[str, Callable[[JSON], Any]] = {
    "$bytes": _bytes,
    "$buffer": lambda value: bytearray(_bytes(value)),
    "$vector": _vector,
    "$number": float,
    "$map": lambda value: {unpack(key): unpack(item) for key, item in value},
    "$several": lambda value: Several(unpack(item) for item in value),
    "$table": lambda value: {key: unpack(item) for key, item in value.items()},
}
