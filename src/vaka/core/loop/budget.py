"""Tokens and money are looked at before they are spent: a call that a budget cannot pay for is not made."""

import msgspec

from vaka.core.loop.scope import Turn
from vaka.core.loop.stop import Stopped
from vaka.core.ports.model import Estimates, Model, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.monitor import BudgetWarning
from vaka.core.types.usage import Usage

WARN = 0.8
"""The part of a budget after which operators are told."""
ANSWER = 16_384
"""Tokens that any model may answer with: a budget that has room for more leaves the model its own bound."""
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
    given = prompt.options.get("max_tokens") or estimate.max_tokens
    bound = given if isinstance(given, int) else ANSWER
    room, least = float(ANSWER), min(bound, LEAST)
    if limits.max_tokens is not None:
        room = min(room, limits.max_tokens - spent.total)
        if room < least:
            raise Stopped("limit", "tokens")
    if limits.max_cost is not None and (estimate.output_price or estimate.usage.cost):
        left = limits.max_cost - spent.cost
        room = min(room, left / estimate.output_price if estimate.output_price else ANSWER * (left > 0))
        if room < least:
            raise Stopped("limit", "cost")
    if room >= bound:
        return prompt
    return msgspec.structs.replace(prompt, options={**prompt.options, "max_tokens": int(room)})


def _warn(turn: Turn, spent: Usage) -> None:
    limits = turn.recipe.limits
    for name, used, limit in (("cost", spent.cost, limits.max_cost), ("tokens", spent.total, limits.max_tokens)):
        if limit is not None and used >= WARN * limit and name not in turn.values.setdefault(_WARNED, set()):
            turn.values[_WARNED].add(name)
            turn.log.later(turn.at, BudgetWarning(budget=name, used=used, limit=limit))
