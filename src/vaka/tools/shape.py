"""What a type says about JSON: a few shapes that schemas are written from and values are converted by."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import NoneType
from typing import Any, TypeAlias
from uuid import UUID


class Unsupported(Exception):
    """An annotation that JSON cannot express; the text says what to use."""


class _Missing:
    """The absence of a default."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Any = _Missing()

SCALARS: frozenset[type] = frozenset({
    str, int, float, bool, NoneType, datetime, date, time, timedelta, UUID, bytes, Decimal,
    Path, PurePath, PurePosixPath, PureWindowsPath,
})  # fmt: skip
PATHS: frozenset[type] = frozenset({Path, PurePath, PurePosixPath, PureWindowsPath})


@dataclass(frozen=True, slots=True)
class Anything:
    """Any JSON value, handed over as it is."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """One of ``SCALARS``; ``make`` is the subclass to build, if it is one."""

    kind: type
    make: type | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some values, each with what it stands for in Python."""

    values: tuple[tuple[Any, Any], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """Any number of one shape."""

    item: "Shape"
    make: Callable[[list[Any]], Any] = list
    unique: bool = False


@dataclass(frozen=True, slots=True)
class Fixed:
    """One item of each shape, in order; the last ones may be missing, down to ``least``."""

    items: tuple["Shape", ...]
    least: int
    make: Callable[[list[Any]], Any] = tuple
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Table:
    """Values of one shape under keys of another."""

    key: "Shape"
    value: "Shape"
    make: Callable[[dict[Any, Any]], Any] = dict


@dataclass(frozen=True, slots=True)
class Member:
    """A named part of a record or a signature: ``name`` in JSON, ``attribute`` in Python."""

    name: str
    shape: "Shape"
    attribute: str
    required: bool = True
    default: Any = MISSING
    description: str = ""
    absent: Any = MISSING
    """What to hand over when it is not there and has no default of its own."""


@dataclass(eq=False, slots=True)
class Record:
    """An object with known members. Filled in after it was made, so that it can contain itself."""

    name: str
    make: Callable[..., Any]
    members: tuple[Member, ...] = ()
    description: str = ""
    tag: tuple[str, str | int] | None = None
    sparse: bool = False
    """True when a value of it need not have every member."""


@dataclass(frozen=True, slots=True)
class Either:
    """Any one of several shapes."""

    options: tuple["Shape", ...]


@dataclass(frozen=True, slots=True)
class Foreign:
    """A type that pydantic describes and builds."""

    name: str
    adapter: Any


@dataclass(eq=False, slots=True)
class Alias:
    """A named shape, filled in after it was made; ``recursive`` when it contains itself."""

    name: str
    target: "Shape" = field(default_factory=Anything)
    recursive: bool = False


@dataclass(frozen=True, slots=True)
class Noted:
    """A shape with more schema keywords: bounds, a description."""

    shape: "Shape"
    keywords: dict[str, Any]


Shape: TypeAlias = (
    Anything | Scalar | Choice | Items | Fixed | Table | Record | Either | Foreign | Alias | Noted
)  # fmt: skip


def first_line(error: Exception) -> str:
    """Return what an error says first."""
    return str(error).strip().partition("\n")[0]


def is_null(shape: Shape) -> bool:
    """Tell whether a shape is exactly null."""
    return isinstance(shape, Scalar) and shape.kind is NoneType


def bare(shape: Shape) -> Shape:
    """Return a shape without its notes and names."""
    while isinstance(shape, Noted | Alias):
        shape = shape.shape if isinstance(shape, Noted) else shape.target
    return shape


def is_optional(shape: Shape) -> bool:
    """Tell whether a shape names null as one of what it may be."""
    inner = bare(shape)
    return is_null(inner) or (isinstance(inner, Either) and any(is_optional(option) for option in inner.options))


def flat(options: Iterator[Shape]) -> Iterator[Shape]:
    """Yield options, those of inner unions in the place of the union."""
    for option in options:
        if isinstance(option, Either):
            yield from option.options
        else:
            yield option
