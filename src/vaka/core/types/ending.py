"""How the run of an agent ended, for the loop, middleware and callers, and the event that closes its turn."""

from typing import Any, Generic, Literal, TypeAlias, TypeGuard, cast

import msgspec

from vaka.core.types import progress
from vaka.core.types.errors import ModelError, describe_failure
from vaka.core.types.event import Body
from vaka.core.types.message import FailureReason, Usage
from vaka.core.types.type_parameters import Out_co

StopKind: TypeAlias = Literal["interrupted", "cancelled", "limit"]
"""Why a turn was stopped."""
_SEAL_REASONS: dict[str, FailureReason] = {"cancelled": "cancelled", "interrupted": "interrupted"}


class Answer(msgspec.Struct, frozen=True):
    """Returned by ``before_agent``: ends the turn with this answer, without a model call."""

    text: str


class Reject(msgspec.Struct, frozen=True):
    """Returned by ``before_agent``: rejects the input, which does not become part of the conversation."""

    reason: str
    code: str = "blocked"
    """The ``code`` of the error."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How the run of an agent ended, as ``after_agent`` sees it; only a change of ``text`` has an effect."""

    text: str
    stop: str = "end"
    limit: str = ""
    error: str = ""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a run of the loop ended."""

    kind: Literal["completed", "failed", "cancelled", "interrupted"] = "completed"
    text: str = ""
    limit: str = ""
    code: str = ""
    message: str = ""
    withdrawn: bool = False
    status: int = 0
    """The HTTP status with which the model's provider refused the request; 0 for none."""
    retry_after: float = 0.0
    """The number of seconds to wait, if the provider named it."""

    @classmethod
    def of_error(cls, error: BaseException, text: str) -> "Ending":
        """Return the ending of a run that an error has ended; ``text`` is the part of the answer that exists."""
        code, message = describe_failure(error)
        status = getattr(error, "status", None) if isinstance(error, ModelError) else None
        after = getattr(error, "retry_after", None) if isinstance(error, ModelError) else None
        return cls(kind="failed", text=text, code=code, message=message, status=status or 0, retry_after=after or 0.0)

    @property
    def seal_reason(self) -> FailureReason:
        """The reason of the failed results that calls without a result get."""
        return _SEAL_REASONS.get(self.kind, "sealed")

    def closing_event(self, usage: Usage) -> Body:
        """Return the event that ends a turn."""
        if self.kind == "failed":
            return progress.TurnFailed(
                code=self.code,
                message=self.message,
                text=self.text,
                withdrawn=self.withdrawn,
                usage=usage,
                status=self.status,
                retry_after=self.retry_after,
            )
        if self.kind == "cancelled":
            return progress.TurnCancelled(note=self.message, text=self.text, usage=usage)
        if self.kind == "interrupted":
            return progress.TurnInterrupted(note=self.message, text=self.text, usage=usage, code=self.code)
        stop: Literal["end", "limit"] = "limit" if self.limit else "end"
        return progress.TurnCompleted(text=self.text, stop=stop, limit=self.limit, usage=usage)

    @property
    def is_answer(self) -> bool:
        """Whether the text is a complete answer."""
        return self.kind == "completed" and not self.limit


class Response(msgspec.Struct, Generic[Out_co], frozen=True, kw_only=True):
    """The result of one turn. Type checkers know ``Response[Out]`` by the ``output`` of the agent."""

    text: str
    """The text of the answer."""
    session_id: str
    """The id of the session."""
    turn_id: str
    """The id of the turn."""
    stop: Literal["end", "limit", "failed", "cancelled", "interrupted"] = "end"
    """Why the turn ended; ``end`` when the model finished its answer."""
    limit: str = ""
    """The limit that ended the turn, when ``stop`` is ``limit``."""
    usage: Usage = Usage()
    """Tokens and cost of all model calls of the turn, child agents included."""
    steps: int = 0
    """The number of steps; each is one model call and the tool calls it requests."""
    tool_calls: tuple[str, ...] = ()
    """Names of the tools that were called, in order."""
    denied: tuple[str, ...] = ()
    """Ids of the calls that were refused."""
    code: str = ""
    """The code of the error, when the turn failed."""
    error: str = ""
    """The error message of a failed turn, or the note of a cancelled or interrupted turn."""
    output: Out_co = cast("Any", None)
    """The answer as a value of the agent's ``output`` type; ``None`` for an agent without one, and in a response whose
    ``stop`` is not ``end``."""


def is_response(value: object) -> TypeGuard[Response[Any]]:
    """Return whether a value, such as ``TurnError.result``, is a response."""
    return isinstance(value, Response)
