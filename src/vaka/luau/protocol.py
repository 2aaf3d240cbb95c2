"""The step protocol between a script and its host, and the JSON encoding of the values they exchange.

A script runs until it needs host calls, returns them as a step, and continues with each answer. The VM may be in this process or in a
worker; a generator replaces it in tests.

Values that JSON cannot hold are tagged by a table with one field: ``{"$bytes": "/w=="}`` for a string that is not UTF-8, ``$buffer``,
``$vector``, ``$number`` (``nan``, ``inf``, ``-inf``), ``$map`` for a table with keys other than strings (as pairs), ``$several`` for
several results. A script's own table that looks like a tag becomes ``{"$table": …}``.
"""

import base64
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isnan
from typing import Any, NamedTuple, Protocol, TypeAlias

from vaka.core.loop.children.script_journal import ScriptAnswer, ScriptRequest
from vaka.core.types.errors import ScriptError
from vaka.core.types.ids import JSON
from vaka.core.types.message import ToolResult


class HostCall(NamedTuple):
    """Something a script wants from its host; ids count from 1 in the order of the program."""

    id: int
    name: str
    args: Sequence[JSON]


class Waiting(NamedTuple):
    """All coroutines of the script wait. ``calls`` are new, for those in ``dropped`` nobody waits any more."""

    calls: Sequence[HostCall]
    dropped: Sequence[int] = ()


class Finished(NamedTuple):
    """The script has ended and returned these values."""

    values: Sequence[JSON]


Step: TypeAlias = Waiting | Finished


class Script(Protocol):
    """A script in its VM. ``at`` is its clock until the next step, in milliseconds since 1970.

    Every method raises ``ScriptError`` when the script failed, ``ScriptLimit`` when it used too much.
    """

    async def start(self, arguments: Sequence[JSON], *, seed: int, at: int) -> Step:
        """Run until it waits or ends."""
        ...

    async def answer(self, call: int, values: Sequence[JSON], *, at: int) -> Step:
        """Give a call its results and run on."""
        ...

    async def fail(self, call: int, error: JSON, *, at: int) -> Step:
        """Raise an error, which the script may catch, where the call was made, and run on."""
        ...

    async def close(self) -> None:
        """Let go of the script; twice is once."""
        ...


class MultipleResults(tuple[JSON, ...]):
    """What a host function returns to give a script several results."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class HostFunction:
    """An async function a script can call. It raises ``ScriptError`` for what the script may catch.

    One that returns a ``ToolResult`` gives the script what ``plain`` makes of it.
    """

    function: Callable[..., Awaitable[Any]]
    wants_request: bool = False
    """Whether it wants the ``Request`` as its first argument."""
    local: bool = False
    """Its answer follows from what the script was told: it is not recorded, and runs again when a script is replayed.

    It is answered at once, before anything else."""
    durable: bool = False
    """Its answer must be in the log before the script goes on."""


HostFunctions: TypeAlias = Mapping[str, HostFunction]
"""What a script can call, by name: ``http.get``, ``agent.state.set`` …"""


class ReplayJournal(Protocol):
    """Remembers what a script was told. ``vaka.core.loop.children.script_journal.ScriptJournal`` keeps it in a session's log."""

    def record_start(self, detail: JSON) -> ScriptAnswer:
        """Return the start of the script, remembered or new; ``detail`` is what is decided once, such as its seed."""
        ...

    def replay(self) -> AsyncGenerator[ScriptAnswer]:
        """Yield what the script was told after its start, in order."""
        ...

    async def record_answer(
        self, request: ScriptRequest, value: JSON, error: str = "", result: ToolResult | None = None
    ) -> ScriptAnswer:
        """Remember an answer, and return it as it will be remembered."""
        ...

    async def commit(self) -> None:
        """Return when everything so far will be remembered whatever happens."""
        ...


def value_of_result(result: ToolResult) -> JSON:
    """Return the result of a tool as a script sees it; raise ``ScriptError`` for one that failed."""
    if result.failed:
        raise ScriptError(result.text or result.reason)
    return result.text if result.value is None else result.value


MAX_NESTING = 200

_MAX_EXACT_INT = 2**53

_TAGS = frozenset({"$bytes", "$buffer", "$vector", "$number", "$map", "$several", "$table"})

_VECTOR_FIELDS = ("x", "y", "z")

_type: Callable[[Any], Any] = type


def pack(value: Any) -> JSON:
    """Return a value as JSON; raise ``ScriptError`` for one that no script could hold."""
    if type(value) is MultipleResults:
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


def unpack_results(value: JSON) -> list[Any]:
    """Return what a script is given for a packed answer: its one result, or several."""
    several = unpack(value)
    return list(several) if isinstance(several, MultipleResults) else [several]


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
        raise ScriptError(f"lists and tables are nested deeper than {MAX_NESTING}, or one holds itself")
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
    raise ScriptError(f"a {kind.__name__} is nothing a script can have")


def _is_vector(value: Any) -> bool:
    kind = _type(value)
    return getattr(kind, "_fields", None) == _VECTOR_FIELDS and issubclass(kind, tuple)


def _check_text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ScriptError(f"a text with half a surrogate pair at {error.start} is nothing a script can have") from None
    return value


def _exact_float(value: int) -> float:
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
        read = _TAG_DECODERS.get(key)
        if read is not None:
            return read(inner)
    return {key: unpack(item) for key, item in value.items()}


def _decode_base64(value: JSON) -> bytes:
    return base64.b64decode(value, validate=True)


def _make_vector(value: JSON) -> Any:
    from pyluau import Vector  # noqa: PLC0415  # an extra; who has a vector has it

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
