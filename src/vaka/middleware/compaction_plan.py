"""What a compaction keeps and what it leaves out, computed from a conversation. Pure.

A conversation is cut between turns, or inside its last turn between steps; a call and its result are never separated.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

import msgspec

from vaka.core.loop.prompt import Conversation
from vaka.core.types.context import Compaction, CompactionTrigger, ShortenedCall
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Image,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from vaka.core.types.tokens import text_size, tokens_of_content, tokens_of_message

LONG_TEXT = 2_000
"""Characters; longer texts of old calls and results are shown in part."""
NOTICE_SIZE = 160
"""Characters that name the rest of a text that is shown in part."""
LEAST_LONG_TEXT = 400
"""Characters; shorter texts are never shown in part, because that would save nothing."""
REFERENCE_TARGET = 0.7
"""Shortening calls is enough if the context then has at most this part of the limit."""
SUMMARY_TARGET = 0.6
"""The part of the limit that a context may have after a compaction with a summary."""
MAX_SUMMARY_TOKENS = 4_000
LEAST_SAVED_TOKENS = 64
"""A compaction that leaves out less is not worth a summary, which has some tokens itself."""
INPUT_OVERHEAD = 10
"""Tokens that each kept input counts besides its text, so that thousands of short ones are not kept."""


class Strictness(msgspec.Struct, frozen=True):
    """How much of the end of a conversation is kept."""

    turns: int
    tokens: int
    user_tokens: int
    shorten_tail: bool = False
    """Whether the long calls of the tail are shown in part."""
    cut_inputs: bool = False
    """Whether the last input and the opening are shown in part, if they are long."""


class LongCall(msgspec.Struct, frozen=True):
    """A call whose arguments or result have long texts."""

    call: ToolCall
    result: ToolResult
    length: int
    """The characters from which on a text is long."""
    saved: int
    """The tokens that are saved when they are shown in part."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compact a conversation."""

    cut: int
    """The position of the first message that stays."""
    keep_from: int
    """The event that the message begins with; 0 when no message stays."""
    opening: tuple[Content, ...]
    inputs: tuple[Content, ...]
    long_calls: tuple[LongCall, ...]
    carried_calls: tuple[ShortenedCall, ...]
    """The calls of the tail that an earlier compaction has shortened."""
    media_from: int
    tokens: int
    """The estimated tokens of the messages after it, without a summary."""
    cut_inputs: bool = False
    longest_input: int = 0
    """The characters that an input may have; longer ones are shown in part."""

    @property
    def has_summary(self) -> bool:
        """Whether messages are replaced; otherwise all stay, and some are shown in part."""
        return self.cut > 0

    @property
    def left_out(self) -> int:
        """The number of messages that are not kept."""
        return max(self.cut - len(self.opening) - len(self.inputs), 0)


class ConversationPlanner:
    """Plans compactions of one conversation.

    ``limit`` is the size that makes a compaction necessary, ``instructions`` are the tokens of the prompt besides the
    messages, ``readable_tokens`` what the model of the agent can read.
    """

    def __init__(
        self, conversation: Conversation, settings: Compaction, *, limit: int, instructions: int, readable_tokens: int
    ) -> None:
        self.readable_tokens = readable_tokens
        self.messages, self.seqs = conversation.messages(), conversation.seqs
        self._turns, self._inputs = conversation.turns, conversation.inputs
        self._settings = settings
        self.limit = limit
        self._instructions = instructions
        self.compacted = conversation.compacted
        self.head = sum(1 for seq in self.seqs if not seq)
        """The number of messages that the last compaction has put at the beginning."""
        self._totals = [0, *accumulate(map(tokens_of_message, self.messages))]
        self.tokens = self._totals[-1]

    def tokens_of(self, position: int) -> int:
        """Return the estimated tokens of a message."""
        return self._totals[position + 1] - self._totals[position]

    @property
    def summary_tokens(self) -> int:
        """The tokens that a summary may have."""
        return max(min(MAX_SUMMARY_TOKENS, self.limit // 8), 64)

    def plan_references(self) -> Plan | None:
        """Return a plan that only shortens old calls and media; ``None`` if that does not save enough."""
        cut = self._find_cut(self._strictness("auto")[0])
        long_calls = tuple(self._find_long_calls(self.head, cut, LONG_TEXT))
        plan = self._only_references(long_calls)
        return plan if long_calls and self._instructions + plan.tokens <= REFERENCE_TARGET * self.limit else None

    def _only_references(self, long_calls: tuple[LongCall, ...]) -> Plan:
        return Plan(
            cut=0,
            keep_from=0,
            opening=(),
            inputs=(),
            long_calls=long_calls,
            carried_calls=(),
            media_from=self._media_from(),
            tokens=self.tokens - sum(call.saved for call in long_calls),
        )

    def plan_summary(self, trigger: CompactionTrigger) -> Plan | None:
        """Return the first plan that leaves enough room, else the strictest; ``None`` if nothing can be left out."""
        plan = None
        for strictness in self._strictness(trigger):
            found = self._plan_with(strictness)
            if found is None or self.tokens - found.tokens < min(LEAST_SAVED_TOKENS, self.limit // 16 + 1):
                continue  # a summary has more tokens than it leaves out
            plan = found
            if self._instructions + found.tokens + self.summary_tokens <= SUMMARY_TARGET * self.limit:
                break
        return plan

    def _strictness(self, trigger: CompactionTrigger) -> list[Strictness]:
        settings, quarter = self._settings, self.limit // 4
        turns, tokens = settings.keep_turns if trigger == "auto" else 1, min(settings.keep_tokens, quarter)
        user_tokens = min(settings.user_text_tokens, self.limit // 10)
        return [
            Strictness(turns, tokens, user_tokens),
            Strictness(turns, tokens, user_tokens, shorten_tail=True),
            Strictness(1, tokens // 2, user_tokens // 2, shorten_tail=True),
            Strictness(1, 0, 0, shorten_tail=True, cut_inputs=True),
        ]

    def _plan_with(self, strictness: Strictness) -> Plan | None:
        cut, longest = self._find_cut(strictness), max(self.limit // 10, 100) * 4
        if strictness.cut_inputs:
            cut = self._cut_after_long_input(cut, longest)
        long_calls: tuple[LongCall, ...] = ()
        if strictness.shorten_tail:
            length = self._longest_text(cut) if strictness.cut_inputs else LONG_TEXT
            long_calls = tuple(self._find_long_calls(cut, len(self.messages), length))
        if strictness.cut_inputs and self._exceeds_limit(cut, long_calls):
            cut, long_calls = len(self.messages), ()
        if cut <= self.head:
            return self._only_references(long_calls) if long_calls else None
        opening, first = self._find_opening(cut)
        inputs = self._find_inputs(cut, first, strictness.user_tokens)
        saved = sum(call.saved for call in long_calls)
        kept = sum(
            min(tokens_of_content(content), longest // 4 if strictness.cut_inputs else self.limit)
            for content in (*opening, *inputs)
        )
        return Plan(
            cut=cut,
            keep_from=self.seqs[cut] if cut < len(self.seqs) else 0,
            opening=opening,
            inputs=inputs,
            long_calls=long_calls,
            carried_calls=self._carried_calls(cut),
            media_from=self._media_from(),
            tokens=kept + self.tokens - self._totals[cut] - saved,
            cut_inputs=strictness.cut_inputs,
            longest_input=longest,
        )

    def _longest_text(self, cut: int) -> int:
        """Return the characters from which on a text of the tail is long: the calls of a step share the window."""
        calls = sum(len(m.calls) for m in self.messages[cut:] if isinstance(m, AssistantMessage))
        return min(LONG_TEXT, self.limit // 2, self.limit // max(calls, 1))

    def _exceeds_limit(self, cut: int, long_calls: Sequence[LongCall]) -> bool:
        """Return whether even the last step is too large, although its texts are shown in part."""
        room = max(self.limit - self._instructions, self.limit // 2)
        return self._tokens_from(cut) - sum(call.saved for call in long_calls) > room

    def _find_cut(self, strictness: Strictness) -> int:
        """Return the position of the first message that stays: a whole turn, or a step of the last one."""
        turns = [position for position in self._turns if position >= self.head]
        for position in turns[-strictness.turns :]:
            if self._tokens_from(position) <= strictness.tokens:
                return position
        last = turns[-1] if turns else self.head - 1
        steps = [at for at in range(last + 1, len(self.messages)) if type(self.messages[at]) is not ToolMessage]
        for position in steps:
            if self._tokens_from(position) <= strictness.tokens:
                return position
        return steps[-1] if steps else max(last, 0)

    def _cut_after_long_input(self, cut: int, longest: int) -> int:
        """Return the position after a long input that would stay: a message of the tail cannot be shown in part."""
        kept = [at for at in self._inputs if at >= cut]
        long = [at for at in kept if tokens_of_message(self.messages[at]) * 4 > longest]
        if not long:
            return cut
        after = long[-1] + 1
        while after < len(self.messages) and type(self.messages[after]) is ToolMessage:
            after += 1
        return after

    def _tokens_from(self, position: int) -> int:
        return self.tokens - self._totals[position]

    def _find_opening(self, cut: int) -> tuple[tuple[Content, ...], int]:
        """Return the first inputs, and the position of the first message after them."""
        if self.compacted is not None and self.head:
            return self.compacted.opening, len(self.compacted.opening) + 1
        last = self._inputs[-1] if self._inputs and self._inputs[-1] < cut else cut  # it stays behind the summary
        positions = [at for at in self._inputs[: self._settings.opening_messages] if at < last]
        return self._contents(positions), positions[-1] + 1 if positions else 0

    def _find_inputs(self, cut: int, first: int, most: int) -> tuple[Content, ...]:
        """Return the inputs before ``cut`` that are kept, the newest ones; the last one of all in any case."""
        earlier = [*range(first, self.head), *(at for at in self._inputs if max(first, self.head) <= at < cut)]
        found: list[int] = []
        tokens = 0
        for position in reversed(earlier):
            tokens += tokens_of_message(self.messages[position]) + INPUT_OVERHEAD
            is_last = not found and not any(at >= cut for at in self._inputs)
            if tokens > most and not is_last:
                break
            found.insert(0, position)
        return self._contents(found)

    def _contents(self, positions: Sequence[int]) -> tuple[Content, ...]:
        found = [self.messages[position] for position in positions]
        return tuple(message.content for message in found if not isinstance(message, ToolMessage))

    def _find_long_calls(self, start: int, end: int, length: int) -> Iterator[LongCall]:
        for at in range(start, end):
            message = self.messages[at]
            answered = self.messages[at + 1] if at + 1 < len(self.messages) else None
            if not isinstance(message, AssistantMessage) or not isinstance(answered, ToolMessage):
                continue
            known = self.compacted.calls if self.compacted is not None else {}
            for call, result in zip(message.calls, answered.results, strict=True):
                if call.id in known:
                    continue
                saved = sum(len(text) - length // 4 - NOTICE_SIZE for text in long_texts(call.arguments, length))
                if is_long(result.content, length):
                    saved += size_of_texts(result.content) - length // 2 - NOTICE_SIZE
                if saved > 0:
                    yield LongCall(call, result, length, saved // 4)

    def _carried_calls(self, cut: int) -> tuple[ShortenedCall, ...]:
        known: Mapping[CallId, ShortenedCall] = self.compacted.calls if self.compacted is not None else {}
        tail = [message for message in self.messages[cut:] if isinstance(message, AssistantMessage)]
        return tuple(known[call.id] for message in tail for call in message.calls if call.id in known)

    def _media_from(self) -> int:
        """Return the event before which media are left out; 0 if all stay. Those that no answer has seen yet stay."""
        left, messages = self._settings.keep_media, self.messages
        answers = (at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], AssistantMessage))
        seen = next(answers, 0)
        for at in range(len(messages) - 1, self.head - 1, -1):
            left -= sum(1 for part in _parts_of(messages[at]) if isinstance(part, Image | Audio | Document))
            if left < 0 and at < seen:  # those that an earlier compaction has left out are not counted: they are notes
                return self.seqs[at] + 1
        return self.compacted.media_from if self.compacted is not None else 0


def _parts_of(message: Any) -> Content:
    if isinstance(message, ToolMessage):
        return tuple(part for result in message.results for part in result.content)
    content: Content = message.content
    return content


def is_long(content: Content, length: int) -> bool:
    """Return whether the texts of a content have more than ``length`` characters together."""
    return size_of_texts(content) > max(length, LEAST_LONG_TEXT)


def size_of_texts(content: Content) -> int:
    """Return the bytes of the texts of a content as the model sees them."""
    size = sum(text_size(part.text) for part in content if isinstance(part, Text))
    stored = [part for part in content if isinstance(part, Stored)]
    return size + sum(text_size(part.preview) if part.cut else part.size for part in stored)


def long_texts(value: Any, length: int) -> Iterator[str]:
    """Yield the texts in a JSON value that have more than ``length`` characters."""
    kind: Any = value.__class__
    if kind is str and len(value) > max(length, LEAST_LONG_TEXT):
        yield value
    for item in value.values() if kind is dict else value if kind is list else ():
        yield from long_texts(item, length)
