"""Approval: the tools for which a person is asked, whatever the policy says."""

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
    """How a person is asked about a tool. A call can always be rejected."""

    allowed_decisions: tuple[AllowedDecision, ...] = ("approve", "edit", "reject")
    message: str = ""
    """What the person is told, instead of a plain question."""


class Approval(Middleware):
    """Asks a person before the tools named here run; without someone to ask they do not run.

    ``True`` asks, ``False`` does not, and a ``Review`` (or a mapping with its fields) says how to ask. The name ``*``
    stands for every tool that is not named. What ``False`` leaves alone the rules may still ask about or deny.
    """

    def __init__(self, tools: "Mapping[str, bool | Review | Mapping[str, Any]]") -> None:
        self._reviews = {name: _parse_review(name, given) for name, given in tools.items()}

    async def before_tool(self, turn: Turn, call: ToolCall) -> ToolCall | Ask:
        """Ask, or let the call pass."""
        review = self._reviews.get(call.name, self._reviews.get("*"))
        if review is None:
            return call
        return Ask(
            reason=f"{call.name} needs approval", message=review.message,
            decisions=() if len(set(review.allowed_decisions)) == 3 else review.allowed_decisions,
        )  # fmt: skip


def _parse_review(name: str, given: Any) -> Review | None:
    if isinstance(given, bool):
        return Review() if given else None
    try:
        review = given if isinstance(given, Review) else msgspec.convert(dict(given), Review)
    except (msgspec.ValidationError, TypeError, ValueError) as error:
        raise ConfigError(
            f"approval of {name!r} is true, false or {{allowed_decisions, message}}, not {given!r}: {error}"
        ) from error
    if not {"approve", "edit"} & set(review.allowed_decisions):
        raise ConfigError(f"approval of {name!r} allows nobody to let it run; to forbid a tool, deny it in the rules")
    return review
