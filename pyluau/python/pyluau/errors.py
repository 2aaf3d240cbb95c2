"""What can go wrong.

PyluauError
├── LuauError            a script raised an error: message, chunk, line, traceback, value
│   ├── LuauSyntaxError  it does not parse
│   └── StackOverflow    it called itself too deeply
├── LimitError           a limit stopped the script, which could not catch it
│   ├── OutOfMemory · OutOfTime · OutOfInstructions · TooManyCoroutines
│   └── Cancelled        another thread stopped it
├── Deadlock             every coroutine of a stepped script is parked and no call is open
├── ConversionError      a value has no counterpart in the other language
├── BytecodeError        bytecode that was not made here, or was changed
└── ClosedError          the state is closed
"""

from typing import Any


class PyluauError(Exception):
    """Anything that pyluau raises of its own."""


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
    """A script called itself too deeply."""


class LimitError(PyluauError):
    """A limit stopped the script, which could not catch it; the state is as good as before."""


class OutOfMemory(LimitError):
    """A script asked for more memory than its VM may hold."""


class OutOfTime(LimitError):
    """A script ran longer than it may."""


class OutOfInstructions(LimitError):
    """A script passed more safe points than it may."""


class TooManyCoroutines(LimitError):
    """A script had more coroutines alive than it may."""


class Cancelled(LimitError):
    """Another thread stopped the script."""


class Deadlock(PyluauError):
    """Every coroutine of a stepped script is parked and no call is open."""


class ConversionError(PyluauError, TypeError):
    """A value has no counterpart in the other language."""


class BytecodeError(PyluauError, ValueError):
    """Bytecode that was not made here, or was changed on the way."""


class ClosedError(PyluauError, RuntimeError):
    """The state is closed."""
