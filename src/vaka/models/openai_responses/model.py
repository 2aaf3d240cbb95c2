"""OpenAI Responses: the model, and the request for a prompt.

The whole conversation is sent each time; nothing is stored at the provider.
"""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.message import (
    AssistantMessage,
    Content,
    Document,
    Image,
    Message,
    Reasoning,
    ToolCall,
    ToolMessage,
    ToolResult,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models import compatibility
from vaka.models.compatibility import CALL_ID_PATTERN, Media, as_object
from vaka.models.openai_responses.events import WIRE, ResponsesStreamDecoder
from vaka.models.options import ModelOptions, drop_empty, merge_body, read_options
from vaka.models.request_items import LaterMessageMatters, RequestItems, RequestMemo, write_tools
from vaka.models.schemas import strict_schema
from vaka.models.transport.client import Account, HttpRequestParts, ProviderModel
from vaka.models.transport.pool import ConnectionPool

MAX_CACHE_KEY = 64
"""Characters of a cache key."""

InputItem: TypeAlias = dict[str, Any]

_APPENDED_LISTS = ("tools", "include")
_CLIENT_CALL_TYPES = frozenset(
    {
        "custom_tool_call",
        "computer_call",
        "local_shell_call",
        "shell_call",
        "apply_patch_call",
        "mcp_approval_request",
    }
)
_FILE_SUFFIXES = {
    "application/pdf": "pdf",
    "text/plain": "txt",
    "text/markdown": "md",
    "text/csv": "csv",
    "text/html": "html",
    "application/json": "json",
}
_NON_REASONING_PREFIXES = ("gpt-4", "gpt-3.5", "chatgpt-", "gpt-5-chat")
"""OpenAI's models that refuse requests for reasoning."""


class ResponsesCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The features of a server of this wire."""

    reasoning: Literal["encrypted", "plain", "none"] | None = None
    """The form of reasoning items to be sent back; by default derived from the name of OpenAI's model."""
    tells_length: bool = True
    """Whether it reports that an answer has reached its length limit."""
    images: bool = True
    files: bool = True
    audio: bool = False
    media_results: bool = True
    """Whether the result of a call may have images and files; else they follow in a user message."""
    items: bool = True
    """Whether it accepts items of built-in tools in the input."""


LLAMA = ResponsesCapabilities(reasoning="plain", tells_length=False, files=False, media_results=False, items=False)
"""llama.cpp's server."""


def to_request(
    model: str,
    prompt: Prompt,
    facts: ResponsesCapabilities = ResponsesCapabilities(),
    memo: "RequestMemo[ResponsesWriter] | None" = None,
) -> dict[str, Any]:
    """Return the body of the request for ``prompt``. Raises ``BadRequest`` for what this API does not support.

    With ``memo`` the input and the tools are already encoded.
    """
    options = read_options(prompt.options)
    if any(options.stop_texts):
        raise BadRequest(
            f"{model} takes no stop texts over the Responses API; leave 'stop' out, or use the model as openai-chat/…"
        )
    body = {
        "model": model,
        "stream": True,
        "store": False,
        "instructions": prompt.system,
        "include": ["reasoning.encrypted_content"] if _reasoning_kind(model, facts) == "encrypted" else [],
        **_tool_fields(prompt, options, memo),
        **_option_fields(prompt, options),
        "input": _write_input(model, prompt, facts, memo),
    }
    return merge_body(drop_empty(body), options.extra, _APPENDED_LISTS)


def check_part(model: str, part: Media, facts: ResponsesCapabilities = ResponsesCapabilities()) -> None:
    """Raise ``BadRequest`` for a part that the server does not support."""
    ResponsesWriter(model, facts).media_part(part)


def _reasoning_kind(model: str, facts: ResponsesCapabilities) -> str:
    name = model.rpartition("/")[2].removeprefix("ft:")
    return facts.reasoning or ("none" if name.startswith(_NON_REASONING_PREFIXES) else "encrypted")


def _write_input(
    model: str, prompt: Prompt, facts: ResponsesCapabilities, memo: "RequestMemo[ResponsesWriter] | None"
) -> Any:
    encoded = memo.encode(prompt, ResponsesWriter.encode_list) if memo is not None else None
    if encoded is not None:
        return encoded
    return ResponsesWriter(model, facts, prompt.messages).write_all(prompt.messages) or [_user_item([_text_part(".")])]


def _tool_fields(prompt: Prompt, options: ModelOptions, memo: "RequestMemo[ResponsesWriter] | None") -> dict[str, Any]:
    choice = prompt.tool_choice
    if choice not in {"auto", "none", "required"} and all(tool.name != choice for tool in prompt.tools):
        among = ", ".join(repr(tool.name) for tool in prompt.tools) or "none at all"
        raise BadRequest(f"tool_choice is {choice!r}, but there is no such tool among {among}")
    if not prompt.tools and not options.extra.get("tools"):
        if choice == "required":
            raise BadRequest("tool_choice is 'required', but there is no tool to call")
        return {}
    named = choice if choice in {"none", "required"} else {"type": "function", "name": choice}
    return {
        "tools": write_tools(memo, prompt.tools, _tool_definition),
        "tool_choice": named if choice != "auto" else None,
        "parallel_tool_calls": options.parallel_calls,
    }


def _tool_definition(tool: ToolSpec) -> InputItem:
    _check_name("tool", tool.name)
    strict = strict_schema(tool.parameters, nullable=True) if tool.strict else None
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters if strict is None else strict,
        "strict": strict is not None,  # the API's default is true
    }


def _option_fields(prompt: Prompt, options: ModelOptions) -> dict[str, Any]:
    session = prompt.session if options.cache is not False else ""
    if len(session) > MAX_CACHE_KEY:
        session = hashlib.sha256(session.encode()).hexdigest()
    reasoning = {"effort": options.effort} | ({} if options.effort == "none" else {"summary": "auto"})
    return {
        "max_output_tokens": options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "reasoning": reasoning if options.effort else None,
        "text": _text_format(options),
        "metadata": options.metadata,
        "service_tier": options.service_tier,
        "safety_identifier": options.user,
        "prompt_cache_key": session,
    }


def _text_format(options: ModelOptions) -> dict[str, Any] | None:
    output = options.output_format
    if output is None:
        return None
    _check_name("output", output.name)
    strict = strict_schema(output.schema) if output.strict else None
    schema = output.schema if strict is None else strict
    described = {"description": output.description} if output.description else {}
    return {
        "format": {
            "type": "json_schema",
            "name": output.name,
            "schema": schema,
            "strict": strict is not None,
            **described,
        }
    }


class ResponsesWriter(RequestItems):
    """Writes the items of one conversation."""

    def __init__(self, model: str, facts: ResponsesCapabilities, messages: Sequence[Message] | None = None) -> None:
        super().__init__(messages)
        self._model = model
        self._facts = facts
        self._reasoning_kind = _reasoning_kind(model, facts)
        self._answered_ids = set(_answered_call_ids(messages or ()))

    def write(self, message: Message) -> None:
        """Write a message."""
        if isinstance(message, UserMessage):
            parts = self._content_parts(message.content)
            self.items += [_user_item(parts)] if parts else []
        elif isinstance(message, AssistantMessage):
            self.items += self._assistant_items(message)
        else:
            self.items += self._result_items(message)

    def _assistant_items(self, message: AssistantMessage) -> list[InputItem]:
        answer = _AnswerItems(with_phase=self._reasoning_kind == "encrypted")
        for part in compatibility.parts_and_calls(message):
            if isinstance(part, ToolCall):
                answer.add(self._call_item(part))
            elif isinstance(part, Reasoning):
                self._add_own_item(part, answer)
            elif isinstance(part, Media):
                raise compatibility.unsupported_part(self._model, part, "only messages of users and tools may have one")
            else:
                answer.texts.append(compatibility.text_or_preview((part,)))
        return answer.finish()

    def _add_own_item(self, part: Reasoning, answer: "_AnswerItems") -> None:
        """Add an item of the provider's own, unless this server would refuse it."""
        item = as_object(compatibility.provider_block(part, WIRE))
        if item.get("type") == "message":
            answer.begin_message(str(item.get("phase") or ""))
        elif item and self._accepts_item(item):
            answer.add(item)

    def _accepts_item(self, item: InputItem) -> bool:
        if item.get("type") == "reasoning":
            return bool(item.get({"encrypted": "encrypted_content", "plain": "content"}.get(self._reasoning_kind, "")))
        if item.get("type") in _CLIENT_CALL_TYPES:  # the server refuses a call whose result is missing
            if not self.knows_all:
                raise LaterMessageMatters
            return self._facts.items and (item.get("call_id") or item.get("id")) in self._answered_ids
        return self._facts.items

    def _call_item(self, call: ToolCall) -> InputItem:
        return {
            "type": "function_call",
            "call_id": self.ids[call.id],
            "name": compatibility.safe_tool_name(call.name),
            "arguments": compatibility.arguments_json(call),
        }

    def _result_items(self, message: ToolMessage) -> list[InputItem]:
        items: list[InputItem] = []
        after: list[InputItem] = []
        for result in message.results:
            id = self.ids.get(result.call, result.call)
            media = tuple(part for part in result.content if isinstance(part, Media))
            output = self._result_output(result, has_media=bool(media))
            items.append({"type": "function_call_output", "call_id": id, "output": output})
            if media and not self._facts.media_results:
                after.append(_user_item([_text_part(f"The result of the call {id}:"), *self._content_parts(media)]))
        return items + after

    def _result_output(self, result: ToolResult, *, has_media: bool) -> str | list[InputItem]:
        if has_media and self._facts.media_results:
            return self._content_parts(result.content)
        text = compatibility.text_or_preview(result.content)
        if not text and result.failed:
            return f"The call failed ({result.reason})." if result.reason else "The call failed."
        return text or ("The result follows." if has_media else "")

    def _content_parts(self, content: Content) -> list[InputItem]:
        parts: list[InputItem] = []
        for part in content:
            if isinstance(part, Media):
                parts.append(self.media_part(part))
            elif text := compatibility.text_or_preview((part,)):
                parts.append(_text_part(text))
        return parts

    def media_part(self, part: Media) -> InputItem:
        """Return the item of one part. Raises ``BadRequest`` for an unsupported one."""
        if not part.data and not part.url:
            raise compatibility.unsupported_part(self._model, part, "it has neither data nor a URL")
        if isinstance(part, Image):
            if self._facts.images:
                return {"type": "input_image", "image_url": compatibility.data_url_of(part), "detail": "auto"}
        elif isinstance(part, Document):
            if self._facts.files:
                return _file_part(part)
        elif self._facts.audio:
            audio_format = compatibility.AUDIO_FORMATS.get(compatibility.media_type_of(part))
            if audio_format is None or not part.data:
                raise compatibility.unsupported_part(self._model, part, "it accepts the data of MP3 and WAV only")
            return {"type": "input_audio", "input_audio": {"data": part.data, "format": audio_format}}
        raise compatibility.unsupported_part(self._model, part)


class _AnswerItems:
    """The items of one assistant message."""

    def __init__(self, *, with_phase: bool) -> None:
        self.texts: list[str] = []
        self._with_phase, self._phase = with_phase, ""
        self._items: list[InputItem] = []

    def begin_message(self, phase: str) -> None:
        self._flush_text()
        self._phase = phase

    def add(self, item: InputItem) -> None:
        self._flush_text()
        self._items.append(item)

    def finish(self) -> list[InputItem]:
        """Return the items, without reasoning at the end, which the API refuses."""
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


def _answered_call_ids(messages: Sequence[Message]) -> Iterator[Any]:
    """Yield the ids of calls whose results are among the provider's own items."""
    answers = (message for message in messages if isinstance(message, AssistantMessage))
    for part in (part for answer in answers for part in answer.content if isinstance(part, Reasoning)):
        item = as_object(compatibility.provider_block(part, WIRE))
        if item.get("type") == "mcp_approval_response":
            yield item.get("approval_request_id")
        elif str(item.get("type")).endswith("_output"):
            yield item.get("call_id") or item.get("id")


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
    if not CALL_ID_PATTERN.fullmatch(name):
        raise BadRequest(f"the {what} name {name!r} must be 1 to 64 of A-Z, a-z, 0-9, _ and -")


class OpenAIResponses(ProviderModel):
    """A model behind the Responses API; ``facts`` are the capabilities of its server."""

    def __init__(
        self,
        model: str,
        account: Account,
        *,
        http: ConnectionPool | None = None,
        name: str = "",
        facts: ResponsesCapabilities = ResponsesCapabilities(),
    ) -> None:
        super().__init__(
            name or f"openai/{model}",
            account,
            "responses",
            http=http,
            headers={"authorization": f"Bearer {account.key}"} if account.key else {},
            check_part=lambda part: check_part(model, part, facts),
        )
        self._model, self._facts = model, facts
        self._written = RequestMemo(lambda: ResponsesWriter(model, facts), self._comparison)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        body = to_request(self._model, prompt, self._facts, self._written)
        limit = None if self._facts.tells_length else body.get("max_output_tokens")
        return HttpRequestParts(body, read_options(prompt.options).headers, ResponsesStreamDecoder(limit, self.name))
