"""OpenAI Chat Completions: the model, and the request for a prompt as one vendor takes it."""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Message,
    Part,
    Reasoning,
    Stored,
    Text,
    ToolMessage,
    UserMessage,
)
from vaka.core.types.tool import ToolSpec
from vaka.models import compatibility
from vaka.models.compatibility import Media, as_object, unused_name
from vaka.models.openai_chat.events import WIRE, ChatStreamDecoder
from vaka.models.openai_chat.vendors import EFFORTS, VendorProfile
from vaka.models.options import ModelOptions, OutputFormat, drop_empty, merge_body, read_options
from vaka.models.request_items import EncodedItems, RequestItems, RequestMemo, write_tools
from vaka.models.schemas import strict_schema
from vaka.models.transport.client import Account, HttpRequestParts, ProviderModel
from vaka.models.transport.pool import ConnectionPool

MAX_TEXT = 1024 * 1024
"""Characters of one text; a longer one is sent in several parts."""
PLACEHOLDER_TEXT = "."
"""The text of a message that must not be empty."""
NO_OUTPUT = "(no output)"

_TEXT_MEDIA_TYPE = re.compile(r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|toml|javascript)")


def to_messages(model: str, prompt: Prompt, profile: VendorProfile, system: str) -> list[dict[str, Any]]:
    """Return the messages of a request. Raises ``BadRequest`` for what the vendor does not support."""
    messages = ChatWriter(model, profile, prompt.messages).write_all(prompt.messages)
    return [_system_message(profile, system), *messages] if system else messages


def _system_message(profile: VendorProfile, system: str) -> dict[str, Any]:
    return {"role": profile.system_role, "content": _text_content(system)}


def _encode_messages(
    prompt: Prompt, profile: VendorProfile, system: str, memo: "RequestMemo[ChatWriter] | None"
) -> EncodedItems | None:
    """Return the messages of a request encoded, ``None`` if the whole conversation has to be written."""
    if memo is None:
        return None
    first = _system_message(profile, system) if system else None
    return memo.encode(prompt, lambda writer: writer.encode_list(first=msgspec.json.encode(first) if first else b""))


def check_part(model: str, part: Media, profile: VendorProfile) -> None:
    """Raise ``BadRequest`` for a part that the vendor does not support."""
    ChatWriter(model, profile).user_content((part,))


class ChatWriter(RequestItems):
    """Writes the messages of a request after the system message."""

    def __init__(self, model: str, profile: VendorProfile, messages: Sequence[Message] | None = None) -> None:
        super().__init__(messages, re.compile(profile.call_id))
        self._model, self._profile = model, profile
        self._names: dict[CallId, str] = {}

    def write(self, message: Message) -> None:
        """Write a message."""
        if isinstance(message, UserMessage):
            self._add_item({"role": "user", "content": self.user_content(message.content)})
        elif isinstance(message, AssistantMessage):
            self._add_answer(message)
        else:
            self._add_results(message)

    def forget_call(self, call: CallId) -> None:
        """Forget the name of a call."""
        self._names.pop(call, None)

    def _add_item(self, message: dict[str, Any]) -> None:
        """Append a message, merged or separated as the vendor's chat template requires."""
        last = self.items[-1] if self.items else {}
        if self._profile.bridge and last.get("role") == "tool" and message["role"] == "user":
            self.append({"role": "assistant", "content": PLACEHOLDER_TEXT})
        if self._profile.merge and last.get("role") == message["role"] != "tool" and "tool_calls" not in last:
            self.replace_last({**last, **message, "content": _join_content(last["content"], message["content"])})
        else:
            self.append(message)

    def user_content(self, content: Content) -> Any:
        """Return the content of a user message: a string where that is enough."""
        parts = [piece for part in content for piece in self._convert_part(part)]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        if len(texts) == len(parts) and (len(parts) < 2 or not self._profile.images):
            return _text_content("\n\n".join(texts) or PLACEHOLDER_TEXT)
        return parts

    def _add_answer(self, message: AssistantMessage) -> None:
        """Append an assistant message; an empty one is left out."""
        answer: dict[str, Any] = {"role": "assistant", "content": self._answer_content(message.content)}
        answer |= self._reasoning_fields(message)
        calls: list[dict[str, Any]] = []
        for call in message.calls:
            self._names[call.id] = name = compatibility.safe_tool_name(call.name)
            function = {"name": name, "arguments": compatibility.arguments_json(call)}
            calls.append({"id": self.ids[call.id], "type": "function", "function": function})
        if calls:
            answer["tool_calls"] = calls
            if not answer["content"]:
                answer["content"] = None if self._profile.empty == "null" else ""
                if self._profile.empty == "omit":
                    del answer["content"]
            self._add_item(answer)
        elif answer["content"]:
            self._add_item(answer)

    def _add_results(self, message: ToolMessage) -> None:
        """Append results; their media follow in a user message, since a result may have text only."""
        media: list[dict[str, Any]] = []
        for result in message.results:
            id = self.ids.get(result.call, str(result.call))
            parts = [piece for part in result.content if isinstance(part, Media) for piece in self._convert_part(part)]
            text = compatibility.text_or_preview(result.content) or (f"(see below, {id})" if parts else NO_OUTPUT)
            self._add_item({"role": "tool", "tool_call_id": id, "content": _text_content(text)})
            if parts:
                title = f"What the call {id} of {self._names.get(result.call, '_')} returned:"
                media += [{"type": "text", "text": title}, *parts]
        if media:
            self._add_item({"role": "user", "content": media})

    def _answer_content(self, content: Content) -> Any:
        if self._profile.reasoning_back == "thinking" and any(isinstance(part, Reasoning) for part in content):
            return list(_thinking_parts(content))
        return _text_content(compatibility.text_or_preview(content))

    def _reasoning_fields(self, message: AssistantMessage) -> dict[str, Any]:
        """Return the reasoning field, where the vendor wants it back."""
        field = self._profile.reasoning_back
        thoughts = [part for part in message.content if isinstance(part, Reasoning)]
        if field == "reasoning_details":
            own = [block for part in thoughts for block in self._reasoning_details(part)]
            return {field: own} if own else {}
        if field not in {"reasoning_content", "reasoning"}:
            return {}
        text = "".join(part.text for part in thoughts)
        if not text and message.calls and field == "reasoning_content":
            text = " "  # another model's call: these vendors refuse a call whose reasoning is missing or empty
        return {field: text} if text else {}

    def _reasoning_details(self, part: Reasoning) -> list[Any]:
        block = as_object(compatibility.provider_block(part, WIRE))
        return list(block.get("reasoning_details", [])) if block.get("vendor") == self._profile.name else []

    def _convert_part(self, part: Part) -> Iterator[dict[str, Any]]:
        if isinstance(part, Text | Stored):
            for piece in _split_text(part.text if isinstance(part, Text) else part.preview):
                yield {"type": "text", "text": piece}
        elif isinstance(part, Media):
            if not part.data and not part.url:
                raise compatibility.unsupported_part(self._model, part, "it has neither data nor a URL")
            if isinstance(part, Audio):
                yield self._audio_part(part)
            elif isinstance(part, Document):
                yield from self._document_parts(part)
            elif self._profile.images:
                yield {"type": "image_url", "image_url": {"url": compatibility.data_url_of(part)}}
            else:
                raise compatibility.unsupported_part(self._model, part)

    def _audio_part(self, part: Audio) -> dict[str, Any]:
        form = compatibility.AUDIO_FORMATS.get(compatibility.media_type_of(part))
        if not self._profile.audio:
            raise compatibility.unsupported_part(self._model, part)
        if not part.data or form is None:
            raise compatibility.unsupported_part(self._model, part, "it takes the bytes of WAV or MP3 only")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}

    def _document_parts(self, part: Document) -> Iterator[dict[str, Any]]:
        text = _document_text(part)
        if text is not None:
            yield from self._convert_part(Text(text=f"{part.name}:\n\n{text}" if part.name else text))
            return
        if not self._profile.documents:
            raise compatibility.unsupported_part(self._model, part)
        if part.url and not self._profile.document_urls:
            raise compatibility.unsupported_part(self._model, part, "it accepts data, not URLs")
        file = {"filename": part.name or "document.pdf", "file_data": compatibility.data_url_of(part)}
        yield {"type": "file", "file": file}


def check_tool_name(name: str) -> str:
    """Return the name of a tool. Raises ``BadRequest`` for a name that no vendor accepts."""
    if not compatibility.CALL_ID_PATTERN.fullmatch(name):
        raise BadRequest(f"the tool {name!r} needs a name of 1 to 64 letters, digits, '_' and '-'")
    return name


def _text_content(text: str) -> Any:
    """Return a text as content, in several parts if it is too long for one."""
    return text if len(text) <= MAX_TEXT else [{"type": "text", "text": piece} for piece in _split_text(text)]


def _split_text(text: str) -> Iterator[str]:
    return (text[start : start + MAX_TEXT] for start in range(0, len(text), MAX_TEXT))


def _join_content(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return _text_content(f"{first}\n\n{second}")
    return [*_as_parts(first), *_as_parts(second)]


def _as_parts(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) and content else list(content or ())


def _thinking_parts(content: Content) -> Iterator[dict[str, Any]]:
    for part in content:
        if isinstance(part, Reasoning) and part.text:
            yield {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}
        elif isinstance(part, Text) and part.text:
            yield {"type": "text", "text": part.text}


def _document_text(part: Document) -> str | None:
    """Return the text of a document of a text type, which needs no model that reads files."""
    if not part.data or not _TEXT_MEDIA_TYPE.fullmatch(compatibility.media_type_of(part)):
        return None
    try:
        return base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


MAX_CACHE_KEY = 64
"""Characters of a cache key."""
JSON_INSTRUCTIONS = "Answer with one JSON object and nothing else. It must be valid against this JSON Schema:\n"


def to_request(
    model: str,
    prompt: Prompt,
    profile: VendorProfile = VendorProfile(),
    options: ModelOptions | None = None,
    memo: RequestMemo[ChatWriter] | None = None,
) -> dict[str, Any]:
    """Return the body of the request. Raises ``BadRequest`` for what the vendor does not support.

    With ``memo`` the messages and the tools are already encoded.
    """
    options = options or read_options(prompt.options)
    output, system = options.output_format, prompt.system
    if output is not None and profile.output == "json_object":
        instructions = JSON_INSTRUCTIONS + msgspec.json.encode(output.schema).decode()
        system = f"{system}\n\n{instructions}" if system else instructions
    messages = _encode_messages(prompt, profile, system, memo) or to_messages(model, prompt, profile, system)
    body = {"model": model, "messages": messages, "stream": True} | drop_empty(
        {
            "stream_options": {"include_usage": True} if profile.usage else None,
            **_tool_fields(prompt, profile, options, memo),
            "response_format": _response_format(output, profile),
            **_sampling_fields(model, profile, options),
            **_reasoning_fields(profile, options),
            **_account_fields(prompt, profile, options),
        }
    )
    return merge_body(merge_body(body, profile.body), options.extra)


def answer_tool_name(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> str:
    """Return the name of the tool whose arguments are the answer, empty when there is none."""
    if options.output_format is None or profile.output != "tool":
        return ""
    return unused_name(check_tool_name(options.output_format.name), {spec.name for spec in prompt.tools})


def _response_format(output: OutputFormat | None, profile: VendorProfile) -> dict[str, Any] | None:
    if output is None or profile.output == "tool":
        return None
    if profile.output == "json_object":
        return {"type": "json_object"}
    strict = strict_schema(output.schema) if output.strict and profile.strict else None
    fields = {"name": check_tool_name(output.name), "schema": output.schema if strict is None else strict}
    more = drop_empty({"description": output.description, "strict": strict is not None if profile.strict else None})
    return {"type": "json_schema", "json_schema": fields | more}


def _tool_fields(
    prompt: Prompt, profile: VendorProfile, options: ModelOptions, memo: RequestMemo[ChatWriter] | None
) -> dict[str, Any]:
    tools = prompt.tools
    choice = prompt.tool_choice
    answer = _answer_tool(prompt, profile, options)
    if answer is not None and (not tools or choice == "none"):  # it is to be called now, or after the other tools
        tools, choice = (), answer.name
    elif answer is not None and choice == "auto":
        choice = "required"
    specs = tools if answer is None else (*tools, answer)
    sent, chosen = _tool_choice(profile, specs, choice)
    if not sent:
        return {}
    define = partial(_tool_definition, profile=profile)
    return {
        "tools": write_tools(memo, tools, define, answer) if sent is specs else [define(spec) for spec in sent],
        "tool_choice": chosen,
        "parallel_tool_calls": options.parallel_calls if profile.parallel else None,
    }


def _answer_tool(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> ToolSpec | None:
    """Return the tool whose arguments are the answer, ``None`` when there is none."""
    name, output = answer_tool_name(prompt, profile, options), options.output_format
    if not name or output is None:
        return None
    return ToolSpec(
        name=name,
        description=output.description or "Give the answer.",
        parameters=output.schema,
        strict=output.strict and strict_schema(output.schema) is not None,
    )


def _tool_choice(profile: VendorProfile, specs: tuple[ToolSpec, ...], choice: str) -> tuple[tuple[ToolSpec, ...], Any]:
    """Return the tools to send and the choice among them, ``None`` for the vendor's default."""
    if choice == "auto" or (choice == "none" and not specs):
        return specs, None
    if choice == "none":
        return (specs, "none") if profile.choice_none else ((), None)
    if choice == "required" and profile.required and specs:
        return specs, profile.required
    only = choice == "required" and len(specs) == 1  # to call some tool is to call this one
    wanted = specs if only else tuple(spec for spec in specs if spec.name == choice)
    if wanted and profile.choice_named:
        return specs, {"type": "function", "function": {"name": wanted[0].name}}
    if wanted and profile.required:
        return wanted, profile.required  # the only tool must be called
    if wanted or (specs and choice == "required"):
        raise BadRequest(f"{profile.name} cannot be made to call a tool (tool_choice {choice!r}); use 'auto'")
    names = ", ".join(repr(spec.name) for spec in specs) or "none"
    raise BadRequest(f"tool_choice {choice!r} needs such a tool; there are {names}")


def _tool_definition(spec: ToolSpec, profile: VendorProfile) -> dict[str, Any]:
    strict = strict_schema(spec.parameters, nullable=True) if spec.strict and profile.strict else None
    parameters = strict or {"type": "object", "properties": {}, **spec.parameters}
    function = {"description": spec.description, "parameters": parameters, "strict": True if strict else None}
    return {"type": "function", "function": {"name": check_tool_name(spec.name), **drop_empty(function)}}


def _sampling_fields(model: str, profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    stops = options.stop_texts
    if profile.stops and len(stops) > profile.stops:
        raise BadRequest(f"{profile.name}/{model} takes at most {profile.stops} stop texts, not {len(stops)}")
    return {
        profile.max_tokens: options.max_tokens,
        "temperature": options.temperature,
        "top_p": options.top_p,
        "top_k": options.top_k if profile.top_k else None,
        "frequency_penalty": options.frequency_penalty if profile.penalties else None,
        "presence_penalty": options.presence_penalty if profile.penalties else None,
        "stop": stops,
        profile.seed: options.seed if profile.seed else None,
    }


def _reasoning_fields(profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    asked, wanted = options.reasoning, options.effort
    if asked is None or wanted is None or not profile.reasoning:
        return {}
    effort = _nearest_effort(wanted, profile.efforts)
    if profile.reasoning == "thinking":
        switch = "disabled" if wanted == "none" else "enabled"
        return {"thinking": {"type": switch}, "reasoning_effort": effort if wanted != "none" else ""}
    if profile.reasoning == "enable_thinking":
        return {"enable_thinking": wanted != "none", "thinking_budget": asked if isinstance(asked, int) else None}
    if profile.reasoning == "reasoning":
        return {"reasoning": {"max_tokens": asked} if isinstance(asked, int) else {"effort": effort}}
    return {"reasoning_effort": effort}


def _nearest_effort(wanted: str, efforts: Sequence[str]) -> str:
    """Return the vendor's effort nearest to ``wanted``, the stronger of two; ``none`` only where it is wanted."""
    if wanted in efforts:
        return wanted
    place = EFFORTS.index(wanted)
    known = [effort for effort in efforts if effort != "none"]
    return min(known, key=lambda effort: (abs(EFFORTS.index(effort) - place), -EFFORTS.index(effort)), default="")


def _account_fields(prompt: Prompt, profile: VendorProfile, options: ModelOptions) -> dict[str, Any]:
    is_stored = profile.metadata and options.extra.get("store") is True
    is_cached = profile.cache_key and options.cache is not False
    return {
        profile.user: options.user if profile.user else "",
        "metadata": options.metadata if is_stored else {},
        "service_tier": options.service_tier if profile.tiers else "",
        "prompt_cache_key": prompt.session[-MAX_CACHE_KEY:] if is_cached else "",
    }


COMPLETIONS_PATH = "chat/completions"
AZURE_V1_VERSIONS = frozenset({"", "v1", "latest", "preview"})
"""Versions of Azure's API without a path for each deployment."""


class OpenAIChat(ProviderModel):
    """One model of a vendor of Chat Completions; ``profile`` has the vendor's peculiarities."""

    def __init__(
        self,
        model: str,
        account: Account,
        *,
        http: ConnectionPool | None = None,
        name: str = "",
        profile: VendorProfile = VendorProfile(),
    ) -> None:
        bearer = {"authorization": f"Bearer {account.key}"}
        key = {profile.key_header: account.key} if profile.key_header else bearer
        super().__init__(
            name or f"{profile.name}/{model}",
            account,
            request_path(model, account, profile),
            headers={**(key if account.key else {}), **profile.headers},
            http=http,
            check_part=lambda part: check_part(model, part, profile),
        )
        self._model, self._profile = model, profile
        self._written = RequestMemo(lambda: ChatWriter(model, profile), self._comparison)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        options = read_options(prompt.options)
        decoder = ChatStreamDecoder(self._profile, answer_tool_name(prompt, self._profile, options))
        body = to_request(self._model, prompt, self._profile, options, self._written)
        return HttpRequestParts(body, options.headers, decoder)


def request_path(model: str, account: Account, profile: VendorProfile) -> str:
    """Return the path of a request under the base URL; Azure has three kinds of base URL."""
    base = account.base_url.rstrip("/")
    if not profile.deployments or base.endswith("/v1") or "/deployments/" in base:
        return COMPLETIONS_PATH
    under = "" if base.endswith("/openai") else "openai/"
    if account.query.get("api-version", "") in AZURE_V1_VERSIONS:
        return f"{under}v1/{COMPLETIONS_PATH}"
    return f"{under}deployments/{quote(model, safe='')}/{COMPLETIONS_PATH}"
