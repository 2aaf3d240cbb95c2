"""Every error a caller can meet.

::

    VakaError
    ├── InvalidInput           what was given makes no sense; nothing was done          exit 2
    │   └── NotFound           no such session, approval, blob …
    ├── ConfigError            a setting, a file or an installation is wrong            exit 3
    ├── StoreError             the store could not do it
    │   ├── ConflictError      another writer has taken the session over (old term)     exit 75
    │   ├── HeadMoved          someone offered an event first: read it, then append
    │   ├── Busy               the session has a live writer, or the store is locked    exit 75
    │   ├── Unavailable        the store cannot be reached now; the outcome is unknown  exit 75
    │   ├── Corrupt            stored bytes are not what was written
    │   └── TooNew             the log holds events only a newer vaka may act on        exit 3
    ├── LogError               an append that would break a rule of the log
    ├── ModelError             the model gave no usable answer                          exit 6
    │   ├── ModelUnavailable   try again later                                          exit 75
    │   │   ├── RateLimited    too many requests; ``retry_after`` says how long to wait
    │   │   └── StreamCut      the answer broke off, or what came was not one
    │   ├── ModelRefused       trying again will not help
    │   │   ├── BadRequest     the provider says what is wrong with the request
    │   │   ├── AuthenticationFailed  the key is missing, wrong, or may not do this      exit 4
    │   │   └── ContextTooLong the conversation is longer than the model can read
    │   └── Truncated          the answer reached its length limit before it was whole
    ├── NetworkError           a request got no usable answer; ``reason`` is one word for why
    │   ├── NetworkRefused     the rules of the network forbid it
    │   ├── NetworkTimeout     it took longer than it may                               exit 75
    │   ├── NetworkTooLarge    the answer is larger than it may be
    │   └── NetworkUnreachable no such name, nobody listens, no trust, or cut off       exit 75
    ├── FileError              a file could not be read or written                       exit 8
    │   ├── FileMissing        there is no such file or folder
    │   ├── FileRefused        the path leaves the tree, or names no regular file
    │   └── FileChanged        it is not what the caller knew: read it again
    ├── SandboxError           a command cannot be confined as asked; it was not started  exit 8
    ├── TurnError              a turn ended without an answer; ``result`` has the part that exists
    │   ├── Interrupted        a person stopped it                                      exit 130
    │   │   └── Rejected       … by refusing a call without a word                      exit 5
    │   ├── Cancelled          the caller withdrew
    │   └── Suspended          it waits for a person; ``decisions`` names what for       exit 5
    ├── MiddlewareError        a middleware failed or took too long
    ├── ScriptError            a script failed; inside it, what its host raises and it may catch
    │   ├── ScriptLimit        it used more memory, time, instructions or coroutines than it may
    │   └── ReplayError        it is not the script its log was made by, or does not ask for the same again
    └── Closed                 the runtime, session or store was closed
"""

from collections.abc import Sequence
from typing import Any

from vaka.core.types.errors.base import VakaError
from vaka.core.types.errors.model import (
    AuthenticationFailed,
    BadRequest,
    ContextTooLong,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
    StreamCut,
    Truncated,
)
from vaka.core.types.errors.network import (
    NetworkError,
    NetworkRefused,
    NetworkTimeout,
    NetworkTooLarge,
    NetworkUnreachable,
)
from vaka.core.types.errors.store import (
    Busy,
    ConflictError,
    Corrupt,
    HeadMoved,
    LogError,
    StoreError,
    TooNew,
    Unavailable,
)
from vaka.core.types.errors.world import FileChanged, FileError, FileMissing, FileRefused, SandboxError

__all__ = [
    "EXIT_CODES",
    "AuthenticationFailed",
    "BadRequest",
    "Busy",
    "Cancelled",
    "Closed",
    "ConfigError",
    "ConflictError",
    "ContextTooLong",
    "Corrupt",
    "FileChanged",
    "FileError",
    "FileMissing",
    "FileRefused",
    "HeadMoved",
    "Interrupted",
    "InvalidInput",
    "LogError",
    "MiddlewareError",
    "ModelError",
    "ModelRefused",
    "ModelUnavailable",
    "NetworkError",
    "NetworkRefused",
    "NetworkTimeout",
    "NetworkTooLarge",
    "NetworkUnreachable",
    "NotFound",
    "RateLimited",
    "Rejected",
    "ReplayError",
    "SandboxError",
    "ScriptError",
    "ScriptLimit",
    "StoreError",
    "StreamCut",
    "Suspended",
    "TooNew",
    "Truncated",
    "TurnError",
    "Unavailable",
    "VakaError",
]


class InvalidInput(VakaError):
    """What was given makes no sense; nothing was done."""

    code = "invalid_input"
    exit_code = 2


class NotFound(InvalidInput):
    """There is no such session, approval, question, blob or tool."""

    code = "not_found"


class ConfigError(VakaError):
    """A setting, a file or an installation is wrong."""

    code = "config"
    exit_code = 3


class TurnError(VakaError):
    """A turn ended without an answer; ``result`` says how far it came, ``code`` why it went no further."""

    code = "turn"

    def __init__(self, message: str, *, code: str = "", result: Any = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.exit_code = EXIT_CODES.get(self.code, self.exit_code)
        self.result = result


class Interrupted(TurnError):
    """A person stopped the turn."""

    code = "interrupted"
    exit_code = 130


class Rejected(Interrupted):
    """A person stopped the turn by refusing a call without a word."""

    code = "rejected"
    exit_code = 5


class Cancelled(TurnError):
    """The caller withdrew the turn."""

    code = "cancelled"
    exit_code = 130


class Suspended(TurnError):
    """The turn waits for a person; it goes on after the decisions named here were taken."""

    code = "suspended"
    exit_code = 5

    def __init__(self, decisions: Sequence[str]) -> None:
        super().__init__(f"waiting for a decision on {', '.join(decisions)}")
        self.decisions = tuple(decisions)


class MiddlewareError(VakaError):
    """A middleware failed or took too long."""

    code = "middleware"


class ScriptError(VakaError):
    """A script failed; raised by a host function it is an error the script may catch."""

    code = "script"
    exit_code = 8

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class ScriptLimit(ScriptError):
    """A script used more memory, time, instructions or coroutines than it may; it cannot catch this."""

    code = "script_limit"
    exit_code = 7


class ReplayError(ScriptError):
    """What a script was told before does not fit what it asks for now; it is not run."""

    code = "replay"


class Closed(VakaError):
    """The runtime, session or store was closed."""

    code = "closed"


EXIT_CODES: dict[str, int] = {}
"""Exit code of each error code, for a failure that is known only by what the log says of it."""


def _collect(kind: type[VakaError]) -> None:
    EXIT_CODES[kind.code] = kind.exit_code
    for child in kind.__subclasses__():
        _collect(child)


_collect(VakaError)
