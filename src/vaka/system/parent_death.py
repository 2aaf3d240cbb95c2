"""Run a program so that it does not outlive the process that started it."""

import os
import sys
from collections.abc import Sequence

_PROGRAM = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as error:
    sys.exit(f"{sys.argv[2]!r} cannot be started: {error}")
"""
"""PR_SET_PDEATHSIG with SIGKILL, which the executed program keeps. The parent may have ended before the call."""


def bind_to_parent(command: Sequence[str]) -> list[str]:
    """Return a command that executes ``command`` in a process that Linux kills when the starting thread ends.

    The starting thread is the thread of the event loop, without which the pipes of the process have no reader. A
    ``preexec_fn`` would do the same without a program in between, but can deadlock in a process with threads.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _PROGRAM, str(os.getpid()), *command]
