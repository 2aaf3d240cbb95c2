"""Anthropic Messages: the model, and the request for a prompt: messages, tools, thinking and cache marks."""

import base64
import binascii
from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from vaka.core.types.tool import ToolSpec
from vaka.models import compatibility, options
from vaka.models.anthropic.events import WIRE, AnthropicStreamDecoder
from vaka.models.catalog import AnthropicCapabilities, capabilities_of
from vaka.models.compatibility import CALL_ID_PATTERN, Media, as_object, is_list, is_object, unused_name
from vaka.models.options import ModelOptions, drop_empty, merge_body
from vaka.models.request_items import AlternatingItems, EncodedItems, RequestMemo, ToolDefinition, write_tools
from vaka.models.schemas import close_schema
from vaka.models.transport.client import Account, HttpRequestParts, ProviderModel
from vaka.models.transport.pool import ConnectionPool

VENDOR_NAME = "claude"
"""Part of the name of each of the vendor's own models, on any server."""
PLACEHOLDER_TEXT = "."
"""The text of a message that must not be empty."""
CONTINUE_TEXT = "Continue."

_IMAGE_TYPES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_PDF = "application/pdf"
_TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/toml"})


def to_messages(model: str, messages: Sequence[Message], *, prefill: bool) -> list[dict[str, Any]]:
    """Return the messages of a request, tool results first in each. With ``prefill`` the model continues its last one.

    Raises ``BadRequest`` for an unsupported part.
    """
    writer = AnthropicWriter(model, messages)
    return _end_messages(writer.write_all(messages) or [writer.placeholder_item()], messages, prefill=prefill)


class AnthropicWriter(AlternatingItems):
    """Writes the messages of a request."""

    open_items = 7
    """The last items, which get cache marks, and an item that the next message may extend."""

    def __init__(self, model: str, messages: Sequence[Message] | None = None) -> None:
        super().__init__("content", _text_block(PLACEHOLDER_TEXT), messages)
        self._model = model

    def write(self, message: Message) -> None:
        """Write a message."""
        model, ids = self._model, self.ids
        if isinstance(message, AssistantMessage):
            self.add_parts("assistant", _assistant_blocks(model, message, ids))
        elif isinstance(message, ToolMessage):
            blocks = [block for result in message.results for block in _result_blocks(model, result, ids)]
            self.add_parts("user", blocks)
        else:
            self.add_parts("user", _content_blocks(model, message.content))

    def arrange_parts(self, role: str, parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the blocks of a message, tool results first."""
        return sorted(parts, key=lambda block: block["type"] != "tool_result") if role == "user" else parts

    def encode_messages(self, messages: Sequence[Message], *, prefill: bool, marks: "_CacheMarks") -> EncodedItems:
        """Return the encoded messages of a request; cache marks are added to the bytes of the last user messages."""
        ended = _end_messages(self.items, messages, prefill=prefill)
        pieces = list(self.encode())
        for at in range(max(len(self.items) - 1, 0), len(ended)):
            if at >= len(pieces) or ended[at] is not self.items[at]:
                pieces[at:] = [msgspec.json.encode(ended[at])]
        users = [at for at, message in enumerate(ended) if message["role"] == "user"]
        mark = b',"cache_control":%b}]}' % msgspec.json.encode(marks.mark)
        for at in users[len(users) - min(marks.users, len(users)) :]:
            pieces[at] = pieces[at].removesuffix(b"}]}") + mark
        return self.encode_list(last=pieces)


def _end_messages(written: list[dict[str, Any]], messages: Sequence[Message], *, prefill: bool) -> list[dict[str, Any]]:
    """Return messages with an end that the model can answer."""
    last = messages[-1] if messages else None
    if not isinstance(last, AssistantMessage) or last.stop == "pause" or written[-1]["role"] != "assistant":
        return written
    if not prefill:
        return [*written, {"role": "user", "content": [_text_block(CONTINUE_TEXT)]}]
    *before, block = written[-1]["content"]
    if block.get("type") == "text":
        block = {**block, "text": block["text"].rstrip()}
    return [*written[:-1], {"role": "assistant", "content": [*before, block]}]


def check_part(model: str, part: Media) -> None:
    """Raise ``BadRequest`` for an unsupported part."""
    _content_blocks(model, (part,))


def starts_with_thinking(model: str, messages: Sequence[Message]) -> bool:
    """Whether the answer that continues after its tool results began with thinking of this provider.

    Models with a thinking budget refuse to think otherwise, as after a change of the provider within a turn.
    """
    answered = False
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            first = message.content[0] if message.content else None
            return not answered or (isinstance(first, Reasoning) and bool(_own_blocks(model, message, first)))
        answered = answered or isinstance(message, ToolMessage)
    return True


def _assistant_blocks(model: str, message: AssistantMessage, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in compatibility.parts_and_calls(message):
        if isinstance(part, ToolCall):
            name, arguments = compatibility.safe_tool_name(part.name), compatibility.arguments_of(part)
            blocks.append({"type": "tool_use", "id": ids[part.id], "name": name, "input": arguments})
        elif isinstance(part, Reasoning):
            blocks += _own_blocks(model, message, part)
        elif isinstance(part, Text | Stored):
            blocks += _text_blocks(part)
    return blocks


def _own_blocks(model: str, message: AssistantMessage, part: Reasoning) -> list[dict[str, Any]]:
    """Return the provider's own block, unless it would be refused.

    The vendor's models refuse unsigned thinking, as of an answer that reached the length limit, and thinking that
    another server of this wire signed; those servers accept any.
    """
    block = as_object(compatibility.provider_block(part, WIRE))
    signed = block.get("signature") and (VENDOR_NAME in message.model or not message.model)
    accepted = block.get("type") != "thinking" or VENDOR_NAME not in model or signed
    return [block] if block and accepted else []


def _result_blocks(model: str, result: ToolResult, ids: dict[CallId, str]) -> list[dict[str, Any]]:
    if result.call not in ids:
        raise BadRequest(f"there is a result of the call {result.call!r}, but no earlier message made that call")
    content = _content_blocks(model, result.content)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": ids[result.call]}
    after: list[dict[str, Any]] = []
    if result.failed:  # the result of a failed call may have text only
        after = [part for part in content if part["type"] != "text"]
        content = [part for part in content if part["type"] == "text"]
        block["is_error"] = True
    if content:
        block["content"] = content
    return [block, _text_block(f"From the result of {ids[result.call]}:"), *after] if after else [block]


def _content_blocks(model: str, content: Content) -> list[dict[str, Any]]:
    blocks: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Text | Stored):
            blocks += _text_blocks(part)
        elif isinstance(part, Image):
            blocks.append({"type": "image", "source": _media_source(model, part, _IMAGE_TYPES)})
        elif isinstance(part, Document):
            blocks.append(_document_block(model, part))
        elif isinstance(part, Audio):
            raise compatibility.unsupported_part(model, part, "it does not accept audio")
    return blocks


def _text_blocks(part: Text | Stored) -> list[dict[str, Any]]:
    block = _text_block(compatibility.text_or_preview((part,)))
    if not block["text"].strip():
        return []
    cited = [as_object(one.opaque).get(WIRE) for one in part.citations] if isinstance(part, Text) else []
    if any(cited):
        block["citations"] = [one for one in cited if one]
    return [block]


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _media_source(model: str, part: Image | Document, allowed: frozenset[str]) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    if part.url and not data:
        if not part.url.startswith(("https://", "http://")):
            raise compatibility.unsupported_part(model, part, "its URL must begin with https://, http:// or data:")
        return {"type": "url", "url": part.url}
    if not data:
        raise compatibility.unsupported_part(model, part, "it has neither data nor a URL")
    if kind not in allowed:
        raise compatibility.unsupported_part(model, part, f"{kind!r} is not one of {', '.join(sorted(allowed))}")
    return {"type": "base64", "media_type": kind, "data": data}


def _document_block(model: str, part: Document) -> dict[str, Any]:
    kind, data = _media_bytes(part)
    is_text = kind.startswith("text/") or kind in _TEXT_TYPES
    if is_text and not data:
        raise compatibility.unsupported_part(model, part, "it reads only PDF files by URL; give the text itself")
    if is_text:
        source = {"type": "text", "media_type": "text/plain", "data": _decode_text(model, part, data)}
    else:
        source = _media_source(model, part, frozenset({_PDF}))
    return {"type": "document", "source": source, **({"title": part.name} if part.name else {})}


def _media_bytes(part: Image | Document) -> tuple[str, str]:
    """Return the media type of a part and its base64, also of a ``data:`` URL."""
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return part.media_type or head[5:-7].partition(";")[0], data
    return compatibility.media_type_of(part), part.data


def _decode_text(model: str, part: Document, data: str) -> str:
    try:
        return base64.b64decode(data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise compatibility.unsupported_part(model, part, f"it is not UTF-8 text in base64 ({error})") from error


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


class _CacheMarks(msgspec.Struct, frozen=True):
    """The cache mark, and how many of the ends of tools and system, and of the last user messages, get it."""

    mark: dict[str, Any]
    ends: int = 0
    users: int = 0


def to_request(
    model: str,
    prompt: Prompt,
    *,
    max_tokens: int | None = None,
    cache: bool = True,
    cache_ttl: CacheTtl = "5m",
    memo: RequestMemo[AnthropicWriter] | None = None,
) -> AnthropicRequest:
    """Return the request for a prompt. Raises ``BadRequest`` for what this model does not support.

    With ``memo`` the messages and the tools are already encoded.
    """
    asked, facts = options.read_options(prompt.options), capabilities_of(model)
    tokens = asked.max_tokens or max_tokens or facts.default_max_tokens
    output_format, answer = _constrain_output(model, facts, prompt, asked)
    choice = _tool_choice(prompt, asked, answer)
    thinking = _choose_thinking(model, facts, prompt, asked, tokens, forced=choice.get("type") in ("any", "tool"))
    system: list[ToolDefinition] = [_text_block(prompt.system)] if prompt.system.strip() else []
    limit = MAX_CACHE_BREAKPOINTS - _count_cache_marks(asked.extra)
    limit = limit if (cache if asked.cache is None else asked.cache) else 0
    marks = _plan_cache_marks(cache_ttl, bool(prompt.tools or answer) + bool(system), limit)
    prefill = facts.can_prefill and not thinking.thinks
    messages = _write_messages(model, prompt, memo, prefill=prefill, marks=marks)
    tools = write_tools(memo, prompt.tools, partial(_tool_definition, native=facts.has_native_tools), answer)
    _set_end_marks([blocks for blocks in (tools, system) if blocks], marks)
    user = asked.user or asked.metadata.get("user_id", "")
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": tokens,
        "stream": True,
        "system": system,
        "tools": tools,
        "tool_choice": choice,
        "thinking": thinking.field,
        "output_config": drop_empty({"effort": thinking.effort, "format": output_format}),
        **_sampling_fields(facts, asked, thinking),
        "stop_sequences": asked.stop_texts,
        "metadata": {"user_id": user} if user else {},
        "service_tier": asked.service_tier,
        "messages": messages,
    }
    body = merge_body(drop_empty(body), asked.extra)
    return AnthropicRequest(body=body, answer=answer.name if answer else "", headers=asked.headers)


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
) -> tuple[dict[str, Any] | None, ToolSpec | None]:
    """Return the output format for the provider, or the tool whose arguments are the answer."""
    output = asked.output_format
    if output is None:
        return None, None
    closed = close_schema(output.schema) if facts.has_output_format else None
    if closed is not None and (output.strict or not facts.can_force_tool):
        return {"type": "json_schema", "schema": closed}, None
    if not facts.can_force_tool:
        raise BadRequest(
            f"{model} cannot answer with this output schema: list the properties of each object, and use no schema "
            "that contains itself or allows any value"
        )
    if output.schema.get("type") != "object":
        raise BadRequest(f"{model} answers with an object; expected an output schema of the type 'object'")
    name = unused_name(output.name, {tool.name for tool in prompt.tools})
    description = output.description or "Give the answer. Call this once, when you have it."
    return None, ToolSpec(name=name, description=description, parameters=output.schema)


def _tool_choice(prompt: Prompt, asked: ModelOptions, answer: ToolSpec | None) -> dict[str, Any]:
    """Return which tool is to be called; nothing where that is left to the model and to the provider's default."""
    tools = prompt.tools
    wanted = prompt.tool_choice
    single = asked.parallel_calls is False
    if wanted not in _TOOL_CHOICES and all(tool.name != wanted for tool in tools):
        names = ", ".join(tool.name for tool in tools) or "none"
        raise BadRequest(f"the tool choice {wanted!r} names no tool; there are {names}")
    if wanted == "required" and not tools:
        raise BadRequest("the tool choice is 'required', but there are no tools")
    if answer is not None and (wanted == "none" or (wanted == "auto" and not tools)):
        choice, single = {"type": "tool", "name": answer.name}, True
    elif answer is not None and wanted == "auto":
        choice = {"type": "any"}
    elif not tools or (wanted == "auto" and not single):
        return {}
    else:
        choice = {"type": _TOOL_CHOICES[wanted]} if wanted in _TOOL_CHOICES else {"type": "tool", "name": wanted}
    return {**choice, "disable_parallel_tool_use": True} if single and choice["type"] != "none" else choice


def _tool_definition(spec: ToolSpec, *, native: bool) -> dict[str, Any]:
    if native and WIRE in spec.native:
        return {"type": spec.native[WIRE], "name": spec.name}
    if not CALL_ID_PATTERN.fullmatch(spec.name):
        raise BadRequest(f"a tool cannot be called {spec.name!r}: expected up to 64 of A-Z, a-z, 0-9, _ and -")
    schema = spec.parameters if "type" in spec.parameters else {"type": "object", **spec.parameters}
    described = {"description": spec.description} if spec.description else {}
    return {"name": spec.name, **described, "input_schema": schema}


def _write_messages(
    model: str, prompt: Prompt, memo: RequestMemo[AnthropicWriter] | None, *, prefill: bool, marks: _CacheMarks
) -> Any:
    """Return the messages of a request with cache marks."""
    encode = partial(AnthropicWriter.encode_messages, messages=prompt.messages, prefill=prefill, marks=marks)
    encoded = memo.encode(prompt, encode) if memo is not None else None
    if encoded is not None:
        return encoded
    written = to_messages(model, prompt.messages, prefill=prefill)
    _set_cache_marks([one["content"][-1] for one in written if one["role"] == "user"], marks.mark, marks.users)
    return written


def _plan_cache_marks(ttl: CacheTtl, ends: int, limit: int) -> _CacheMarks:
    """Return where at most ``limit`` cached prefixes end: the last of ``ends``, and the last user messages."""
    mark = {"type": "ephemeral"} | ({"ttl": ttl} if ttl != "5m" else {})
    ends = min(ends, max(limit - 1, 0))
    return _CacheMarks(mark, ends, max(min(CACHED_USER_MESSAGES, limit - ends), 0))


def _set_end_marks(lists: list[list[ToolDefinition]], marks: _CacheMarks) -> None:
    """Mark the ends of the last of ``lists``."""
    for blocks in lists[max(len(lists) - marks.ends, 0) :]:
        last = blocks[-1]
        if isinstance(last, msgspec.Raw):
            mark = b',"cache_control":%b}' % msgspec.json.encode(marks.mark)
            blocks[-1] = msgspec.Raw(bytes(last).removesuffix(b"}") + mark)
        else:
            blocks[-1] = {**last, "cache_control": marks.mark}


def _set_cache_marks(blocks: list[dict[str, Any]], mark: dict[str, Any], count: int) -> None:
    """Mark the last ``count`` blocks."""
    for block in blocks[max(len(blocks) - count, 0) :]:
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
        auth = {"authorization": f"Bearer {account.key}"} if bearer else {"x-api-key": account.key}
        super().__init__(
            name or f"anthropic/{model}",
            account,
            "messages" if account.base_url.rstrip("/").endswith("/v1") else "v1/messages",
            headers={"anthropic-version": API_VERSION, **(auth if account.key else {})},
            http=http,
            check_part=lambda part: check_part(model, part),
        )
        self._model = model
        self._max_tokens = max_tokens
        self._cache = cache
        self._cache_ttl: CacheTtl = cache_ttl
        self._written = RequestMemo(lambda: AnthropicWriter(model), self._comparison)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        request = to_request(
            self._model,
            prompt,
            max_tokens=self._max_tokens,
            cache=self._cache,
            cache_ttl=self._cache_ttl,
            memo=self._written,
        )
        return HttpRequestParts(request.body, request.headers, AnthropicStreamDecoder(request.answer, self.name))
