"""Exceptions.

PyluauError
├── LuauError            a script raised an error: message, chunk, line, traceback, value
│   ├── LuauSyntaxError  a source does not parse
│   └── StackOverflow    a script recursed too deeply
├── LimitError           a limit stopped the script, which could not catch it: chunk, line, traceback
│   ├── OutOfMemory · OutOfTime · OutOfInstructions · TooManyCoroutines
│   └── Cancelled        another thread stopped it
├── Deadlock             every coroutine of a stepped script is parked and no call is open
├── ConversionError      a value has no counterpart in the other language
├── BytecodeError        bytecode without a valid signature
└── ClosedError          the state is closed
"""

from typing import Any


class PyluauError(Exception):
    """Base class of the exceptions of pyluau."""


class LuauError(PyluauError):
    """A script raised an error."""

    def __init__(
        self,
        message: str,
        *,
        chunk: str | None = None,
        line: int | None = None,
        traceback: str = "",
        value: Any = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.chunk = chunk
        self.line = line
        self.traceback = traceback
        self.value = value


class LuauSyntaxError(LuauError):
    """A source does not parse; the message begins with ``chunk:line:``."""


class StackOverflow(LuauError):
    """A script recursed too deeply."""


class LimitError(PyluauError):
    """A limit stopped the script, which could not catch it; the state can still be used.

    ``chunk`` and ``line`` are where it was stopped, as at the start of the message; ``None`` if it had not begun.
    """

    def __init__(self, message: str, *, chunk: str | None = None, line: int | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.chunk = chunk
        self.line = line
        self.traceback = traceback


class OutOfMemory(LimitError):
    """A script exceeded the memory limit of its VM."""


class OutOfTime(LimitError):
    """A script exceeded its time limit."""


class OutOfInstructions(LimitError):
    """A script exceeded its limit of safe points."""


class TooManyCoroutines(LimitError):
    """A script exceeded its limit of coroutines."""


class Cancelled(LimitError):
    """Another thread stopped the script."""


class Deadlock(PyluauError):
    """Every coroutine of a stepped script is parked and no call is open."""


class ConversionError(PyluauError, TypeError):
    """A value has no counterpart in the other language."""


class BytecodeError(PyluauError, ValueError):
    """Bytecode has no valid signature."""


class ClosedError(PyluauError, RuntimeError):
    """The state is closed."""
