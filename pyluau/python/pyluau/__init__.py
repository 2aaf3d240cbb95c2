"""The Luau VM for Python: sandboxed, limited, stepped."""

import os

from pyluau import _native
from pyluau._native import (
    Buffer,
    Call,
    Done,
    Function,
    Lent,
    Limits,
    Stepper,
    Table,
    Thread,
    Userdata,
    Waiting,
    __version__,
    compile,  # noqa: A004  # pyluau.compile
    native_supported,
    set_flag,
    version,
)
from pyluau.errors import (
    BytecodeError,
    Cancelled,
    ClosedError,
    ConversionError,
    Deadlock,
    LimitError,
    LuauError,
    LuauSyntaxError,
    OutOfInstructions,
    OutOfMemory,
    OutOfTime,
    PyluauError,
    StackOverflow,
    TooManyCoroutines,
)
from pyluau.modules import Module
from pyluau.state import State
from pyluau.types import OptLevel, Vector, Yield

__all__ = [
    "Buffer",
    "BytecodeError",
    "Call",
    "Cancelled",
    "ClosedError",
    "ConversionError",
    "Deadlock",
    "Done",
    "Function",
    "Lent",
    "LimitError",
    "Limits",
    "LuauError",
    "LuauSyntaxError",
    "Module",
    "OptLevel",
    "OutOfInstructions",
    "OutOfMemory",
    "OutOfTime",
    "PyluauError",
    "StackOverflow",
    "State",
    "Stepper",
    "Table",
    "Thread",
    "TooManyCoroutines",
    "Userdata",
    "Vector",
    "Waiting",
    "Yield",
    "__version__",
    "compile",
    "native_supported",
    "set_flag",
    "version",
]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.after_fork)
