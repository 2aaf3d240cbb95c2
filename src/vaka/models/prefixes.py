"""Results that were computed from the messages of a prompt, kept so that the next prompt costs only its new messages.

The messages of a conversation's next prompt begin with the very same objects, so prefixes are compared by identity.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from operator import is_
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar

from vaka.core.ports.model import Prompt
from vaka.core.types.message import (
    AssistantMessage,
    CallRef,
    Content,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolMessage,
)

WINDOW = 8
"""The last messages of a prompt that the next one may replace, such as a reminder; another change is a new start."""
MAX_CONVERSATIONS = 256
MAX_SIZE = 32 * 1024 * 1024
"""Characters of the kept conversations together; what is computed from them has about as many."""
MAX_CONVERSATION_SIZE = 16 * 1024 * 1024
"""Characters of one conversation; a longer one is not kept."""
MESSAGE_OVERHEAD = 512
"""The size of a message in addition to its characters."""


class Fold(Protocol):
    """Something that is computed from one message after another."""

    def add(self, message: Message) -> None:
        """Handle the next message. After an error the fold is not used again."""

    def mark(self) -> Any:
        """Return a mark of the current state."""

    def rollback(self, mark: Any) -> None:
        """Return to the state of a mark."""

    def settle(self, mark: Any) -> None:
        """Compact what was computed before ``mark``: there is no rollback to an earlier one."""


_F = TypeVar("_F", bound=Fold)


class Comparison:
    """Finds common prefixes, and keeps the last result for a second memo of the same conversations."""

    def __init__(self) -> None:
        self._last: tuple[tuple[Message, ...], tuple[Message, ...], int] | None = None

    def common_length(self, old: tuple[Message, ...], new: tuple[Message, ...]) -> int:
        """Return how many messages at the beginning are the same objects."""
        if old is new:
            return len(old)
        last = self._last
        if last is not None and last[0] is old and last[1] is new:
            return last[2]
        length = min(len(old), len(new))
        if not all(map(is_, old, new)):
            length = list(map(is_, old, new)).index(False)
        self._last = (old, new, length)
        return length

    def clear(self) -> None:
        """Forget the last result, which refers to messages."""
        self._last = None


class KeptFold(Generic[_F]):
    """The fold of a conversation."""

    __slots__ = ("_marks", "fold", "messages", "size")

    def __init__(self, fold: _F) -> None:
        self.fold = fold
        self.messages: tuple[Message, ...] = ()
        self.size = 0
        self._marks: list[tuple[Any, int]] = []
        """The state before each of the last messages, and the size then."""

    def rewind(self, count: int) -> bool:
        """Return to the state after ``count`` messages; false if that is too long ago."""
        dropped = len(self.messages) - count
        if dropped > len(self._marks):
            return False
        if dropped:
            mark, self.size = self._marks[-dropped]
            self.fold.rollback(mark)
            del self._marks[-dropped:]
            self.messages = self.messages[:count]
        return True

    def extend(self, messages: tuple[Message, ...]) -> None:
        """Handle the messages that have not been handled before."""
        marked = len(messages) - WINDOW
        for at in range(len(self.messages), len(messages)):
            if at >= marked:
                self._marks.append((self.fold.mark(), self.size))
            self.fold.add(messages[at])
            self.size += size_of(messages[at])
        self.messages = messages
        del self._marks[:-WINDOW]

    def settle(self) -> None:
        """Compact what can no longer change."""
        if self._marks:
            self.fold.settle(self._marks[0][0])


class PrefixMemo(Generic[_F]):
    """The folds of the last conversations, bounded in number and size. Safe to use from several threads."""

    def __init__(
        self,
        new: Callable[[], _F],
        comparison: Comparison | None = None,
        *,
        max_conversations: int = MAX_CONVERSATIONS,
        max_size: int = MAX_SIZE,
        max_conversation_size: int = MAX_CONVERSATION_SIZE,
    ) -> None:
        self._new, self._comparison = new, comparison
        self._max_conversations, self._max_size = max_conversations, max_size
        self._max_conversation_size = max_conversation_size
        self._kept: OrderedDict[Hashable, KeptFold[_F]] = OrderedDict()
        self._lock = Lock()
        self.size = 0
        """Characters of the messages of the kept conversations."""

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, prompt: Prompt) -> KeptFold[_F]:
        """Return the fold of a prompt's messages. No other call uses it until it is given back with ``put``."""
        messages = tuple(prompt.messages)
        with self._lock:
            kept = self._pop(_key_of(prompt))
        if kept is None or not kept.rewind(self._common_length(kept.messages, messages)):
            kept = KeptFold(self._new())
        kept.extend(messages)
        return kept

    def put(self, prompt: Prompt, kept: KeptFold[_F]) -> None:
        """Keep a fold for the next prompt; the least recently used ones are dropped when there are too many."""
        if not kept.messages or kept.size > self._max_conversation_size:
            return
        kept.settle()
        with self._lock:
            key = _key_of(prompt)
            self._pop(key)
            self._kept[key] = kept
            self.size += kept.size
            while len(self._kept) > self._max_conversations or self.size > self._max_size:
                self._pop(next(iter(self._kept)))

    def _pop(self, key: Hashable) -> KeptFold[_F] | None:
        kept = self._kept.pop(key, None)
        self.size -= kept.size if kept is not None else 0
        return kept

    def _common_length(self, old: tuple[Message, ...], new: tuple[Message, ...]) -> int:
        return (self._comparison or Comparison()).common_length(old, new)


def _key_of(prompt: Prompt) -> Hashable:
    """Return what identifies a conversation; a kept fold refers to its first message, so that its id stays unique."""
    if prompt.session:
        return (prompt.session, prompt.path, prompt.agent)
    return id(prompt.messages[0]) if prompt.messages else None


def size_of(message: Message) -> int:
    """Return about how many characters a message has."""
    if isinstance(message, ToolMessage):
        return sum([_size_of_content(result.content) for result in message.results], MESSAGE_OVERHEAD)
    size = MESSAGE_OVERHEAD + _size_of_content(message.content)
    for call in message.calls if isinstance(message, AssistantMessage) else ():
        size += len(call.raw) + sum([len(value) for value in call.arguments.values() if isinstance(value, str)])
    return size


def _size_of_content(content: Content) -> int:
    size = 0
    for part in content:
        if isinstance(part, Text):
            size += len(part.text)
        elif isinstance(part, Reasoning):
            size += len(part.text) + len(part.signature)
        elif isinstance(part, Stored):
            size += len(part.preview)
        elif not isinstance(part, CallRef):
            size += len(part.data) + len(part.url)
    return size
