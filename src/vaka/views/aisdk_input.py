"""The request of an AI SDK chat, as inputs, tool results and decisions of a session."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

import msgspec

from vaka.core.types.control import ApprovalResolved, InputAdded, QuestionAnswered
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, CallId, DecisionId, parse_session_id
from vaka.core.types.message import Audio, Document, Image, Part, Text, ToolResult, as_content
from vaka.core.types.tool import ToolSpec
from vaka.views.chat_input import ChatInput
from vaka.views.media import without_nulls


class UiChatRequest(ChatInput, frozen=True, kw_only=True):
    """A request of a chat."""

    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str = ""
    """The message to write anew, or that the user has edited."""
    known_calls: frozenset[str] = frozenset()
    """The ids of the tool calls of the message that goes on; none when there are new user messages."""


class _Approval(msgspec.Struct, frozen=True):
    id: str
    approved: bool | None = None
    reason: str = ""


class _UiPart(msgspec.Struct, frozen=True, rename="camel"):
    type: str
    text: str = ""
    url: str = ""
    media_type: str = ""
    filename: str = ""
    tool_call_id: str = ""
    state: str = ""
    output: JSON = None
    error_text: str = ""
    approval: _Approval | None = None
    preliminary: bool = False


class _UiMessage(msgspec.Struct, frozen=True):
    id: str
    role: Literal["system", "user", "assistant"]
    parts: tuple[_UiPart, ...]


class _ToolSchema(msgspec.Struct, frozen=True):
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _ChatBody(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    messages: tuple[_UiMessage, ...]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    answers: dict[str, JSON] = {}
    """Answers to questions by their ids; like what follows, an application adds them to the body."""
    tools: dict[str, _ToolSchema] | None = None
    """The tools that the client runs, in addition to the agent's tools of type ``ClientTool``."""
    system: str | None = None
    on_disconnect: Literal["continue", "cancel"] | None = None


_FIELDS = frozenset({"messages", "parts", "approval"})


def parse_ui_chat_request(request: "bytes | str | Mapping[str, Any]") -> UiChatRequest:
    """Return what the body of a chat's request asks for. Raises ``InvalidInput``."""
    try:
        body = msgspec.json.decode(request) if isinstance(request, bytes | str) else request
        given = msgspec.convert(without_nulls(body, _FIELDS), _ChatBody)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the request is not one of an AI SDK chat: {error}") from error
    last = max((at for at, message in enumerate(given.messages) if message.role == "assistant"), default=-1)
    new = [message for message in given.messages[last + 1 :] if message.role == "user"]
    continued = () if new or last < 0 else given.messages[last].parts
    calls = [part for part in continued if part.tool_call_id]
    answers = (QuestionAnswered(question=DecisionId(id), answer=answer) for id, answer in given.answers.items())
    return UiChatRequest(
        session=parse_session_id(given.id),
        trigger=given.trigger,
        message_id=given.message_id or "",
        inputs=tuple(map(_to_input, new)),
        decisions=(*_to_approvals(calls), *answers),
        results=tuple(_to_results(calls)),
        instructions=given.system or "",
        tools=tuple(
            ToolSpec(name=name, description=tool.description or "", parameters=tool.parameters or {})
            for name, tool in (given.tools or {}).items()
        ),
        stops_on_disconnect=given.on_disconnect == "cancel",
        known_calls=frozenset(part.tool_call_id for part in calls),
    )


def _to_approvals(parts: Iterable[_UiPart]) -> Iterable[ApprovalResolved]:
    for part in parts:
        approval = part.approval
        if part.state != "approval-responded":
            continue
        if approval is None or approval.approved is None:
            raise InvalidInput(f"call {part.tool_call_id[:80]!r}: an approval needs an 'id' and 'approved'")
        decision: Literal["approve", "reject"] = "approve" if approval.approved else "reject"
        yield ApprovalResolved(approval=DecisionId(approval.id), decision=decision, message=approval.reason)


def _to_results(parts: Iterable[_UiPart]) -> Iterable[ToolResult]:
    for part in parts:
        call = CallId(part.tool_call_id)
        if part.state == "output-error":
            content = as_content(part.error_text or "the tool has failed")
            yield ToolResult(call=call, content=content, failed=True, reason="error")
        elif part.state == "output-available" and not part.preliminary:
            if isinstance(part.output, str):
                yield ToolResult(call=call, content=as_content(part.output))
            else:
                text = msgspec.json.encode(part.output).decode()
                yield ToolResult(call=call, content=as_content(text), value=part.output)


def _to_input(message: _UiMessage) -> InputAdded:
    if not message.id:
        raise InvalidInput("a user message has an empty id; give each message an id of its own")
    parts = [part for given in message.parts if (part := _to_part(given, message.id)) is not None]
    if not parts:
        raise InvalidInput(f"user message {message.id[:80]!r} has neither text nor files")
    return InputAdded(key=message.id, content=as_content(parts), source="ai-sdk")


def _to_part(part: _UiPart, message: str) -> Part | None:
    """Return the text or file of a part; ``None`` for data parts, which are the application's own."""
    where = f"user message {message[:80]!r}"
    if part.type == "text":
        return Text(text=part.text)
    if part.type.startswith("data-"):
        return None
    if part.type != "file":
        raise InvalidInput(f"{where}: parts of type {part.type[:40]!r} are not supported; use 'text' or 'file'")
    if not part.media_type or not part.url:
        raise InvalidInput(f"{where}: a file needs a 'mediaType' and a 'url'")
    kind = part.media_type.partition("/")[0]
    data = ""
    if part.url[:5].lower() == "data:":
        head, comma, data = part.url.partition(",")
        if not comma or not data or not head.endswith(";base64"):
            raise InvalidInput(f"{where}: the data URL of a file must be 'data:TYPE;base64,…'")
    url = "" if data else part.url
    if kind == "image":
        return Image(media_type=part.media_type, data=data, url=url)
    if kind == "audio":
        return Audio(media_type=part.media_type, data=data, url=url)
    return Document(media_type=part.media_type, data=data, url=url, name=part.filename)
