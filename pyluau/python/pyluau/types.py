"""Small types shared by the VM and Python."""

import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple


class OptLevel(IntEnum):
    """Optimisation levels of the compiler; O2 inlines functions."""

    O0 = 0
    O1 = 1
    O2 = 2


class Vector(NamedTuple):
    """Luau's vector: three 32-bit floats."""

    x: float
    y: float
    z: float


class Yield:
    """A host function returns this to suspend the coroutine that called it; its resumer receives the values.

    The call returns the values with which the coroutine is resumed, or, with ``then``, the result of ``then``.
    """

    __slots__ = ("then", "values")

    def __init__(self, *values: Any, then: Callable[..., Any] | None = None) -> None:
        self.values = values
        self.then = then


def write_line(line: str | bytes) -> None:
    """The default target of ``print``."""
    text = line.decode("utf-8", "replace") if isinstance(line, bytes) else line
    sys.stdout.write(f"{text}\n")
