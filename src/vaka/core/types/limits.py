"""The limits of a turn, and which of them is reached."""

from typing import Annotated

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.keywords import Flag, Key, UnevaluatedSignature
from vaka.core.types.message import Usage

MIN_RESULT_TOKENS = 2_000
"""The part of a long result that is shown must be shorter than the result."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, repr_omit_defaults=True, metaclass=UnevaluatedSignature):
    """Limits of one turn of one agent; ``None`` for no limit. The usage of its children counts, too."""

    max_steps: Annotated[
        int | None,
        Flag("--max-steps", "Model calls of a turn at most.", aliases=("--max-turns",)),
        Key(default=None),
    ] = 50
    """The most model calls of one turn."""
    max_tokens: Annotated[int | None, Flag("--max-tokens", "Tokens of a turn at most.")] = None
    """The most tokens of one turn."""
    max_cost: Annotated[float | None, Flag("--max-budget-usd", "US dollars of a turn at most.")] = None
    """The most US dollars that one turn may cost."""
    timeout: Annotated[
        float | None, Flag("--timeout", "How long a turn may take, such as 90 or 5m."), Key(kind="seconds")
    ] = None
    """The most seconds of one turn, without the time spent waiting for a person."""
    max_rewinds: int = 3
    """How often the agent may rewind its conversation by D-Mail in one turn."""
    output_retries: int = 2
    """How often an answer that does not fit the output type is shown to the model with its errors and asked again."""
    max_continuations: int = 8
    """How often middleware may continue the agent after its final answer (``Continuation``) in one turn."""
    max_tool_concurrency: int = 8
    """How many tool calls of one step run at the same time."""
    max_depth: int = 5
    """How deep child agents may be nested: 1 for children without children of their own, 0 for no child agents."""
    max_children: int = 100
    """How many child agents one turn may start, at all depths together."""
    max_scripts: int = 1000
    """How many scripts the scripts of one turn may start by calling tools, at all depths together."""
    max_result_tokens: Annotated[int | None, Key(default=None)] = 20_000
    """The tokens of a tool's result that the model gets whole, estimated from its bytes; of a longer one it sees the
    beginning and the end, and can read the rest."""
    middleware_timeout: float | None = None
    """Seconds one method of one middleware may take."""
    approval_ttl: float | None = 7 * 24 * 3600.0
    """Seconds until an unanswered approval counts as denied."""
    grant_ttl: float | None = None
    """Seconds that an approval for the session is valid unless the person sets a time; ``None``: until its end."""
    grace: float = 5.0
    """Seconds a cancelled tool has to end before the turn continues without it."""
    warn_repeats: int = 3
    """An equal call in the n-th step in a row is answered with an error …"""
    stop_repeats: int = 5
    """… and in this one ends the turn. Equal calls of one step count once."""
    stop_invalid: int = 3
    """So many steps in a row in which every call had invalid arguments end the turn; 0 for no limit."""

    def __post_init__(self) -> None:
        if self.max_tool_concurrency < 1:
            raise InvalidInput(f"max_tool_concurrency {self.max_tool_concurrency!r} must be at least 1")
        for name in ("max_depth", "max_children", "max_scripts"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"{name} {getattr(self, name)!r} must be at least 0")
        if self.max_result_tokens is not None and self.max_result_tokens < MIN_RESULT_TOKENS:
            most = self.max_result_tokens
            raise InvalidInput(f"max_result_tokens {most!r} must be at least {MIN_RESULT_TOKENS}, or None for no limit")
        if self.grant_ttl is not None and not self.grant_ttl > 0:
            raise InvalidInput(f"grant_ttl {self.grant_ttl!r} must be seconds above zero, or None for no end")

    def within(self, parent: "Limits") -> "Limits":
        """Return the limits of a child agent: its own limits, each at most as wide as the limit of ``parent``.

        The limits of time, tokens and cost stay, because a child also counts against these limits of its parents.
        """
        narrowed: dict[str, float | None] = {}
        for name, unlimited in _INHERITED.items():
            bounds = [bound for bound in (getattr(self, name), getattr(parent, name)) if bound != unlimited]
            narrowed[name] = min(bounds) if bounds else unlimited
        return msgspec.structs.replace(self, **narrowed)

    def reached_steps(self, steps: int) -> bool:
        """Whether no further step may follow ``steps`` steps."""
        return self.max_steps is not None and steps >= self.max_steps

    @property
    def has_budget(self) -> bool:
        """Whether tokens or cost are limited."""
        return self.max_tokens is not None or self.max_cost is not None


_INHERITED: dict[str, float | None] = {
    **dict.fromkeys(("max_steps", "max_tool_concurrency", "max_depth", "max_children", "middleware_timeout")),
    **dict.fromkeys(("max_scripts", "approval_ttl", "grant_ttl", "grace", "warn_repeats", "stop_repeats")),
    "stop_invalid": 0,
}
"""The limits that children inherit, with the value that means no limit."""


def reached_budget(limits: Limits, usage: Usage) -> str:
    """Return the budget that ``usage`` has used up: ``tokens``, ``cost`` or ``""``."""
    if limits.max_tokens is not None and usage.total >= limits.max_tokens:
        return "tokens"
    if limits.max_cost is not None and usage.cost >= limits.max_cost:
        return "cost"
    return ""
