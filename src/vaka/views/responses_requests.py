"""The requests of OpenAI's Responses API as inputs of a session."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.types.control import ApprovalResolved
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId, DecisionId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.views.chat_input import ChatInput, inputs_of
from vaka.views.openai_requests import (
    convert_body,
    convert_field,
    drop_none,
    make_call,
    parse_content,
    parse_response_format,
    parse_tool_choice,
    parse_tools,
    read_effort,
)

SERVER_LABEL = "vaka"
"""The name of the MCP server that the tools of an agent appear to belong to."""


class ResponsesRequest(ChatInput, frozen=True, kw_only=True):
    """A request of the Responses API; ``history`` is empty with ``previous_response_id``."""

    stream: bool = False
    background: bool = False
    store: bool = True
    previous_response_id: str = ""
    echo: dict[str, Any] = {}
    """The fields that the response repeats, for ``ResponseEncoder``."""


class _Conversation(msgspec.Struct, frozen=True):
    id: str


class _Reasoning(msgspec.Struct, frozen=True):
    effort: str | None = None


class _TextConfig(msgspec.Struct, frozen=True):
    format: dict[str, Any] | None = None


class _ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    stream: bool | None = None
    background: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    conversation: str | _Conversation | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    text: _TextConfig | None = None
    reasoning: _Reasoning | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    user: str | None = None
    metadata: dict[str, str] | None = None


class _FunctionCall(msgspec.Struct, frozen=True):
    call_id: str
    name: str
    arguments: str | None = None
    input: str | None = None


class _FunctionOutput(msgspec.Struct, frozen=True):
    call_id: str
    output: str | list[dict[str, Any]] | None = None


class _ApprovalResponse(msgspec.Struct, frozen=True):
    approval_request_id: str
    approve: bool
    reason: str | None = None


_ECHOED = (
    "metadata",
    "tools",
    "tool_choice",
    "temperature",
    "top_p",
    "previous_response_id",
    "background",
    "parallel_tool_calls",
    "max_output_tokens",
    "instructions",
    "conversation",
)


class _ItemId(msgspec.Struct, frozen=True):
    id: str | None = None
    type: str | None = None
    role: str | None = None


class _Items(msgspec.Struct, frozen=True):
    input: str | list[_ItemId] | None = None


def list_item_references(body: "bytes | str | Mapping[str, Any]") -> list[str]:
    """Return the ids of the stored items that the input of a request refers to."""
    try:
        given = convert_body(body, _Items)
    except InvalidInput:  # reading the request says what is wrong
        return []
    items = given.input if isinstance(given.input, list) else []
    return [item.id for item in items if item.id and _is_reference(item.type, item.role)]


def _is_reference(type: Any, role: Any) -> bool:
    return type == "item_reference" or (type is None and role is None)


def parse_responses_request(
    body: "bytes | str | Mapping[str, Any]", stored: Mapping[str, Mapping[str, Any]] | None = None
) -> ResponsesRequest:
    """Return the request of a body. Raises ``InvalidInput`` that names the field and what was expected.

    ``stored`` are the items that the input refers to, by their ids; see ``list_item_references``.
    """
    given = convert_body(body, _ResponsesBody)
    if given.previous_response_id and given.conversation:
        raise InvalidInput("a request has 'previous_response_id' or 'conversation', not both")
    read = _InputReader(given.input or "", stored or {})
    functions = [tool for tool in given.tools or () if not _names_own_tools(tool)]
    for tool in functions:
        if tool.get("type") != "function":
            raise InvalidInput(
                f"a tool of a request has the type 'function', not {tool.get('type')!r}; the agent has its own besides"
            )
    conversation = given.conversation
    options = drop_none(
        temperature=given.temperature,
        top_p=given.top_p,
        max_tokens=given.max_output_tokens,
        user=given.user,
        parallel_calls=given.parallel_tool_calls,
        reasoning=read_effort(given.reasoning.effort) if given.reasoning else None,
        output=parse_response_format(given.text.format) if given.text else None,
    )
    return ResponsesRequest(
        model=given.model,
        session=conversation.id if isinstance(conversation, _Conversation) else conversation or "",
        inputs=inputs_of(read.content),
        results=tuple(read.results),
        decisions=tuple(read.decisions),
        history=tuple(read.history),
        instructions="\n\n".join(text for text in (given.instructions, *read.system) if text),
        tools=parse_tools(functions),
        tool_choice=parse_tool_choice(given.tool_choice),
        options=options,
        stream=bool(given.stream),
        background=bool(given.background),
        store=given.store is not False,
        previous_response_id=given.previous_response_id or "",
        echo=_echo_of(given),
    )


def _names_own_tools(tool: Mapping[str, Any]) -> bool:
    """Return whether a tool stands for all tools of the agent: clients name it to be asked for approvals."""
    return tool.get("type") == "mcp" and tool.get("server_label") == SERVER_LABEL


def _echo_of(given: _ResponsesBody) -> dict[str, Any]:
    echo = drop_none(**{name: getattr(given, name) for name in _ECHOED})
    if "conversation" in echo:
        conversation = given.conversation
        echo["conversation"] = {"id": conversation.id if isinstance(conversation, _Conversation) else conversation}
    if "tools" in echo:  # the fields that a response must have
        echo["tools"] = [
            tool if _names_own_tools(tool) else {"parameters": None, "strict": False, **tool} for tool in echo["tools"]
        ]
    return echo


def input_item(id: str, content: Content) -> dict[str, Any]:
    """Return an input of a session as the item of a message of the user."""
    parts = [part for part in map(_input_part, content) if part]
    return {"id": id, "type": "message", "role": "user", "status": "completed", "content": parts}


def _input_part(part: Part) -> dict[str, Any]:
    match part:
        case Text(text=text):
            return {"type": "input_text", "text": text}
        case Image(url=url, data=data, media_type=media_type):
            return {"type": "input_image", "detail": "auto", "image_url": url or f"data:{media_type};base64,{data}"}
        case Document(name=name, url=url, data=data, media_type=media_type):
            source = {"file_url": url} if url else {"file_data": f"data:{media_type};base64,{data}"}
            return {"type": "input_file", "filename": name, **source}
        case Audio(data=data, media_type=media_type):
            return {"type": "input_audio", "input_audio": {"data": data, "format": media_type.rpartition("/")[2]}}
        case _:
            return {}


_IGNORED_ITEMS = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "image_generation_call",
        "mcp_approval_request",
        "mcp_call",
        "mcp_list_tools",
        "reasoning",
        "web_search_call",
    }
)
"""Items that a response of this server or of another provider had besides its messages and calls."""


class _InputReader:
    """Sorts the items of an input into the history and what is new after it."""

    def __init__(self, given: str | Sequence[Mapping[str, Any]], stored: Mapping[str, Mapping[str, Any]]) -> None:
        self._stored = stored
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        self.system: list[str] = []
        self.history: list[Message] = []
        self.results: list[ToolResult] = []
        self.decisions: list[ApprovalResolved] = []
        self._said: list[UserMessage] = []
        for item in items:
            self._read(item)
        self.content: Content = tuple(
            part for message in self._said for part in message.content if part != Text(text="")
        )
        if not (self.content or self.results or self.decisions):
            raise InvalidInput(
                "there is nothing to answer: 'input' must end with a message of the user, a result or a decision"
            )

    def _read(self, item: Mapping[str, Any]) -> None:
        if _is_reference(item.get("type"), item.get("role")):
            item = self._find_stored(item.get("id"))
        kind = item.get("type") or "message"
        match kind:
            case "message":
                self._read_message(item)
            case "function_call" | "custom_tool_call":
                call = convert_field("input", item, _FunctionCall)
                arguments = {"input": call.input} if kind == "custom_tool_call" else None
                text = msgspec.json.encode(arguments).decode() if arguments else call.arguments or ""
                self._add_answer((), make_call(call.call_id, call.name, text))
            case "function_call_output" | "custom_tool_call_output":
                output = convert_field("input", item, _FunctionOutput)
                content = parse_content(output.output or "")
                self.results.append(ToolResult(call=CallId(output.call_id), content=content))
            case "mcp_approval_response":
                response = convert_field("input", item, _ApprovalResponse)
                decision = ApprovalResolved(
                    approval=DecisionId(response.approval_request_id),
                    decision="approve" if response.approve else "reject",
                    message=response.reason or "",
                )
                self.decisions.append(decision)
            case kind if kind in _IGNORED_ITEMS:
                self._end_history()  # items of earlier responses, which are in the log of the session
            case _:
                raise InvalidInput(
                    f"an item of 'input' of the type {kind!r} cannot be read; expected a message, a function call, "
                    "its output, or a decision about an approval"
                )

    def _find_stored(self, id: Any) -> Mapping[str, Any]:
        item = self._stored.get(id) if isinstance(id, str) else None
        if item is None:
            raise InvalidInput(
                f"'input' refers to the item {str(id)[:100]!r}, which is not stored: its response had 'store': false, "
                "or was deleted; send the item itself"
            )
        return item

    def _read_message(self, item: Mapping[str, Any]) -> None:
        role, content = item.get("role"), parse_content(item.get("content") or "")
        if role in ("system", "developer"):
            self.system += [part.text for part in content if isinstance(part, Text)]
        elif role == "user":
            self._said.append(UserMessage(content=content))
        elif role == "assistant":
            self._add_answer(content, None)
        else:
            raise InvalidInput(f"the role of a message is 'system', 'developer', 'user' or 'assistant', not {role!r}")

    def _add_answer(self, content: Content, call: ToolCall | None) -> None:
        self._end_history()
        calls = () if call is None else (call,)
        last = self.history[-1] if self.history else None
        if isinstance(last, AssistantMessage):
            self.history[-1] = AssistantMessage(id=last.id, content=last.content + content, calls=last.calls + calls)
        else:
            id = MessageId(f"earlier_{len(self.history)}")
            self.history.append(AssistantMessage(id=id, content=content, calls=calls))

    def _end_history(self) -> None:
        """Move what was new so far to the history: an item of the assistant follows."""
        if self.results:
            self.history.append(ToolMessage(results=tuple(self.results)))
        self.history += self._said
        self.results = []
        self.decisions = []
        self._said = []
