"""Usage that is not a model call, such as an embedding: the budget of the turn in which it happens pays for it."""

from vaka.core.loop.budget import CURRENT_SCOPE, Budget
from vaka.core.loop.stop import TurnStopped
from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage
from vaka.core.types.monitor import UsageRecorded


async def wait_until_affordable(usage: Usage, unpriced: str = "") -> None:
    """Wait until all payers have room for ``usage`` beside the active reservations; not at all outside of a turn.

    Raises ``TurnStopped`` when one never can, and ``ConfigError`` when one has a budget in money and ``unpriced``
    says why the price is not known.
    """
    scope = CURRENT_SCOPE.get()
    if scope is None or scope.budget.closed:
        return
    payers = scope.budget.payers
    if unpriced and any(payer.limits.max_cost is not None for payer in payers):
        raise ConfigError(unpriced)
    while any(_limit_without_room(payer, usage, include_running=True) for payer in payers):
        limits = (_limit_without_room(payer, usage, include_running=False) for payer in payers)
        limit = next(filter(None, limits), "")
        if limit:  # also when all waitable reservations are released
            raise TurnStopped("limit", limit)
        await scope.budget.reservations.wait_for_release()


def record_usage(model: str, usage: Usage) -> bool:
    """Record usage in the log of the current turn; return whether there is one."""
    current = CURRENT_SCOPE.get()
    if current is None or current.budget.closed:
        return False
    body = UsageRecorded(model=model, usage=usage, agent=current.budget.agent, call=current.call)
    current.budget.defer_usage(body)
    return True


def _limit_without_room(payer: Budget, usage: Usage, *, include_running: bool) -> str:
    """Return the name of the limit that has no room for ``usage``, ``""`` if both have."""
    limits, spent = payer.limits, payer.used_and_reserved(include_running=include_running) + usage
    if limits.max_tokens is not None and spent.total > limits.max_tokens:
        return "tokens"
    return "cost" if limits.max_cost is not None and usage.cost and spent.cost > limits.max_cost else ""
