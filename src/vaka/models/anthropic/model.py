"""Anthropic Messages: the model, the request for a prompt (tools, thinking, cache marks), and the closed JSON Schema it takes for output."""

import re
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.ports.model import Chunk, Prompt
from vaka.core.types.errors import BadRequest, StreamCut
from vaka.core.types.tool import ToolSpec
from vaka.models import options
from vaka.models.anthropic.events import AnthropicStreamDecoder
from vaka.models.anthropic.messages import check_part, starts_with_thinking, to_messages
from vaka.models.catalog.anthropic import AnthropicCapabilities, capabilities_of
from vaka.models.compatibility import HistoryAdapter
from vaka.models.options import ModelOptions, OutputFormat, merge_body
from vaka.models.transport.client import Account, ConnectionPool, ProviderClient

STRING_FORMATS = frozenset({
    "date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid",
})  # fmt: skip

MAX_DEPTH = 32

_COPIED_KEYWORDS = ("type", "enum", "const", "description", "title")

_ANNOTATION_KEYWORDS = frozenset(
    {"$schema", "$id", "$comment", "examples", "deprecated", "readOnly", "writeOnly", "discriminator"}
)

_COMBINATORS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}

_CONVERTED_KEYWORDS = frozenset(
    {"$defs", "definitions", "$ref", "properties", "required", "additionalProperties", "items", *_COMBINATORS}
)


class _OpenSchema(Exception):
    """The schema admits what a closed one cannot say; never leaves this file."""


def close_schema(schema: dict[str, Any]) -> dict[str, Any] | None:
    """Return the form of ``schema`` a model can be held to, or ``None`` when answers would be lost with it.

    That is so for maps with free keys, for values of any kind, and for a schema that contains itself.
    """
    try:
        return _convert_schema(schema, schema, ())
    except _OpenSchema:
        return None


def _convert_schema(schema: Any, root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    given = _expect_object(schema)
    if "$ref" in given:
        return _inline_reference(given, root, inside)
    if len(inside) > MAX_DEPTH:
        raise _OpenSchema
    new: dict[str, Any] = {name: given[name] for name in _COPIED_KEYWORDS if name in given}
    deeper = (*inside, "")
    for name, written in _COMBINATORS.items():
        if name in given:
            new[written] = [_convert_schema(option, root, deeper) for option in cast("list[Any]", given[name])]
    if not new.keys() & {"type", "enum", "const", "anyOf", "allOf"}:
        raise _OpenSchema
    kinds = given.get("type")
    if _has_type(kinds, "object"):
        _convert_properties(new, given, root, deeper)
    if _has_type(kinds, "array"):
        new["items"] = _convert_schema(given.get("items"), root, deeper)
    _describe_unsupported(new, given)
    return new


def _inline_reference(given: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]) -> dict[str, Any]:
    """Put what is referred to in its place: one form for every way of writing it."""
    path = given["$ref"]
    if not isinstance(path, str) or not path.startswith("#/") or path in inside:
        raise _OpenSchema
    found: Any = root
    for step in path[2:].split("/"):
        found = _expect_object(found).get(step.replace("~1", "/").replace("~0", "~"))
    around = {name: value for name, value in given.items() if name != "$ref"}
    return _convert_schema({**_expect_object(found), **around}, root, (*inside, path))


def _convert_properties(
    new: dict[str, Any], given: dict[str, Any], root: dict[str, Any], inside: tuple[str, ...]
) -> None:
    parts = _expect_object(given.get("properties", {}))
    free = given.get("additionalProperties", not parts)
    if free is not False:
        raise _OpenSchema
    new["properties"] = {name: _convert_schema(part, root, inside) for name, part in parts.items()}
    if "required" in given:
        new["required"] = given["required"]
    new["additionalProperties"] = False


def _describe_unsupported(new: dict[str, Any], given: dict[str, Any]) -> None:
    """Say in words what there is no keyword for."""
    left = {
        name: value
        for name, value in given.items()
        if name not in _COPIED_KEYWORDS
        and name not in _CONVERTED_KEYWORDS
        and name not in _ANNOTATION_KEYWORDS
        and not _copy_if_supported(new, name, value)
    }
    if left:
        words = ", ".join(f"{name}: {msgspec.json.encode(value).decode()}" for name, value in left.items())
        new["description"] = f"{new['description']} ({words})" if new.get("description") else f"({words})"


def _copy_if_supported(new: dict[str, Any], name: str, value: Any) -> bool:
    if (name == "format" and value in STRING_FORMATS) or (name == "minItems" and value in (0, 1)):
        new[name] = value
        return True
    return False


def _has_type(kinds: Any, kind: str) -> bool:
    return kinds == kind or (isinstance(kinds, list) and kind in kinds)


def _expect_object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _OpenSchema
    return cast("dict[str, Any]", value)


CacheTtl: TypeAlias = Literal["5m", "1h"]

MIN_THINKING_TOKENS = 1024
"""Tokens a model thinks with at least."""

MAX_CACHE_BREAKPOINTS = 4

CACHED_USER_MESSAGES = 3
"""Of how many of the last user messages the end is marked, at most."""

THINKING_BUDGETS = {"minimal": 1024, "low": 4096, "medium": 10_000, "high": 20_000, "max": 60_000}
"""The tokens that an effort stands for, with models that know none."""

_ADAPTIVE_THINKING = {"type": "adaptive", "display": "summarized"}  # some show no thoughts unless they are asked to

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")

_TOOL_CHOICES = {"auto": "auto", "none": "none", "required": "any"}


class AnthropicRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent, and ``answer``: the tool whose arguments are the answer, when its shape is asked for that way."""

    body: dict[str, Any]
    answer: str = ""
    headers: dict[str, str] = {}


class _Thinking(msgspec.Struct, frozen=True):
    """How the model is told to think."""

    field: dict[str, Any] | None = None
    effort: str | None = None
    thinks: bool = False


class _OutputConstraint(msgspec.Struct, frozen=True):
    """How the model is held to the shape of its answer: by the provider, or by a tool that takes the answer."""

    format: dict[str, Any] | None = None
    tool: ToolSpec | None = None


def to_request(
    model: str, prompt: Prompt, *, max_tokens: int | None = None, cache: bool = True, cache_ttl: CacheTtl = "5m"
) -> AnthropicRequest:
    """Return the request for a prompt. Raises ``BadRequest`` for what this model cannot do, before anything is sent."""
    asked, facts = options.read_options(prompt.options), capabilities_of(model)
    tokens = asked.max_tokens or max_tokens or facts.default_max_tokens
    shape = _constrain_output(model, facts, prompt, asked)
    choice = _tool_choice(prompt, asked, shape.tool)
    mind = _choose_thinking(model, facts, prompt, asked, tokens, forced=choice.get("type") in ("any", "tool"))
    messages = to_messages(model, prompt.messages, prefill=facts.can_prefill and not mind.thinks)
    tools = [_tool_definition(spec) for spec in ([*prompt.tools, shape.tool] if shape.tool else prompt.tools)]
    system = [{"type": "text", "text": prompt.system}] if prompt.system.strip() else []
    if cache if asked.cache is None else asked.cache:
        mark = {"type": "ephemeral"} | ({"ttl": cache_ttl} if cache_ttl != "5m" else {})
        _set_cache_marks(tools, system, messages, mark, limit=MAX_CACHE_BREAKPOINTS - _count_cache_marks(asked.extra))
    config = {"effort": mind.effort, "format": shape.format}
    body: dict[str, Any] = {
        "model": model, "max_tokens": tokens, "stream": True, "system": system, "tools": tools, "tool_choice": choice,
        "thinking": mind.field, "output_config": {name: value for name, value in config.items() if value},
        **_sampling_fields(facts, asked, mind), "stop_sequences": asked.stop_texts,
        "metadata": _user_metadata(asked), "service_tier": asked.service_tier, "messages": messages,
    }  # fmt: skip
    body = {name: value for name, value in body.items() if value not in (None, "", [], {})}
    return AnthropicRequest(
        body=merge_body(body, asked.extra), answer=shape.tool.name if shape.tool else "", headers=asked.headers
    )


def _choose_thinking(
    model: str, facts: AnthropicCapabilities, prompt: Prompt, asked: ModelOptions, tokens: int, *, forced: bool
) -> _Thinking:
    wanted = asked.reasoning not in (None, "none")
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
    quiet = (
        not (wanted or (facts.thinks_by_default and asked.reasoning is None)) or forced or tokens <= MIN_THINKING_TOKENS
    )
    if facts.always_thinks:
        return _Thinking(_ADAPTIVE_THINKING, "low" if quiet else _effort_of(asked), thinks=True)
    if quiet or (facts.thinking_mode == "budget" and not starts_with_thinking(model, prompt.messages)):
        return _Thinking({"type": facts.thinking_switch} if facts.thinks_by_default else None)
    if facts.thinking_mode == "adaptive":
        return _Thinking(_ADAPTIVE_THINKING, _effort_of(asked), thinks=True)
    return _Thinking({"type": "enabled", "budget_tokens": _thinking_budget(asked, tokens)}, thinks=True)


def _effort_of(asked: ModelOptions) -> str | None:
    return "low" if asked.effort == "minimal" else asked.effort


def _thinking_budget(asked: ModelOptions, tokens: int) -> int:
    """Return the tokens to think with; of all of them some are left for the answer."""
    if isinstance(asked.reasoning, int):
        budget = asked.reasoning if asked.reasoning < tokens else tokens * 3 // 4
    else:
        budget = min(THINKING_BUDGETS[asked.reasoning or "medium"], tokens * 3 // 4)
    return max(budget, MIN_THINKING_TOKENS)


def _sampling_fields(facts: AnthropicCapabilities, asked: ModelOptions, mind: _Thinking) -> dict[str, Any]:
    if mind.thinks or not facts.takes_sampling:
        return {}
    temperature = None if asked.temperature is None else min(asked.temperature, 1.0)
    top_p = asked.top_p if facts.takes_temperature_and_top_p or temperature is None else None
    return {"temperature": temperature, "top_p": top_p, "top_k": asked.top_k}


def _constrain_output(
    model: str, facts: AnthropicCapabilities, prompt: Prompt, asked: ModelOptions
) -> _OutputConstraint:
    shape = asked.output_format
    if shape is None:
        return _OutputConstraint()
    form = close_schema(shape.schema) if facts.has_output_format else None
    if form is not None and (shape.strict or not facts.can_force_tool):
        return _OutputConstraint(format={"type": "json_schema", "schema": form})
    if not facts.can_force_tool:
        raise BadRequest(
            f"{model} cannot answer in this shape: give each object of it its properties, and no schema that contains "
            "itself or admits any value"
        )
    if shape.schema.get("type") != "object":
        raise BadRequest(f"{model} answers in the shape of an object; expected a schema of the type 'object'")
    return _OutputConstraint(tool=_answer_tool(shape, prompt))


def _answer_tool(shape: OutputFormat, prompt: Prompt) -> ToolSpec:
    taken = {tool.name for tool in prompt.tools}
    name = shape.name
    while name in taken:
        name += "_"
    return ToolSpec(
        name=name, description=shape.description or "Give the answer. Call this once, when you have it.",
        parameters=shape.schema,
    )  # fmt: skip


def _tool_choice(prompt: Prompt, asked: ModelOptions, answer: ToolSpec | None) -> dict[str, Any]:
    """Return which tool is to be called; nothing where that is left to the model and to the provider's default."""
    names = [tool.name for tool in prompt.tools]
    wanted = prompt.tool_choice
    if wanted not in _TOOL_CHOICES and wanted not in names:
        raise BadRequest(f"the tool choice {wanted!r} names no tool; there are {', '.join(names) or 'none'}")
    if wanted == "required" and not names:
        raise BadRequest("the tool choice is 'required', but there are no tools")
    if answer is not None and wanted in ("auto", "none"):
        alone = wanted == "none" or not names
        return _limit_to_one_call(
            {"type": "tool", "name": answer.name} if alone else {"type": "any"}, asked, single=alone
        )
    if not names or (wanted == "auto" and asked.parallel_calls is not False):
        return {}
    return _limit_to_one_call(
        {"type": _TOOL_CHOICES[wanted]} if wanted in _TOOL_CHOICES else {"type": "tool", "name": wanted}, asked
    )


def _limit_to_one_call(choice: dict[str, Any], asked: ModelOptions, *, single: bool = False) -> dict[str, Any]:
    if choice["type"] != "none" and (single or asked.parallel_calls is False):
        choice["disable_parallel_tool_use"] = True
    return choice


def _tool_definition(spec: ToolSpec) -> dict[str, Any]:
    if not _TOOL_NAME.fullmatch(spec.name):
        raise BadRequest(f"a tool cannot be called {spec.name!r}: expected up to 64 of A-Z, a-z, 0-9, _ and -")
    schema = spec.parameters if "type" in spec.parameters else {"type": "object", **spec.parameters}
    described = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **described, "input_schema": schema}


def _set_cache_marks(
    tools: list[dict[str, Any]], system: list[dict[str, Any]], messages: list[dict[str, Any]], mark: dict[str, Any],
    *, limit: int,
) -> None:  # fmt: skip
    """Mark where a prefix ends that is worth keeping, ``most`` times: tools, system, and the last user messages."""
    ends = [blocks[-1] for blocks in (tools, system) if blocks]
    ends = ends[max(len(ends) - max(limit - 1, 0), 0) :]
    users = [message["content"][-1] for message in messages if message["role"] == "user"]
    last = min(CACHED_USER_MESSAGES, limit - len(ends))
    for block in [*ends, *(users[-last:] if last > 0 else ())]:
        block["cache_control"] = mark


def _count_cache_marks(value: Any) -> int:
    """Return how many marks somebody has set by hand."""
    items = cast("list[Any]", value)
    if isinstance(value, dict):
        table = cast("dict[str, Any]", value)
        return ("cache_control" in table) + sum(map(_count_cache_marks, table.values()))
    return sum(map(_count_cache_marks, items)) if isinstance(value, list) else 0


def _user_metadata(asked: ModelOptions) -> dict[str, str]:
    user = asked.user or asked.metadata.get("user_id", "")
    return {"user_id": user} if user else {}


__all__ = ["API_VERSION", "BASE_URL", "Anthropic", "AnthropicRequest", "AnthropicStreamDecoder", "to_request"]

BASE_URL = "https://api.anthropic.com"

API_VERSION = "2023-06-01"


class Anthropic:
    """A model that is asked over Anthropic Messages.

    ``bearer`` sends the key as a token, as gateways want it. ``cache`` marks prompts for the provider's cache, unless a
    prompt says otherwise; what is marked is kept for ``cache_ttl``.
    """

    def __init__(  # noqa: PLR0913  # facts, each of its own
        self,
        model: str,
        account: Account,
        *,
        http: ConnectionPool | None = None,
        name: str = "",
        max_tokens: int | None = None,
        cache: bool = True,
        cache_ttl: CacheTtl = "5m",
        bearer: bool = False,
    ) -> None:
        self._model, self._name = model, name or f"anthropic/{model}"
        self._max_tokens, self._cache = max_tokens, cache
        self._cache_ttl: CacheTtl = cache_ttl
        self._history = HistoryAdapter(self._name, account.base_url, lambda part: check_part(model, part))
        auth = {"authorization": f"Bearer {account.key}"} if bearer else {"x-api-key": account.key}
        self._client = ProviderClient(
            account, {"anthropic-version": API_VERSION, **(auth if account.key else {})}, http
        )
        self._path = "messages" if account.base_url.rstrip("/").endswith("/v1") else "v1/messages"

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``."""
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        request = to_request(
            self._model, prompt, max_tokens=self._max_tokens, cache=self._cache, cache_ttl=self._cache_ttl
        )
        events = AnthropicStreamDecoder(request.answer)
        with self._client.redact_errors(request.headers):
            async with aclosing(self._client.stream_events(self._path, request.body, headers=request.headers)) as items:
                async for item in items:
                    for chunk in events.feed(item.data, item.event):
                        yield self._history.tag_origin(chunk)
                    if events.done:
                        return
        raise StreamCut(f"the answer of {self._name} was cut: it ended without message_stop")

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._client.close()
