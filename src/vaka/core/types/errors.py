"""Every error a caller can meet, with the exit code of the command line where it differs from the parent's.

::

    VakaError  exit 1
    ├── InvalidInput  exit 2
    │   ├── AlreadyExists
    │   ├── ErasedSession
    │   └── NotFound
    │       └── AccessDenied
    ├── ConfigError  exit 3
    ├── StoreError
    │   ├── ConflictError  exit 75
    │   ├── HeadMoved  exit 75
    │   ├── Busy  exit 75
    │   ├── Unavailable  exit 75
    │   ├── Corrupt
    │   │   └── NotADatabase  exit 3
    │   ├── CannotOpen  exit 3
    │   ├── ReadOnlyStore  exit 3
    │   └── TooNew  exit 3
    ├── LogError
    ├── ModelError  exit 6
    │   ├── ModelUnavailable  exit 75
    │   │   ├── RateLimited
    │   │   └── StreamCut
    │   ├── ModelRefused
    │   │   ├── BadRequest
    │   │   ├── AuthenticationFailed  exit 4
    │   │   └── ContextTooLong
    │   ├── InvalidOutput
    │   └── Truncated
    ├── NetworkError
    │   ├── NetworkRefused
    │   ├── NetworkTimeout  exit 75
    │   ├── NetworkTooLarge
    │   └── NetworkUnreachable  exit 75
    ├── FileError  exit 8
    │   ├── FileMissing
    │   ├── FileRefused
    │   └── FileChanged
    ├── SandboxError  exit 8
    ├── TurnError
    │   ├── Interrupted  exit 130
    │   │   └── Rejected  exit 5
    │   ├── Cancelled  exit 130
    │   └── Suspended  exit 5
    ├── MiddlewareError
    ├── McpError  exit 75
    ├── ScriptError  exit 8
    │   ├── ScriptLimit  exit 7
    │   └── ReplayError
    └── Closed
"""

from collections.abc import Sequence
from typing import Any

EXIT_CODES: dict[str, int] = {"error": 1}
"""The exit code of each error code, for a failure that is known only by the code in the log."""


class VakaError(Exception):
    """Anything vaka raises on purpose. ``code`` is stable and meant for programs."""

    code: str = "error"
    exit_code: int = 1

    def __init_subclass__(cls, *, code: str = "", exit_code: int = 0) -> None:
        """Set the codes that a subclass names; it inherits the others."""
        super().__init_subclass__()
        cls.code, cls.exit_code = code or cls.code, exit_code or cls.exit_code
        EXIT_CODES.setdefault(cls.code, cls.exit_code)


class InvalidInput(VakaError, code="invalid_input", exit_code=2):
    """An argument, a request or an input is not valid; nothing was done."""


class NotFound(InvalidInput, code="not_found"):
    """There is no such session, approval, question, blob or tool."""


class AccessDenied(NotFound):
    """It belongs to another owner; over the network it is answered as if it did not exist."""


class AlreadyExists(InvalidInput, code="exists"):
    """Something with this id exists already: choose another id."""


class ErasedSession(InvalidInput, code="erased"):
    """The data of the session were erased; nothing can be appended to it."""


class ConfigError(VakaError, code="config", exit_code=3):
    """A setting, a file or an installation is wrong."""


class StoreError(VakaError, code="store"):
    """The store could not do what was asked."""


class ConflictError(StoreError, code="conflict", exit_code=75):
    """Another writer has taken the session over; this one must stop."""


class HeadMoved(StoreError, code="head_moved", exit_code=75):
    """Another process appended an event first: read it, fold it, append again."""


class Busy(StoreError, code="busy", exit_code=75):
    """The session has a live writer, or the store is locked; try again."""


class Unavailable(StoreError, code="unavailable", exit_code=75):
    """The store cannot be reached now; whether the last write happened is unknown."""


class ReadOnlyStore(StoreError, code="read_only", exit_code=3):
    """The store can be read here, but not written: its disk or its folder is read-only."""


class Corrupt(StoreError, code="corrupt"):
    """Stored bytes are not what was written."""


class TooNew(StoreError, code="too_new", exit_code=3):
    """The log holds events that only a newer vaka may act on."""


class CannotOpen(StoreError, code="cannot_open", exit_code=3):
    """The store cannot be opened; the message names its file or the address of its server."""


class NotADatabase(Corrupt, code="not_a_database", exit_code=3):
    """The file of a store is damaged or is not a database; the message names it."""


class LogError(VakaError, code="log"):
    """An append that would break a rule of the log; nothing was written."""


class ModelError(VakaError, code="model", exit_code=6):
    """The model gave no usable answer."""


class ModelUnavailable(ModelError, code="model_unavailable", exit_code=75):
    """The model cannot answer now; the same request may succeed later."""

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after, self.status = retry_after, status


class RateLimited(ModelUnavailable, code="rate_limited"):
    """Too many requests or tokens; ``retry_after`` is the number of seconds to wait, if the provider sent one."""


class StreamCut(ModelUnavailable, code="stream_cut"):
    """The response broke off before its end marker or was not an answer; all of it is discarded."""


class ModelRefused(ModelError, code="model_refused"):
    """The model will not answer this request, however often it is sent."""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(ModelRefused, code="bad_request"):
    """The request is wrong, or needs a feature the model lacks; the message quotes the provider."""


class AuthenticationFailed(ModelRefused, code="authentication", exit_code=4):
    """The key is missing or wrong, or may not use this model."""


class ContextTooLong(ModelRefused, code="context_too_long"):
    """The conversation is longer than the model can read: compact it, or choose a model with a larger window."""


class InvalidOutput(ModelError, code="invalid_output"):
    """The answer does not fit the output type, and did not when the model was asked again."""


class Truncated(ModelError, code="truncated"):
    """The answer reached its length limit before it was whole: raise ``max_tokens``, or ask for less."""


class NetworkError(VakaError, code="network"):
    """A request over the network got no usable answer; ``reason`` is one stable word for the cause."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NetworkRefused(NetworkError, code="network_refused"):
    """The network rules forbid the request or the target of a redirect; nothing was sent there."""


class NetworkTimeout(NetworkError, code="network_timeout", exit_code=75):
    """Connecting, waiting for data or the whole request took longer than it may."""


class NetworkTooLarge(NetworkError, code="network_too_large"):
    """The head, the body or the unpacked body of the answer is larger than its limit."""


class NetworkUnreachable(NetworkError, code="network_unreachable", exit_code=75):
    """The name does not resolve, the connection was refused or lost, or the certificate is not trusted."""


class FileError(VakaError, code="file", exit_code=8):
    """A file could not be read or written; the message has the cause."""


class FileMissing(FileError, code="file_missing"):
    """There is no such file or folder."""


class FileRefused(FileError, code="file_refused"):
    """The path leaves the tree, or names something that is neither a regular file nor a folder."""


class FileChanged(FileError, code="file_changed"):
    """The file has changed since the caller read it: read it again first."""


class SandboxError(VakaError, code="sandbox", exit_code=8):
    """A command cannot be confined as requested, so it was not started."""


class TurnError(VakaError, code="turn"):
    """A turn ended without an answer; ``code`` is the cause, ``result`` the part of the answer that exists."""

    def __init__(self, message: str, *, code: str = "", result: Any = None) -> None:
        super().__init__(message)
        self.code = code or self.code
        self.exit_code = EXIT_CODES.get(self.code, self.exit_code)
        self.result = result


class Interrupted(TurnError, code="interrupted", exit_code=130):
    """A person stopped the turn."""


class Rejected(Interrupted, code="rejected", exit_code=5):
    """A person stopped the turn by rejecting a call without a message."""


class Cancelled(TurnError, code="cancelled", exit_code=130):
    """The caller withdrew the turn."""


class Suspended(TurnError, code="suspended", exit_code=5):
    """The turn waits for a person; it goes on once every decision in ``decisions`` is taken."""

    def __init__(self, decisions: Sequence[str]) -> None:
        super().__init__(f"waiting for a decision on {', '.join(decisions)}")
        self.decisions = tuple(decisions)


class MiddlewareError(VakaError, code="middleware"):
    """A middleware failed or took too long."""

    @classmethod
    def for_value(cls, value: object, middleware: str, point: str, kinds: tuple[type, ...]) -> "MiddlewareError":
        """Return the error for a value of another type than a point expects."""
        expected = " or ".join("None" if kind is type(None) else kind.__name__ for kind in kinds)
        hint = "; end it with a return statement" if value is None else ""
        found = repr(value)[:200]
        return cls(f"{point} of middleware {middleware!r} returned {found}, expected {expected}{hint}")


class McpError(VakaError, code="mcp", exit_code=75):
    """An MCP server cannot be reached, or does not do what it was asked for."""


class ScriptError(VakaError, code="script", exit_code=8):
    """A script failed. Raised by a host function, it is an error the script may catch."""

    def __init__(self, message: str, *, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class ScriptLimit(ScriptError, code="script_limit", exit_code=7):
    """A script used more memory, time, instructions or coroutines than it may; it cannot catch this."""


class ReplayError(ScriptError, code="replay"):
    """The script's requests do not match the answers in its log; it is not run."""


class Closed(VakaError, code="closed"):
    """The runtime, session or store was closed."""


MIDDLEWARE_NOTE = "middleware"
"""How the note begins that names the middleware in which an error was raised."""


def describe_failure(error: BaseException) -> tuple[str, str]:
    """Return the code and the message of an error that ends a turn."""
    text = f"{error}" if isinstance(error, VakaError) else f"{type(error).__name__}: {error}"
    notes = [note for note in getattr(error, "__notes__", ()) if note.startswith(MIDDLEWARE_NOTE)]
    if notes:
        return MiddlewareError.code, f"{notes[0]}: {text}"
    return (error.code if isinstance(error, VakaError) else "internal"), text
