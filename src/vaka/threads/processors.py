"""The part of a thread that its turns see: options, and processors that choose among earlier messages.

A call never loses its result.
"""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.model import Prompt
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import AssistantMessage, CallRef, Message, ToolMessage, UserMessage

ROLES = ("user", "assistant", "tool")


class MessageProcessor(Protocol):
    """Chooses messages. The same messages give the same result, so that providers can cache prompts."""

    def process(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return the messages to show, in their order."""
        ...


class MessageLimit:
    """Shows the last messages: at most ``limit``, and the first one is of the user."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise InvalidInput(f"the limit must be 0 or more messages, not {limit}")
        self.limit = limit

    def process(self, messages: Sequence[Message]) -> Sequence[Message]:
        first = max(len(messages) - self.limit, 0)
        while first < len(messages) and not isinstance(messages[first], UserMessage):
            first += 1
        return messages[first:]


class RoleFilter:
    """Shows the messages of some roles: ``user``, ``assistant`` and ``tool``.

    Without ``tool`` answers are shown without their calls; without ``assistant`` results are not shown either.
    """

    def __init__(self, roles: Collection[str]) -> None:
        self.roles = frozenset([roles] if isinstance(roles, str) else roles)
        unknown = sorted(self.roles.difference(ROLES))
        if unknown:
            raise InvalidInput(f"there is no role {unknown[0][:40]!r}; the roles are {', '.join(ROLES)}")

    def process(self, messages: Sequence[Message]) -> Sequence[Message]:
        shown = [self._filter(message) for message in messages]
        return [message for message in shown if message is not None]

    def _filter(self, message: Message) -> Message | None:
        match message:
            case UserMessage():
                return message if "user" in self.roles else None
            case ToolMessage():
                return message if {"assistant", "tool"} <= self.roles else None
            case AssistantMessage(calls=calls) if "assistant" in self.roles:
                if not calls or "tool" in self.roles:
                    return message
                content = tuple(part for part in message.content if not isinstance(part, CallRef))
                return msgspec.structs.replace(message, content=content, calls=()) if content else None
            case _:
                return None


class Deduplication:
    """Shows of several messages with the same role and content the first one; answers with calls are all shown."""

    def process(self, messages: Sequence[Message]) -> Sequence[Message]:
        seen: set[bytes] = set()
        shown: list[Message] = []
        for message in messages:
            if isinstance(message, UserMessage | AssistantMessage) and not getattr(message, "calls", ()):
                key = msgspec.json.encode((type(message).__name__, message.content))
                if key in seen:
                    continue
                seen.add(key)
            shown.append(message)
        return shown


class Composite:
    """Applies processors one after the other."""

    def __init__(self, *processors: MessageProcessor) -> None:
        for processor in processors:
            if not callable(getattr(processor, "process", None)):
                raise InvalidInput(f"a processor has a method process(messages); {processor!r} has none")
        self.processors = processors

    def process(self, messages: Sequence[Message]) -> Sequence[Message]:
        for processor in self.processors:
            messages = processor.process(messages)
        return messages


class MessageProcessing(Middleware):
    """Applies a processor to the messages before the last one of the user; that and what follows are always shown."""

    inherited = ()

    def __init__(self, processor: MessageProcessor) -> None:
        self.processor = processor

    async def before_model(self, turn: Turn, prompt: Prompt) -> Prompt:
        messages = prompt.messages
        last = next((at for at in range(len(messages) - 1, -1, -1) if isinstance(messages[at], UserMessage)), 0)
        earlier = self.processor.process(messages[:last])
        return msgspec.structs.replace(prompt, messages=(*earlier, *messages[last:]))


class ThreadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a turn in a thread: the messages that it reads and writes."""

    save_to_memory: bool = True
    """Whether the input and its answer become part of the thread."""
    load_context: bool = True
    """Whether the model sees earlier messages of the thread."""
    context_limit: int = 10
    """The most earlier messages, the last ones."""
    use_semantic_search: bool = False
    """Whether ``semantic_memory`` adds what it finds; ``context_limit`` may then be 0."""
    semantic_memory: Middleware | None = None
    working_memory: Middleware | None = None
    processors: tuple[MessageProcessor, ...] = ()
    """Choose among the earlier messages, one after the other."""

    def make_middleware(self) -> tuple[Middleware, ...]:
        """Return what these options add to an agent. Raises ``InvalidInput``."""
        if self.context_limit < 0:
            raise InvalidInput(f"context_limit must be 0 or more messages, not {self.context_limit}")
        if self.use_semantic_search and self.semantic_memory is None:
            raise InvalidInput("use_semantic_search needs semantic_memory, such as SemanticMemory(…)")
        added: list[Middleware] = [_RecentMessages(self.context_limit if self.load_context else 0)]
        if self.processors:
            added.append(MessageProcessing(Composite(*self.processors)))
        if self.use_semantic_search and self.semantic_memory is not None:
            added.append(self.semantic_memory)
        if self.working_memory is not None:
            added.append(self.working_memory)
        return tuple(added)


class _RecentMessages(Middleware):
    """Shows the model the last messages of the conversation, and the input."""

    inherited = ()

    def __init__(self, earlier: int) -> None:
        self.recent_messages = earlier + 1
        """The most messages of a prompt. The runtime reads it, to choose them before their blobs are loaded."""
