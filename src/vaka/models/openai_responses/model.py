"""OpenAI Responses: the model, and the request for a prompt. The whole conversation is sent each time; nothing is stored at the provider."""

import hashlib
import re
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Any, Literal, TypeAlias, cast

import msgspec

from vaka.core.ports.model import Chunk, Prompt
from vaka.core.types.errors import BadRequest, StreamCut
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
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
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models import compatibility
from vaka.models.compatibility import HistoryAdapter
from vaka.models.openai_responses.events import ResponsesStreamDecoder
from vaka.models.openai_responses.wire import WIRE
from vaka.models.options import ModelOptions, merge_body, read_options
from vaka.models.schema_openai import strict_schema
from vaka.models.transport.client import Account, ConnectionPool, ProviderClient

NAME_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a function, or the name of an output, may be called."""

MAX_CACHE_KEY = 64
"""Characters a cache key may have."""

MEDIA_PARTS = (Image, Audio, Document)

InputItem: TypeAlias = dict[str, Any]

_APPENDED_LISTS = ("tools", "include")

_CLIENT_CALL_TYPES = frozenset({
    "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call", "mcp_approval_request",
})  # fmt: skip

_FILE_SUFFIXES = {
    "application/pdf": "pdf", "text/plain": "txt", "text/markdown": "md", "text/csv": "csv", "text/html": "html",
    "application/json": "json",
}  # fmt: skip

_AUDIO_FORMATS = {
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
}

_NON_REASONING_PREFIXES = ("gpt-4", "gpt-3.5", "chatgpt-", "gpt-5-chat")


class ResponsesCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a server of this wire can do."""

    reasoning: Literal["encrypted", "plain", "none"] | None = None
    """How it hands out its reasoning to be sent back; by default as the name of the model tells for OpenAI's own."""
    tells_length: bool = True
    """Whether it says so when an answer has reached its length limit."""
    images: bool = True
    files: bool = True
    audio: bool = False
    media_results: bool = True
    """Whether the result of a call may have images and files; else they follow as words of the user."""
    items: bool = True
    """Whether it takes items of built-in tools back."""


LLAMA = ResponsesCapabilities(reasoning="plain", tells_length=False, files=False, media_results=False, items=False)
"""llama.cpp's server."""


def to_request(model: str, prompt: Prompt, facts: ResponsesCapabilities = ResponsesCapabilities()) -> dict[str, Any]:
    """Return the body of the request for ``prompt``. Raises ``BadRequest`` for what this wire cannot say."""
    options = read_options(prompt.options)
    if any(options.stop_texts):
        raise BadRequest(
            f"{model} takes no stop texts over the Responses API; leave 'stop' out, or use the model as openai-chat/…"
        )
    kind = facts.reasoning or ("encrypted" if _is_reasoning_model(model) else "none")
    body: dict[str, Any] = {"model": model, "stream": True, "store": False}
    if prompt.system:
        body["instructions"] = prompt.system
    if kind == "encrypted":
        body["include"] = ["reasoning.encrypted_content"]
    body |= _tool_fields(prompt, options)
    body |= _option_fields(prompt, options)
    body["input"] = _InputWriter(model, prompt.messages, facts, kind).items() or [_user_item([_text_part(".")])]
    return merge_body(body, options.extra, _APPENDED_LISTS)


def check_part(
    model: str, part: Image | Audio | Document, facts: ResponsesCapabilities = ResponsesCapabilities()
) -> None:
    """Raise ``BadRequest`` for a part that the server cannot take."""
    _InputWriter(model, (), facts, "none").write_part(part)


def _is_reasoning_model(model: str) -> bool:
    """Whether a model of OpenAI's reasons; one that does not refuses to be asked for it."""
    return not model.rpartition("/")[2].removeprefix("ft:").startswith(_NON_REASONING_PREFIXES)


def _tool_fields(prompt: Prompt, options: ModelOptions) -> dict[str, Any]:
    choice, extra = prompt.tool_choice, bool(options.extra.get("tools"))
    if choice not in {"auto", "none", "required"} and choice not in [tool.name for tool in prompt.tools]:
        raise BadRequest(f"tool_choice is {choice!r}, but there is no such tool among {_quote_names(prompt.tools)}")
    if not prompt.tools and not extra:
        if choice == "required":
            raise BadRequest("tool_choice is 'required', but there is no tool to call")
        return {}
    made: dict[str, Any] = {}
    if prompt.tools:
        made["tools"] = [_tool_definition(tool) for tool in prompt.tools]
    if choice != "auto":
        named = choice not in {"none", "required"}
        made["tool_choice"] = {"type": "function", "name": choice} if named else choice
    if options.parallel_calls is not None:
        made["parallel_tool_calls"] = options.parallel_calls
    return made


def _tool_definition(tool: ToolSpec) -> InputItem:
    _check_name("tool", tool.name)
    form = strict_schema(tool.parameters, nullable=True) if tool.strict else None
    return {
        "type": "function", "name": tool.name, "description": tool.description,
        "parameters": tool.parameters if form is None else form,
        "strict": form is not None, # where it is missing, strict is meant
    }  # fmt: skip


def _option_fields(prompt: Prompt, options: ModelOptions) -> dict[str, Any]:
    wanted = {
        "max_output_tokens": options.max_tokens, "temperature": options.temperature, "top_p": options.top_p,
        "reasoning": _reasoning_field(options), "text": _text_format(options), "metadata": options.metadata or None,
        "service_tier": options.service_tier or None, "safety_identifier": options.user or None,
        "prompt_cache_key": None if options.cache is False else _cache_key(prompt.session),
    }  # fmt: skip
    return {name: value for name, value in wanted.items() if value is not None}


def _reasoning_field(options: ModelOptions) -> dict[str, Any] | None:
    if options.effort is None:
        return None
    return {"effort": "none"} if options.effort == "none" else {"effort": options.effort, "summary": "auto"}


def _text_format(options: ModelOptions) -> dict[str, Any] | None:
    shape = options.output_format
    if shape is None:
        return None
    _check_name("output", shape.name)
    exact = strict_schema(shape.schema) if shape.strict else None
    made: InputItem = {
        "type": "json_schema", "name": shape.name, "schema": shape.schema if exact is None else exact,
        "strict": exact is not None,
    }  # fmt: skip
    if shape.description:
        made["description"] = shape.description
    return {"format": made}


def _cache_key(session: str) -> str | None:
    if len(session) > MAX_CACHE_KEY:
        return hashlib.sha256(session.encode()).hexdigest()
    return session or None


class _InputWriter:
    """A conversation, about to be written down as items."""

    def __init__(self, model: str, messages: Sequence[Message], facts: ResponsesCapabilities, kind: str) -> None:
        self._model, self._messages, self._facts, self._reasoning_kind = model, messages, facts, kind
        self._ids = compatibility.call_ids(messages)
        self._answered_ids = {id for block in _provider_items(messages) for id in _answered_call_ids(block)}

    def items(self) -> list[InputItem]:
        """Return the conversation in this wire's words."""
        made: list[InputItem] = []
        for message in self._messages:
            if isinstance(message, UserMessage):
                made += self._user_items(message.content)
            elif isinstance(message, AssistantMessage):
                made += self._assistant_items(message)
            else:
                made += self._result_items(message)
        return made

    def write_part(self, part: Image | Audio | Document) -> InputItem:
        """Return one part in this wire's words."""
        return self._media_part(part)

    def _user_items(self, content: Content) -> list[InputItem]:
        parts = self._content_parts(content)
        return [_user_item(parts)] if parts else []

    def _assistant_items(self, message: AssistantMessage) -> list[InputItem]:
        calls = {call.id: call for call in message.calls}
        answer = _AnswerItems(with_phase=self._reasoning_kind == "encrypted")
        for part in message.content:
            if isinstance(part, Text):
                answer.texts.append(part.text)
            elif isinstance(part, Stored):
                answer.texts.append(part.preview)
            elif isinstance(part, Reasoning):
                self._add_own_item(part, answer)
            elif isinstance(part, CallRef):
                if part.id in calls:
                    answer.add(self._call_item(calls.pop(part.id)))
            else:
                raise compatibility.unsupported_part(self._model, part, "only the user and tools may show one")
        for call in calls.values():
            answer.add(self._call_item(call))
        return answer.finish()

    def _add_own_item(self, part: Reasoning, answer: "_AnswerItems") -> None:
        """Put an item of the provider's own back in its place, unless nobody there would know it."""
        block: Any = compatibility.provider_block(part, WIRE)
        if not isinstance(block, dict):
            return
        item = cast("InputItem", block)
        if item.get("type") == "message":
            answer.begin_message(str(item.get("phase") or ""))
        elif self._accepts_item(item):
            answer.add(item)

    def _accepts_item(self, item: InputItem) -> bool:
        if item.get("type") == "reasoning":
            return bool(item.get({"encrypted": "encrypted_content", "plain": "content"}.get(self._reasoning_kind, "")))
        if item.get("type") in _CLIENT_CALL_TYPES:  # a question to the client that it did not answer would be refused
            return self._facts.items and (item.get("call_id") or item.get("id")) in self._answered_ids
        return self._facts.items

    def _call_item(self, call: ToolCall) -> InputItem:
        return {
            "type": "function_call", "call_id": self._ids[call.id], "name": compatibility.safe_tool_name(call.name),
            "arguments": compatibility.arguments_json(call),
        }  # fmt: skip

    def _result_items(self, message: ToolMessage) -> list[InputItem]:
        made = [
            {
                "type": "function_call_output", "call_id": self._ids.get(result.call, result.call),
                "output": self._result_output(result),
            }
            for result in message.results
        ]  # fmt: skip
        return made if self._facts.media_results else [*made, *self._media_items(message)]

    def _result_output(self, result: ToolResult) -> str | list[InputItem]:
        media = any(isinstance(part, MEDIA_PARTS) for part in result.content)
        if media and self._facts.media_results:
            return self._content_parts(result.content)
        words = compatibility.text_or_preview(result.content)
        if not words and result.failed:
            return f"The call failed ({result.reason})." if result.reason else "The call failed."
        return words or ("The result follows." if media else "")

    def _media_items(self, message: ToolMessage) -> Iterator[InputItem]:
        for result in message.results:
            media = tuple(part for part in result.content if isinstance(part, MEDIA_PARTS))
            if media:
                id = self._ids.get(result.call, result.call)
                yield _user_item([_text_part(f"The result of the call {id}:"), *self._content_parts(media)])

    def _content_parts(self, content: Content) -> list[InputItem]:
        made: list[InputItem] = []
        for part in content:
            if isinstance(part, MEDIA_PARTS):
                made.append(self._media_part(part))
            elif text := compatibility.text_or_preview((part,)):
                made.append(_text_part(text))
        return made

    def _media_part(self, part: Image | Audio | Document) -> InputItem:
        if not part.data and not part.url:
            raise compatibility.unsupported_part(self._model, part, "it has neither data nor an address")
        if isinstance(part, Image) and self._facts.images:
            return {"type": "input_image", "image_url": compatibility.data_url_of(part), "detail": "auto"}
        if isinstance(part, Document) and self._facts.files:
            return _file_part(part)
        if isinstance(part, Audio) and self._facts.audio:
            sound = _AUDIO_FORMATS.get(compatibility.media_type_of(part))
            if sound is None or not part.data:
                raise compatibility.unsupported_part(self._model, part, "it takes the bytes of MP3 and WAV only")
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": sound}}
        raise compatibility.unsupported_part(self._model, part)


class _AnswerItems:
    """The items of one answer of the assistant."""

    def __init__(self, *, with_phase: bool) -> None:
        self.texts: list[str] = []
        self._with_phase, self._phase = with_phase, ""
        self._items: list[InputItem] = []

    def begin_message(self, phase: str) -> None:
        """Say that a message of this phase begins."""
        self._flush_text()
        self._phase = phase

    def add(self, item: InputItem) -> None:
        """Put an item after what was said."""
        self._flush_text()
        self._items.append(item)

    def finish(self) -> list[InputItem]:
        """Return the items; reasoning that nothing came of would be refused."""
        self._flush_text()
        while self._items and self._items[-1].get("type") == "reasoning":
            self._items.pop()
        return self._items

    def _flush_text(self) -> None:
        text, self.texts = "".join(self.texts), []
        if text:
            item = {"type": "message", "role": "assistant", "content": text}
            self._items.append(item | {"phase": self._phase} if self._phase and self._with_phase else item)
            self._phase = ""


def _provider_items(messages: Sequence[Message]) -> Iterator[InputItem]:
    for message in messages:
        if isinstance(message, AssistantMessage):
            for part in message.content:
                block: Any = compatibility.provider_block(part, WIRE) if isinstance(part, Reasoning) else None
                if isinstance(block, dict):
                    yield cast("InputItem", block)


def _answered_call_ids(block: InputItem) -> list[Any]:
    """Return the question that an item answers, if it does."""
    kind = str(block.get("type"))
    if kind == "mcp_approval_response":
        return [block.get("approval_request_id")]
    return [block.get("call_id") or block.get("id")] if kind.endswith("_output") else []


def _file_part(part: Document) -> InputItem:
    if part.url and not part.url.startswith("data:"):
        return {"type": "input_file", "file_url": part.url}
    name = part.name or f"document.{_FILE_SUFFIXES.get(compatibility.media_type_of(part), 'bin')}"
    return {"type": "input_file", "filename": name, "file_data": compatibility.data_url_of(part)}


def _user_item(parts: list[InputItem]) -> InputItem:
    return {"type": "message", "role": "user", "content": parts}


def _text_part(text: str) -> InputItem:
    return {"type": "input_text", "text": text}


def _check_name(what: str, name: str) -> None:
    if not NAME_PATTERN.fullmatch(name):
        raise BadRequest(f"the {what} name {name!r} must be 1 to 64 of A-Z, a-z, 0-9, _ and -")


def _quote_names(tools: Sequence[ToolSpec]) -> str:
    return ", ".join(repr(tool.name) for tool in tools) or "none at all"


__all__ = ["LLAMA", "OpenAIResponses", "ResponsesCapabilities", "ResponsesStreamDecoder", "to_request"]


class OpenAIResponses:
    """A model behind the Responses API; ``facts`` say what its server can do."""

    def __init__(
        self,
        model: str,
        account: Account,
        *,
        http: ConnectionPool | None = None,
        name: str = "",
        facts: ResponsesCapabilities = ResponsesCapabilities(),
    ) -> None:
        self._model, self._facts = model, facts
        self._name = name or f"openai/{model}"
        self._history = HistoryAdapter(self._name, account.base_url, lambda part: check_part(model, part, facts))
        self._client = ProviderClient(account, {"authorization": f"Bearer {account.key}"} if account.key else {}, http)

    @property
    def name(self) -> str:
        """What this model is called in logs."""
        return self._name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer ``prompt``. Raises ``ModelError`` and nothing else."""
        prompt, notices = self._history.adapt(prompt)
        for notice in notices:
            yield notice
        body = to_request(self._model, prompt, self._facts)
        reader = ResponsesStreamDecoder(None if self._facts.tells_length else body.get("max_output_tokens"))
        headers = read_options(prompt.options).headers
        with self._client.redact_errors(headers):
            async with aclosing(self._client.stream_events("responses", body, headers=headers)) as items:
                async for item in items:
                    for chunk in reader.feed(item.data, item.event):
                        yield self._history.tag_origin(chunk)
                    if reader.done:
                        return
        raise StreamCut(f"the answer of {self._name} was cut: the stream ended before response.completed")

    async def close(self) -> None:
        """Close the connections, unless they are shared."""
        await self._client.close()
