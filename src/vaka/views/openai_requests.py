"""The requests of OpenAI's clients as inputs of a session: messages, client tools, decisions and model options."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId, MessageId
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
    as_content,
)
from vaka.core.types.tool import ToolChoice, ToolSpec
from vaka.views.chat_input import ChatInput, inputs_of

_Struct = TypeVar("_Struct", bound=msgspec.Struct)


class ChatRequest(ChatInput, frozen=True, kw_only=True):
    """A request of Chat Completions."""

    stream: bool = False
    include_usage: bool = False
    metadata: dict[str, str] = {}


class _StreamOptions(msgspec.Struct, frozen=True):
    include_usage: bool | None = None


class _SamplingBody(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of a request that are model options of the same name."""

    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    user: str | None = None


class _ChatBody(_SamplingBody, frozen=True, kw_only=True):
    model: str
    messages: list[dict[str, Any]]
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    metadata: dict[str, str] | None = None
    n: int | None = None
    logprobs: bool | None = None
    modalities: list[str] | None = None
    functions: list[dict[str, Any]] | None = None


class _Function(msgspec.Struct, frozen=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _CalledFunction(msgspec.Struct, frozen=True):
    name: str
    arguments: str | dict[str, Any] | None = None


class _MadeCall(msgspec.Struct, frozen=True):
    id: str
    function: _CalledFunction


class _AssistantFields(msgspec.Struct, frozen=True):
    tool_calls: list[_MadeCall] | None = None
    function_call: _CalledFunction | None = None
    """A call in the form that tools had before ``tool_calls``."""


class _JsonSchema(msgspec.Struct, frozen=True):
    name: str = "answer"
    schema: dict[str, Any] | None = None
    strict: bool | None = None


def parse_chat_request(body: "bytes | str | Mapping[str, Any]") -> ChatRequest:
    """Return the request of a body. Raises ``InvalidInput`` that names the field and what was expected."""
    given = convert_body(body, _ChatBody)
    refused = {
        "n": given.n not in {None, 1},
        "logprobs": bool(given.logprobs),
        "functions": bool(given.functions),
        "modalities": bool(set(given.modalities or ()) - {"text"}),
    }
    for name, is_refused in refused.items():
        if is_refused:
            hint = "use 'tools' instead" if name == "functions" else "leave it out"
            raise InvalidInput(f"an agent cannot answer a request with this value of {name!r}; {hint}")
    instructions, history, results, content = _read_messages(given.messages)
    tools = parse_tools([_function_of(tool) for tool in given.tools or ()])
    options = sampling_options(given) | drop_none(
        max_tokens=given.max_completion_tokens or given.max_tokens,
        parallel_calls=given.parallel_tool_calls,
        reasoning=read_effort(given.reasoning_effort),
        output=parse_response_format(given.response_format),
    )
    return ChatRequest(
        model=given.model,
        inputs=inputs_of(content),
        results=results,
        history=history,
        instructions=instructions,
        tools=tools,
        tool_choice=parse_tool_choice(given.tool_choice),
        options=options,
        stream=bool(given.stream),
        include_usage=bool(given.stream_options and given.stream_options.include_usage),
        metadata=given.metadata or {},
        has_spoken_replies=True,
    )


# ---------------------------------------------------------------------------------------- fields that both APIs share


def convert_body(body: "bytes | str | Mapping[str, Any]", type: type[_Struct]) -> _Struct:
    """Return a body as ``type``; fields that it does not have are ignored. Raises ``InvalidInput``."""
    try:
        if isinstance(body, bytes | str):
            return msgspec.json.decode(body, type=type)
        return msgspec.convert(dict(body), type)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"the request cannot be read: {error}") from error


def drop_none(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def sampling_options(body: _SamplingBody) -> dict[str, Any]:
    """Return the model options that are fields of the request."""
    return drop_none(**{name: getattr(body, name) for name in _SamplingBody.__struct_fields__})


def read_effort(effort: str | None) -> str | None:
    """Return the reasoning effort in the word of a model option."""
    return "max" if effort == "xhigh" else effort


def parse_tools(functions: Sequence[Mapping[str, Any]]) -> tuple[ToolSpec, ...]:
    """Return tools whose calls the client runs. Raises ``InvalidInput`` for two of the same name."""
    specs: dict[str, ToolSpec] = {}
    for given in functions:
        function = convert_field("tools", given, _Function)
        if not function.name or function.name in specs:
            raise InvalidInput(f"the request has two tools {function.name!r}, or a tool without a name; rename it")
        parameters = function.parameters or {"type": "object", "properties": {}}
        specs[function.name] = ToolSpec(
            name=function.name,
            description=function.description or "",
            parameters=parameters,
            effect="resume",
            timeout=None,
            strict=bool(function.strict),
        )
    return tuple(specs.values())


def _function_of(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    function = _fields_of(tool.get("function"))
    if tool.get("type") != "function":
        raise InvalidInput(
            f"a tool of a request has the form {{'type': 'function', 'function': {{…}}}}, not {tool.get('type')!r}; "
            "the agent has its own tools besides"
        )
    return function


def parse_tool_choice(choice: str | Mapping[str, Any] | None) -> ToolChoice:
    """Return ``auto``, ``none``, ``required``, or the name of a tool. Raises ``InvalidInput``."""
    if choice is None or choice in ("auto", "none", "required"):
        return str(choice or "auto")
    if not isinstance(choice, str) and choice.get("type") == "function":
        name = _fields_of(choice.get("function", choice)).get("name")
        if isinstance(name, str) and name:
            return name
    raise InvalidInput(f"tool_choice is 'auto', 'none', 'required' or a function with its name, not {choice!r}")


def parse_response_format(given: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the model option ``output`` of ``response_format``. Raises ``InvalidInput``."""
    kind = "text" if given is None else given.get("type")
    if given is None or kind == "text":
        return None
    if kind == "json_object":
        return {"schema": {"type": "object"}, "name": "answer", "strict": False}
    if kind != "json_schema":
        raise InvalidInput(f"response_format has the type 'text', 'json_object' or 'json_schema', not {kind!r}")
    wanted = convert_field("response_format", given.get("json_schema", given), _JsonSchema)
    return {"schema": wanted.schema or {"type": "object"}, "name": wanted.name, "strict": bool(wanted.strict)}


def convert_field(name: str, given: Any, type: type[_Struct]) -> _Struct:
    """Return the value of a field as ``type``. Raises ``InvalidInput`` that names the field."""
    try:
        return msgspec.convert(given, type)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"{name!r} of the request cannot be read: {error}") from error


# ----------------------------------------------------------------------------------------------------------- messages


def _read_messages(
    given: Sequence[Mapping[str, Any]],
) -> tuple[str, tuple[Message, ...], tuple[ToolResult, ...], Content]:
    """Return the instructions, the history, and the results and the content that are new."""
    system = [message for message in given if message.get("role") in ("system", "developer")]
    spoken = [message for message in given if message.get("role") not in ("system", "developer")]
    start = max((at + 1 for at, message in enumerate(spoken) if message.get("role") == "assistant"), default=0)
    new = [_read_message(number, message) for number, message in enumerate(spoken[start:], start)]
    results = tuple(result for message in new if isinstance(message, ToolMessage) for result in message.results)
    content = tuple(part for message in new if isinstance(message, UserMessage) for part in message.content)
    if not results and not content:
        raise InvalidInput(
            "the last message must be one of the user or the result of a call; there is nothing to answer"
        )
    texts = [
        part.text
        for message in system
        for part in parse_content(message.get("content") or "")
        if isinstance(part, Text)
    ]
    history: list[Message] = []
    for number, message in enumerate(spoken[:start]):
        read = _read_message(number, message)
        if isinstance(read, ToolMessage) and history and isinstance(history[-1], ToolMessage):
            read = ToolMessage(results=history.pop().results + read.results)  # type: ignore[union-attr]  # a ToolMessage
        history.append(read)
    return "\n\n".join(texts), tuple(history), results, content


def _read_message(number: int, message: Mapping[str, Any]) -> Message:
    role, content = message.get("role"), message.get("content")
    content = "" if content is None else content  # some clients write null for no text
    if role == "user":
        return UserMessage(content=parse_content(content))
    if role in ("tool", "function"):
        id = message.get("tool_call_id") if role == "tool" else _function_call_id(message.get("name"))
        if not isinstance(id, str) or not id:
            raise InvalidInput("a message of the role 'tool' needs 'tool_call_id', the id of its call")
        return ToolMessage(results=(ToolResult(call=CallId(id), content=parse_content(content)),))
    if role != "assistant":
        raise InvalidInput(
            f"the role of a message is 'system', 'developer', 'user', 'assistant' or 'tool', not {role!r}"
        )
    fields = convert_field("messages", message, _AssistantFields)
    calls = tuple(make_call(call.id, call.function.name, call.function.arguments) for call in fields.tool_calls or ())
    if fields.function_call is not None and not calls:
        made = fields.function_call
        calls = (make_call(_function_call_id(made.name), made.name, made.arguments),)
    parts = parse_content(content) if content else ()
    return AssistantMessage(id=MessageId(f"earlier_{number}"), content=parts, calls=calls)


def _function_call_id(name: Any) -> str:
    """Return the id of a call in the form without ids; the result that follows it has the same name."""
    return f"function_{name}" if isinstance(name, str) and name else ""


def make_call(id: str, name: str, arguments: str | dict[str, Any] | None) -> ToolCall:
    """Return a call of the history; arguments that are not a JSON object are kept as they were written."""
    if isinstance(arguments, dict):  # as local servers write them
        return ToolCall(id=CallId(id), name=name, arguments=arguments)
    try:
        parsed = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.DecodeError:
        return ToolCall(id=CallId(id), name=name, raw=arguments or "")
    return ToolCall(id=CallId(id), name=name, arguments=parsed)


def parse_content(content: Any) -> Content:
    """Return the content of a message, a text or a list of parts. Raises ``InvalidInput``."""
    if isinstance(content, str):
        return as_content(content)
    if not isinstance(content, list):
        raise InvalidInput(f"the content of a message is a text or a list of parts, not {content!r:.60}")
    return as_content([_read_part(_fields_of(part)) for part in cast("Sequence[Any]", content)])


def _fields_of(value: Any) -> Mapping[str, Any]:
    """Return the fields of an object, none for a value that is no object."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _read_part(part: Mapping[str, Any]) -> Part:
    kind = part.get("type")
    if kind in ("text", "input_text", "output_text", "refusal"):
        text = part.get("refusal" if kind == "refusal" else "text")
        if isinstance(text, str):
            return Text(text=text)
    if kind in ("image_url", "input_image"):
        image = part.get("image_url")
        url = image if isinstance(image, str) else _fields_of(image).get("url")
        if isinstance(url, str) and url:
            return _read_image(url)
    if kind == "input_audio":
        audio = _fields_of(part.get("input_audio"))
        if isinstance(audio.get("data"), str):
            return Audio(data=audio["data"], media_type=f"audio/{audio.get('format', 'wav')}")
    if kind in ("file", "input_file"):
        return _read_file(_fields_of(part.get("file", part)))
    raise InvalidInput(f"a part of the type {kind!r} cannot be read; expected a text, an image, audio or a file")


_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,(.*)", re.DOTALL)


def _read_image(url: str) -> Image:
    found = _DATA_URL.fullmatch(url)
    return Image(media_type=found[1], data=found[2]) if found is not None else Image(url=url)


def _read_file(value: Mapping[str, Any]) -> Document:
    name = str(value.get("filename") or "")
    data = value.get("file_data")
    url = value.get("file_url")
    found = _DATA_URL.fullmatch(data) if isinstance(data, str) else None
    if found is not None:
        return Document(name=name, media_type=found[1], data=found[2])
    if isinstance(url, str) and url:
        return Document(name=name, url=url)
    raise InvalidInput("a file of a message needs 'file_data', a base64 data URL; files are not stored by id here")
