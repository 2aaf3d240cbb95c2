"""The limits of a turn, and which of them is reached."""

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import Usage


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of one turn of one agent; ``None`` for none. What its children use counts, too."""

    max_steps: int | None = 50
    max_tokens: int | None = None
    max_cost: float | None = None
    """US dollars."""
    timeout: float | None = None
    """Seconds, not counting the time a person is waited for."""
    max_rewinds: int = 3
    """How often the agent may take its own conversation back in one turn."""
    max_tool_concurrency: int = 8
    middleware_timeout: float | None = None
    """Seconds one call of one middleware may take."""
    approval_ttl: float | None = 7 * 24 * 3600.0
    """Seconds until an unanswered approval counts as denied."""
    grant_ttl: float | None = None
    """Seconds that a yes for the session counts, unless the person says how long; ``None``: for the rest of it."""
    grace: float = 5.0
    """Seconds a cancelled tool gets to leave before it is left behind."""
    warn_repeats: int = 3
    """The n-th equal call in a row is answered with an error …"""
    stop_repeats: int = 5
    """… and this one ends the turn."""
    stop_invalid: int = 3
    """So many answers in a row whose calls all had arguments that could not be used end the turn; 0 for any number."""

    def __post_init__(self) -> None:
        if self.max_tool_concurrency < 1:
            raise InvalidInput(f"max_tool_concurrency {self.max_tool_concurrency!r} must be at least 1")
        if self.grant_ttl is not None and not self.grant_ttl > 0:
            raise InvalidInput(f"grant_ttl {self.grant_ttl!r} must be seconds above zero, or None for no end")

    @property
    def has_budget(self) -> bool:
        """Whether tokens or money are bounded."""
        return self.max_tokens is not None or self.max_cost is not None


def reached_budget(limits: Limits, usage: Usage) -> str:
    """Return the budget that ``usage`` has used up: ``tokens``, ``cost`` or ``""``."""
    if limits.max_tokens is not None and usage.total >= limits.max_tokens:
        return "tokens"
    if limits.max_cost is not None and usage.cost >= limits.max_cost:
        return "cost"
    return ""
