"""Gemini generateContent, at the Gemini API or at Vertex AI: the model, and the request for a prompt."""

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Message,
    Part,
    Reasoning,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from vaka.core.types.tool import ToolSpec
from vaka.models import compatibility
from vaka.models.compatibility import Media, is_object, unused_name
from vaka.models.gemini.events import GENERATED_ID_PREFIX, WIRE, GeminiStreamDecoder
from vaka.models.options import ModelOptions, OutputFormat, drop_empty, merge_body, read_options
from vaka.models.request_items import AlternatingItems, RequestMemo, write_tools
from vaka.models.schemas import inline_references
from vaka.models.transport.client import Account, HttpRequestParts, ProviderModel
from vaka.models.transport.pool import ConnectionPool

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The value that Google documents for calls without a signature, such as calls of other providers."""
PLACEHOLDER_PART = {"text": "."}
"""The part of a message that must not be empty."""

_FUNCTION_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_MODEL_VERSION = re.compile(r"gemini-(\d+)(?:\.(\d+))?(?![\d])")
_THINKING_BUDGETS = {"none": 0, "minimal": 512, "low": 1024, "medium": 8192, "high": 24576, "max": 24576}
_THINKING_LEVELS = {
    "none": "MINIMAL",
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "max": "HIGH",
}

_TEXT_MEDIA_TYPES = frozenset(
    {
        "application/json",
        "application/xml",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/javascript",
        "application/x-javascript",
        "application/typescript",
        "application/x-python",
        "application/x-sh",
        "application/sql",
        "application/rtf",
    }
)
"""Media types of text besides ``text/*``."""

_MEDIA_TYPES_BY_SUFFIX = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".webp": "image/webp",
    ".heic": "image/heic",
    ".heif": "image/heif",
    ".gif": "image/gif",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".aac": "audio/aac",
    ".mp4": "video/mp4",
    ".mov": "video/quicktime",
    ".webm": "video/webm",
    ".mpeg": "video/mpeg",
    ".pdf": "application/pdf",
    ".txt": "text/plain",
    ".md": "text/plain",
    ".csv": "text/plain",
    ".html": "text/plain",
    ".json": "text/plain",
}
"""The media type of a file that has only a URL; the API requires it for some."""


def generation_of(model: str) -> tuple[int, int] | None:
    """Return the version of a Gemini model, such as ``(2, 5)``; ``None`` if its name has none."""
    version = _MODEL_VERSION.search(model)
    if version:
        return int(version[1]), int(version[2] or 0)
    return (3, 0) if "gemini-" in model and model.endswith("-latest") else None


def answer_tool_name(model: str, prompt: Prompt, options: ModelOptions) -> str:
    """Return the name of the tool whose call is the answer; before Gemini 3 an output schema excludes tools."""
    has_tools = prompt.tools and prompt.tool_choice != "none"
    if options.output_format is None or not has_tools or _allows_tools_with_output(model):
        return ""
    return unused_name(options.output_format.name, {tool.name for tool in prompt.tools})


def to_request(
    model: str, prompt: Prompt, options: ModelOptions | None = None, memo: "RequestMemo[GeminiWriter] | None" = None
) -> dict[str, Any]:
    """Return the body of a request. Raises ``BadRequest`` for what the API does not support.

    ``parallel_calls``, ``cache`` (Gemini caches by itself) and ``user`` are ignored: the answer does not depend on
    them. With ``memo`` the contents and the tools are already encoded.
    """
    options = read_options(prompt.options) if options is None else options
    forced = answer_tool_name(model, prompt, options)
    with_tools = forced or options.output_format is None or _allows_tools_with_output(model)
    body = {
        "systemInstruction": {"parts": [{"text": prompt.system}]} if prompt.system else None,
        **(_tool_fields(prompt, _answer_tool(forced, options.output_format), memo) if with_tools else {}),
        "contents": _write_contents(model, prompt, memo),
        "generationConfig": _generation_config(model, options, native=not forced),
        "labels": dict(options.metadata),
        "serviceTier": options.service_tier,
    }
    return merge_body(drop_empty(body), options.extra)


def check_part(model: str, part: Media) -> None:
    """Raise ``BadRequest`` for an unsupported part."""
    GeminiWriter(model).media_part(part)


def _write_contents(model: str, prompt: Prompt, memo: "RequestMemo[GeminiWriter] | None") -> Any:
    """Return the contents; the first is the user's, as the API requires."""
    encoded = memo.encode(prompt, GeminiWriter.encode_list) if memo is not None else None
    if encoded is not None:
        return encoded
    writer = GeminiWriter(model, prompt.messages)
    return writer.write_all(prompt.messages) or [writer.placeholder_item()]


def _allows_tools_with_output(model: str) -> bool:
    version = generation_of(model)
    return version is None or version >= (3, 0)


def _answer_tool(name: str, output: OutputFormat | None) -> ToolSpec | None:
    """Return the tool whose call is the answer, ``None`` if there is no ``name`` for it."""
    if not name or output is None:
        return None
    return ToolSpec(name=name, description=output.description or "Give the final answer.", parameters=output.schema)


def _tool_fields(prompt: Prompt, answer: ToolSpec | None, memo: "RequestMemo[GeminiWriter] | None") -> dict[str, Any]:
    declared = write_tools(memo, prompt.tools, _function_declaration, answer)
    config = _calling_config(prompt, forced=answer is not None)
    return {
        "tools": [{"functionDeclarations": declared}] if declared else None,
        "toolConfig": {"functionCallingConfig": config} if config else None,
    }


def _function_declaration(tool: ToolSpec) -> dict[str, Any]:
    name = tool.name
    if not _FUNCTION_NAME.fullmatch(name):
        raise BadRequest(
            f"tool {name!r} cannot be offered to Gemini: a name is at most 64 letters, digits, '_' and '-', "
            "and does not begin with a digit or '-'"
        )
    schema = inline_references(tool.parameters)
    schema = schema if "type" in schema else {"type": "object", **schema}
    return {"name": name, "description": tool.description or name, "parametersJsonSchema": schema}


def _calling_config(prompt: Prompt, *, forced: bool) -> dict[str, Any]:
    choice, tools = prompt.tool_choice, prompt.tools
    if choice == "none":
        return {"mode": "NONE"} if tools else {}
    if choice in ("auto", "required"):
        if choice == "required" and not tools:
            raise BadRequest("tool_choice is 'required', but there is no tool to call")
        return {"mode": "ANY"} if forced or choice == "required" else {}
    if all(tool.name != choice for tool in tools):
        names = ", ".join(tool.name for tool in tools) or "none"
        raise BadRequest(f"tool_choice names {choice!r}, which is not among the tools: {names}")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _generation_config(model: str, options: ModelOptions, *, native: bool) -> dict[str, Any]:
    config = drop_empty(
        {
            "maxOutputTokens": options.max_tokens,
            "temperature": options.temperature,
            "topP": options.top_p,
            "topK": options.top_k,
            "seed": options.seed,
            "stopSequences": options.stop_texts,
            "presencePenalty": options.presence_penalty,
            "frequencyPenalty": options.frequency_penalty,
            "thinkingConfig": _thinking_config(model, options),
        }
    )
    output = options.output_format
    if output is not None and native:
        described = {"description": output.description} if output.description else {}
        schema = {**described, **inline_references(output.schema)}
        config |= {"responseMimeType": "application/json", "responseJsonSchema": schema}
    return config


def _thinking_config(model: str, options: ModelOptions) -> dict[str, Any] | None:
    """Return the thinking fields: models before 2.5 do not think, 2.5 has a token budget, later ones have levels."""
    asked, version = options.reasoning, generation_of(model)
    if asked is None or (version is not None and version < (2, 5)):
        return None
    config: dict[str, Any] = {"includeThoughts": asked != "none"}
    pro = "-pro" in model
    if version is not None and version < (3, 0):
        budget = asked if isinstance(asked, int) else _THINKING_BUDGETS[asked]
        if pro:  # it cannot turn thinking off, and accepts a larger budget
            budget = 32768 if asked == "max" else max(budget, 128)
        return {**config, "thinkingBudget": budget}
    if version is None and isinstance(asked, int):
        return {**config, "thinkingBudget": asked}
    level = _THINKING_LEVELS[options.effort or "none"]
    return {**config, "thinkingLevel": "LOW" if pro and level == "MINIMAL" else level}


class GeminiWriter(AlternatingItems):
    """Writes a conversation as contents, which alternate between the user and the model."""

    def __init__(self, model: str, messages: Sequence[Message] | None = None) -> None:
        self._model, self._version = model, generation_of(model)
        self._requires_signatures = self._version is not None and self._version >= (3, 0)
        self._names: dict[CallId, str] = {}
        self._own_ids: set[CallId] = set()
        """Calls whose ids are the provider's."""
        super().__init__("parts", PLACEHOLDER_PART, messages)

    def learn_call(self, call: ToolCall) -> None:
        """Keep the name of a call."""
        self._names[call.id] = compatibility.safe_tool_name(call.name)
        if call.provider_id and not call.provider_id.startswith(GENERATED_ID_PREFIX):
            self._own_ids.add(call.id)

    def forget_call(self, call: CallId) -> None:
        """Forget the name of a call."""
        del self._names[call]
        self._own_ids.discard(call)

    def write(self, message: Message) -> None:
        """Write a message."""
        if isinstance(message, AssistantMessage):
            self.add_parts("model", self._answer_parts(message))
        elif isinstance(message, ToolMessage):
            self.add_parts("user", self._result_parts(message))
        else:
            self.add_parts("user", [piece for part in message.content for piece in self._content_parts(part)])

    def _answer_parts(self, message: AssistantMessage) -> list[dict[str, Any]]:
        """Return the parts of an assistant message; a signature belongs to the part that follows it."""
        parts: list[dict[str, Any]] = []
        signature = ""
        for part in compatibility.parts_and_calls(message):
            if isinstance(part, Reasoning):
                block = self._provider_part(part, message)
                if block is not None and block.keys() == {"thoughtSignature"}:
                    _attach_late_signature(parts, signature)
                    signature = block["thoughtSignature"]
                elif block is not None:
                    parts.append({"text": part.text, **block} if block.get("thought") else block)
                continue
            pieces = [self._call_part(part)] if isinstance(part, ToolCall) else self._content_parts(part)
            if pieces and signature:
                pieces[0]["thoughtSignature"], signature = signature, ""
            parts += pieces
        _attach_late_signature(parts, signature)
        if self._requires_signatures:  # the API refuses a step whose first call has none
            _attach_late_signature([part for part in parts if "functionCall" in part], PLACEHOLDER_SIGNATURE)
        return parts

    def _provider_part(self, part: Reasoning, message: AssistantMessage) -> dict[str, Any] | None:
        """Return the provider's own block, unless it is from another Gemini generation, which would be refused."""
        version = generation_of(message.model)
        if version and self._version and version[0] != self._version[0]:
            return None
        block = compatibility.provider_block(part, WIRE)
        return dict(block) if is_object(block) else None

    def _call_part(self, call: ToolCall) -> dict[str, Any]:
        name, arguments = self._names[call.id], compatibility.arguments_of(call)
        return {"functionCall": {**self._id_field(call.id), "name": name, "args": arguments}}

    def _id_field(self, call: CallId) -> dict[str, str]:
        id = self.ids.get(call) if call in self._own_ids else None
        return {"id": id} if id else {}

    def _result_parts(self, message: ToolMessage) -> list[dict[str, Any]]:
        """Return the results in the order of the calls, and after them the media that a result cannot contain."""
        parts: list[dict[str, Any]] = []
        beside: list[dict[str, Any]] = []
        for number, result in enumerate(message.results, start=1):
            text, (inside, after) = compatibility.text_or_preview(result.content), self._split_media(result)
            name = self._names.get(result.call)
            if name is None:  # its call was compacted away
                beside += [{"text": f"Result of a call: {text}"}, *inside, *after]
                continue
            response: dict[str, Any] = {**self._id_field(result.call), "name": name}
            response["response"] = {"error" if result.failed else "output": text}
            if inside:
                response["parts"] = inside
            parts.append({"functionResponse": response})
            if after:
                beside += [{"text": f"Part of result {number} ({name}):"}, *after]
        return parts + beside

    def _split_media(self, result: ToolResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the media that a result may contain, and the media that have to follow it."""
        inside: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        for part in result.content:
            if isinstance(part, Media):
                piece = self.media_part(part)
                kind = piece.get("inlineData", {}).get("mimeType", "")
                nests = self._requires_signatures and (kind.startswith("image/") or kind == "application/pdf")
                (inside if nests else after).append(piece)
        return inside, after

    def _content_parts(self, part: Part) -> list[dict[str, Any]]:
        text = compatibility.text_or_preview((part,))
        return [{"text": text}] if text else [self.media_part(part)] if isinstance(part, Media) else []

    def media_part(self, part: Media) -> dict[str, Any]:
        """Return the piece of one part. Raises ``BadRequest`` for an unsupported one."""
        if part.url and not part.url.startswith("data:"):
            suffix = PurePosixPath(part.url.partition("?")[0]).suffix.lower()
            kind = part.media_type or _MEDIA_TYPES_BY_SUFFIX.get(suffix, "")
            mime_type = {"mimeType": self._mime_type_of(part, kind)} if kind else {}
            return {"fileData": {**mime_type, "fileUri": part.url}}
        data, kind = part.data, compatibility.media_type_of(part)
        if part.url:
            head, _, data = part.url.partition(",")
            if not head.endswith(";base64"):
                raise compatibility.unsupported_part(self._model, part, "the data in its URL is not base64")
            kind = head[len("data:") :].partition(";")[0] or kind
        if not data:
            raise compatibility.unsupported_part(self._model, part, "it has neither data nor a URL")
        return {"inlineData": {"mimeType": self._mime_type_of(part, kind), "data": data}}

    def _mime_type_of(self, part: Media, kind: str) -> str:
        """Return the type to send; all text is sent as plain text."""
        kind = kind.partition(";")[0].strip().lower()
        if kind.startswith("text/") or kind in _TEXT_MEDIA_TYPES:
            return "text/plain"
        if kind != "application/pdf" and not kind.startswith(("image/", "audio/", "video/")):
            raise compatibility.unsupported_part(self._model, part, f"its type is {kind!r}")
        return kind


def _attach_late_signature(parts: list[dict[str, Any]], signature: str) -> None:
    """Attach a signature that no part follows to the first call, else to the last text."""
    calls = [part for part in parts if "functionCall" in part][:1]
    texts = [part for part in parts if "text" in part and "thought" not in part][-1:]
    for part in (calls or texts) if signature else ():
        part.setdefault("thoughtSignature", signature)


BASE_URL = "https://generativelanguage.googleapis.com/v1beta"


class Gemini(ProviderModel):
    """One of Google's models; the key is sent as ``x-goog-api-key``, without one the account's headers authenticate.

    For Vertex AI the base URL ends before ``models/…``: ``…/publishers/google``. The name of a model may also be a
    path, such as ``tunedModels/x``.
    """

    def __init__(self, model: str, account: Account, *, http: ConnectionPool | None = None, name: str = "") -> None:
        path = quote(model if "/" in model else f"models/{model}", safe="/@")
        super().__init__(
            name or f"gemini/{model}",
            msgspec.structs.replace(account, query={**account.query, "alt": "sse"}),
            f"{path}:streamGenerateContent",
            headers={"x-goog-api-key": account.key} if account.key else {},
            http=http,
            check_part=lambda part: check_part(model, part),
        )
        self._model = model
        self._written = RequestMemo(lambda: GeminiWriter(model), self._comparison)

    def _write_request(self, prompt: Prompt) -> HttpRequestParts:
        options = read_options(prompt.options)
        decoder = GeminiStreamDecoder(self._model, answer_tool_name(self._model, prompt, options))
        return HttpRequestParts(to_request(self._model, prompt, options, self._written), options.headers, decoder)
