"""Budget: the token and cost limits of an agent in a turn, what counts against them, and the reservations of its calls.

A model call reserves its estimated usage from before its start until its real usage is recorded, so that calls that run
at the same time do not spend the same tokens. The budgets of the agent and of its parents pay for a call.
"""

import asyncio
import math
from contextvars import ContextVar, Token

import msgspec

from vaka.core.loop.stop import TurnStopped
from vaka.core.ports.log import Log
from vaka.core.ports.model import CostEstimator, Estimate, Model, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.event import Body
from vaka.core.types.ids import AgentPath, CallId, EventScope
from vaka.core.types.limits import Limits, reached_budget
from vaka.core.types.message import Usage
from vaka.core.types.monitor import BudgetWarning
from vaka.core.types.state import agent_key

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
_NO_USAGE = Usage()


class Reservation(msgspec.Struct, eq=False):
    """The estimated usage of one model call, reserved from before its start until its real usage is recorded."""

    prompt: Prompt
    """The prompt, with ``max_tokens`` lowered to what the budgets allow."""
    path: AgentPath = ()
    usage: Usage = _NO_USAGE
    waitable: bool = True
    """Whether other calls may wait for its release: it ends by itself."""
    reservations: "Reservations | None" = None

    def settle(self, usage: Usage) -> None:
        """Replace the estimate by the real ``usage``; other calls no longer wait for this one."""
        self.usage, self.waitable = usage, False
        if self.reservations is not None:
            self.reservations.wake_waiters()

    def release(self) -> None:
        """Return the reserved usage to the budgets; a second call has no effect."""
        owner, self.reservations = self.reservations, None
        if owner is not None:
            owner.active.remove(self)
            owner.wake_waiters()


_CURRENT_RESERVATION: ContextVar[Reservation | None] = ContextVar("vaka.reservation", default=None)
"""The reservation of the model call this task runs in: work inside that call cannot wait for its release."""


class Reservations:
    """The active reservations of one turn, shared by the budgets of its agents."""

    def __init__(self) -> None:
        self.active: list[Reservation] = []
        self.model_calls: dict[str, int] = {}
        """The number of the last model call of each agent that a tool has started; it may not be in the log yet."""
        self._changed: asyncio.Event | None = None

    def usage_under(self, path: AgentPath, *, without: Reservation | None, include_waitable: bool) -> Usage:
        """Return the usage that the agent at ``path`` and its children have reserved."""
        active = [entry for entry in self.active if entry.path[: len(path)] == path and entry is not without]
        current = _CURRENT_RESERVATION.get()
        counted = [e.usage for e in active if include_waitable or not e.waitable or e is current]
        return sum(counted, _NO_USAGE)

    async def wait_for_release(self) -> None:
        if self._changed is None:
            self._changed = asyncio.Event()
        await self._changed.wait()

    def wake_waiters(self) -> None:
        if self._changed is not None:
            self._changed.set()
            self._changed = None


class Budget:
    """The budget of one agent in one turn."""

    def __init__(self, limits: Limits, log: Log, scope: EventScope, agent: str, parent: "Budget | None" = None) -> None:
        self.limits = limits
        self.log = log
        self.agent = agent
        self.scope = scope  # its turn updates it in every step
        self.reservations: Reservations = parent.reservations if parent is not None else Reservations()
        self._parents: tuple[Budget, ...] = parent.payers if parent is not None else ()
        self.closed, self.is_limited = False, limits.has_budget or bool(self._parents)
        self._warned: tuple[str, ...] = ()

    @property
    def payers(self) -> "tuple[Budget, ...]":
        """The budgets with limits that pay for the model calls of this agent: its own and its parents' budgets."""
        return (*self._parents, self) if self.limits.has_budget else self._parents

    @property
    def used(self) -> Usage:
        """The usage that counts against the limits: the usage of the agent and its children in this turn."""
        path = self.scope.path
        state = self.log.state
        pending = self.log.pending
        if path:
            progress = state.lanes.get(agent_key(path))
            stored = progress.usage + progress.below if progress is not None else _NO_USAGE
        else:
            stored = state.turn.usage if state.turn is not None else _NO_USAGE
        return stored + pending.usage_under(path) if pending.usage else stored

    def exhausted_limit(self) -> str:
        """Return the name of the first budget of this agent or its parents that is used up, ``""`` for none."""
        for payer in self.payers:
            if limit := reached_budget(payer.limits, payer.used):
                return limit
        return ""

    def open(self) -> "Token[UsageScope | None]":
        """Charge usage of this task, and of tasks it creates, to this budget until ``close``."""
        return CURRENT_SCOPE.set(UsageScope(self))

    def close(self, token: "Token[UsageScope | None]") -> None:
        """End ``open``: tasks that still run charge nothing any more."""
        self.closed = True
        CURRENT_SCOPE.reset(token)

    def charge_to_call(self, call: CallId) -> None:
        """Charge further usage of this task to a tool call."""
        CURRENT_SCOPE.set(UsageScope(self, call))

    async def reserve(self, model: Model, prompt: Prompt) -> Reservation:
        """Reserve the estimated usage of ``prompt``, with ``max_tokens`` lowered to what the budgets allow.

        Raises ``TurnStopped`` when nothing would be left, and ``ConfigError`` when a budget is in money and the model
        has no price. The answer must be read without a pause: other calls may wait for the release.
        """
        payers = self.payers
        if not payers or not isinstance(model, CostEstimator):
            return Reservation(prompt)
        while True:
            estimate = _estimate_cost(payers, model, prompt)
            max_tokens = _max_output_tokens(payers, estimate, prompt, include_running=False)
            if _fits_beside_running(payers, estimate, prompt, max_tokens):
                break
            await self.reservations.wait_for_release()
        bound = _output_bound(estimate, prompt)
        if max_tokens is not None:
            prompt = msgspec.structs.replace(prompt, options={**prompt.options, "max_tokens": max_tokens})
        answer = max_tokens if max_tokens is not None else MAX_ANSWER_TOKENS if bound is None else bound
        usage = estimate.usage + Usage(output=answer, cost=answer * estimate.output_price)
        reservation = Reservation(prompt, self.scope.path, usage, reservations=self.reservations)
        self.reservations.active.append(reservation)
        _CURRENT_RESERVATION.set(reservation)
        return reservation

    def check_retry(self, model: Model, reservation: Reservation) -> None:
        """Raise ``TurnStopped`` when no budget is left for a retry: the failed attempt may have cost something."""
        payers, prompt = self.payers, reservation.prompt
        if payers and isinstance(model, CostEstimator):
            estimate = _estimate_cost(payers, model, prompt)
            _max_output_tokens(payers, estimate, prompt, include_running=True, without=reservation)

    def used_and_reserved(self, *, include_running: bool, without: Reservation | None = None) -> Usage:
        reserved = self.reservations.usage_under(self.scope.path, without=without, include_waitable=include_running)
        return self.used + reserved

    def defer_usage(self, *bodies: Body) -> None:
        """Defer events that record usage, and a warning for each limit of which they have used most."""
        self.log.defer(self.scope, *bodies)
        for payer in self.payers if self.is_limited else ():
            payer.warn_near_limit(payer.used)

    def warn_near_limit(self, spent: Usage) -> None:
        """Defer a warning, once for each limit, when most of it is spent."""
        limits = (("cost", spent.cost, self.limits.max_cost), ("tokens", spent.total, self.limits.max_tokens))
        for name, used, limit in limits:
            if limit is not None and used >= WARNING_SHARE * limit and name not in self._warned:
                self._warned += (name,)
                self.log.defer(self.scope, BudgetWarning(budget=name, used=used, limit=limit))


def estimate_partial_usage(model: Model, prompt: Prompt, counted: Usage, written_chars: int) -> Usage:
    """Return the usage of an answer that broke off after ``written_chars``; estimate what ``counted`` lacks.

    Most providers send the usage at the end of a stream; some send the usage of the prompt at its start.
    """
    if not written_chars or not isinstance(model, CostEstimator):
        return counted
    estimate = model.estimate(prompt)
    known = counted if counted.total else estimate.usage
    missing = max(-(-written_chars // CHARACTERS_PER_TOKEN) - known.output, 0)
    return known + Usage(output=missing, cost=missing * estimate.output_price)


def _fits_beside_running(
    payers: tuple[Budget, ...], estimate: Estimate, prompt: Prompt, max_tokens: int | None
) -> bool:
    """Whether the active reservations leave as much room as there will be after their release."""
    try:
        return _max_output_tokens(payers, estimate, prompt, include_running=True) == max_tokens
    except TurnStopped:
        return False


def _estimate_cost(payers: tuple[Budget, ...], model: CostEstimator, prompt: Prompt) -> Estimate:
    estimate = model.estimate(prompt)
    if estimate.unpriced and any(payer.limits.max_cost is not None for payer in payers):
        raise ConfigError(estimate.unpriced)
    return estimate


def _output_bound(estimate: Estimate, prompt: Prompt) -> int | None:
    given = prompt.options.get("max_tokens")
    return given if isinstance(given, int) else estimate.max_tokens


def _max_output_tokens(
    payers: tuple[Budget, ...],
    estimate: Estimate,
    prompt: Prompt,
    *,
    include_running: bool,
    without: Reservation | None = None,
) -> int | None:
    """Return ``max_tokens`` of the answer, ``None`` when no bound is needed. Raises ``TurnStopped`` without room."""
    bound, room = _output_bound(estimate, prompt), math.inf
    min_tokens = MIN_ANSWER_TOKENS if bound is None else min(bound, MIN_ANSWER_TOKENS)
    for payer in payers:
        spent = payer.used_and_reserved(include_running=include_running, without=without) + estimate.usage
        if not include_running:
            payer.warn_near_limit(spent)
        room = min(room, _remaining_tokens(payer.limits, spent, estimate, min_tokens))
    if room >= (MAX_ANSWER_TOKENS if bound is None else bound):
        return None
    accepted = math.inf if estimate.takes is None else estimate.takes
    return int(min(room, DEFAULT_ANSWER_TOKENS if bound is None else bound, accepted))


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


class UsageScope(msgspec.Struct, frozen=True):
    """The budget that pays for usage in the current task, and the tool call, if a tool runs there."""

    budget: Budget
    call: CallId | None = None


CURRENT_SCOPE: ContextVar[UsageScope | None] = ContextVar("vaka.usage_scope", default=None)
