"""What every error of vaka is."""

from collections.abc import Sequence
from typing import Any


class VakaError(Exception):
    """Anything vaka raises on purpose. ``code`` is stable and meant for programs."""

    code: str = "error"
    exit_code: int = 1


class StoreError(VakaError):
    """The store could not do what was asked."""

    code = "store"


class ConflictError(StoreError):
    """Another writer has taken the session over; this one must stop."""

    code = "conflict"
    exit_code = 75


class HeadMoved(StoreError):
    """Someone offered an event first: read it, fold it, append again."""

    code = "head_moved"
    exit_code = 75


class Busy(StoreError):
    """The session has a live writer, or the store is locked; try again."""

    code = "busy"
    exit_code = 75


class Unavailable(StoreError):
    """The store cannot be reached now; whether the last write happened is unknown."""

    code = "unavailable"
    exit_code = 75


class Corrupt(StoreError):
    """Stored bytes are not what was written."""

    code = "corrupt"


class TooNew(StoreError):
    """The log holds events that only a newer vaka may act on."""

    code = "too_new"
    exit_code = 3


class LogError(VakaError):
    """An append that would break a rule of the log; nothing was written."""

    code = "log"


class ModelError(VakaError):
    """The model gave no usable answer."""

    code = "model"
    exit_code = 6


class ModelUnavailable(ModelError):
    """The model cannot answer now; the same request may succeed later."""

    code = "model_unavailable"
    exit_code = 75

    def __init__(self, message: str, *, retry_after: float | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.status = status


class RateLimited(ModelUnavailable):
    """Too many requests or tokens for now; ``retry_after`` has the seconds to wait, when the provider said."""

    code = "rate_limited"


class StreamCut(ModelUnavailable):
    """The answer broke off before its end marker, or what came was not an answer; nothing of it counts."""

    code = "stream_cut"


class ModelRefused(ModelError):
    """The model will not answer this request, however often it is sent."""

    code = "model_refused"

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class BadRequest(ModelRefused):
    """The request is wrong, or asks for what the model cannot do; the message has the provider's words."""

    code = "bad_request"


class AuthenticationFailed(ModelRefused):
    """The key is missing or wrong, or may not use this model."""

    code = "authentication"
    exit_code = 4


class ContextTooLong(ModelRefused):
    """The conversation is longer than the model can read: compact it, or choose a model with a larger window."""

    code = "context_too_long"


class Truncated(ModelError):
    """The answer reached its length limit before it was whole: raise ``max_tokens``, or ask for less."""

    code = "truncated"


class NetworkError(VakaError):
    """A request over the network got no usable answer; ``reason`` says why in one stable word."""

    code = "network"

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


class NetworkRefused(NetworkError):
    """The rules of the network forbid the request, or where it was sent on to; nothing was sent there."""

    code = "network_refused"


class NetworkTimeout(NetworkError):
    """Connecting, waiting for more or the whole request took longer than it may."""

    code = "network_timeout"
    exit_code = 75


class NetworkTooLarge(NetworkError):
    """The answer's head, its bytes or what they unpack to are more than was asked for."""

    code = "network_too_large"


class NetworkUnreachable(NetworkError):
    """There is no such name, nobody listens, the certificate is not trusted, or the connection broke."""

    code = "network_unreachable"
    exit_code = 75


class FileError(VakaError):
    """A file could not be read or written; the message says why."""

    code = "file"
    exit_code = 8


class FileMissing(FileError):
    """There is no such file or folder."""

    code = "file_missing"


class FileRefused(FileError):
    """The path leaves the tree, or names something that is neither a regular file nor a folder."""

    code = "file_refused"


class FileChanged(FileError):
    """The file is not what the caller knew of it: read it again first."""

    code = "file_changed"


class SandboxError(VakaError):
    """A command cannot be confined as it was asked for, so it was not started."""

    code = "sandbox"
    exit_code = 8


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


def _collect_exit_codes(kind: type[VakaError]) -> None:
    EXIT_CODES[kind.code] = kind.exit_code
    for child in kind.__subclasses__():
        _collect_exit_codes(child)


_collect_exit_codes(VakaError)
