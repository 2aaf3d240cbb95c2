"""Tokens and money are looked at before they are spent: a call that a budget cannot pay for is not made."""

import math

import msgspec

from vaka.core.loop.limits import Limits
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
_WARNED = "vaka.budget.warned"


def afford(turn: Turn, model: Model, prompt: Prompt) -> Prompt:
    """Return ``prompt`` with its answer bounded by what is left.

    Raises ``Stopped`` when nothing would be left, and ``ConfigError`` for money and a model whose price nobody knows.
    """
    limits = turn.recipe.limits
    if (limits.max_cost is None and limits.max_tokens is None) or not isinstance(model, Estimates):
        return prompt
    estimate = model.estimate(prompt)
    if limits.max_cost is not None and estimate.unpriced:
        raise ConfigError(estimate.unpriced)
    spent = turn.spent + estimate.usage
    _warn(turn, spent)
    given = prompt.options.get("max_tokens")
    bound = given if isinstance(given, int) else estimate.max_tokens
    room = _room(limits, spent, estimate, min(LEAST if bound is None else bound, LEAST))
    if room >= (LONGEST if bound is None else bound):
        return prompt
    most = min(room, ANSWER if bound is None else bound, math.inf if estimate.takes is None else estimate.takes)
    return msgspec.structs.replace(prompt, options={**prompt.options, "max_tokens": int(most)})


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
