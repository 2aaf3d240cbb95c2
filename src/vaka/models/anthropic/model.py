"""Anthropic Messages: the model, the request (tools, thinking, cache marks), and the closed JSON Schema for output."""

from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.tool import ToolSpec
from vaka.models import options
from vaka.models.anthropic.events import AnthropicStreamDecoder
from vaka.models.anthropic.messages import check_part, starts_with_thinking, to_messages
from vaka.models.catalog.anthropic import AnthropicCapabilities, capabilities_of
from vaka.models.compatibility import CALL_ID_PATTERN
from vaka.models.json_values import is_list, is_object, unused_name
from vaka.models.options import ModelOptions, OutputFormat, merge_body
from vaka.models.provider_model import HttpRequestParts, ProviderModel
from vaka.models.transport.client import Account, ConnectionPool

__all__ = ["API_VERSION", "BASE_URL", "Anthropic", "AnthropicRequest", "AnthropicStreamDecoder", "to_request"]

STRING_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
})  # fmt: skip
MAX_DEPTH = 32

_COPIED_KEYWORDS = ("type", "enum", "const", "description", "title")
_COMBINATORS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}
_HANDLED_KEYWORDS = frozenset({
    *_COPIED_KEYWORDS, *_COMBINATORS, "$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly",
    "discriminator", "$defs", "definitions", "$ref", "properties", "required", "additionalProperties", "items",
})  # fmt: skip
"""Keywords that are converted, or that forbid nothing."""


class _OpenSchema(Exception):
    """The schema allows values that a closed one cannot describe; never leaves this file."""


def close_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the closed form of ``schema`` that a model can be held to, or ``None`` when that would exclude answers.

    It would for objects with free keys, for values of any type, and for a schema that contains itself.
    """
    try:
        return _convert_schema(schema, schema, ())
    except _OpenSchema:
        return None


def _convert_schema(schema: Any, root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    schema = _expect_object(schema)
    if "$ref" in schema:
        return _inline_reference(schema, root, inside)
    if len(inside) > MAX_DEPTH:
        raise _OpenSchema
    new: dict[str, Any] = {name: schema[name] for name in _COPIED_KEYWORDS if name in schema}
    deeper = (*inside, "")
    for name, written in _COMBINATORS.items():
        if name in schema:
            new[written] = [_convert_schema(option, root, deeper) for option in schema[name]]
    if not new.keys() & {"type", "enum", "const", "anyOf", "allOf"}:
        raise _OpenSchema
    types: Any = schema.get("type")
    types = types if is_list(types) else [types]
    if "object" in types:
        _convert_properties(new, schema, root, deeper)
    if "array" in types:
        new["items"] = _convert_schema(schema.get("items"), root, deeper)
    _describe_unsupported(new, schema)
    return new


def _inline_reference(schema: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Replace a reference by its target, with the keywords beside the reference."""
    path = schema["$ref"]
    if not isinstance(path, str) or not path.startswith("#/") or path in inside:
        raise _OpenSchema
    target: Any = root
    for step in path[2:].split("/"):
        target = _expect_object(target).get(step.replace("~1", "/").replace("~0", "~"))
    beside = {name: value for name, value in schema.items() if name != "$ref"}
    return _convert_schema({**_expect_object(target), **beside}, root, (*inside, path))


def _convert_properties(
    new: dict[str, Any], schema: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]
) -> None:
    parts = _expect_object(schema.get("properties", {}))
    if schema.get("additionalProperties", not parts) is not False:
        raise _OpenSchema
    new["properties"] = {name: _convert_schema(part, root, inside) for name, part in parts.items()}
    if "required" in schema:
        new["required"] = schema["required"]
    new["additionalProperties"] = False


def _describe_unsupported(new: dict[str, Any], schema: dict[str, Any]) -> None:
    """Append keywords that the provider does not support to the description."""
    unsupported: list[str] = []
    for name, value in schema.items():
        if (name == "format" and value in STRING_FORMATS) or (name == "minItems" and value in (0, 1)):
            new[name] = value
        elif name not in _HANDLED_KEYWORDS:
            unsupported.append(f"{name}: {msgspec.json.encode(value).decode()}")
    if unsupported:
        words = f"({', '.join(unsupported)})"
        new["description"] = f"{new['description']} {words}" if new.get("description") else words


def _expect_object(value: Any) -> dict[str, Any]:
    if not is_object(value):
        raise _OpenSchema
    return value


CacheTtl: TypeAlias = Literal["5m", "1h"]

MIN_THINKING_TOKENS = 1024
"""The smallest thinking budget."""
MAX_CACHE_BREAKPOINTS = 4
CACHED_USER_MESSAGES = 3
"""How many of the last user messages get a cache mark at their end, at most."""
THINKING_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_000, "high": 20_000, "max": 60_000}
"""The budget for each effort, for models that accept only a budget."""

_ADAPTIVE_THINKING = {"type": "adaptive", "display": "summarized"}  # without "display" some models show no thinking
_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request, and ``answer``: the tool whose arguments are the answer, when the output is asked for as a call."""

    body: dict[str, Any]
    answer: str = ""
    headers: dict[str, str] = {}


class _Thinking(msgspec.Struct, frozen=True):
    """The fields that switch thinking, and whether the model thinks with them."""

    field: dict[str, Any] | None = None
    effort: str | None = None
    thinks: bool = False


class _OutputConstraint(msgspec.Struct, frozen=True):
    """How the model is held to an output schema: by the provider, or by a tool whose arguments are the answer."""

    format: dict[str, Any] | None = None
    tool: ToolSpec | None = None


def to_request(
    model: str, prompt: Prompt, *, max_tokens: int | None = None, cache: bool = True, cache_ttl: CacheTtl = "5m"
) -> AnthropicRequest:
    """Return the request for a prompt. Raises ``BadRequest`` for what this model does not support."""
    asked, facts = options.read_options(prompt.options), capabilities_of(model)
    tokens = asked.max_tokens or max_tokens or facts.default_max_tokens
    output = _constrain_output(model, facts, prompt, asked)
    choice = _tool_choice(prompt, asked, output.tool)
    thinking = _choose_thinking(model, facts, prompt, asked, tokens, forced=choice.get("type") in ("any", "tool"))
    messages = to_messages(model, prompt.messages, prefill=facts.can_prefill and not thinking.thinks)
    tools = [_tool_definition(spec) for spec in ([*prompt.tools, output.tool] if output.tool else prompt.tools)]
    system = [{"type": "text", "text": prompt.system}] if prompt.system.strip() else []
    if cache if asked.cache is None else asked.cache:
        mark = {"type": "ephemeral"} | ({"ttl": cache_ttl} if cache_ttl != "5m" else {})
        _set_cache_marks(tools, system, messages, mark, limit=MAX_CACHE_BREAKPOINTS - _count_cache_marks(asked.extra))
    config = {"effort": thinking.effort, "format": output.format}
    user = asked.user or asked.metadata.get("user_id", "")
    body: dict[str, Any] = {
        "model": model, "max_tokens": tokens, "stream": True, "system": system, "tools": tools, "tool_choice": choice,
        "thinking": thinking.field, "output_config": {name: value for name, value in config.items() if value},
        **_sampling_fields(facts, asked, thinking), "stop_sequences": asked.stop_texts,
        "metadata": {"user_id": user} if user else {}, "service_tier": asked.service_tier, "messages": messages,
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value not in (None, "", [], {})}
    return AnthropicRequest(
        body=merge_body(body, asked.extra), answer=output.tool.name if output.tool else "", headers=asked.headers
    )


def _choose_thinking(
    model: str, facts: AnthropicCapabilities, prompt: Prompt, asked: ModelOptions, tokens: int, *, forced: bool
) -> _Thinking:
    wanted = asked.reasoning not in (None, "none")
    effort = "low" if asked.effort == "minimal" else asked.effort
    if forced and not facts.can_force_tool:
        raise BadRequest(
            f"{model} cannot be forced to call a tool; use the tool choice 'auto' and say in words which tool to call"
        )
    if not facts.thinking_mode:
        return _Thinking()
    if forced and wanted:
        raise BadRequest(
            f"{model} cannot think while it is forced to call a tool: leave out the option 'reasoning', "
            "or use the tool choice 'auto'"
        )
    by_default = facts.thinks_by_default and asked.reasoning is None
    off = not (wanted or by_default) or forced or tokens <= MIN_THINKING_TOKENS
    if facts.always_thinks:
        return _Thinking(_ADAPTIVE_THINKING, "low" if off else effort, thinks=True)
    if off or (facts.thinking_mode == "budget" and not starts_with_thinking(model, prompt.messages)):
        return _Thinking({"type": facts.thinking_switch} if facts.thinks_by_default else None)
    if facts.thinking_mode == "adaptive":
        return _Thinking(_ADAPTIVE_THINKING, effort, thinks=True)
    return _Thinking({"type": "enabled", "budget_tokens": _thinking_budget(asked, tokens)}, thinks=True)


def _thinking_budget(asked: ModelOptions, tokens: int) -> int:
    """Return the tokens to think with, which leaves some of ``tokens`` for the answer."""
    if isinstance(asked.reasoning, int):
        budget = asked.reasoning if asked.reasoning < tokens else tokens * 3 // 4
    else:
        budget = min(THINKING_BUDGETS[asked.reasoning or "medium"], tokens * 3 // 4)
    return max(budget, MIN_THINKING_TOKENS)


def _sampling_fields(facts: AnthropicCapabilities, asked: ModelOptions, thinking: _Thinking) -> dict[str, Any]:
    if thinking.thinks or not facts.takes_sampling:
        return {}
    temperature = None if asked.temperature is None else min(asked.temperature, 1.0)
    top_p = asked.top_p if facts.takes_temperature_and_top_p or temperature is None else None
    return {"temperature": temperature, "top_p": top_p, "top_k": asked.top_k}


def _constrain_output(
    model: str, facts: AnthropicCapabilities, prompt: Prompt, asked: ModelOptions
) -> _OutputConstraint:
    output = asked.output_format
    if output is None:
        return _OutputConstraint()
    closed = close_schema(output.schema) if facts.has_output_format else None
    if closed is not None and (output.strict or not facts.can_force_tool):
        return _OutputConstraint(format={"type": "json_schema", "schema": closed})
    if not facts.can_force_tool:
        raise BadRequest(
            f"{model} cannot answer with this output schema: list the properties of each object, and use no schema "
            "that contains itself or allows any value"
        )
    if output.schema.get("type") != "object":
        raise BadRequest(f"{model} answers with an object; expected an output schema of the type 'object'")
    return _OutputConstraint(tool=_answer_tool(output, prompt))


def _answer_tool(output: OutputFormat, prompt: Prompt) -> ToolSpec:
    return ToolSpec(
        name=unused_name(output.name, {tool.name for tool in prompt.tools}), parameters=output.schema,
        description=output.description or "Give the answer. Call this once, when you have it.",
    )  # fmt: skip


def _tool_choice(prompt: Prompt, asked: ModelOptions, answer: ToolSpec | None) -> dict[str, Any]:
    """Return which tool is to be called; nothing where that is left to the model and to the provider's default."""
    names = [tool.name for tool in prompt.tools]
    wanted, single = prompt.tool_choice, asked.parallel_calls is False
    if wanted not in _TOOL_CHOICES and wanted not in names:
        raise BadRequest(f"the tool choice {wanted!r} names no tool; there are {', '.join(names) or 'none'}")
    if wanted == "required" and not names:
        raise BadRequest("the tool choice is 'required', but there are no tools")
    if answer is not None and (wanted == "none" or (wanted == "auto" and not names)):
        choice, single = {"type": "tool", "name": answer.name}, True
    elif answer is not None and wanted == "auto":
        choice = {"type": "any"}
    elif not names or (wanted == "auto" and not single):
        return {}
    else:
        choice = {"type": _TOOL_CHOICES[wanted]} if wanted in _TOOL_CHOICES else {"type": "tool", "name": wanted}
    return {**choice, "disable_parallel_tool_use": True} if single and choice["type"] != "none" else choice


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    if not CALL_ID_PATTERN.fullmatch(spec.name):
        raise BadRequest(f"a tool cannot be called {spec.name!r}: expected up to 64 of A-Z, a-z, 0-9, _ and -")
    schema = spec.parameters if "type" in spec.parameters else {"type": "object", **spec.parameters}
    described = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **described, "input_schema": schema}


def _set_cache_marks(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], messages: list[dict[str, Any]], mark: dict[str, Any],
    *, limit: int,
) -> None:  # fmt: skip
    """Mark the ends of cached prefixes, at most ``limit``: tools, system, and the last user messages."""
    ends = [blocks[-1] for blocks in (tools, system) if blocks]
    ends = ends[max(len(ends) - max(limit - 1, 0), 0) :]
    users = [message["content"][-1] for message in messages if message["role"] == "user"]
    last = min(CACHED_USER_MESSAGES, limit - len(ends))
    for block in [*ends, *(users[-last:] if last > 0 else ())]:
        block["cache_control"] = mark


def _count_cache_marks(value: Any) -> int:
    """Return how many cache marks the caller's own fields have."""
    if is_object(value):
        return ("cache_control" in value) + sum(map(_count_cache_marks, value.values()))
    return sum(map(_count_cache_marks, value)) if is_list(value) else 0


BASE_URL = "https://api.anthropic.com"
API_VERSION = "2023-06-01"


class Anthropic(ProviderModel):
    """A model behind Anthropic Messages.

    ``bearer`` sends the key as a token, as gateways expect it. ``cache`` marks prompts for the provider's cache, unless
    a prompt has the option ``cache``; cached prefixes live for ``cache_ttl``.
    """

    def __init__(  # noqa: PLR0913
        self, model: str, account: Account, *, http: ConnectionPool | None = None, name: str = "",
        max_tokens: int | None = None, cache: bool = True, cache_ttl: CacheTtl = "5m", bearer: bool = False,
    ) -> None:  # fmt: skip
        auth = {"authorization": f"Bearer {account.key}"} if bearer else {"x-api-key": account.key}
        super().__init__(
            name or f"anthropic/{model}", account,
            "messages" if account.base_url.rstrip("/").endswith("/v1") else "v1/messages",
            headers={"anthropic-version": API_VERSION, **(auth if account.key else {})}, http=http,
            check_part=lambda part: check_part(model, part),
        )  # fmt: skip
        self._model, self._max_tokens, self._cache = model, max_tokens, cache
        self._cache_ttl: CacheTtl = cache_ttl

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        request = to_request(
            self._model, prompt, max_tokens=self._max_tokens, cache=self._cache, cache_ttl=self._cache_ttl
        )
        return HttpRequestParts(request.body, request.headers, AnthropicStreamDecoder(request.answer, self.name))
