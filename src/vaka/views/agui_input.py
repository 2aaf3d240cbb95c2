"""The request of an AG-UI client, ``RunAgentInput``, as inputs, tool results and decisions of a session."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from vaka.core.types.control import ApprovalResolved, InputAdded, QuestionAnswered
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, CallId, DecisionId, parse_session_id
from vaka.core.types.message import Audio, Content, Document, Image, Part, Text, ToolResult, as_content
from vaka.core.types.tool import ToolSpec
from vaka.views.agui import result_message_id
from vaka.views.chat_input import ChatInput, Decision
from vaka.views.media import without_nulls

_MEDIA: dict[str, type[Image] | type[Audio] | type[Document]] = {
    "image": Image,
    "audio": Audio,
    "document": Document,
}


class _Tool(msgspec.Struct, frozen=True):
    """A tool that the client runs."""

    name: str
    description: str = ""
    parameters: dict[str, Any] | None = None
    """The JSON Schema of its arguments."""


class AguiAnswer(msgspec.Struct, frozen=True, rename="camel"):
    """The answer to one interrupt: an approval or a question of the session, by its id."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: JSON = None

    def to_approval(self) -> ApprovalResolved:
        """Return the decision: ``payload`` is ``{"approved": …}`` with ``message`` or ``editedArgs``, or a boolean.

        Raises ``InvalidInput``. An interrupt that was cancelled is a rejection.
        """
        id = DecisionId(self.interrupt_id)
        if self.status == "cancelled":
            return ApprovalResolved(approval=id, decision="reject", message="cancelled")
        given = {"approved": self.payload} if isinstance(self.payload, bool) else self.payload
        try:
            answer = msgspec.convert(given, _ApprovalPayload)
        except msgspec.ValidationError as error:
            raise InvalidInput(
                f"the answer to approval {id} must be {{'approved': true}} or {{'approved': false, 'message': '…'}}, "
                f"with 'editedArgs' to change the arguments: {error}"
            ) from error
        if answer.edited_args is not None and not answer.approved:
            raise InvalidInput(f"the answer to approval {id} has 'editedArgs' but rejects the call; set 'approved'")
        decision: Literal["approve", "reject"] = "approve" if answer.approved else "reject"
        return ApprovalResolved(approval=id, decision=decision, message=answer.message, edit=answer.edited_args)

    def to_answer(self) -> QuestionAnswered:
        """Return the answer to a question; ``None`` if the interrupt was cancelled."""
        answer = self.payload if self.status == "resolved" else None
        return QuestionAnswered(question=DecisionId(self.interrupt_id), answer=answer)


class AguiInput(ChatInput, frozen=True, kw_only=True):
    """A request for a run."""

    run_id: str
    state: JSON = None


class _ForwardedProps(msgspec.Struct, frozen=True, rename="camel"):
    """What the application asks of the server; other properties are its own."""

    on_disconnect: Literal["cancel", "continue"] = "cancel"


class _ApprovalPayload(msgspec.Struct, frozen=True, rename="camel"):
    approved: bool
    message: str = ""
    edited_args: dict[str, Any] | None = None


class _Source(msgspec.Struct, frozen=True, rename="camel"):
    type: Literal["data", "url", "file"]
    value: str
    mime_type: str = ""


class _InputPart(msgspec.Struct, frozen=True):
    type: str
    text: str = ""
    source: _Source | None = None


class _InputMessage(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    role: Literal["developer", "system", "assistant", "user", "tool", "activity", "reasoning"]
    content: JSON = None
    tool_call_id: str = ""
    error: str | None = None


class _ContextEntry(msgspec.Struct, frozen=True):
    description: str
    value: str


class _RunAgentInput(msgspec.Struct, frozen=True, rename="camel"):
    thread_id: str
    run_id: str
    messages: tuple[_InputMessage, ...]
    tools: tuple[_Tool, ...] | None = None
    context: tuple[_ContextEntry, ...] | None = None
    resume: tuple[AguiAnswer, ...] | None = None
    state: JSON = None
    forwarded_props: JSON = None


_FIELDS = frozenset({"messages", "content", "source", "tools", "context", "resume"})


def parse_agui_input(request: "bytes | str | Mapping[str, Any]") -> AguiInput:
    """Return what a ``RunAgentInput`` asks for. Raises ``InvalidInput``."""
    try:
        body = msgspec.json.decode(request) if isinstance(request, bytes | str) else request
        given = msgspec.convert(without_nulls(body, _FIELDS), _RunAgentInput)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the request is not an AG-UI RunAgentInput: {error}") from error
    if not given.run_id:
        raise InvalidInput("the request has an empty runId; give each run an id of its own")
    answers = given.resume or ()
    ids = [answer.interrupt_id for answer in answers]
    if len(set(ids)) < len(ids):
        raise InvalidInput("the request answers an interrupt twice; 'resume' must have one entry for each")
    last = max((at for at, message in enumerate(given.messages) if message.role == "assistant"), default=-1)
    new = given.messages[last + 1 :]
    return AguiInput(
        session=parse_session_id(given.thread_id),
        run_id=given.run_id,
        decisions=tuple(map(_to_decision, answers)),
        inputs=tuple(_to_input(message) for message in new if message.role == "user"),
        results=tuple(_to_result(message) for message in new if _is_client_result(message)),
        instructions=_instructions_of(given),
        tools=tuple(
            ToolSpec(name=tool.name, description=tool.description, parameters=tool.parameters or {})
            for tool in given.tools or ()
        ),
        state=given.state,
        stops_on_disconnect=_read_props(given.forwarded_props).on_disconnect == "cancel",
    )


def _to_decision(answer: AguiAnswer) -> Decision:
    return answer.to_approval() if answer.interrupt_id.startswith("apr_") else answer.to_answer()


def _read_props(props: JSON) -> _ForwardedProps:
    try:
        return msgspec.convert(props if isinstance(props, dict) else {}, _ForwardedProps)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"forwardedProps: onDisconnect must be 'cancel' or 'continue': {error}") from error


def _instructions_of(given: _RunAgentInput) -> str:
    """Return what the application tells the agent about itself: instructions, context and state."""
    texts = (_to_text(message) for message in given.messages if message.role in ("system", "developer"))
    parts = [text for text in texts if text.strip()]
    if given.context:
        entries = "\n".join(f"- {entry.description}: {entry.value}" for entry in given.context)
        parts.append(f"Context of the application:\n{entries}")
    if given.state:
        parts.append(f"State of the application, as JSON:\n{msgspec.json.encode(given.state).decode()}")
    return "\n\n".join(parts)


def _is_client_result(message: _InputMessage) -> bool:
    return message.role == "tool" and message.id != result_message_id(message.tool_call_id)


def _to_input(message: _InputMessage) -> InputAdded:
    if not message.id:
        raise InvalidInput("a user message has an empty id; give each message an id of its own")
    return InputAdded(key=message.id, content=_to_content(message), source="ag-ui")


def _to_result(message: _InputMessage) -> ToolResult:
    if not message.tool_call_id:
        raise InvalidInput(f"tool message {message.id[:80]!r} has no toolCallId: it must name the call it answers")
    call, content = CallId(message.tool_call_id), _to_content(message)
    if message.error is None:
        return ToolResult(call=call, content=content)
    texts = any(isinstance(part, Text) and part.text for part in content)
    return ToolResult(call=call, content=content if texts else as_content(message.error), failed=True, reason="error")


def _to_text(message: _InputMessage) -> str:
    if not isinstance(message.content, str):
        raise InvalidInput(f"{message.role} message {message.id[:80]!r}: 'content' must be a text")
    return message.content


def _to_content(message: _InputMessage) -> Content:
    if isinstance(message.content, str):
        return as_content(message.content)
    try:
        parts = msgspec.convert(message.content, tuple[_InputPart, ...])
    except msgspec.ValidationError as error:
        where = f"{message.role} message {message.id[:80]!r}"
        raise InvalidInput(f"{where}: 'content' must be a text or a list of parts: {error}") from error
    return as_content([_to_part(part, message) for part in parts])


def _to_part(part: _InputPart, message: _InputMessage) -> Part:
    where = f"{message.role} message {message.id[:80]!r}"
    if part.type == "text":
        return Text(text=part.text)
    kind = _MEDIA.get(part.type)
    if kind is None:
        raise InvalidInput(f"{where}: type {part.type[:40]!r} is not supported; use text, image, audio or document")
    source = part.source
    if source is None or source.type == "file" or not source.value:
        raise InvalidInput(f"{where}: the {part.type} needs a 'source' of type 'data' or 'url' with a 'value'")
    if source.type == "url":
        return kind(url=source.value, media_type=source.mime_type)
    if not source.mime_type:
        raise InvalidInput(f"{where}: the {part.type} has data without a 'mimeType'")
    return kind(data=source.value, media_type=source.mime_type)
