"""The generateContent request for a prompt, and JSON Schemas with their references inlined, as Gemini takes them. Pure."""

import re
from pathlib import PurePosixPath
from typing import Any, TypeGuard

from vaka.core.ports.model import Prompt
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Content,
    Document,
    Image,
    Message,
    Part,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolMessage,
    ToolResult,
)
from vaka.models import compatibility
from vaka.models.options import ModelOptions, OutputFormat, merge_body, read_options

MAX_NODES = 5000
"""Schemas one schema may become; beyond that it is sent as it is."""

_SCHEMA_KEYWORDS = frozenset({
    "items", "additionalProperties", "additionalItems", "contains", "not", "propertyNames", "if", "then", "else",
})  # fmt: skip

_SCHEMA_LIST_KEYWORDS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})

_SCHEMA_MAP_KEYWORDS = frozenset({"properties", "patternProperties", "dependentSchemas"})

_DROPPED_KEYWORDS = frozenset({"$schema", "$defs", "definitions"})


class _TooLarge(Exception):
    """The schema would become too large; never leaves this file."""


def inline_references(schema: dict[str, Any]) -> dict[str, Any]:
    """Return ``schema`` with every local reference in its place.

    A schema that contains itself keeps those references, alone where they stand. What only says ``const`` says it as
    an ``enum`` of one, which Gemini knows.
    """
    work = _ReferenceInliner(schema)
    try:
        made = work.convert(schema, ())
        kept: dict[str, Any] = {}
        while work.recursive_definitions.keys() - kept.keys():
            for name in sorted(work.recursive_definitions.keys() - kept.keys()):
                path = work.recursive_definitions[name]
                kept[name] = work.convert(work.resolve(path), (path,))
    except (_TooLarge, RecursionError):
        return {name: value for name, value in schema.items() if name != "$schema"}
    return {**made, "$defs": kept} if kept else made


class _ReferenceInliner:
    def __init__(self, root: dict[str, Any]) -> None:
        self.root = root
        self.node_count = 0
        self.recursive_definitions: dict[str, str] = {}
        """Definitions that have to stay, by the name they get."""

    def convert(self, schema: Any, references: tuple[str, ...]) -> Any:
        """Return a schema without references; ``inside`` are those that led here."""
        if not _is_schema(schema):
            return {} if schema is True else schema
        self.node_count += 1
        if self.node_count > MAX_NODES:
            raise _TooLarge
        path = schema.get("$ref")
        if isinstance(path, str):
            target = self.resolve(path)
            if path in references:
                return {"$ref": f"#/$defs/{self._definition_name(path)}"}
            if _is_schema(target):
                beside = {name: value for name, value in schema.items() if name != "$ref"}
                return self.convert({**target, **beside}, (*references, path))
        made = {
            name: self._convert_keyword(name, value, references)
            for name, value in schema.items()
            if name not in _DROPPED_KEYWORDS
        }
        if "const" in made and "enum" not in made:
            made["enum"] = [made.pop("const")]
        return made

    def resolve(self, path: str) -> Any:
        """Return what a reference into this document leads to, ``None`` for another."""
        if path == "#":
            return self.root
        if not path.startswith("#/"):
            return None
        found: Any = self.root
        for step in path[2:].split("/"):
            step = step.replace("~1", "/").replace("~0", "~")
            found = found.get(step) if _is_schema(found) else None
        return found

    def _convert_keyword(self, name: str, value: Any, inside: tuple[str, ...]) -> Any:
        if name in _SCHEMA_KEYWORDS and name != "additionalProperties":
            return self.convert(value, inside)
        if name == "additionalProperties":
            return self.convert(value, inside) if _is_schema(value) else value
        if name in _SCHEMA_LIST_KEYWORDS and _is_list(value):
            return [self.convert(part, inside) for part in value]
        if name in _SCHEMA_MAP_KEYWORDS and _is_schema(value):
            return {key: self.convert(part, inside) for key, part in value.items()}
        return value

    def _definition_name(self, path: str) -> str:
        """Return the name of a definition: the last word of its path, and a number when another has that."""
        word = path.rpartition("/")[2].lstrip("#") or "root"
        name, count = word, 1
        while self.recursive_definitions.get(name, path) != path:
            count += 1
            name = f"{word}{count}"
        self.recursive_definitions[name] = path
        return name


def _is_schema(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


WIRE = "gemini"

GENERATED_ID_PREFIX = "call_gemini_"
"""How ids begin that were made here, since the provider gave none; they are not sent back."""

PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""What Google documents for calls that no Gemini model has signed, such as those of other providers."""

PLACEHOLDER_PART = {"text": "."}
"""What stands where a provider insists on words and there are none."""

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

_TEXT_MEDIA_TYPES = frozenset({
    "application/json", "application/xml", "application/yaml", "application/x-yaml", "application/toml",
    "application/javascript", "application/x-javascript", "application/typescript", "application/x-python",
    "application/x-sh", "application/sql", "application/rtf",
})  # fmt: skip
"""Types of documents that are text, whatever they are called."""

_MEDIA_TYPES_BY_SUFFIX = {
    ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".webp": "image/webp", ".heic": "image/heic",
    ".heif": "image/heif", ".gif": "image/gif", ".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg",
    ".flac": "audio/flac", ".aac": "audio/aac", ".mp4": "video/mp4", ".mov": "video/quicktime", ".webm": "video/webm",
    ".mpeg": "video/mpeg", ".pdf": "application/pdf", ".txt": "text/plain", ".md": "text/plain", ".csv": "text/plain",
    ".html": "text/plain", ".json": "text/plain",
}  # fmt: skip
"""What a file is that has an address only; the provider asks for it where it cannot see for itself."""


def generation_of(model: str) -> tuple[int, int] | None:
    """Return which Gemini a model is, such as ``(2, 5)``; ``None`` for one whose name does not say."""
    found = _MODEL_VERSION.search(model)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (3, 0) if "gemini-" in model and model.endswith("-latest") else None


def answer_tool_name(model: str, prompt: Prompt, options: ModelOptions) -> str:
    """Return the name of the tool whose call is the answer: before Gemini 3 a shape and tools exclude each other."""
    if options.output_format is None or not _has_callable_tools(prompt) or _allows_tools_with_output(model):
        return ""
    name, taken = options.output_format.name, {tool.name for tool in prompt.tools}
    while name in taken:
        name += "_"
    return name


def to_request(model: str, prompt: Prompt, options: ModelOptions | None = None) -> dict[str, Any]:
    """Return the body of a request. Raises ``BadRequest`` for what the wire has no place for.

    Left out, since nothing is lost that the answer depends on: ``parallel_calls``, ``cache`` (Gemini caches by
    itself) and ``user``.
    """
    options = read_options(prompt.options) if options is None else options
    forced = answer_tool_name(model, prompt, options)
    body: dict[str, Any] = {}
    if prompt.system:
        body["systemInstruction"] = {"parts": [{"text": prompt.system}]}
    if forced or options.output_format is None or _allows_tools_with_output(model):
        body |= _tool_fields(prompt, options.output_format if forced else None, forced)
    body["contents"] = _ContentWriter(model, prompt.messages).contents()
    config = _generation_config(model, options, native=not forced)
    if config:
        body["generationConfig"] = config
    if options.metadata:
        body["labels"] = dict(options.metadata)
    if options.service_tier:
        body["serviceTier"] = options.service_tier
    return merge_body(body, options.extra)


def check_part(model: str, part: Image | Audio | Document) -> None:
    """Raise ``BadRequest`` for a part that the provider cannot take."""
    _ContentWriter(model, ()).media_part(part)


def _allows_tools_with_output(model: str) -> bool:
    """Whether a model may be held to a shape while it has tools."""
    version = generation_of(model)
    return version is None or version >= (3, 0)


def _has_callable_tools(prompt: Prompt) -> bool:
    return bool(prompt.tools) and prompt.tool_choice != "none"


def _tool_fields(prompt: Prompt, shape: OutputFormat | None, forced: str) -> dict[str, Any]:
    declared = [_function_declaration(tool.name, tool.description, tool.parameters) for tool in prompt.tools]
    if shape is not None:
        description = shape.description or "Give the final answer."
        declared.append(_function_declaration(forced, description, shape.schema))
    config = _calling_config(prompt, forced=bool(forced))
    made: dict[str, Any] = {"tools": [{"functionDeclarations": declared}]} if declared else {}
    if config:
        made["toolConfig"] = {"functionCallingConfig": config}
    return made


def _function_declaration(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    if not _FUNCTION_NAME.fullmatch(name):
        raise BadRequest(
            f"tool {name!r} cannot be offered to Gemini: a name is at most 64 letters, digits, '_' and '-', "
            "and does not begin with a digit or '-'"
        )
    schema = inline_references(parameters)
    return {
        "name": name,
        "description": description or name,
        "parametersJsonSchema": schema if "type" in schema else {"type": "object", **schema},
    }


def _calling_config(prompt: Prompt, *, forced: bool) -> dict[str, Any]:
    choice, names = prompt.tool_choice, [tool.name for tool in prompt.tools]
    if choice == "none":
        return {"mode": "NONE"} if names else {}
    if choice in ("auto", "required"):
        if choice == "required" and not names:
            raise BadRequest("tool_choice is 'required', but there is no tool to call")
        return {"mode": "ANY"} if forced or choice == "required" else {}
    if choice not in names:
        raise BadRequest(f"tool_choice names {choice!r}, which is not among the tools: {', '.join(names) or 'none'}")
    return {"mode": "ANY", "allowedFunctionNames": [choice]}


def _generation_config(model: str, options: ModelOptions, *, native: bool) -> dict[str, Any]:
    said: dict[str, Any] = {
        "maxOutputTokens": options.max_tokens, "temperature": options.temperature, "topP": options.top_p,
        "topK": options.top_k, "seed": options.seed, "stopSequences": options.stop_texts or None,
        "presencePenalty": options.presence_penalty, "frequencyPenalty": options.frequency_penalty,
        "thinkingConfig": _thinking_config(model, options),
    }  # fmt: skip
    shape = options.output_format
    if shape is not None and native:
        described = {"description": shape.description} if shape.description else {}
        said |= {
            "responseMimeType": "application/json",
            "responseJsonSchema": {**described, **inline_references(shape.schema)},
        }
    return {name: value for name, value in said.items() if value is not None}


def _thinking_config(model: str, options: ModelOptions) -> dict[str, Any] | None:
    """Return how much to think: models before 2.5 do not, 2.5 has a budget in tokens, later ones have levels."""
    asked, version = options.reasoning, generation_of(model)
    if asked is None or (version is not None and version < (2, 5)):
        return None
    config: dict[str, Any] = {"includeThoughts": asked != "none"}
    pro = "-pro" in model
    if version is not None and version < (3, 0):
        budget = asked if isinstance(asked, int) else _THINKING_BUDGETS[asked]
        if pro:  # it cannot stop thinking, and may think for longer
            budget = 32768 if asked == "max" else max(budget, 128)
        return {**config, "thinkingBudget": budget}
    if version is None and isinstance(asked, int):
        return {**config, "thinkingBudget": asked}
    level = _THINKING_LEVELS[options.effort or "none"]
    return {**config, "thinkingLevel": "LOW" if pro and level == "MINIMAL" else level}


class _ContentWriter:
    """A conversation as contents: one after the other of the user and of the model."""

    def __init__(self, model: str, messages: tuple[Message, ...]) -> None:
        self._model, self._messages = model, messages
        self._version = generation_of(model)
        self._requires_signatures = self._version is not None and self._version >= (3, 0)
        calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
        given = compatibility.call_ids(messages)
        self._names = {call.id: compatibility.safe_tool_name(call.name) for call in calls}
        self._ids = {
            call.id: given[call.id]
            for call in calls
            if call.provider_id and not call.provider_id.startswith(GENERATED_ID_PREFIX)
        }  # fmt: skip

    def contents(self) -> list[dict[str, Any]]:
        """Return the conversation; it begins with the user, as the provider wants it."""
        made: list[dict[str, Any]] = []
        for message in self._messages:
            role = "model" if isinstance(message, AssistantMessage) else "user"
            parts = self._message_parts(message)
            if not parts:
                continue
            if not made and role == "model":
                made.append({"role": "user", "parts": [dict(PLACEHOLDER_PART)]})
            if made and made[-1]["role"] == role:
                made[-1]["parts"] += parts
            else:
                made.append({"role": role, "parts": parts})
        return made or [{"role": "user", "parts": [dict(PLACEHOLDER_PART)]}]

    def _message_parts(self, message: Message) -> list[dict[str, Any]]:
        if isinstance(message, AssistantMessage):
            return self._answer_parts(message)
        if isinstance(message, ToolMessage):
            return self._result_parts(message)
        return [made for part in message.content for made in self._content_parts(part)]

    def _answer_parts(self, message: AssistantMessage) -> list[dict[str, Any]]:
        """Return what a model said; a signature goes with the part that it came before."""
        calls = {call.id: call for call in message.calls}
        placed = {part.id for part in message.content if isinstance(part, CallRef)}
        rest = tuple(CallRef(id=call.id) for call in message.calls if call.id not in placed)
        parts: list[dict[str, Any]] = []
        signature = ""
        for part in (*message.content, *rest):
            if isinstance(part, Reasoning):
                block = self._provider_part(part, message)
                if block is not None and block.keys() == {"thoughtSignature"}:
                    _attach_late_signature(parts, signature)
                    signature = block["thoughtSignature"]
                elif block is not None:
                    parts.append({"text": part.text, **block} if block.get("thought") else block)
                continue
            said = (
                [self._call_part(calls[part.id])]
                if isinstance(part, CallRef) and part.id in calls
                else self._content_parts(part)
            )
            if said and signature:
                said[0]["thoughtSignature"], signature = signature, ""
            parts += said
        _attach_late_signature(parts, signature)
        if self._requires_signatures:
            _sign_first_call(parts)
        return parts

    def _provider_part(self, part: Reasoning, message: AssistantMessage) -> dict[str, Any] | None:
        """Return the provider's own block, unless a Gemini of another generation gave it: it would be refused."""
        theirs = generation_of(message.model)
        if theirs and self._version and theirs[0] != self._version[0]:
            return None
        block = compatibility.provider_block(part, WIRE)
        return dict(block) if _is_object(block) else None

    def _call_part(self, call: ToolCall) -> dict[str, Any]:
        return {
            "functionCall": {
                **self._id_field(call.id),
                "name": self._names[call.id],
                "args": compatibility.arguments_of(call),
            }
        }

    def _id_field(self, call: CallId) -> dict[str, str]:
        id = self._ids.get(call)
        return {"id": id} if id else {}

    def _result_parts(self, message: ToolMessage) -> list[dict[str, Any]]:
        """Return the results in the order of the calls, and after them what does not go into one."""
        parts: list[dict[str, Any]] = []
        beside: list[dict[str, Any]] = []
        for number, result in enumerate(message.results, start=1):
            words, (inside, after) = compatibility.text_or_preview(result.content), self._split_media(result)
            name = self._names.get(result.call)
            if name is None:  # its call is not in this conversation any more
                beside += [{"text": f"Result of a call: {words}"}, *inside, *after]
                continue
            response: dict[str, Any] = {**self._id_field(result.call), "name": name}
            response["response"] = {"error" if result.failed else "output": words}
            if inside:
                response["parts"] = inside
            parts.append({"functionResponse": response})
            if after:
                beside += [{"text": f"Part of result {number} ({name}):"}, *after]
        return parts + beside

    def _split_media(self, result: ToolResult) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the media of a result: what goes into it, and what has to come after it."""
        inside: list[dict[str, Any]] = []
        after: list[dict[str, Any]] = []
        for part in _media_in(result.content):
            made = self.media_part(part)
            kind = made.get("inlineData", {}).get("mimeType", "")
            nests = self._requires_signatures and (kind.startswith("image/") or kind == "application/pdf")
            (inside if nests else after).append(made)
        return inside, after

    def _content_parts(self, part: Part) -> list[dict[str, Any]]:
        if isinstance(part, Text | Stored):
            text = part.text if isinstance(part, Text) else part.preview
            return [{"text": text}] if text else []
        return [self.media_part(part)] if isinstance(part, Image | Audio | Document) else []

    def media_part(self, part: Image | Audio | Document) -> dict[str, Any]:
        """Return one part in this wire's words."""
        if part.url and not part.url.startswith("data:"):
            kind = part.media_type or _MEDIA_TYPES_BY_SUFFIX.get(
                PurePosixPath(part.url.partition("?")[0]).suffix.lower(), ""
            )
            said = {"mimeType": self._mime_type_of(part, kind)} if kind else {}
            return {"fileData": {**said, "fileUri": part.url}}
        data, kind = part.data, compatibility.media_type_of(part)
        if part.url:
            head, _, data = part.url.partition(",")
            if not head.endswith(";base64"):
                raise compatibility.unsupported_part(self._model, part, "the data in its address is not base64")
            kind = head[len("data:") :].partition(";")[0] or kind
        if not data:
            raise compatibility.unsupported_part(self._model, part, "it has neither data nor an address")
        return {"inlineData": {"mimeType": self._mime_type_of(part, kind), "data": data}}

    def _mime_type_of(self, part: Image | Audio | Document, kind: str) -> str:
        """Return the type to send; every kind of text is taken as plain."""
        kind = kind.partition(";")[0].strip().lower()
        if kind.startswith("text/") or kind in _TEXT_MEDIA_TYPES:
            return "text/plain"
        if kind != "application/pdf" and not kind.startswith(("image/", "audio/", "video/")):
            raise compatibility.unsupported_part(self._model, part, f"its type is {kind!r}")
        return kind


def _media_in(content: Content) -> list[Image | Audio | Document]:
    return [part for part in content if isinstance(part, Image | Audio | Document)]


def _attach_late_signature(parts: list[dict[str, Any]], signature: str) -> None:
    """Keep a signature that came alone, after everything: it is for the first call, else for the last words."""
    calls = [part for part in parts if "functionCall" in part][:1]
    words = [part for part in parts if "text" in part and "thought" not in part][-1:]
    for part in (calls or words) if signature else ():
        part.setdefault("thoughtSignature", signature)


def _sign_first_call(parts: list[dict[str, Any]]) -> None:
    """The first call of each step has a signature, or the request is refused."""
    for part in parts:
        if "functionCall" in part:
            part.setdefault("thoughtSignature", PLACEHOLDER_SIGNATURE)
            return


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
