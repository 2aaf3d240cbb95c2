"""JSON with versions and ranges in it, checked when it is read."""

from difflib import get_close_matches
from typing import Any, TypeVar, cast

import msgspec

from vaka.luau.packages.errors import PackageError
from vaka.luau.packages.ranges import Range
from vaka.luau.packages.version import Version

T = TypeVar("T", bound=msgspec.Struct)


def decode(data: bytes, kind: type[T], where: str) -> T:
    """Read one value. Raises ``PackageError`` that says where, what was wrong and what was expected."""
    try:
        fields: Any = msgspec.json.decode(data)
        if not isinstance(fields, dict):
            raise PackageError(f"{where}: expected an object, not {type(fields).__name__}")
        _no_unknown(cast("dict[str, Any]", fields), kind.__struct_fields__, where)
        return msgspec.convert(fields, kind, dec_hook=_read)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise PackageError(f"{where}: {error}") from error
    except RecursionError as error:
        raise PackageError(f"{where}: nested too deeply") from error


def encode(value: msgspec.Struct) -> bytes:
    """Write a value for people and programs: the same value is always the same bytes."""
    return msgspec.json.format(msgspec.json.encode(value, enc_hook=_written, order="deterministic"), indent=2) + b"\n"


def _no_unknown(fields: dict[str, Any], known: tuple[str, ...], where: str) -> None:
    for name in fields:
        if name not in known:
            close = get_close_matches(name, known, 1)
            advice = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
            raise PackageError(f"{where}: unknown key {name!r}; {advice}")


def _read(kind: type[Any], value: Any) -> Any:
    # A ValueError is told with its place in the document.
    if not isinstance(value, str):
        raise TypeError(f"Expected `str`, got `{type(value).__name__}`")
    try:
        return Version.parse(value) if kind is Version else Range(value)
    except PackageError as error:
        raise ValueError(str(error)) from error


def _written(value: Any) -> str:
    if isinstance(value, Version | Range):
        return str(value)
    raise TypeError(f"{value!r} cannot be written as JSON")
