"""State documents of GenX: an agent's conversation and progress as JSON or YAML.

Two shapes exist. The documents of the repository have ``state_type``, ``tool_results`` and matches as
``{rule_name, agent_name}``; the documents of the playground have ``parent_state_id``, ``last_user_message_idx`` and
matches as ``{rule, args, agent_ref}``. Both are read. The first shape is written, with ``parent_state_id`` and the
``args`` of matches.
"""

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeAlias

import msgspec

from vaka.core.types import progress
from vaka.core.types.control import InputAdded
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Message,
    ToolMessage,
    UserMessage,
    text_of,
)
from vaka.genx.agent_events import timestamp_of

GenxRole: TypeAlias = Literal["user", "model", "tool"]
StateType: TypeAlias = Literal["react", "match", "lua", "realtime"]
_ROLES = ("user", "model", "tool")
_STATE_TYPES = ("react", "match", "lua", "realtime")
_MATCH_KEYS = ("matches", "matched", "input", "current_index", "calling_state")
_AGENT_REFERENCE = "agent:"


class GenxMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message as GenX stores it: text, one tool call of the model, or one result."""

    role: GenxRole
    name: str = ""
    content: str = ""
    unix_epoch: int = 0
    tool_call_id: str = ""
    tool_call_name: str = ""
    tool_call_args: str = ""
    tool_result_id: str = ""

    def check(self) -> Self:
        """Return the message. Raises ``InvalidInput`` for fields that its role must or must not have."""
        has_call = bool(self.tool_call_id or self.tool_call_name or self.tool_call_args)
        if self.role in ("user", "tool") and has_call:
            raise InvalidInput(f"{self.role} message should not have tool call fields")
        if self.role in ("user", "model") and self.tool_result_id:
            raise InvalidInput(f"{self.role} message should not have tool result fields")
        if self.tool_call_id and not self.tool_call_name:
            raise InvalidInput("model tool call message must have tool_call_name")
        if self.role == "tool" and not self.tool_result_id:
            raise InvalidInput("tool message must have tool_result_id")
        return self

    def merged_with(self, later: "GenxMessage") -> "GenxMessage | None":
        """Return both messages as one if they are parts of one, otherwise ``None``.

        User messages in a row are joined by a line break, texts of the model as they are, and the arguments of one
        call are joined.
        """
        if self.role != later.role or self.name != later.name or self.role == "tool":
            return None
        if self.tool_call_id != later.tool_call_id:
            return None
        if self.tool_call_id:
            return msgspec.structs.replace(self, tool_call_args=self.tool_call_args + later.tool_call_args)
        separator = "\n" if self.role == "user" else ""
        return msgspec.structs.replace(self, content=f"{self.content}{separator}{later.content}")


def merge_messages(messages: Iterable[GenxMessage]) -> list[GenxMessage]:
    """Return messages; parts of one message are merged."""
    merged: list[GenxMessage] = []
    for message in messages:
        joined = merged[-1].merged_with(message) if merged else None
        if joined is not None:
            merged[-1] = joined
        else:
            merged.append(message)
    return merged


class StateToolResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a call of the round that has not ended."""

    id: str
    name: str
    content: str = ""
    is_error: bool = False


class MatchedIntent(msgspec.Struct, frozen=True, kw_only=True):
    """A rule that matched the input, and the agent that answers it."""

    rule_name: str
    agent_name: str
    args: dict[str, Any] = {}


class MemorySegment(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is remembered."""

    id: str
    summary: str
    unix_epoch: int
    keywords: tuple[str, ...] = ()


class MemoryQuery(msgspec.Struct, frozen=True, kw_only=True):
    """A query for memories: words, and a time. 0 is any; hour 1 is 00:00 to 01:00."""

    text: str = ""
    year: int = 0
    month: int = 0
    day: int = 0
    hour: int = 0

    def check(self) -> Self:
        """Return the query. Raises ``InvalidInput`` for a number that is not one of the calendar."""
        for name, last in (("month", 12), ("day", 31), ("hour", 24)):
            number = getattr(self, name)
            if not 0 <= number <= last:
                raise InvalidInput(f"{name} must be 1-{last}, got {number}")
        return self


class MemoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a conversation that a model sees: the ``$mem`` layer of a definition."""

    summary: bool = False
    query: bool = False
    recent: int = 100


class StateDocument(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one agent."""

    state_type: StateType
    id: str
    agent_def: str
    parent_state_id: str = ""
    messages: tuple[GenxMessage, ...] = ()
    summary: str = ""
    properties: dict[str, Any] = {}
    phase: str = ""
    tool_results: tuple[StateToolResult, ...] = ()
    finished: bool = False
    input: str = ""
    matches: tuple[MatchedIntent, ...] = ()
    current_index: int = 0
    matched: bool = False
    calling_state: "StateDocument | None" = None

    def to_json(self) -> bytes:
        return msgspec.json.encode(self)

    def to_yaml(self) -> str:
        return msgspec.yaml.encode(self).decode()

    @classmethod
    def from_json(cls, data: bytes | str | Mapping[str, Any]) -> Self:
        """Return the document of either shape. Raises ``InvalidInput``."""
        try:
            raw = data if isinstance(data, Mapping) else msgspec.json.decode(data, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"state document is not a JSON object: {error}") from error
        return cls._from_raw(dict(raw))

    @classmethod
    def from_yaml(cls, text: bytes | str) -> Self:
        """Return the document of either shape. Raises ``InvalidInput``."""
        try:
            raw = msgspec.yaml.decode(text, type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"state document is not a YAML mapping: {error}") from error
        return cls._from_raw(raw)

    @classmethod
    def _from_raw(cls, raw: dict[str, Any]) -> Self:
        raw = _without_nulls(raw)
        _require(raw, "state", "id")
        where = f"state {raw['id']}"
        _require(raw, where, "agent_def")
        raw["state_type"] = raw.get("state_type") or ("match" if any(key in raw for key in _MATCH_KEYS) else "react")
        if raw["state_type"] not in _STATE_TYPES:
            raise InvalidInput(f"{where}: invalid state type {raw['state_type']!r}; use {', '.join(_STATE_TYPES)}")
        raw["matches"] = [_read_match(where, match) for match in _objects(where, raw, "matches")]
        for message in _objects(where, raw, "messages"):
            if message.get("role") not in _ROLES:
                raise InvalidInput(f"{where}: invalid message role {message.get('role')!r}; use {', '.join(_ROLES)}")
        for result in _objects(where, raw, "tool_results"):
            _require(result, f"{where}: tool result", "id", "name")
        calling = raw.pop("calling_state", None)
        try:
            document = msgspec.convert(raw, cls)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"{where}: {error}") from error
        for at, stored in enumerate(document.messages):
            try:
                stored.check()
            except InvalidInput as error:
                raise InvalidInput(f"{where}: messages[{at}]: {error}") from error
        return msgspec.structs.replace(document, calling_state=_read_calling_state(cls, where, calling))


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if value is not None}


def _require(raw: Mapping[str, Any], where: str, *names: str) -> None:
    for name in names:
        if not raw.get(name):
            raise InvalidInput(f"{where}: {name} is required")


def _objects(where: str, raw: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    try:
        return msgspec.convert(raw.get(name, []), list[dict[str, Any]])
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{where}: {name} must be a list of objects: {error}") from error


def _read_match(where: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return a match of either shape in the written shape."""
    agent: Any = raw.get("agent_name") or raw.get("agent_ref") or ""
    reference = msgspec.convert(agent, dict[str, Any]).get("$ref", "") if isinstance(agent, dict) else agent
    match: dict[str, Any] = {"rule_name": raw.get("rule_name") or raw.get("rule"), "args": raw.get("args") or {}}
    match["agent_name"] = str(reference).removeprefix(_AGENT_REFERENCE)
    _require(match, f"{where}: matched intent", "rule_name", "agent_name")
    return match


def _read_calling_state(kind: type[StateDocument], where: str, raw: Any) -> StateDocument | None:
    """Return the state of a router's agent: an object, or the bytes of its JSON in base64 as the first shape had."""
    if not raw:
        return None
    if isinstance(raw, dict):
        return kind.from_json(msgspec.json.encode(raw))
    try:
        text = raw if isinstance(raw, bytes) else base64.b64decode(str(raw), validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"{where}: calling_state is neither an object nor JSON in base64") from error
    return kind.from_json(text)


def messages_of(messages: Sequence[Message], times: Sequence[int] = ()) -> list[GenxMessage]:
    """Return messages of a conversation as GenX stores them; parts that are not text are left out.

    ``times`` has the Unix time of each message in seconds.
    """
    ids = call_ids_of(messages)
    stored: list[GenxMessage] = []
    for at, message in enumerate(messages):
        stored += _stored_message(message, ids, times[at] if times else 0)
    return stored


def call_ids_of(messages: Sequence[Message]) -> dict[CallId, str]:
    """Return the ids of calls in a document: the model's ids where they are unique, otherwise ours."""
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    uses = Counter(call.provider_id for call in calls)
    return {
        call.id: call.provider_id if call.provider_id and uses[call.provider_id] == 1 else call.id for call in calls
    }


def _stored_message(message: Message, ids: Mapping[CallId, str], time: int) -> list[GenxMessage]:
    if isinstance(message, UserMessage):
        return [GenxMessage(role="user", content=text_of(message.content), unix_epoch=time)]
    if isinstance(message, ToolMessage):
        return [
            GenxMessage(
                role="tool", content=result.text, tool_result_id=ids.get(result.call, result.call), unix_epoch=time
            )
            for result in message.results
        ]
    text = text_of(message.content)
    calls = [
        GenxMessage(
            role="model",
            tool_call_id=ids[call.id],
            tool_call_name=call.name,
            unix_epoch=time,
            tool_call_args=call.raw or msgspec.json.encode(call.arguments).decode(),
        )
        for call in message.calls
    ]
    return [*([GenxMessage(role="model", content=text, unix_epoch=time)] if text else []), *calls]


def message_times(events: Iterable[Event], messages: Sequence[Message]) -> list[int]:
    """Return the Unix time of each message that was built from events, in seconds; 0 if no event has it.

    A user message has the same part objects as its event, so their identity finds the event.
    """
    times: dict[object, int] = {}
    for event in events:
        body, time = event.data, timestamp_of(event.ts) // 1000
        match body:
            case progress.MessageCompleted(message_id=id):
                times[id] = time
            case progress.ToolCompleted(result=result) | progress.ToolFailed(result=result):
                times[result.call] = times[f"msg_{result.call}"] = time  # a router's answer has this id
            case InputAdded(content=content) | progress.SubagentStarted(content=content) if content:
                times[id_of_content(content)] = time
            case _:
                continue
    return [times.get(_time_key(message), 0) for message in messages]


def id_of_content(content: Content) -> int:
    return id(content[0])


def _time_key(message: Message) -> object:
    if isinstance(message, UserMessage):
        return id_of_content(message.content)
    return message.results[0].call if isinstance(message, ToolMessage) else message.id
