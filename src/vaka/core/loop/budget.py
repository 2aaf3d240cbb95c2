"""Tokens and money are looked at before they are spent: a call that a budget cannot pay for is not made.

Who makes a call is bound by its own limits and by those of everyone above it, up to the root agent, whose limits are
those of the whole turn. Calls that are under way count as if they had cost the most they can; one that would have less
room beside them waits until they are over.
"""

import math

import msgspec

from vaka.core.loop.limits import Limits, reached
from vaka.core.loop.purse import Hold
from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.ports.model import Estimate, Estimates, Model, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.monitor import BudgetWarning
from vaka.core.types.usage import Usage

WARN = 0.8
"""The part of a budget after which operators are told."""
ANSWER = 16_384
"""Tokens that may be asked of a model of which nobody knows how much it writes: many refuse to be asked for more."""
LONGEST = 400_000
"""Tokens that no model writes in one answer: where there is room for so many, no bound is needed."""
LEAST = 16
"""Tokens that are worth asking for; some providers refuse to be asked for less."""
CHARACTERS = 4
"""How many make a token, about."""
_WARNED = "vaka.budget.warned"


def exhausted(turn: Turn) -> str:
    """Return the budget of this agent or of one above it that has nothing left, ``""`` when all have."""
    return next(filter(None, (reached(payer.recipe.limits, -1, payer.spent) for payer in turn.payers)), "")


async def require(turn: Turn, usage: Usage, unpriced: str = "") -> None:
    """Return when this agent and everyone above it can pay for ``usage``, also beside the calls that are under way.

    Raises ``Stopped`` when one never can, and ``ConfigError`` when one has a budget in money, and ``unpriced`` says why
    the price is not known.
    """
    payers = turn.payers
    if unpriced and any(payer.recipe.limits.max_cost is not None for payer in payers):
        raise ConfigError(unpriced)
    while any(_short(payer, usage, beside=True) for payer in payers):
        never = next(filter(None, (_short(payer, usage, beside=False) for payer in payers)), "")
        if never:
            raise Stopped("limit", never)
        await turn.purse.changed()


def _short(payer: Turn, usage: Usage, *, beside: bool) -> str:
    """Return which budget has no room for ``usage``, ``beside`` calls that will end; ``""`` when all have."""
    limits, spent = payer.recipe.limits, payer.spent + payer.purse.held(payer.path, steady=beside) + usage
    if limits.max_tokens is not None and spent.total > limits.max_tokens:
        return "tokens"
    return "cost" if limits.max_cost is not None and usage.cost and spent.cost > limits.max_cost else ""


async def afford(turn: Turn, model: Model, prompt: Prompt, *, steady: bool = True) -> Hold:
    """Return ``prompt`` with its answer bounded by what is left, and what it may cost held until it is released.

    Raises ``Stopped`` when nothing would be left, and ``ConfigError`` for money and a model whose price nobody knows.
    ``steady`` is a call that ends by itself.
    """
    payers = turn.payers
    if not payers or not isinstance(model, Estimates):
        return Hold(prompt)
    while True:
        estimate = _estimated(payers, model, prompt)
        alone = _most(payers, estimate, prompt, beside=False)
        if _fits(payers, estimate, prompt, alone):
            return turn.purse.hold(_held(turn, prompt, estimate, alone, steady=steady))
        await turn.purse.changed()


def broken_off(model: Model, prompt: Prompt, counted: Usage, written: int) -> Usage:
    """Return what an answer has cost that broke off after ``written`` characters, as far as nobody ``counted`` it.

    Providers tell it with the end, some the prompt's part at the beginning; what is missing is estimated.
    """
    if not written or not isinstance(model, Estimates):
        return counted
    estimate = model.estimate(prompt)
    known = counted if counted.total else estimate.usage
    more = max(-(-written // CHARACTERS) - known.output, 0)
    return known + Usage(output=more, cost=more * estimate.output_price)


def check(turn: Turn, model: Model, hold: Hold) -> None:
    """Raise ``Stopped`` when a call that is tried again can no longer be paid: what failed may have cost something."""
    payers = turn.payers
    if payers and isinstance(model, Estimates):
        _most(payers, _estimated(payers, model, hold.prompt), hold.prompt, beside=True, without=hold)


def _fits(payers: tuple[Turn, ...], estimate: Estimate, prompt: Prompt, alone: int | None) -> bool:
    """Whether there is as much room beside the calls that are under way as there will be without them."""
    try:
        return _most(payers, estimate, prompt, beside=True) == alone
    except Stopped:
        return False


def _estimated(payers: tuple[Turn, ...], model: Estimates, prompt: Prompt) -> Estimate:
    estimate = model.estimate(prompt)
    if estimate.unpriced and any(payer.recipe.limits.max_cost is not None for payer in payers):
        raise ConfigError(estimate.unpriced)
    return estimate


def _bound(estimate: Estimate, prompt: Prompt) -> int | None:
    given = prompt.options.get("max_tokens")
    return given if isinstance(given, int) else estimate.max_tokens


def _most(
    payers: tuple[Turn, ...], estimate: Estimate, prompt: Prompt, *, beside: bool, without: Hold | None = None
) -> int | None:
    """Return how many tokens the answer may have, ``None`` when no bound is needed, ``beside`` calls that will end."""
    bound, room = _bound(estimate, prompt), math.inf
    for payer in payers:
        held = payer.purse.held(payer.path, without=without, steady=beside)
        spent = payer.spent + held + estimate.usage
        if not beside:
            _warn(payer, spent)
        room = min(room, _room(payer.recipe.limits, spent, estimate, min(LEAST if bound is None else bound, LEAST)))
    if room >= (LONGEST if bound is None else bound):
        return None
    return int(min(room, ANSWER if bound is None else bound, math.inf if estimate.takes is None else estimate.takes))


def _held(turn: Turn, prompt: Prompt, estimate: Estimate, most: int | None, *, steady: bool) -> Hold:
    bound = _bound(estimate, prompt)
    if most is not None:
        prompt = msgspec.structs.replace(prompt, options={**prompt.options, "max_tokens": most})
    answer = most if most is not None else LONGEST if bound is None else bound
    usage = estimate.usage + Usage(output=answer, cost=answer * estimate.output_price)
    return Hold(prompt, turn.path, usage, steady)


def _room(limits: Limits, spent: Usage, estimate: Estimate, least: int) -> float:
    """Return how many tokens the answer may have. Raises ``Stopped`` when they are fewer than ``least``."""
    room = math.inf
    if limits.max_tokens is not None:
        room = limits.max_tokens - spent.total
        if room < least:
            raise Stopped("limit", "tokens")
    if limits.max_cost is not None and (estimate.output_price or estimate.usage.cost):
        left = limits.max_cost - spent.cost
        payable = left / estimate.output_price if estimate.output_price else math.inf if left > 0 else 0.0
        if payable < least:
            raise Stopped("limit", "cost")
        room = min(room, payable)
    return room


def _warn(turn: Turn, spent: Usage) -> None:
    limits = turn.recipe.limits
    for name, used, limit in (("cost", spent.cost, limits.max_cost), ("tokens", spent.total, limits.max_tokens)):
        if limit is not None and used >= WARN * limit and name not in turn.values.setdefault(_WARNED, set()):
            turn.values[_WARNED].add(name)
            turn.log.later(turn.at, BudgetWarning(budget=name, used=used, limit=limit))
