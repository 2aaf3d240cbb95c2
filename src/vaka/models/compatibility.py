"""Values and parts of messages that wires share, and the adaptation of a history to the model that reads it next."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeGuard, TypeVar
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, NoticeChunk, Prompt, ReasoningChunk, TextChunk
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
    CallRef,
    Citation,
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
    UserMessage,
)
from vaka.core.types.monitor import Logged
from vaka.models.prefixes import Comparison, PrefixMemo

DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""The errors of decoding bytes as JSON."""

MAX_TOKENS = 2**53
"""An upper bound for token counts: larger ones do not fit into a log."""
_MAX_DIGITS = 18


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_list(value: object) -> TypeGuard[list[Any]]:
    return isinstance(value, list | tuple)


def as_object(value: object) -> dict[str, Any]:
    """Return ``value`` if it is an object, else an empty one."""
    return value if is_object(value) else {}


def as_list(value: object) -> list[Any]:
    """Return ``value`` if it is a list, else an empty one."""
    return value if is_list(value) else []


def json_text(raw: bytes | msgspec.Raw) -> str:
    """Return JSON as it was written, the content of a string, nothing for null. Raises ``DECODE_ERRORS``."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return msgspec.json.decode(data, type=str)
    return "" if data == b"null" else data.decode()


def count_of(usage: object, *path: str) -> int:
    """Return the token count at a path, 0 if it is absent or malformed: that must not cost the answer.

    It is within bounds: a negative one would refund a budget, a huge one would break the log.
    """
    value: Any = usage
    for name in path:
        value = value.get(name) if is_object(value) else None
    if value is None:
        return 0
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:_MAX_DIGITS])
    is_integral = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return min(max(int(value), 0), MAX_TOKENS) if is_integral else 0


def unused_name(name: str, taken: set[str]) -> str:
    """Return ``name``, with underscores at its end while it is taken."""
    while name in taken:
        name += "_"
    return name


Media: TypeAlias = Image | Audio | Document

CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""The ids of calls, and the names of tools, that every provider accepts."""

AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/vnd.wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
"""The formats of audio that OpenAI's APIs take, by media type."""
_BASE64_SIGNATURES = (
    ("iVBORw0KGgo", "image/png"),
    ("/9j/", "image/jpeg"),
    ("R0lGOD", "image/gif"),
    ("JVBERi", "application/pdf"),
    ("SUQz", "audio/mpeg"),
    ("T2dnUw", "audio/ogg"),
    ("ZkxhQ", "audio/flac"),
)


def call_ids(messages: Sequence[Message], allowed: re.Pattern[str] = CALL_ID_PATTERN) -> dict[CallId, str]:
    """Return an id for each call: the provider's own where this provider accepts it and it is unique."""
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    ids: dict[CallId, str] = {}
    taken: set[str] = set()
    for call in calls:
        ids[call.id] = choose_call_id(call, len(ids), taken, allowed)
        taken.add(ids[call.id])
    return ids


def choose_call_id(call: ToolCall, number: int, taken: set[str], allowed: re.Pattern[str]) -> str:
    """Return an id for a call: the provider's own where it is allowed and not taken, else one made of ``number``."""
    wanted = [call.provider_id, call.id, safe_tool_name(call.id[-48:])]
    return next((id for id in wanted if allowed.fullmatch(id) and id not in taken), f"c{number:08d}")


def parts_and_calls(message: AssistantMessage) -> Iterator[Part | ToolCall]:
    """Yield the parts of a message with each call in its place, then the calls without a place."""
    calls = {call.id: call for call in message.calls}
    for part in message.content:
        if not isinstance(part, CallRef):
            yield part
        elif part.id in calls:
            yield calls.pop(part.id)
    yield from calls.values()


def safe_tool_name(name: str) -> str:
    """Return the name of a called tool with invalid characters replaced: a model may have invented one."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as an object; arguments that are not JSON are sent back as ``{"raw": text}``."""
    if not call.raw or call.repaired:
        return call.arguments
    try:
        value = msgspec.json.decode(call.raw)
    except DECODE_ERRORS:
        return {"raw": call.raw}
    return value if is_object(value) else {"value": value}


def arguments_json(call: ToolCall) -> str:
    return msgspec.json.encode(arguments_of(call)).decode()


def text_or_preview(content: Content) -> str:
    """Return the text of ``content``, and the preview of stored parts."""
    return "".join(
        part.text if isinstance(part, Text) else part.preview for part in content if isinstance(part, Text | Stored)
    )


def provider_block(part: Reasoning, wire: str) -> Any:
    """Return the provider's own block, to be sent back unchanged; ``None`` if it is of another wire."""
    return as_object(part.opaque).get(wire)


def media_type_of(part: Media) -> str:
    """Return the media type of a part: its own, else by its first bytes."""
    if part.media_type:
        return part.media_type
    for start, media_type in _BASE64_SIGNATURES:
        if part.data.startswith(start):
            return media_type
    if part.data.startswith("UklGR"):  # RIFF, of images and of audio
        return "image/webp" if isinstance(part, Image) else "audio/wav"
    return {Image: "image/jpeg", Audio: "audio/wav", Document: "application/pdf"}[type(part)]


def data_url_of(part: Media) -> str:
    """Return the URL of a part: its own, or a ``data:`` URL."""
    return part.url or f"data:{media_type_of(part)};base64,{part.data}"


def unsupported_part(model: str, part: Media, reason: str = "") -> BadRequest:
    """Return the error for a part that a model does not support."""
    kind = type(part).__name__.lower()
    reason = reason or (f"it does not accept {part.media_type}" if part.media_type else "")
    return BadRequest(
        f"{model} cannot take this {kind}{f': {reason}' if reason else ''}; leave it out, or use another model"
    )


ORIGIN_KEY = "from"
"""The key of the origin beside a provider's block."""
MAX_NOTIFIED = 1024
"""Conversations whose notice is remembered."""

_T = TypeVar("_T")
_OpaqueHolder = TypeVar("_OpaqueHolder", Reasoning, Citation, ReasoningChunk)
_ContentHolder = TypeVar("_ContentHolder", bound=UserMessage | AssistantMessage | ToolResult)
_API_VERSION_SUFFIX = re.compile(r"/v\d+[a-z0-9]*$")


def origin_of(base_url: str) -> str:
    """Return a digest that identifies a provider's address without revealing it."""
    try:
        parts = urlsplit(base_url)
        place = f"{parts.hostname or ''}:{parts.port or parts.scheme}{parts.path}"
    except ValueError:  # reported when a request is sent
        place = base_url
    return hashlib.sha256(_API_VERSION_SUFFIX.sub("", place.rstrip("/")).encode(errors="replace")).hexdigest()[:12]


class HistoryAdapter:
    """Adapts earlier messages to the provider at ``base_url``.

    ``check_part`` raises ``BadRequest`` for a part that ``model`` does not support; earlier ones are replaced by a
    note. Blocks that another provider signed are dropped, unless ``base_url`` is empty.
    """

    def __init__(
        self, model: str, base_url: str, check_part: Callable[[Media], object], comparison: Comparison | None = None
    ) -> None:
        self._model = model
        self._check_part = check_part
        self._origin = origin_of(base_url) if base_url else ""
        self._notified_conversations: dict[tuple[str, ...], None] = {}
        self._adapted = PrefixMemo(
            lambda: _AdaptedMessages(self._adapt_message, self._answered_by_this_model), comparison
        )

    def adapt(self, prompt: Prompt) -> tuple[Prompt, tuple[NoticeChunk, ...]]:
        """Return ``prompt`` as it can be sent, and a notice of left out media, once for each conversation.

        There is no notice if this model has answered since: it was sent with that answer.
        """
        kept = self._adapted.take(prompt)
        given = prompt
        adapted = kept.fold
        current = prompt.messages[-1:]
        if not current or current[0] is adapted.messages[-1] or not isinstance(current[0], UserMessage):
            current = ()
        else:  # an unsupported part of the current message is an error, raised when the request is written
            kept.rewind(len(prompt.messages) - 1)
        notices: tuple[NoticeChunk, ...] = ()
        if adapted.changed:
            notices = () if adapted.known else self._missing_media_notices(prompt, adapted.missing)
            prompt = msgspec.structs.replace(prompt, messages=(*adapted.messages, *current))
        self._adapted.put(given, kept)
        return prompt, notices

    def tag_origin(self, chunk: Chunk) -> Chunk:
        """Return a chunk with the origin beside the provider's block."""
        if isinstance(chunk, TextChunk):  # the fast path of nearly every chunk
            return chunk
        if isinstance(chunk, ReasoningChunk):
            return self._with_origin(chunk)
        return CitationChunk(self._with_origin(chunk.citation)) if isinstance(chunk, CitationChunk) else chunk

    def _with_origin(self, holder: _OpaqueHolder) -> _OpaqueHolder:
        opaque: Any = holder.opaque
        if not isinstance(opaque, dict):
            return holder
        return msgspec.structs.replace(holder, opaque={**opaque, ORIGIN_KEY: self._origin})

    def _adapt_message(self, message: Message, missing: Counter[str]) -> Message:
        if isinstance(message, ToolMessage):
            results = _map_items(message.results, lambda result: self._adapt_content_of(result, missing))
            return message if results is message.results else ToolMessage(results=results)
        return self._adapt_content_of(message, missing)

    def _adapt_content_of(self, holder: _ContentHolder, missing: Counter[str]) -> _ContentHolder:
        content = holder.content
        if all(isinstance(part, CallRef) or (isinstance(part, Text) and not part.citations) for part in content):
            return holder  # nearly always
        adapted = _map_items(content, lambda part: self._adapt_part(part, missing))
        return holder if adapted is content else msgspec.structs.replace(holder, content=adapted)

    def _adapt_part(self, part: Part, missing: Counter[str]) -> Part:
        if isinstance(part, Reasoning):
            return self._drop_foreign_block(part)
        if isinstance(part, Text):
            citations = _map_items(part.citations, self._drop_foreign_block)
            return part if citations is part.citations else msgspec.structs.replace(part, citations=citations)
        if not isinstance(part, Media):
            return part
        try:
            self._check_part(part)
        except BadRequest:
            missing[type(part).__name__.lower()] += 1
            return Text(text=omitted_media_note(part))
        return part

    def _drop_foreign_block(self, holder: _OpaqueHolder) -> _OpaqueHolder:
        origin = as_object(holder.opaque).get(ORIGIN_KEY)
        is_foreign = origin and self._origin and origin != self._origin
        return msgspec.structs.replace(holder, opaque=None) if is_foreign else holder

    def _answered_by_this_model(self, message: Message) -> bool:
        """Whether a message is an answer of this model; providers report ids of their own, some with a date."""
        if not isinstance(message, AssistantMessage) or not message.model:
            return False
        return message.model.rpartition("/")[2].startswith(self._model.rpartition("/")[2])

    def _missing_media_notices(self, prompt: Prompt, missing: Counter[str]) -> tuple[NoticeChunk, ...]:
        key = (prompt.session, prompt.agent, *prompt.path)
        if not missing or key in self._notified_conversations:
            return ()
        if prompt.session:
            if len(self._notified_conversations) >= MAX_NOTIFIED:
                del self._notified_conversations[next(iter(self._notified_conversations))]
            self._notified_conversations[key] = None
        media = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(missing.items()))
        message = f"{self._model} cannot take {media} of this conversation; it reads a note instead"
        return (NoticeChunk(Logged(level="warning", message=message)),)


class _AdaptedMessages:
    """The adapted messages of a conversation."""

    def __init__(
        self, adapt: Callable[[Message, Counter[str]], Message], answered_by_this_model: Callable[[Message], bool]
    ) -> None:
        self._adapt, self._answered_by_this_model = adapt, answered_by_this_model
        self.messages: list[Message] = []
        self.missing: Counter[str] = Counter()
        """How many media of each kind were left out."""
        self.changed = False
        self.known = False
        """Whether this model has answered since media were left out."""

    def add(self, message: Message) -> None:
        self.known = self.known or (bool(self.missing) and self._answered_by_this_model(message))
        adapted = self._adapt(message, self.missing)
        self.changed = self.changed or adapted is not message
        self.messages.append(adapted)

    def mark(self) -> tuple[int, dict[str, int], bool, bool]:
        return len(self.messages), dict(self.missing), self.changed, self.known

    def rollback(self, mark: tuple[int, dict[str, int], bool, bool]) -> None:
        count, missing, self.changed, self.known = mark
        self.missing = Counter(missing)
        del self.messages[count:]

    def settle(self, mark: object) -> None:
        pass


def _map_items(items: tuple[_T, ...], function: Callable[[_T], _T]) -> tuple[_T, ...]:
    """Return the mapped items, or ``items`` itself when none has changed."""
    mapped = tuple([function(item) for item in items])
    return items if all(new is old for new, old in zip(mapped, items, strict=True)) else mapped


def omitted_media_note(part: Media) -> str:
    """Return the text that a model reads in the place of a part that it does not support."""
    name = f" {part.name!r}" if isinstance(part, Document) and part.name else ""
    kind = type(part).__name__.lower()
    return f"[{kind}{name} ({media_type_of(part)}) left out: this model cannot take it]"
