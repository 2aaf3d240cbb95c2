"""Function calling as data: definitions, calls, results and choices, and calls read from any provider's answer.

Arguments are JSON text, as the model wrote them. Invalid JSON is accepted: ``FunctionCall.parse`` raises an error that
the model can read.
"""

import json
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast, overload

import msgspec

from vaka.core.types.errors import InvalidInput, Truncated
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall, Usage
from vaka.core.types.tool import ToolChoice, ToolSpec
from vaka.models.compatibility import as_object, count_of, is_list

Role: TypeAlias = str
"""``system``, ``user``, ``assistant``, ``function``, ``tool``, or a word of one's own."""
ROLES = ("system", "user", "assistant", "function", "tool")

_CHOICE_WORDS = ("auto", "none", "required")
_T = TypeVar("_T")


class FunctionDefinition(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function as a model sees it; ``parameters`` is a JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})

    @classmethod
    def from_tool(cls, spec: ToolSpec) -> "FunctionDefinition":
        """Return a tool as a function, with a complete object schema."""
        parameters = spec.parameters
        if parameters.get("type", "object") != "object":
            raise InvalidInput(f"tool {spec.name!r}: parameters must be an object, got {parameters['type']!r}")
        schema: dict[str, Any] = {"type": "object", "properties": {}, "required": [], **parameters}
        return cls(name=spec.name, description=spec.description, parameters=schema)

    def to_wire(self) -> dict[str, Any]:
        """Return the definition as OpenAI's API takes it in ``tools``."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


class FunctionCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A function call of a model; ``arguments`` is JSON text."""

    name: str
    arguments: str = "{}"
    id: str | None = None
    repaired: str = ""
    """The repairs of the arguments, if any."""

    def parse(self) -> Any:
        """Return the arguments as data. Raises ``InvalidInput`` for invalid or ambiguous JSON."""
        try:
            return json.loads(self.arguments, object_pairs_hook=_reject_duplicate_keys, parse_constant=_reject_constant)
        except (ValueError, RecursionError) as error:
            excerpt = self.arguments if len(self.arguments) <= 200 else f"{self.arguments[:200]}…"
            raise InvalidInput(
                f"the arguments of {self.name!r} are not valid JSON: {error}; got {excerpt!r}"
            ) from error

    def as_map(self) -> dict[str, Any]:
        """Return the arguments by name. Raises ``InvalidInput`` when they are not an object."""
        value = self.parse()
        if not isinstance(value, dict):
            raise InvalidInput(f"the arguments of {self.name!r} must be an object, got {type(value).__name__}")
        return cast("dict[str, Any]", value)

    def validate(self, definition: FunctionDefinition) -> dict[str, Any]:
        """Return the arguments if they fit ``definition``. Raises ``InvalidInput`` that lists every schema error."""
        if self.name != definition.name:
            raise InvalidInput(f"the call is of {self.name!r}, the definition is of {definition.name!r}")
        value = self.as_map()
        errors = _schema_errors(definition, value)
        if errors:
            raise InvalidInput(f"the arguments of {self.name!r} do not fit: {'; '.join(errors)}")
        return value

    @overload
    def get_parameter(self, name: str) -> Any: ...
    @overload
    def get_parameter(self, name: str, kind: type[_T]) -> _T: ...
    def get_parameter(self, name: str, kind: Any = Any) -> Any:
        """Return one argument as ``kind``. Raises ``InvalidInput`` when it is missing or of another kind."""
        arguments = self.as_map()
        if name not in arguments:
            there = ", ".join(map(repr, arguments)) or "none"
            raise InvalidInput(f"the call of {self.name!r} has no argument {name!r}; it has {there}")
        return _convert_argument(self.name, name, arguments[name], kind)

    @overload
    def get_optional_parameter(self, name: str) -> Any: ...
    @overload
    def get_optional_parameter(self, name: str, kind: type[_T]) -> _T | None: ...
    def get_optional_parameter(self, name: str, kind: Any = Any) -> Any:
        """Return one argument as ``kind``, ``None`` when it is missing or null."""
        value = self.as_map().get(name)
        return None if value is None else _convert_argument(self.name, name, value, kind)

    def as_tool_call(self, id: CallId) -> ToolCall:
        """Return the call of a message; arguments that are not a JSON object stay text in ``raw``."""
        try:
            arguments = self.as_map()
        except InvalidInput:
            return ToolCall(id=id, name=self.name, raw=self.arguments, provider_id=self.id or "")
        return ToolCall(
            id=id,
            name=self.name,
            arguments=arguments,
            raw=self.arguments if self.repaired else "",
            repaired=self.repaired,
            provider_id=self.id or "",
        )


class FunctionCallResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The result of a call, or its error."""

    name: str
    call_id: str | None = None
    result: Any = None
    success: bool = True
    error: str | None = None

    @classmethod
    def from_result(cls, call: FunctionCall, result: Any) -> "FunctionCallResult":
        """Return the result of a successful call."""
        return cls(name=call.name, call_id=call.id, result=result)

    @classmethod
    def from_error(cls, call: FunctionCall, error: str) -> "FunctionCallResult":
        """Return the result of a failed call: null, with the error."""
        return cls(name=call.name, call_id=call.id, success=False, error=error)


class FunctionCallingResponse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The answer of any provider. ``finish_reason`` is one of OpenAI's."""

    content: str | None = None
    function_calls: tuple[FunctionCall, ...] = ()
    finish_reason: str = "stop"
    usage: Usage = Usage()
    model: str = ""
    provider_response_id: str = ""
    reasoning: str = ""


class LlmOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a request with common defaults; ``extra`` are fields of one provider."""

    temperature: float | None = 0.7
    max_tokens: int | None = 1000
    stream: bool = False
    stop: tuple[str, ...] | None = None
    model: str | None = None
    extra: dict[str, Any] = {}

    def to_request(self) -> dict[str, Any]:
        """Return the fields of a request, without ``None`` values; ``extra`` is merged into them."""
        fields = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        extra = fields.pop("extra")
        return {**fields, **({"stop": list(self.stop)} if self.stop is not None else {}), **extra}


def parse_role(text: str) -> Role:
    """Return a known role for ``text`` in any case; any other text is returned unchanged."""
    lower = text.strip().lower()
    return lower if lower in ROLES else text


def choice_to_wire(choice: ToolChoice) -> str | dict[str, Any]:
    """Return a choice as OpenAI's API expects it: one of three words, or an object that names a function."""
    return choice if choice in _CHOICE_WORDS else {"type": "function", "function": {"name": choice}}


def choice_from_wire(value: str | Mapping[str, Any]) -> ToolChoice:
    """Return the choice for OpenAI's form of it. Raises ``InvalidInput`` for any other form."""
    if isinstance(value, str):
        if value in _CHOICE_WORDS:
            return value
    else:
        name = as_object(value.get("function")).get("name")
        if value.get("type") == "function" and isinstance(name, str) and name:
            return name
    raise InvalidInput(f"tool_choice {value!r} must be 'auto', 'none', 'required' or {choice_to_wire('NAME')}")


def read_response(response: Any) -> FunctionCallingResponse:
    """Return a complete answer of any of four APIs: Chat Completions, Responses, Anthropic Messages or Gemini.

    ``response`` is data, JSON text, or an object of a vendor's client. Raises ``InvalidInput`` for anything else.
    """
    body = _as_body(response)
    for key, read in _READERS.items():
        if key in body:
            return read(body)
    keys = ", ".join(map(repr, list(body)[:8])) or "nothing"
    raise InvalidInput(f"expected an answer with 'choices', 'output', 'content' or 'candidates', got one with {keys}")


def parse_function_calls(response: Any) -> list[FunctionCall]:
    """Return the calls of a complete answer of any of the four APIs.

    Raises ``InvalidInput`` for anything else and for a call without a name, ``Truncated`` when the answer reached its
    length limit, so that its last call may be incomplete.
    """
    return _complete_calls(read_response(response))


def parse_openai_function_calls(response: Any) -> list[FunctionCall]:
    """Return the calls of a Chat Completions answer: ``tool_calls``, else the old ``function_call``, which has no id.

    Raises as ``parse_function_calls`` does.
    """
    return _complete_calls(_read_chat(_as_body(response)))


def parse_responses_items(response: Any) -> list[FunctionCall]:
    """Return the calls of a Responses answer, or of its list of items. Raises as ``parse_function_calls`` does."""
    return _complete_calls(
        _read_responses({"output": response} if isinstance(response, list | tuple) else _as_body(response))
    )


def parse_anthropic(response: Any) -> list[FunctionCall]:
    """Return the calls of an Anthropic message. Raises as ``parse_function_calls`` does."""
    return _complete_calls(_read_anthropic(_as_body(response)))


def parse_gemini(response: Any) -> list[FunctionCall]:
    """Return the calls of a Gemini answer. Raises as ``parse_function_calls`` does."""
    return _complete_calls(_read_gemini(_as_body(response)))


def _complete_calls(response: FunctionCallingResponse) -> list[FunctionCall]:
    if response.function_calls and response.finish_reason == "length":
        last = response.function_calls[-1].name
        raise Truncated(f"the answer reached its length limit in the call of {last!r}; raise max_tokens, or ask less")
    return list(response.function_calls)


def _read_chat(body: Mapping[str, Any]) -> FunctionCallingResponse:
    choices = _expect_list(body, "choices")
    choice = _expect_mapping(choices[0] if choices else {}, "choices[0]")
    message = _expect_mapping(choice.get("message") or {}, "choices[0].message")
    calls: list[FunctionCall] = []
    for at, call in enumerate(_expect_list(message, "tool_calls")):
        call, place = _expect_mapping(call, f"tool_calls[{at}]"), f"tool_calls[{at}].function"
        calls.append(_make_call(_expect_mapping(call.get("function") or {}, place), place, id=call.get("id")))
    old = message.get("function_call")
    if old and not calls:
        calls.append(_make_call(_expect_mapping(old, "function_call"), "function_call"))
    counted = _openai_usage(body, "prompt_tokens", "completion_tokens")
    text = _content_text(message.get("content")) or _as_text(message.get("refusal"))
    reasoning = _as_text(message.get("reasoning_content")) or _as_text(message.get("reasoning"))
    return _response(body, calls, text, reasoning, choice.get("finish_reason"), counted)


_ITEM_FIELDS = {
    "function_call": ("call", "arguments"),
    "message": ("text", "content"),
    "reasoning": ("reasoning", "summary"),
    "tool_use": ("call", "input"),
    "text": ("text", "text"),
    "thinking": ("reasoning", "thinking"),
}
"""What an item of Responses, or a block of Anthropic Messages, is by its type, and the field with its value."""


def _read_items(body: Mapping[str, Any], key: str) -> tuple[list[FunctionCall], str, str]:
    """Return the calls, the text and the reasoning of a list of items."""
    calls: list[FunctionCall] = []
    texts = {"text": "", "reasoning": ""}
    for at, item in enumerate(_expect_list(body, key)):
        item = _expect_mapping(item, f"{key}[{at}]")
        kind, field = _ITEM_FIELDS.get(_as_text(item.get("type")), ("", ""))
        if kind == "call":
            calls.append(_make_call(item, f"{key}[{at}]", field, id=item.get("call_id") or item.get("id")))
        elif kind:
            texts[kind] += _content_text(item.get(field))
    return calls, texts["text"], texts["reasoning"]


def _read_responses(body: Mapping[str, Any]) -> FunctionCallingResponse:
    calls, text, reasoning = _read_items(body, "output")
    reason = as_object(body.get("incomplete_details")).get("reason")
    return _response(body, calls, text, reasoning, reason, _openai_usage(body, "input_tokens", "output_tokens"))


def _openai_usage(body: Mapping[str, Any], input: str, output: str) -> Usage:
    usage = partial(count_of, body.get("usage"))
    return Usage(
        input=usage(input),
        output=usage(output),
        cache_read=usage(f"{input}_details", "cached_tokens"),
        reasoning=usage(f"{output}_details", "reasoning_tokens"),
    )


def _read_anthropic(body: Mapping[str, Any]) -> FunctionCallingResponse:
    calls, text, reasoning = _read_items(body, "content")
    usage = partial(count_of, body.get("usage"))
    read, write = usage("cache_read_input_tokens"), usage("cache_creation_input_tokens")
    input = usage("input_tokens") + read + write
    counted = Usage(input=input, output=usage("output_tokens"), cache_read=read, cache_write=write)
    return _response(body, calls, text, reasoning, body.get("stop_reason"), counted)


_GEMINI_COUNTS = {
    "prompt": "prompt",
    "candidates": "candidates",
    "cachedContent": "cached_content",
    "thoughts": "thoughts",
}
"""The names of counts, and the names in the vendor's own client."""


def _read_gemini(body: Mapping[str, Any]) -> FunctionCallingResponse:
    candidates = _expect_list(body, "candidates")
    candidate = _expect_mapping(candidates[0] if candidates else {}, "candidates[0]")
    content = _expect_mapping(candidate.get("content") or {}, "candidates[0].content")
    calls: list[FunctionCall] = []
    texts = {False: "", True: ""}
    for at, part in enumerate(_expect_list(content, "parts")):
        part = _expect_mapping(part, f"parts[{at}]")
        call = _first_present(part, "functionCall", "function_call")
        if call:
            call = _expect_mapping(call, f"parts[{at}].functionCall")
            calls.append(_make_call(call, f"parts[{at}].functionCall", "args", id=call.get("id")))
        else:
            texts[part.get("thought") is True] += _as_text(part.get("text"))
    usage = _first_present(body, "usageMetadata", "usage_metadata")
    input, output, cached, thoughts = (
        count_of(usage, f"{name}TokenCount") or count_of(usage, f"{snake_name}_token_count")
        for name, snake_name in _GEMINI_COUNTS.items()
    )
    counted = Usage(input=input, output=output + thoughts, cache_read=cached, reasoning=thoughts)
    reason = _first_present(candidate, "finishReason", "finish_reason")
    return _response(body, calls, texts[False], texts[True], reason, counted)


_READERS: dict[str, Callable[[Mapping[str, Any]], FunctionCallingResponse]] = {
    "choices": _read_chat,
    "candidates": _read_gemini,
    "output": _read_responses,
    "content": _read_anthropic,
}


def _response(
    body: Mapping[str, Any], calls: list[FunctionCall], text: str, reasoning: str, reason: Any, usage: Usage
) -> FunctionCallingResponse:
    return FunctionCallingResponse(
        content=text or None,
        function_calls=tuple(calls),
        finish_reason=_finish_reason(reason, calls),
        usage=usage,
        model=_as_text(_first_present(body, "model", "modelVersion", "model_version")),
        provider_response_id=_as_text(_first_present(body, "id", "responseId", "response_id")),
        reasoning=reasoning,
    )


_FINISH_REASONS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "max_output_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
    "safety": "content_filter",
    "recitation": "content_filter",
    "blocklist": "content_filter",
    "prohibited_content": "content_filter",
    "spii": "content_filter",
}


def _finish_reason(reason: Any, calls: list[FunctionCall]) -> str:
    """Return OpenAI's word for a finish reason; a complete answer with calls has ``tool_calls``."""
    word = _as_text(getattr(reason, "value", reason)).lower()
    word = _FINISH_REASONS.get(word, word) or "stop"
    return "tool_calls" if calls and word in {"stop", "function_call"} else word


def _make_call(fields: Mapping[str, Any], place: str, key: str = "arguments", *, id: Any = None) -> FunctionCall:
    name, arguments = fields.get("name"), fields.get(key)
    if not isinstance(name, str) or not name:
        raise InvalidInput(f"{place} is a call without a name; expected 'name' to be text, got {name!r}")
    if arguments is None:
        arguments = "{}"
    if not isinstance(arguments, str):
        try:
            arguments = msgspec.json.encode(arguments).decode()
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"{place}.{key} is not JSON data: {error}") from error
    return FunctionCall(name=name, arguments=arguments, id=_as_text(id) or None)


def _as_body(response: Any) -> Mapping[str, Any]:
    if isinstance(response, str | bytes | bytearray):
        try:
            response = json.loads(response)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"the answer is not JSON: {error}") from error
    dump = getattr(response, "model_dump", None)  # the vendors' clients return pydantic models
    return _expect_mapping(dump() if callable(dump) else response, "the answer")


def _expect_mapping(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{place} must be an object, got {type(value).__name__}")
    return cast("Mapping[str, Any]", value)


def _expect_list(fields: Mapping[str, Any], key: str) -> list[Any]:
    value = fields.get(key)
    if value is not None and not is_list(value):
        raise InvalidInput(f"{key!r} must be a list, got {type(value).__name__}")
    return list(value or ())


def _first_present(fields: Mapping[str, Any], *names: str) -> Any:
    return next((fields[name] for name in names if fields.get(name) is not None), None)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _content_text(value: Any) -> str:
    """Return a text, or the texts of a list of parts."""
    if not is_list(value):
        return _as_text(value)
    parts = (_expect_mapping(part, "a part of the content") for part in value)
    return "".join(_as_text(part.get("text")) or _as_text(part.get("refusal")) for part in parts)


def _reject_duplicate_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        duplicate = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ValueError(f"the key {duplicate!r} appears twice in one object")
    return members


def _reject_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


def _schema_errors(definition: FunctionDefinition, value: Any) -> list[str]:
    import jsonschema_rs  # noqa: PLC0415 - heavy, and not needed to read calls

    try:
        check = jsonschema_rs.validator_for(definition.parameters, validate_formats=True, offline=True).iter_errors
    except ValueError as error:
        first_line = str(error).partition("\n")[0]
        raise InvalidInput(f"the parameters of {definition.name!r} are not a JSON Schema: {first_line}") from error
    problems: list[str] = []
    for found in check(value):
        path = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in found.instance_path)
        problems.append(f"{path.lstrip('.') or 'arguments'}: {found.message[:300]}")
    return problems


def _convert_argument(function: str, name: str, value: Any, kind: Any) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(f"argument {name!r} of {function!r}: {error}") from error
