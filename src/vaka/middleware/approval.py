"""Approval: tools that need the approval of a person, whatever the policy decides."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Ask

AllowedDecision: TypeAlias = Literal["approve", "edit", "reject"]


class Review(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How an approval of a tool is requested. A call can always be rejected."""

    allowed_decisions: tuple[AllowedDecision, ...] = ("approve", "edit", "reject")
    message: str = ""
    """The text of the request, instead of the default question."""


class Approval(Middleware):
    """Requests an approval before the named tools run; where no person can be asked they do not run.

    ``True`` asks, ``False`` does not, and a ``Review`` (or a mapping with its fields) sets how to ask. The name ``*``
    stands for every tool that is not named. With ``False`` the policy may still ask or deny.
    """

    def __init__(self, tools: "Mapping[str, bool | Review | Mapping[str, Any]]") -> None:
        self._reviews = {name: _parse_review(name, value) for name, value in tools.items()}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Ask:
        review = self._reviews.get(call.name, self._reviews.get("*"))
        if review is None:
            return call
        return Ask(
            reason=f"{call.name} needs approval", message=review.message,
            decisions=() if len(set(review.allowed_decisions)) == 3 else review.allowed_decisions,
        )  # fmt: skip


def _parse_review(name: str, value: Any) -> Review | None:
    if isinstance(value, bool):
        return Review() if value else None
    try:
        review = value if isinstance(value, Review) else msgspec.convert(dict(value), Review)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        expected = "true, false or {allowed_decisions, message}"
        raise ConfigError(f"approval of {name!r} must be {expected}, not {value!r}: {error}") from error
    if not {"approve", "edit"} & set(review.allowed_decisions):
        raise ConfigError(
            f"approval of {name!r} must allow 'approve' or 'edit'; to forbid a tool, deny it in the rules"
        )
    return review
