"""Small types that the VM and Python share."""

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple


class OptLevel(IntEnum):
    """How much the compiler optimises: O2 inlines functions."""

    O0 = 0
    O1 = 1
    O2 = 2


class Type(IntEnum):
    """The types of Luau values."""

    NIL = 0
    BOOLEAN = 1
    NUMBER = 2
    STRING = 3
    TABLE = 4
    FUNCTION = 5
    USERDATA = 6
    THREAD = 7
    BUFFER = 8
    VECTOR = 9


class Vector(NamedTuple):
    """Luau's vector: three 32-bit floats."""

    x: float
    y: float
    z: float


class Yield:
    """What a host function returns to suspend the coroutine that called it, handing these values to its resumer.

    What the coroutine is resumed with is what the call gives; with ``then``, what ``then`` makes of it.
    """

    __slots__ = ("then", "values")

    def __init__(self, *values: Any, then: Callable[..., Any] | None = None) -> None:
        self.values = values
        self.then = then


def write_line(line: str | bytes) -> None:
    """Where ``print`` goes by default."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    sys.stdout.write(f"{text}\n")
