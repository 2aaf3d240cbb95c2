"""The requests of Anthropic's Messages API as inputs of a session."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId, MessageId
from vaka.core.types.message import (
    AssistantMessage,
    Document,
    Image,
    Message,
    Part,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
    as_content,
)
from vaka.core.types.tool import ToolChoice
from vaka.views.chat_input import ChatInput, inputs_of
from vaka.views.media import as_object
from vaka.views.openai_requests import convert_body, convert_field, drop_none, parse_tools


class MessagesRequest(ChatInput, frozen=True, kw_only=True):
    """A request of the Messages API."""

    stream: bool = False
    thinking: bool = False
    """Whether the client wants to see reasoning."""
    holds_thread: bool = False
    """Whether the server keeps the conversation, so that a later request sends only what is new."""
    previous_message: str = ""
    """The message that the request continues, with the tools and instructions of the first request."""


class _Typed(msgspec.Struct, frozen=True):
    type: str = ""


class _OutputConfig(msgspec.Struct, frozen=True):
    effort: str | None = None
    format: dict[str, Any] | None = None


class _Thread(msgspec.Struct, frozen=True):
    type: str
    previous_message_id: str | None = None


class _Metadata(msgspec.Struct, frozen=True):
    user_id: str | None = None


class _MessagesBody(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    messages: list[dict[str, Any]]
    max_tokens: int | None = None
    system: str | list[dict[str, Any]] | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stop_sequences: list[str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    thinking: _Typed | None = None
    output_config: _OutputConfig | None = None
    metadata: _Metadata | None = None
    thread: _Thread | None = None


class _Tool(msgspec.Struct, frozen=True):
    name: str
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    strict: bool | None = None


class _ToolUse(msgspec.Struct, frozen=True):
    id: str
    name: str
    input: dict[str, Any] | None = None


class _ToolResult(msgspec.Struct, frozen=True):
    tool_use_id: str
    content: str | list[dict[str, Any]] | None = None
    is_error: bool | None = None


class _Source(msgspec.Struct, frozen=True):
    type: str
    media_type: str = ""
    data: str = ""
    url: str = ""
    content: str | list[dict[str, Any]] = ""


def parse_messages_request(body: "bytes | str | Mapping[str, Any]") -> MessagesRequest:
    """Return the request of a body. Raises ``InvalidInput`` that names the field and what was expected."""
    given = convert_body(body, _MessagesBody)
    history: list[Message] = []
    results: list[ToolResult] = []
    said: list[Part] = []
    system = _read_system(given.system)
    tools = {str(tool.get("name")): tool for tool in given.tools or ()}
    if len(tools) < len(given.tools or ()):
        raise InvalidInput("the request has two tools of the same name, or without a name; rename one")
    for number, message in enumerate(given.messages):
        match message.get("role"):
            case "assistant":
                _end_history(history, results, said)
                history.append(_read_answer(number, message.get("content")))
            case "user":
                _read_said(message.get("content"), results, said)
            case "system":
                system += _read_directives(message.get("content"), tools)
            case role:
                raise InvalidInput(f"the role of a message is 'user', 'assistant' or 'system', not {role!r:.60}")
    if not results and not said:
        raise InvalidInput("the last message must be one of the user, with a text or the results of calls")
    holds_thread, previous_message = _read_thread(given.thread)
    return MessagesRequest(
        model=given.model,
        inputs=inputs_of(tuple(said)),
        results=tuple(results),
        history=tuple(history),
        instructions="\n\n".join(filter(None, system)),
        tools=parse_tools(list(map(_read_tool, tools.values()))),
        tool_choice=_read_tool_choice(given.tool_choice),
        options=_read_options(given),
        stream=bool(given.stream),
        thinking=given.thinking is not None and given.thinking.type in ("enabled", "adaptive"),
        holds_thread=holds_thread,
        previous_message=previous_message,
        has_spoken_replies=True,
    )


def _read_thread(thread: _Thread | None) -> tuple[bool, str]:
    """Return whether the server keeps the conversation, and the message that it is continued from."""
    if thread is None:
        return False, ""
    if thread.type == "create":
        return True, ""
    if thread.type == "continue" and thread.previous_message_id:
        return True, thread.previous_message_id
    raise InvalidInput("thread has the type 'create', or 'continue' with a 'previous_message_id'")


def _read_directives(content: Any, tools: dict[str, dict[str, Any]]) -> list[str]:
    """Return the texts of a message of the system; its other blocks add tools to ``tools`` or remove them."""
    texts: list[str] = []
    for block in _blocks_of(content):
        tool = as_object(block.get("tool"))
        match block.get("type"):
            case "text":
                texts.append(str(block.get("text") or ""))
            case "tool_addition":
                definition = as_object(tool.get("definition"))
                if definition:
                    tools[str(definition.get("name"))] = definition
            case "tool_removal":
                tools.pop(str(tool.get("name") or tool.get("tool_name")), None)
            case kind:
                raise InvalidInput(f"a message of the system has texts and changes of tools, not {kind!r:.60}")
    return texts


def _read_options(given: _MessagesBody) -> dict[str, Any]:
    config = given.output_config or _OutputConfig()
    output = None
    if config.format is not None:
        if config.format.get("type") != "json_schema" or not isinstance(config.format.get("schema"), dict):
            raise InvalidInput("output_config.format has the type 'json_schema' and a 'schema'")
        output = {"schema": config.format["schema"], "name": "answer", "strict": True}
    return drop_none(
        max_tokens=given.max_tokens,
        temperature=given.temperature,
        top_p=given.top_p,
        top_k=given.top_k,
        stop=given.stop_sequences,
        reasoning=config.effort,
        output=output,
        user=given.metadata.user_id if given.metadata else None,
    )


def _read_tool(given: Mapping[str, Any]) -> dict[str, Any]:
    tool = convert_field("tools", given, _Tool)
    if tool.type not in (None, "custom"):
        raise InvalidInput(
            f"a tool of a request is one of the client, not {tool.type!r}; the agent has its own besides"
        )
    return drop_none(name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict)


def _read_tool_choice(choice: Mapping[str, Any] | None) -> ToolChoice:
    kind = "auto" if choice is None else choice.get("type")
    if kind in ("auto", "none"):
        return str(kind)
    if kind == "any":
        return "required"
    name = choice.get("name") if choice is not None else None
    if kind == "tool" and isinstance(name, str) and name:
        return name
    raise InvalidInput(f"tool_choice has the type 'auto', 'any', 'none', or 'tool' with a name, not {kind!r:.60}")


def _read_system(system: str | Sequence[Mapping[str, Any]] | None) -> list[str]:
    if system is None or isinstance(system, str):
        return [system or ""]
    return [str(block.get("text") or "") for block in system]


# ---------------------------------------------------------------------------------------------------------- messages


def _blocks_of(content: Any) -> list[dict[str, Any]]:
    """Return the blocks of the content of a message. Raises ``InvalidInput``."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if content is None:  # some clients write null for no text beside calls
        return []
    try:
        return msgspec.convert(content, list[dict[str, Any]])
    except msgspec.ValidationError as error:
        message = f"the content of a message is a text or a list of blocks, not {content!r:.60}"
        raise InvalidInput(message) from error


def _end_history(history: list[Message], results: list[ToolResult], said: list[Part]) -> None:
    """Move what was new so far to the history: a message of the assistant follows."""
    if results:
        history.append(ToolMessage(results=tuple(results)))
    if said:
        history.append(UserMessage(content=tuple(said)))
    results.clear()
    said.clear()


def _read_answer(number: int, content: Any) -> AssistantMessage:
    """Return a message of the assistant; its thinking, and what tools of the server did, is in the log alone."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    for block in _blocks_of(content):
        if block.get("type") == "text":
            parts.append(_read_part(block))
        elif block.get("type") == "tool_use":
            call = convert_field("messages", block, _ToolUse)
            calls.append(ToolCall(id=CallId(call.id), name=call.name, arguments=call.input or {}))
    return AssistantMessage(id=MessageId(f"earlier_{number}"), content=tuple(parts), calls=tuple(calls))


def _read_said(content: Any, results: list[ToolResult], said: list[Part]) -> None:
    for block in _blocks_of(content):
        if block.get("type") != "tool_result":
            said.append(_read_part(block))
            continue
        given = convert_field("messages", block, _ToolResult)
        parts = as_content([_read_part(part) for part in _blocks_of(given.content or "")])
        failed = bool(given.is_error)
        results.append(
            ToolResult(call=CallId(given.tool_use_id), content=parts, failed=failed, reason="error" if failed else "")
        )


def _text_in(content: Any) -> str:
    return "\n".join(part.text for part in map(_read_part, _blocks_of(content)) if isinstance(part, Text))


def _read_part(block: Mapping[str, Any]) -> Part:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return Text(text=block["text"])
    if kind == "search_result":
        return Text(text=f"{block.get('title') or ''} ({block.get('source') or ''})\n{_text_in(block.get('content'))}")
    if kind in ("image", "document"):
        source = convert_field("messages", block.get("source"), _Source)
        if source.type == "text":
            return Text(text=source.data)
        if source.type == "content":
            return Text(text=_text_in(source.content))
        url, data = (source.url, "") if source.type == "url" else ("", source.data)
        if source.type in ("base64", "url") and (url or data):
            if kind == "image":
                return Image(url=url, data=data, media_type=source.media_type)
            return Document(name=str(block.get("title") or ""), url=url, data=data, media_type=source.media_type)
    raise InvalidInput(f"a block of the type {kind!r:.60} cannot be read; expected a text, an image or a document")
