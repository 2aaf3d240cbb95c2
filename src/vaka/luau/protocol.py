"""The step protocol between a script and its host; the JSON encoding of the values they exchange, and checks of them.

A script runs until it needs host calls, returns them as a step, and continues with each answer. The VM may be in this
process or in a worker; a generator replaces it in tests.

Values that JSON cannot hold are tagged by a table with one field: ``{"$bytes": "/w=="}`` for a string that is not
UTF-8, ``$buffer``, ``$vector``, ``$number`` (``nan``, ``inf``, ``-inf``), ``$map`` for a table with keys other than
strings (as pairs), ``$several`` for several results. A script's own table that looks like a tag becomes
``{"$table": …}``.
"""

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from math import inf, isfinite, isnan
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeGuard

import msgspec

from vaka.core.loop.script_journal import ScriptAnswer, ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult


class HostCall(NamedTuple):
    """A call of a host function; ids count from 1 in the order in which the script makes them."""

    id: int
    name: str
    args: Sequence[JSON]


class Waiting(NamedTuple):
    """All coroutines of the script wait. ``calls`` are new; the answers of calls in ``dropped`` are not needed."""

    calls: Sequence[HostCall]
    dropped: Sequence[int] = ()


class Finished(NamedTuple):
    """The script has ended and returned these values."""

    values: Sequence[JSON]


Step: TypeAlias = Waiting | Finished


class Script(Protocol):
    """A script in its VM. ``at`` is its clock until the next step, in milliseconds since 1970.

    Every method raises ``ScriptError`` when the script fails, ``ScriptLimit`` when it exceeds a limit.
    """

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until the script waits or ends."""
        ...

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Return the results of a call to the script and resume it."""
        ...

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and resume the script."""
        ...

    async def close(self) -> None:
        """Free the script; a second call does nothing."""
        ...


class MultipleResults(tuple[JSON, ...]):
    """Several results of one host function."""

    __slots__ = ()


class HostFunction(msgspec.Struct, frozen=True):
    """An async function that scripts can call. It raises ``ScriptError`` for errors that the script may catch.

    If it returns a ``ToolResult``, the script receives ``value_of_result``.
    """

    function: Callable[..., Awaitable[Any]]
    wants_request: bool = False
    """Whether its first argument is the ``ScriptRequest``."""
    local: bool = False
    """Whether its answer depends only on the recorded answers: it is not recorded, runs again when the script is
    replayed, and is answered at once, before any other call."""
    durable: bool = False
    """Whether its answer must be in the log before the script continues."""


HostFunctions: TypeAlias = Mapping[str, HostFunction]
"""Host functions by name: ``http``, ``state.set`` …"""


class ReplayJournal(Protocol):
    """Records the answers that a script received; ``ScriptJournal`` stores them in a session's log."""

    replaying: bool
    """True while ``replay`` has answers to yield."""

    def record_start(self, detail: JSON) -> ScriptAnswer:
        """Return the recorded start of the script, or record one; ``detail`` holds constants such as the seed."""
        ...

    def replay(self) -> AsyncGenerator[ScriptAnswer]:
        """Yield the recorded answers after the start, in order."""
        ...

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        """Record an answer, and return it as a replay would."""
        ...

    async def commit(self) -> None:
        """Return when everything recorded so far is durable."""
        ...


def value_of_result(result: ToolResult) -> JSON:
    """Return the value of a tool's result for a script; raise ``ScriptError`` if the call failed."""
    if result.failed:
        raise ScriptError(result.text or result.reason)
    return result.text if result.value is None else result.value


MAX_NESTING = 200

_MAX_EXACT_INT = 2**53

_TAGS = frozenset({"$bytes", "$buffer", "$vector", "$number", "$map", "$several", "$table"})

_VECTOR_FIELDS = ("x", "y", "z")

_type: Callable[[Any], Any] = type


def pack(value: Any) -> JSON:
    """Return a value as JSON; raise ``ScriptError`` if Luau cannot represent it."""
    if type(value) is MultipleResults:
        return {"$several": [_pack(item, 1) for item in value]}
    return _pack(value, 0)


def unpack(value: JSON) -> Any:
    """Return the value that ``pack`` encoded."""
    kind = _type(value)
    if kind is dict:
        return _unpack_table(value)
    if kind is list:
        return [unpack(item) for item in value]
    return value


def unpack_results(value: JSON) -> list[Any]:
    """Return the results of a packed answer: one, or several."""
    results = unpack(value)
    return list(results) if isinstance(results, MultipleResults) else [results]


def _pack(value: Any, depth: int) -> JSON:
    kind = _type(value)
    if kind is str:
        return value if value.isascii() else _check_text(value)
    if value is None or kind is bool:
        return value
    if kind is int:
        return value if -_MAX_EXACT_INT <= value <= _MAX_EXACT_INT else _exact_float(value)
    if kind is float:
        return value if isfinite(value) else {"$number": str(value)}
    if depth >= MAX_NESTING:
        raise ScriptError(f"lists and tables are nested deeper than {MAX_NESTING}, or one contains itself")
    if issubclass(kind, dict):
        return _pack_table(value, depth + 1)
    if kind is list or kind is tuple:
        return [_pack(item, depth + 1) for item in value]
    return _pack_other(value, depth)


def _pack_table(value: dict[Any, Any], depth: int) -> JSON:
    if all(type(key) is str for key in value):
        packed = {key if key.isascii() else _check_text(key): _pack(item, depth) for key, item in value.items()}
        return {"$table": packed} if len(packed) == 1 and not _TAGS.isdisjoint(packed) else packed
    pairs: list[JSON] = []
    for key, item in value.items():
        if not (isinstance(key, str | int | float | bytes) or _is_vector(key)) or (type(key) is float and isnan(key)):
            raise ScriptError(f"{key!r} cannot be a key of a script's table")
        pairs.append([_pack(key, depth), _pack(item, depth)])
    return {"$map": pairs}


def _pack_other(value: Any, depth: int) -> JSON:
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
    raise ScriptError(f"a {kind.__name__} cannot be a value of a script")


def _is_vector(value: Any) -> bool:
    kind = _type(value)
    return getattr(kind, "_fields", None) == _VECTOR_FIELDS and issubclass(kind, tuple)


def _check_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScriptError(f"a text with half a surrogate pair at {error.start} cannot be a value of a script") from None
    return value


def _exact_float(value: int) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = inf
    if number != value:
        raise ScriptError(f"{str(value)[:40]} cannot be represented exactly as a Luau number")
    return number


def _unpack_table(value: dict[str, JSON]) -> Any:
    if len(value) == 1:
        ((key, inner),) = value.items()
        decode = _TAG_DECODERS.get(key)
        if decode is not None:
            return decode(inner)
    return {key: unpack(item) for key, item in value.items()}


def _decode_base64(value: JSON) -> bytes:
    return base64.b64decode(value, validate=True)


def _make_vector(value: JSON) -> Any:
    from pyluau import Vector  # noqa: PLC0415  # an extra; only pyluau makes vectors

    return Vector(*value)


_TAG_DECODERS: dict[str, Callable[[JSON], Any]] = {
    "$bytes": _decode_base64,
    "$buffer": lambda value: bytearray(_decode_base64(value)),
    "$vector": _make_vector,
    "$number": float,
    "$map": lambda value: {unpack(key): unpack(item) for key, item in value},
    "$several": lambda value: MultipleResults(unpack(item) for item in value),
    "$table": lambda value: {key: unpack(item) for key, item in value.items()},
}


def is_table(value: JSON) -> TypeGuard[dict[Any, Any]]:
    return isinstance(value, dict)


def is_list(value: JSON) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def type_name(value: JSON) -> str:
    """Return the Luau name of a value's type, for error messages."""
    if value is None:
        return "nil"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, bytes):
        return "a string that is not UTF-8"
    return "a string" if isinstance(value, str) else "a table"


def as_string(value: JSON, label: str) -> str:
    if not isinstance(value, str):
        raise ScriptError(f"{label} must be a string, not {type_name(value)}")
    return value


def as_table(value: JSON, label: str) -> dict[str, Any]:
    """Return a copy of a table with string keys; nil and an empty list are empty tables."""
    if value is None or value == []:
        return {}
    if not is_table(value) or not all(isinstance(key, str) for key in value):
        kind = "a list" if isinstance(value, list) else type_name(value)
        raise ScriptError(f"{label} must be a table with names, not {kind}")
    return dict(value)


def as_list(value: JSON, label: str) -> list[Any]:
    """Return a list; nil and an empty table are empty lists."""
    if value is None or value == {}:
        return []
    if not is_list(value):
        raise ScriptError(f"{label} must be a list, not {type_name(value)}")
    return value


def as_count(value: JSON, label: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ScriptError(f"{label} must be a whole number, not {value!r}")
    return value
