"""Messages and tool calls in the form of the Chat Completions API."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from vaka.core.ports.model import CallChunk, Chunk, Prompt, TextChunk
from vaka.core.types.errors import BadRequest, StreamCut
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    Content,
    Document,
    Part,
    Reasoning,
    Stored,
    Text,
    ToolMessage,
    UserMessage,
)
from vaka.models import compatibility
from vaka.models.catalog.vendors import VendorProfile
from vaka.models.compatibility import Media
from vaka.models.json_values import DECODE_ERRORS, as_object


class CallFragment(msgspec.Struct, gc=False):
    """A piece of a call in a delta."""

    index: int | None = None
    id: str | None = None
    function: dict[str, msgspec.Raw] | None = None


class _PartialCall:
    """A call that is still growing."""

    def __init__(self, number: int, provider_id: str) -> None:
        self.number, self.provider_id = number, provider_id
        self.name = ""
        self.pieces: list[str] = []
        self.emitted_pieces = 0
        self.is_announced = False

    def is_complete(self) -> bool:
        """Whether the arguments are a complete object, so that further ones belong to another call."""
        if not self.pieces or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.pieces))
        except DECODE_ERRORS:
            return False
        return True


class CallAssembler:
    """The calls of one answer. The arguments of the tool ``answer`` are emitted as text, not as a call."""

    def __init__(self, answer: str = "") -> None:
        self.call_count = 0
        """Calls that have begun, without the answer."""
        self.has_answer = False
        self._answer_tool = answer
        self._calls: list[_PartialCall] = []
        self._latest_by_index: dict[int, _PartialCall] = {}
        self._used_ids: set[str] = set()

    def add(self, fragment: CallFragment, position: int, chunks: list[Chunk]) -> None:
        """Add the fragment at ``position`` of its delta. Raises ``StreamCut`` for an empty one."""
        name, arguments = _read_fragment(fragment.function)
        call = self._find_or_start(fragment, position, name, arguments)
        call.name = call.name or name
        if arguments:
            call.pieces.append(arguments)
        if call.name:  # a chunk of a call must name its tool first
            self._emit(call, chunks)

    def check_complete(self, reason: str) -> None:
        """Check the calls of a finished answer. Raises ``StreamCut`` when one is missing or has no name."""
        if any(not call.name for call in self._calls):
            raise StreamCut("the answer is garbled: a tool call has no name")
        if reason == "calls" and not self._calls:
            raise StreamCut("the answer is garbled: it ends in tool calls, and there are none")

    def _find_or_start(self, fragment: CallFragment, position: int, name: str, arguments: str) -> _PartialCall:
        id = fragment.id or ""
        index = position if fragment.index is None else fragment.index
        call = self._latest_by_index.get(index)
        if fragment.index is None and id:
            call = next((known for known in self._calls if known.provider_id == id), call)
        if call is None or _starts_new_call(call, id, name, arguments):
            call = self._latest_by_index[index] = _PartialCall(len(self._calls), id)
            self._calls.append(call)
        return call

    def _emit(self, call: _PartialCall, chunks: list[Chunk]) -> None:
        text = "".join(call.pieces[call.emitted_pieces :])
        call.emitted_pieces = len(call.pieces)
        announced, call.is_announced = call.is_announced, True
        if call.name == self._answer_tool:
            self.has_answer = True
            first = next(known for known in self._calls if known.name == self._answer_tool)
            if text and call is first:  # a second answer is a repetition
                chunks.append(TextChunk(text))
        elif not announced:
            self.call_count += 1
            chunks.append(CallChunk(call.number, call.name, text, self._unique_id(call)))
        elif text:
            chunks.append(CallChunk(call.number, "", text))

    def _unique_id(self, call: _PartialCall) -> str:
        """Return the vendor's id, or a generated one where it is missing or used twice."""
        id, number = call.provider_id, call.number
        while not id or id in self._used_ids:
            id, number = f"call_{number}", number + 1
        self._used_ids.add(id)
        return id


def _starts_new_call(call: _PartialCall, provider_id: str, name: str, arguments: str) -> bool:
    """Whether a fragment begins a new call, though it has the index of ``call``."""
    if provider_id and call.provider_id:
        return provider_id != call.provider_id
    if not name or not call.name:
        return False
    return name != call.name or (bool(arguments) and call.is_complete())


def _read_fragment(function: dict[str, msgspec.Raw] | None) -> tuple[str, str]:
    """Return the name and the arguments of a fragment, as the vendor wrote them."""
    if function is None or not ("arguments" in function or function.keys() == {"name"}):
        raise StreamCut("the answer is garbled: a piece of a tool call has neither a name nor arguments")
    try:
        name = msgspec.json.decode(function["name"], type=str | None) if "name" in function else None
        written = bytes(function["arguments"]) if "arguments" in function else b"null"
        if written.startswith(b'"'):
            return name or "", msgspec.json.decode(written, type=str)
        return name or "", "" if written == b"null" else written.decode()  # an object instead of a string
    except DECODE_ERRORS as error:
        raise StreamCut(f"the answer is garbled: a piece of a tool call cannot be read: {error}") from error


WIRE = "chat"
MAX_TEXT = 1024 * 1024
"""Characters of one text; a longer one is sent in several parts."""
PLACEHOLDER_TEXT = "."
"""The text of a message that must not be empty."""
NO_OUTPUT = "(no output)"

_AUDIO_FORMATS = {
    "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav", "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}  # fmt: skip
_TEXT_MEDIA_TYPE = re.compile(r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|toml|javascript)")


def to_messages(model: str, prompt: Prompt, profile: VendorProfile, system: str) -> list[dict[str, Any]]:
    """Return the messages of a request. Raises ``BadRequest`` for what the vendor does not support."""
    writer = _MessageWriter(model, profile, compatibility.call_ids(prompt.messages, re.compile(profile.call_id)))
    if system:
        writer.add({"role": profile.system_role, "content": _text_content(system)})
    for message in prompt.messages:
        if isinstance(message, UserMessage):
            writer.add({"role": "user", "content": writer.user_content(message.content)})
        elif isinstance(message, AssistantMessage):
            writer.add_answer(message)
        else:
            writer.add_results(message)
    return writer.messages


def check_part(model: str, part: Media, profile: VendorProfile) -> None:
    """Raise ``BadRequest`` for a part that the vendor does not support."""
    _MessageWriter(model, profile, {}).user_content((part,))


class _MessageWriter:
    def __init__(self, model: str, profile: VendorProfile, ids: Mapping[CallId, str]) -> None:
        self._model, self._profile, self._ids = model, profile, ids
        self._names: dict[CallId, str] = {}
        self.messages: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        """Append a message, merged or separated as the vendor's chat template requires."""
        last = self.messages[-1] if self.messages else {}
        if self._profile.bridge and last.get("role") == "tool" and message["role"] == "user":
            self.messages.append({"role": "assistant", "content": PLACEHOLDER_TEXT})
        if self._profile.merge and last.get("role") == message["role"] != "tool" and "tool_calls" not in last:
            self.messages[-1] = {**last, **message, "content": _join_content(last["content"], message["content"])}
        else:
            self.messages.append(message)

    def user_content(self, content: Content) -> Any:
        """Return the content of a user message: a string where that is enough."""
        parts = [piece for part in content for piece in self._convert_part(part)]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        if len(texts) == len(parts) and (len(parts) < 2 or not self._profile.images):
            return _text_content("\n\n".join(texts) or PLACEHOLDER_TEXT)
        return parts

    def add_answer(self, message: AssistantMessage) -> None:
        """Append an assistant message; an empty one is left out."""
        answer: dict[str, Any] = {"role": "assistant", "content": self._answer_content(message.content)}
        answer |= self._reasoning_fields(message)
        calls: list[dict[str, Any]] = []
        for call in message.calls:
            self._names[call.id] = name = compatibility.safe_tool_name(call.name)
            function = {"name": name, "arguments": compatibility.arguments_json(call)}
            calls.append({"id": self._ids[call.id], "type": "function", "function": function})
        if calls:
            answer["tool_calls"] = calls
            if not answer["content"]:
                answer["content"] = None if self._profile.empty == "null" else ""
                if self._profile.empty == "omit":
                    del answer["content"]
            self.add(answer)
        elif answer["content"]:
            self.add(answer)

    def add_results(self, message: ToolMessage) -> None:
        """Append results; their media follow in a user message, since a result may have text only."""
        media: list[dict[str, Any]] = []
        for result in message.results:
            id = self._ids.get(result.call, str(result.call))
            parts = [piece for part in result.content if isinstance(part, Media) for piece in self._convert_part(part)]
            text = compatibility.text_or_preview(result.content) or (f"(see below, {id})" if parts else NO_OUTPUT)
            self.add({"role": "tool", "tool_call_id": id, "content": _text_content(text)})
            if parts:
                title = f"What the call {id} of {self._names.get(result.call, '_')} returned:"
                media += [{"type": "text", "text": title}, *parts]
        if media:
            self.add({"role": "user", "content": media})

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
        form = _AUDIO_FORMATS.get(compatibility.media_type_of(part))
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
    """Return the name of a tool. Raises ``BadRequest`` for one that no vendor accepts."""
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
    value: object = content
    parts: list[Any] = content if isinstance(value, list) else [{"type": "text", "text": content}] if content else []
    return parts


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
