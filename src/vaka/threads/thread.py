"""Threads: a session as title, owner, metadata and state, with the transitions and limits of a conversation."""

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypeVar

import msgspec

from vaka.core.ports.store import THREAD_STATES, SessionInfo, ThreadState
from vaka.core.types.errors import InvalidInput
from vaka.core.types.hidden_messages import HiddenMessages, hidden_messages_of
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    as_content,
)

MessageRole: TypeAlias = Literal["user", "assistant", "tool"]
Priority: TypeAlias = Literal["low", "medium", "high", "critical"]

TRANSITIONS: Mapping[str, frozenset[str]] = {
    "active": frozenset({"paused", "ended", "terminated"}),
    "paused": frozenset({"active", "ended", "terminated"}),
    "ended": frozenset({"archived"}),
    "terminated": frozenset({"archived"}),
    "archived": frozenset(),
}
"""The states that may follow each state."""

T = TypeVar("T")

MAX_ID_LENGTH = 200
RESERVED_PREFIXES = ("apr_", "qst_", "int_", "call_")
"""How the ids of decisions, interrupts and calls begin, which share the names of a session with its messages."""

POLICY_KEY, CONTEXT_KEY = "thread.policy", "thread.context"
"""The keys of the policy and the context in the metadata of a thread."""


def check_state(state: str) -> None:
    """Raise ``InvalidInput`` unless there is such a state."""
    if state not in THREAD_STATES:
        raise InvalidInput(f"there is no state {state[:40]!r}; the states are {', '.join(THREAD_STATES)}")


def check_transition(thread: str, state: str, next_state: str) -> None:
    """Raise ``InvalidInput`` unless a thread may go from one state to another."""
    check_state(next_state)
    allowed = TRANSITIONS.get(state, frozenset())
    if next_state not in allowed:
        names = ", ".join(name for name in THREAD_STATES if name in allowed) or "none"
        raise InvalidInput(f"{thread!r} is {state}; it cannot become {next_state} (possible: {names})")


class ThreadPolicy(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The limits of a conversation; ``None`` is no limit. They hold for threads that are created with a policy."""

    idle_timeout: float | None = 1800
    """Seconds without a change after which an active thread is paused."""
    max_duration: float | None = 3600
    """Seconds after its creation at which a thread is ended."""
    max_messages: int | None = 100
    """The number of messages at which a thread is ended."""
    auto_archive: bool = False
    """Whether a thread that ends by a limit is archived at once."""

    def __post_init__(self) -> None:
        for name in ("idle_timeout", "max_duration", "max_messages"):
            limit: float | None = getattr(self, name)
            if limit is not None and not limit >= 0:
                raise InvalidInput(f"{name} must be at least 0, or None for no limit, not {limit!r}")

    def next_states(self, state: str, *, age: float, idle: float, messages: int) -> tuple[ThreadState, ...]:
        """Return the states that a thread goes through now, by its age and idle time in seconds and its messages."""
        ended: tuple[ThreadState, ...] = ("ended", "archived") if self.auto_archive else ("ended",)
        if state not in ("active", "paused"):
            return ()
        if self.max_duration is not None and age >= self.max_duration:
            return ended
        if self.max_messages is not None and messages >= self.max_messages:
            return ended
        if state == "active" and self.idle_timeout is not None and idle >= self.idle_timeout:
            return ("paused",)
        return ()


class ActionItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that is to be done."""

    id: str
    description: str
    completed: bool = False
    due: str = ""
    priority: Priority = "medium"
    assignee: str = ""


class ThreadContext(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The subject of a conversation. It is part of the thread's metadata."""

    topic: str = ""
    facts: tuple[str, ...] = ()
    open_questions: tuple[str, ...] = ()
    action_items: tuple[ActionItem, ...] = ()
    preferences: dict[str, Any] = {}
    tags: tuple[str, ...] = ()


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A session as a thread."""

    id: str
    title: str
    agent_id: str
    resource_id: str
    """The owner: a user, an organisation or a program."""
    metadata: dict[str, Any]
    state: str
    version: int
    """The number of the event that last changed title, owner, metadata or state."""
    created_at: str
    updated_at: str

    def is_owned_by(self, resource_id: str) -> bool:
        return bool(resource_id) and self.resource_id == resource_id

    def belongs_to_agent(self, agent_id: str) -> bool:
        return bool(agent_id) and self.agent_id == agent_id

    @property
    def policy(self) -> ThreadPolicy | None:
        """Its limits; ``None`` without, and when the metadata has something else under this key."""
        return read_value(self.metadata.get(POLICY_KEY), ThreadPolicy)

    @property
    def hidden(self) -> tuple[HiddenMessages, ...]:
        """The parts of its log whose messages were deleted or follow again."""
        return hidden_messages_of(self.metadata)

    @property
    def context(self) -> ThreadContext:
        return read_value(self.metadata.get(CONTEXT_KEY), ThreadContext) or ThreadContext()


def read_value(value: Any, type: type[T]) -> T | None:
    """Return a value of metadata as data of a type; ``None`` when it is not."""
    try:
        return None if value is None else msgspec.convert(value, type)
    except (msgspec.ValidationError, InvalidInput):
        return None


def thread_of(info: SessionInfo) -> Thread:
    """Return a session as a thread."""
    return Thread(
        id=info.id,
        title=info.title,
        agent_id=info.agent,
        resource_id=info.owner,
        metadata=info.metadata,
        state=info.state,
        version=info.version,
        created_at=info.created,
        updated_at=info.updated,
    )


def check_active(thread: Thread) -> None:
    """Raise ``InvalidInput`` unless a thread takes messages."""
    if thread.state != "active":
        hint = "set its state to 'active'" if thread.state == "paused" else "begin another"
        raise InvalidInput(f"{thread.id!r} is {thread.state} and takes no messages; {hint}")


class ThreadPage(msgspec.Struct, frozen=True, kw_only=True):
    """Threads, the last changed first, and the cursor of the next page (``""`` on the last)."""

    threads: tuple[Thread, ...]
    next_cursor: str = ""

    @property
    def has_more(self) -> bool:
        return bool(self.next_cursor)


class NewMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A message to add to a thread. The results of calls directly follow the answer that made the calls."""

    role: MessageRole
    content: "str | Content" = ""
    id: str = ""
    """An id of the client: the same id again adds nothing. Default: a new one."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls of an answer."""
    tool_call_id: str = ""
    """The call whose result this is."""
    failed: bool = False
    """Whether the call failed, of a result."""
    metadata: dict[str, Any] = {}
    ts: str = ""
    """When it was said (RFC 3339); default: now."""


def to_message(message: NewMessage) -> Message:
    """Return a new message as a model gets it."""
    content = as_content(message.content) if message.content else ()
    if message.role == "user":
        return UserMessage(content=content)
    if message.role == "assistant":
        return AssistantMessage(id=MessageId(""), content=content, calls=message.tool_calls)
    result = ToolResult(call=CallId(message.tool_call_id), content=content, failed=message.failed)
    return ToolMessage(results=(result,))


class AddedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The id of a message that was added, or was there already."""

    id: str
    added: bool = True


class DeletedMessages(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages were deleted; ``error_message`` names those that were not."""

    affected_count: int
    success: bool = True
    error_message: str | None = None


def parse_messages(messages: "Sequence[NewMessage | Mapping[str, Any]]") -> list[NewMessage]:
    """Return messages that were given as values or as mappings. Raises ``InvalidInput`` for the first bad one."""
    parsed: list[NewMessage] = []
    for number, message in enumerate(messages, 1):
        if isinstance(message, NewMessage):
            parsed.append(message)
            continue
        try:
            parsed.append(msgspec.convert(message, NewMessage))
        except msgspec.ValidationError as error:
            raise InvalidInput(f"message {number} cannot be read: {error}; it needs 'role' and 'content'") from error
    return parsed


def check_messages(messages: Sequence[NewMessage]) -> None:
    """Raise ``InvalidInput`` for a message whose fields do not fit its role, and for calls without their results."""
    waiting: dict[str, int] = {}
    for number, message in enumerate(messages, 1):
        _check_fields(number, message)
        if message.role == "tool":
            if waiting.pop(message.tool_call_id, None) is None:
                raise InvalidInput(
                    f"message {number} is the result of call {message.tool_call_id[:80]!r}, which no answer directly "
                    f"before it has made; add an answer, its calls and their results together"
                )
            continue
        if waiting:
            break
        waiting = dict.fromkeys((call.id for call in message.tool_calls), number)
        if len(waiting) != len(message.tool_calls) or "" in waiting:
            raise InvalidInput(f"message {number} has calls without an id, or two with the same id")
    for call, number in waiting.items():
        raise InvalidInput(
            f"the call {call[:80]!r} of message {number} has no result; the results of an answer's calls follow it"
        )


def _check_fields(number: int, message: NewMessage) -> None:
    where = f"message {number} of role {message.role!r}"
    if message.role != "assistant" and message.tool_calls:
        raise InvalidInput(f"{where} has tool_calls; only an answer of the assistant has them")
    if (message.role == "tool") != bool(message.tool_call_id):
        raise InvalidInput(f"{where} must{' ' if message.role == 'tool' else ' not '}have a tool_call_id")
    if message.role == "tool" and (message.id or message.metadata):
        raise InvalidInput(f"{where} cannot have an id or metadata: it is known by its call")
    if message.role != "tool" and not message.content and not message.tool_calls:
        raise InvalidInput(f"{where} is empty; give it a content")
    try:
        msgspec.json.encode((message.metadata, message.tool_calls, message.tool_call_id))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"{where}: metadata and calls cannot be written as JSON: {error}") from error
    if not isinstance(message.content, str):
        _check_parts(where, message.content)
    if message.id and (not message.id.isprintable() or len(message.id) > MAX_ID_LENGTH):
        raise InvalidInput(
            f"{where}: id {message.id[:40]!r} must be printable, with at most {MAX_ID_LENGTH} characters"
        )
    if message.id.startswith(RESERVED_PREFIXES):
        raise InvalidInput(
            f"{where}: id {message.id[:40]!r} begins with a reserved prefix: {', '.join(RESERVED_PREFIXES)}"
        )


def _check_parts(where: str, content: Content) -> None:
    """Raise ``InvalidInput`` for a part that names a blob, which may be of another owner, or is not base64."""
    for part in content:
        if getattr(part, "blob", None) is not None:
            raise InvalidInput(f"{where} has a part that names a blob; give its text or data instead")
        try:
            base64.b64decode(getattr(part, "data", ""), validate=True)
        except (binascii.Error, ValueError) as error:
            raise InvalidInput(f"{where} has a part whose data are not base64: {error}") from error
