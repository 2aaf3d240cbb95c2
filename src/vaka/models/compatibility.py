"""The parts of messages that wires share, and adaption of a history to the model that reads it next."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, NoticeChunk, Prompt, ReasoningChunk, TextChunk
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import JSON, CallId
from vaka.core.types.message import (
    AssistantMessage,
    Audio,
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
    UserMessage,
)
from vaka.core.types.monitor import Logged

CALL_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every provider takes for the id of a call."""

_BASE64_SIGNATURES = (
    ("iVBORw0KGgo", "image/png"), ("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("JVBERi", "application/pdf"),
    ("SUQz", "audio/mpeg"), ("T2dnUw", "audio/ogg"), ("ZkxhQ", "audio/flac"),
)  # fmt: skip


def call_ids(messages: Sequence[Message], allowed: re.Pattern[str] = CALL_ID_PATTERN) -> dict[CallId, str]:
    """Return what to call each call: the provider's own id where it is one this provider takes and only once there."""
    calls = [call for message in messages if isinstance(message, AssistantMessage) for call in message.calls]
    ids: dict[CallId, str] = {}
    taken: set[str] = set()
    for call in calls:
        wanted = [call.provider_id, call.id, safe_tool_name(call.id[-48:])]
        fits = [id for id in wanted if allowed.fullmatch(id) and id not in taken]
        made = fits[0] if fits else f"c{len(ids):08d}"
        taken.add(made)
        ids[call.id] = made
    return ids


def safe_tool_name(name: str) -> str:
    """Return the name of a tool that was called: a model may have made one up that no provider takes back."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:64] or "_"


def arguments_of(call: ToolCall) -> dict[str, Any]:
    """Return a call's arguments as an object: what could not be read is sent back as ``{"raw": text}``."""
    if not call.raw or call.repaired:
        return call.arguments
    try:
        value: JSON = msgspec.json.decode(call.raw)
    except (msgspec.DecodeError, RecursionError):
        return {"raw": call.raw}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {"value": value}


def arguments_json(call: ToolCall) -> str:
    """Return a call's arguments as JSON text."""
    return msgspec.json.encode(arguments_of(call)).decode()


def text_or_preview(content: Content) -> str:
    """Return the words of ``content``, and the preview of what was too large."""
    return "".join(part.text if isinstance(part, Text) else part.preview
                   for part in content if isinstance(part, Text | Stored))  # fmt: skip


def provider_block(part: Reasoning, wire: str) -> Any:
    """Return the block that this wire's provider gave, to be sent back word for word; ``None`` if it is another's."""
    opaque: Any = part.opaque
    return cast("dict[str, Any]", opaque).get(wire) if isinstance(opaque, dict) else None


def media_type_of(part: Image | Audio | Document) -> str:
    """Return what kind of bytes a part has: as it says, else as its first bytes do."""
    if part.media_type:
        return part.media_type
    for sign, kind in _BASE64_SIGNATURES:
        if part.data.startswith(sign):
            return kind
    if part.data.startswith("UklGR"):  # RIFF: the kind comes later
        return "image/webp" if isinstance(part, Image) else "audio/wav"
    return {Image: "image/jpeg", Audio: "audio/wav", Document: "application/pdf"}[type(part)]


def data_url_of(part: Image | Audio | Document) -> str:
    """Return the address of a part: its own, or one that holds its bytes."""
    return part.url or f"data:{media_type_of(part)};base64,{part.data}"


def unsupported_part(model: str, part: Image | Audio | Document, reason: str = "") -> BadRequest:
    """Return what to raise for a part that a model has no place for."""
    kind = type(part).__name__.lower()
    return BadRequest(
        f"{model} cannot take this {kind}{f': {reason}' if reason else ''}; leave it out, or use another model"
    )


ORIGIN_KEY = "from"
"""Where the mark stands, beside the block."""

MAX_NOTIFIED = 1024
"""Conversations that are remembered to have been told."""

Media: TypeAlias = Image | Audio | Document

_OpaqueHolder = TypeVar("_OpaqueHolder", Reasoning, Citation, ReasoningChunk)

_API_VERSION_SUFFIX = re.compile(r"/v\d+[a-z0-9]*$")


def origin_of(base_url: str) -> str:
    """Return a short name for where a provider is, which does not give its address away."""
    try:
        parts = urlsplit(base_url)
        place = f"{parts.hostname or ''}:{parts.port or parts.scheme}{parts.path}"
    except ValueError:  # it will be told where it is dialed
        place = base_url
    return hashlib.sha256(_API_VERSION_SUFFIX.sub("", place.rstrip("/")).encode(errors="replace")).hexdigest()[:12]


class HistoryAdapter:
    """The past of conversations, as the provider at ``base_url`` can take it.

    ``take`` writes a part down for it, and raises ``BadRequest`` for one that ``model`` has no place for. Without an
    address private blocks are left alone, for whoever knows it.
    """

    def __init__(self, model: str, base_url: str, check_part: Callable[[Media], object]) -> None:
        self._model, self._check_part, self._origin = model, check_part, origin_of(base_url) if base_url else ""
        self._notified_conversations: dict[tuple[str, ...], None] = {}

    def adapt(self, prompt: Prompt) -> tuple[Prompt, tuple[NoticeChunk, ...]]:
        """Return ``prompt`` as it can be sent, and what operators are to know: once for each conversation.

        A conversation in which this model has answered since was told by whoever asked it then.
        """
        missing: Counter[str] = Counter()
        messages: list[Message] = []
        changed = known = False
        for message in prompt.messages:
            known = known or (bool(missing) and self._answered_by_this_model(message))
            messages.append(self._adapt_message(message, missing, is_current=message is prompt.messages[-1]))
            changed = changed or messages[-1] is not message
        if not changed:
            return prompt, ()
        notices = () if known else self._missing_media_notices(prompt, missing)
        return msgspec.structs.replace(prompt, messages=tuple(messages)), notices

    def tag_origin(self, chunk: Chunk) -> Chunk:
        """Return a piece of an answer whose private block says where it came from."""
        if isinstance(chunk, TextChunk):  # nearly always
            return chunk
        if isinstance(chunk, ReasoningChunk):
            return self._with_origin(chunk)
        return CitationChunk(self._with_origin(chunk.citation)) if isinstance(chunk, CitationChunk) else chunk

    def _with_origin(self, holder: _OpaqueHolder) -> _OpaqueHolder:
        opaque: Any = holder.opaque
        return (
            msgspec.structs.replace(holder, opaque={**opaque, ORIGIN_KEY: self._origin})
            if isinstance(opaque, dict)
            else holder
        )

    def _adapt_message(self, message: Message, missing: Counter[str], *, is_current: bool) -> Message:
        if isinstance(message, ToolMessage):
            results = tuple([
                result if (content := self._adapt_content(result.content, missing)) is result.content
                else msgspec.structs.replace(result, content=content)
                for result in message.results
            ])  # fmt: skip
            same = all(new is old for new, old in zip(results, message.results, strict=True))
            return message if same else ToolMessage(results=results)
        if is_current and isinstance(message, UserMessage):
            return message  # what it cannot take of this is an error, told where it is written down
        content = self._adapt_content(message.content, missing)
        return message if content is message.content else msgspec.structs.replace(message, content=content)

    def _adapt_content(self, content: Content, missing: Counter[str]) -> Content:
        if len(content) == 1 and isinstance(content[0], Text) and not content[0].citations:  # nearly always
            return content
        made = tuple([self._adapt_part(part, missing) for part in content])
        return content if all(new is old for new, old in zip(made, content, strict=True)) else made

    def _adapt_part(self, part: Part, missing: Counter[str]) -> Part:
        if isinstance(part, Reasoning):
            return self._drop_foreign_block(part)
        if isinstance(part, Text):
            if not part.citations:
                return part
            cited = tuple([self._drop_foreign_block(citation) for citation in part.citations])
            same = all(new is old for new, old in zip(cited, part.citations, strict=True))
            return part if same else msgspec.structs.replace(part, citations=cited)
        if not isinstance(part, Image | Audio | Document):
            return part
        try:
            self._check_part(part)
        except BadRequest:
            missing[type(part).__name__.lower()] += 1
            return Text(text=omitted_media_note(part))
        return part

    def _drop_foreign_block(self, holder: _OpaqueHolder) -> _OpaqueHolder:
        mark = _origin_in(holder.opaque)
        return (
            holder
            if not (mark and self._origin) or mark == self._origin
            else msgspec.structs.replace(holder, opaque=None)
        )

    def _answered_by_this_model(self, message: Message) -> bool:
        """Whether this model has said that; providers tell their own ids of models, some with a date."""
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
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(missing.items()))
        return (
            NoticeChunk(
                Logged(
                    level="warning",
                    message=f"{self._model} cannot take {what} of this conversation; it is told that they are left out",
                )
            ),
        )


def omitted_media_note(part: Media) -> str:
    """Return what a model reads in the place of something that it cannot take."""
    name = f" {part.name!r}" if isinstance(part, Document) and part.name else ""
    kind = type(part).__name__.lower()
    return f"[{kind}{name} ({media_type_of(part)}) left out: this model cannot take it]"


def _origin_in(opaque: JSON) -> Any:
    return cast("dict[str, Any]", opaque).get(ORIGIN_KEY) if isinstance(opaque, dict) else None
