"""The Luau VM for Python: sandboxed, limited, stepped."""

import os

from pyluau import _native
from pyluau._native import (
    Buffer,
    Call,
    Done,
    Function,
    Limits,
    State,
    Stepper,
    Table,
    Thread,
    Userdata,
    Waiting,
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
from pyluau.types import OptLevel, Type, Vector, Yield

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
    "LimitError",
    "Limits",
    "LuauError",
    "LuauSyntaxError",
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
    "Type",
    "Userdata",
    "Vector",
    "Waiting",
    "Yield",
    "compile",
    "native_supported",
    "set_flag",
    "version",
]

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native.after_fork)
