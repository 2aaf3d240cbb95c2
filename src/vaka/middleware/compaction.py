"""Compaction by itself: before each step the size of the context is looked at, and shortened when it is too large.

The part that shortens is loaded when it is first needed; see ``compactor``.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Protocol

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.loop.prompt import Conversation
from vaka.core.ports.model import context_window_of
from vaka.core.ports.turn_protocols import ContextPolicy
from vaka.core.types.context import Compaction, ContextCompacted
from vaka.core.types.event import Body
from vaka.core.types.state import agent_key
from vaka.core.types.tokens import (
    estimate_message_tokens,
    tokens_of_entries,
    tokens_of_message,
)

MAX_FIXED_PART = 0.7
"""The part of the limit that instructions and tools may have; above it there is hardly room for messages."""
FULL_PART = 0.95
"""The part of the window at which it counts as full."""


class ContextShortener(Protocol):
    """Shortens the context of an agent; ``Compactor`` implements it."""

    async def shorten(self, turn: Turn, *, refused: bool = False) -> Sequence[Body]:
        """Return the events of a compaction, none if nothing can be left out.

        ``refused``: the provider has refused the prompt for its length, so the window is smaller than it is known.
        """
        ...


class ContextCompaction(Middleware, ContextPolicy):
    """Compacts the context of an agent between steps, when it is too large for the next model call."""

    inherited = ()
    asks_models = True
    """Whether a model writes the summaries."""

    def __init__(self, settings: Compaction, make_shortener: Callable[[], ContextShortener]) -> None:
        self.settings, self._make_shortener = settings, make_shortener
        self._limit_in = cache(settings.limit_in)

    async def shorten_context(self, turn: Turn, *, refused: bool = False) -> Sequence[Body]:
        if refused:
            return await self._shorten_refused(turn)
        window, tokens = context_window_of(turn.recipe.model), context_tokens(turn)
        if tokens < self._limit_in(window) or self._has_no_room(turn, tokens, window):
            return ()
        return await self._make_shortener().shorten(turn)

    def _has_no_room(self, turn: Turn, tokens: int, window: int) -> bool:
        """Return whether the instructions and tools fill the context, so that a compaction would follow each step.

        It then waits until the window is full.
        """
        fixed = instruction_tokens(turn)
        return fixed > MAX_FIXED_PART * self._limit_in(window) and tokens < FULL_PART * window

    async def _shorten_refused(self, turn: Turn) -> Sequence[Body]:
        events = await self._make_shortener().shorten(turn, refused=True)
        if any(isinstance(event, ContextCompacted) for event in events):
            return events
        turn.log.defer(turn.scope, *events)  # nothing is shorter: the prompt must not be sent again
        return ()


def conversation_of(turn: Turn) -> Conversation:
    """Return the conversation of the turn's agent, as far as it is in the log."""
    return turn.log.window.view(turn.path, partial(Conversation, turn.path))


def context_tokens(turn: Turn) -> int:
    """Return the tokens of the next prompt: those the provider has reported, and an estimate of what is newer.

    If the model sees only the last messages, it is an estimate of these.
    """
    conversation, known = conversation_of(turn), turn.state.contexts.get(agent_key(turn.path))
    pending = tokens_of_entries(turn.path, turn.log.deferred)
    if (recent := turn.recipe.settings.recent) is not None:
        shown = [message for _, message in conversation.choose_recent(recent)]
        return instruction_tokens(turn) + estimate_message_tokens(shown) + pending
    if known is None:
        return instruction_tokens(turn) + estimate_newer_tokens(conversation) + pending
    return known.tokens + estimate_newer_tokens(conversation, known.seq) + pending


def estimate_newer_tokens(conversation: Conversation, reported: int = 0) -> int:
    """Return the tokens of the messages that are newer than the answer whose usage event ``reported`` recorded.

    Each message is counted once; without ``reported`` all count.
    """
    first, newer = conversation.newer_than(reported)
    totals, finished = conversation.token_totals, conversation.finished
    for message in finished[len(totals) - 1 :]:
        totals.append(totals[-1] + tokens_of_message(message))
    return totals[-1] - totals[first] + (sum(map(tokens_of_message, newer)) if newer else 0)


def instruction_tokens(turn: Turn) -> int:
    """Return the estimated tokens of the system prompt and the tools."""
    return turn.system.tokens + turn.tool_menu.tokens
