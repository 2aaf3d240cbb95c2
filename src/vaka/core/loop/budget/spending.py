"""Check budgets before a model call, reserve its cost, and record what was used on behalf of a turn."""

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

import msgspec

from vaka.core.loop.budget.limits import Limits, reached_budget
from vaka.core.loop.budget.reservations import Reservation
from vaka.core.loop.context import Turn
from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.model import CostEstimator, Estimate, Model, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.ids import CallId
from vaka.core.types.message import Usage
from vaka.core.types.monitor import BudgetWarning, UsageRecorded

WARNING_SHARE = 0.8
"""The share of a budget after which a warning is logged."""

DEFAULT_ANSWER_TOKENS = 16_384
"""The ``max_tokens`` of a model whose output limit is unknown; many providers reject a larger value."""

MAX_ANSWER_TOKENS = 400_000
"""More tokens than any model writes in one answer: a budget with so much room needs no ``max_tokens``."""

MIN_ANSWER_TOKENS = 16
"""The smallest useful ``max_tokens``; some providers reject less."""

CHARACTERS_PER_TOKEN = 4
"""The approximate length of a token, for estimates."""

_WARNED_KEY = "vaka.budget.warned"


def exhausted_limit(turn: Turn) -> str:
    """Return the name of the first budget of this agent or its parents that is used up, ``""`` for none."""
    for payer in turn.budget_turns:
        if limit := reached_budget(payer.recipe.limits, payer.counted_usage):
            return limit
    return ""


async def wait_for_budget(turn: Turn, usage: Usage, unpriced: str = "") -> None:
    """Wait until the budgets of this agent and its parents have room for ``usage`` beside the active reservations.

    Raises ``TurnStopped`` when one never can, and ``ConfigError`` when one has a budget in money and ``unpriced`` says
    why the price is not known.
    """
    payers = turn.budget_turns
    if unpriced and any(payer.recipe.limits.max_cost is not None for payer in payers):
        raise ConfigError(unpriced)
    while any(_missing_budget(payer, usage, include_running=True) for payer in payers):
        limit = next(filter(None, (_missing_budget(payer, usage, include_running=False) for payer in payers)), "")
        if limit:  # also when all waitable reservations are released
            raise TurnStopped("limit", limit)
        await turn.reservations.wait_for_release()


def _missing_budget(turn: Turn, usage: Usage, *, include_running: bool) -> str:
    """Return the name of the budget of ``turn`` that has no room for ``usage``, ``""`` if both have."""
    limits, spent = (
        turn.recipe.limits,
        turn.counted_usage + turn.reservations.reserved_usage(turn.path, include_waitable=include_running) + usage,
    )
    if limits.max_tokens is not None and spent.total > limits.max_tokens:
        return "tokens"
    return "cost" if limits.max_cost is not None and usage.cost and spent.cost > limits.max_cost else ""


async def reserve(turn: Turn, model: Model, prompt: Prompt, *, waitable: bool = True) -> Reservation:
    """Reserve the estimated usage of ``prompt``, with ``max_tokens`` lowered to what the budgets allow.

    Raises ``TurnStopped`` when nothing would be left, and ``ConfigError`` when a budget is in money and the model has
    no price. A ``waitable`` call ends by itself, so that others may wait for it.
    """
    payers = turn.budget_turns
    if not payers or not isinstance(model, CostEstimator):
        return Reservation(prompt)
    while True:
        estimate = _estimate_cost(payers, model, prompt)
        max_tokens = _max_output_tokens(payers, estimate, prompt, include_running=False)
        if _fits_beside_running(payers, estimate, prompt, max_tokens):
            return turn.reservations.add(_make_reservation(turn, prompt, estimate, max_tokens, waitable=waitable))
        await turn.reservations.wait_for_release()


def estimate_partial_usage(model: Model, prompt: Prompt, counted: Usage, written_chars: int) -> Usage:
    """Return what an answer has cost that broke off after ``written_chars``, where ``counted`` lacks it.

    Most providers send the usage at the end of a stream, some that of the prompt at its start; the rest is estimated.
    """
    if not written_chars or not isinstance(model, CostEstimator):
        return counted
    estimate = model.estimate(prompt)
    known = counted if counted.total else estimate.usage
    missing = max(-(-written_chars // CHARACTERS_PER_TOKEN) - known.output, 0)
    return known + Usage(output=missing, cost=missing * estimate.output_price)


def check_retry_budget(turn: Turn, model: Model, reservation: Reservation) -> None:
    """Raise ``TurnStopped`` when no budget is left for a retry: the failed attempt may have cost something."""
    payers = turn.budget_turns
    if payers and isinstance(model, CostEstimator):
        _max_output_tokens(
            payers,
            _estimate_cost(payers, model, reservation.prompt),
            reservation.prompt,
            include_running=True,
            without=reservation,
        )


def _fits_beside_running(turns: tuple[Turn, ...], estimate: Estimate, prompt: Prompt, max_tokens: int | None) -> bool:
    """Whether the active reservations leave as much room as there will be after their release."""
    try:
        return _max_output_tokens(turns, estimate, prompt, include_running=True) == max_tokens
    except TurnStopped:
        return False


def _estimate_cost(turns: tuple[Turn, ...], model: CostEstimator, prompt: Prompt) -> Estimate:
    estimate = model.estimate(prompt)
    if estimate.unpriced and any(payer.recipe.limits.max_cost is not None for payer in turns):
        raise ConfigError(estimate.unpriced)
    return estimate


def _output_bound(estimate: Estimate, prompt: Prompt) -> int | None:
    given = prompt.options.get("max_tokens")
    return given if isinstance(given, int) else estimate.max_tokens


def _max_output_tokens(
    turns: tuple[Turn, ...],
    estimate: Estimate,
    prompt: Prompt,
    *,
    include_running: bool,
    without: Reservation | None = None,
) -> int | None:
    """Return ``max_tokens`` of the answer, ``None`` when no bound is needed. Raises ``TurnStopped`` without room."""
    bound, room = _output_bound(estimate, prompt), math.inf
    for payer in turns:
        held = payer.reservations.reserved_usage(payer.path, without=without, include_waitable=include_running)
        spent = payer.counted_usage + held + estimate.usage
        if not include_running:
            _warn_near_limit(payer, spent)
        room = min(
            room,
            _remaining_tokens(
                payer.recipe.limits,
                spent,
                estimate,
                min(MIN_ANSWER_TOKENS if bound is None else bound, MIN_ANSWER_TOKENS),
            ),
        )
    if room >= (MAX_ANSWER_TOKENS if bound is None else bound):
        return None
    return int(
        min(
            room,
            DEFAULT_ANSWER_TOKENS if bound is None else bound,
            math.inf if estimate.takes is None else estimate.takes,
        )
    )


def _make_reservation(
    turn: Turn, prompt: Prompt, estimate: Estimate, max_tokens: int | None, *, waitable: bool
) -> Reservation:
    bound = _output_bound(estimate, prompt)
    if max_tokens is not None:
        prompt = msgspec.structs.replace(prompt, options={**prompt.options, "max_tokens": max_tokens})
    answer = max_tokens if max_tokens is not None else MAX_ANSWER_TOKENS if bound is None else bound
    usage = estimate.usage + Usage(output=answer, cost=answer * estimate.output_price)
    return Reservation(prompt, turn.path, usage, waitable)


def _remaining_tokens(limits: Limits, spent: Usage, estimate: Estimate, min_tokens: int) -> float:
    """Return how many tokens the answer may have. Raises ``TurnStopped`` when they are fewer than ``min_tokens``."""
    room = math.inf
    if limits.max_tokens is not None:
        room = limits.max_tokens - spent.total
        if room < min_tokens:
            raise TurnStopped("limit", "tokens")
    if limits.max_cost is not None and (estimate.output_price or estimate.usage.cost):
        left = limits.max_cost - spent.cost
        payable = left / estimate.output_price if estimate.output_price else math.inf if left > 0 else 0.0
        if payable < min_tokens:
            raise TurnStopped("limit", "cost")
        room = min(room, payable)
    return room


def _warn_near_limit(turn: Turn, spent: Usage) -> None:
    limits = turn.recipe.limits
    for name, used, limit in (("cost", spent.cost, limits.max_cost), ("tokens", spent.total, limits.max_tokens)):
        if (
            limit is not None
            and used >= WARNING_SHARE * limit
            and name not in turn.values.setdefault(_WARNED_KEY, set())
        ):
            turn.values[_WARNED_KEY].add(name)
            turn.log.defer(turn.scope, BudgetWarning(budget=name, used=used, limit=limit))


class UsageScope(msgspec.Struct, frozen=True):
    """The turn that pays for usage in the current task, and the tool call, if a tool runs there."""

    turn: Turn
    call: CallId | None = None


_CURRENT_SCOPE: ContextVar[UsageScope | None] = ContextVar("vaka.payer", default=None)


@contextmanager
def charge_to_turn(turn: Turn) -> Generator[None]:
    """Charge usage inside the context, and in tasks created there, to a turn, until the context ends."""
    token = _CURRENT_SCOPE.set(UsageScope(turn))
    try:
        yield
    finally:
        turn.has_ended = True
        _CURRENT_SCOPE.reset(token)


def charge_to_call(turn: Turn, call: CallId) -> None:
    """Charge further usage of this task to a tool call."""
    _CURRENT_SCOPE.set(UsageScope(turn, call))


async def wait_until_affordable(usage: Usage, unpriced: str = "") -> None:
    """Return when the budgets of the current turn have room for ``usage``; at once outside of a turn.

    Raises ``TurnStopped`` when they never will, and ``ConfigError`` when there is a budget in money and ``unpriced``
    says why the price is not known.
    """
    scope = _CURRENT_SCOPE.get()
    if scope is not None and not scope.turn.has_ended:
        await wait_for_budget(scope.turn, usage, unpriced)


def record_usage(model: str, usage: Usage) -> bool:
    """Record usage in the log of the current turn; return whether there is one."""
    scope = _CURRENT_SCOPE.get()
    if scope is None or scope.turn.has_ended:
        return False
    turn = scope.turn
    turn.log.defer(turn.scope, UsageRecorded(model=model, usage=usage, agent=turn.agent, call=scope.call))
    return True
