"""A conversation as the messages of Chat Completions. Pure."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, cast

from vaka.core.ports.model import Prompt
from vaka.core.types.content import Audio, Content, Document, Image, Part, Reasoning, Stored, Text
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import CallId
from vaka.core.types.message import AssistantMessage, ToolMessage, UserMessage
from vaka.models import history
from vaka.models.profiles import Profile

WIRE = "chat"
LONGEST = 1024 * 1024
"""Characters of one text; a longer one is sent in several parts."""
NOTHING = "."
"""Said where something must be said and there is nothing to say."""
NO_OUTPUT = "(no output)"

_SOUNDS = {
    "audio/wav": "wav", "audio/x-wav": "wav", "audio/wave": "wav", "audio/vnd.wave": "wav", "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}  # fmt: skip
_WRITTEN = re.compile(r"text/.+|application/(?:.+\+)?(?:json|xml|yaml|toml|javascript)")


def to_messages(model: str, prompt: Prompt, profile: Profile, system: str) -> list[dict[str, Any]]:
    """Return what was said so far. Raises ``BadRequest`` for what the vendor cannot take."""
    writer = _Writer(model, profile, history.call_ids(prompt.messages, re.compile(profile.call_id)))
    if system:
        writer.add({"role": profile.system_role, "content": _text(system)})
    for message in prompt.messages:
        if isinstance(message, UserMessage):
            writer.add({"role": "user", "content": writer.spoken(message.content)})
        elif isinstance(message, AssistantMessage):
            writer.answer(message)
        else:
            writer.results(message)
    return writer.messages


def take(model: str, part: Image | Audio | Document, profile: Profile) -> None:
    """Raise ``BadRequest`` for a part that the vendor cannot take."""
    _Writer(model, profile, {}).spoken((part,))


class _Writer:
    def __init__(self, model: str, profile: Profile, ids: Mapping[CallId, str]) -> None:
        self._model, self._profile, self._ids = model, profile, ids
        self._names: dict[CallId, str] = {}
        self.messages: list[dict[str, Any]] = []

    def add(self, message: dict[str, Any]) -> None:
        """Take one more message, in the order that the vendor wants."""
        last = self.messages[-1] if self.messages else {}
        if self._profile.bridge and last.get("role") == "tool" and message["role"] == "user":
            self.messages.append({"role": "assistant", "content": NOTHING})
        if self._profile.merge and last.get("role") == message["role"] != "tool" and "tool_calls" not in last:
            self.messages[-1] = {**last, **message, "content": _joined(last["content"], message["content"])}
        else:
            self.messages.append(message)

    def spoken(self, content: Content) -> Any:
        """Return the content of a user's message: a text where one will do."""
        parts = [made for part in content for made in self._parts(part)]
        texts = [part["text"] for part in parts if part["type"] == "text"]
        if len(texts) == len(parts) and (len(parts) < 2 or not self._profile.images):
            return _text("\n\n".join(texts) or NOTHING)
        return parts

    def answer(self, message: AssistantMessage) -> None:
        """Write down what a model said; one that said nothing is left out."""
        said: dict[str, Any] = {"role": "assistant", "content": self._said(message.content)}
        said |= self._thoughts(message)
        calls = [
            {"id": self._ids[call.id], "type": "function",
             "function": {"name": history.called(call.name), "arguments": history.arguments_text(call)}}
            for call in message.calls
        ]  # fmt: skip
        self._names |= {call.id: call.name for call in message.calls}
        if calls:
            said["tool_calls"] = calls
        if not said["content"] and not calls:
            return
        if not said["content"]:
            self._nothing(said)
        self.add(said)

    def results(self, message: ToolMessage) -> None:
        """Write down results; what is no text follows in the user's name, since a result can hold nothing else."""
        shown: list[dict[str, Any]] = []
        for result in message.results:
            id = self._ids.get(result.call, str(result.call))
            media = [part for part in result.content if isinstance(part, Image | Audio | Document)]
            made = [piece for part in media for piece in self._parts(part)]
            text = history.words(result.content) or (f"(see below, {id})" if made else NO_OUTPUT)
            self.add({"role": "tool", "tool_call_id": id, "content": _text(text)})
            if made:
                name = self._names.get(result.call, "")
                shown += [{"type": "text", "text": f"What the call {id} of {history.called(name)} returned:"}, *made]
        if shown:
            self.add({"role": "user", "content": shown})

    def _nothing(self, said: dict[str, Any]) -> None:
        empty = self._profile.empty
        if empty == "omit":
            del said["content"]
        else:
            said["content"] = None if empty == "null" else ""

    def _said(self, content: Content) -> Any:
        if self._profile.reasoning_back == "thinking" and any(isinstance(part, Reasoning) for part in content):
            return list(_thinking(content))
        return _text(history.words(content))

    def _thoughts(self, message: AssistantMessage) -> dict[str, Any]:
        """Return the field that has what the model thought, where the vendor wants it back."""
        field = self._profile.reasoning_back
        thoughts = [part for part in message.content if isinstance(part, Reasoning)]
        if field == "reasoning_details":
            own = [block for part in thoughts for block in self._details(part)]
            return {field: own} if own else {}
        if field not in {"reasoning_content", "reasoning"}:
            return {}
        text = "".join(part.text for part in thoughts)
        if not text and message.calls and field == "reasoning_content":
            text = " "  # another model's call: vendors that think refuse one without a thought, and an empty one too
        return {field: text} if text else {}

    def _details(self, part: Reasoning) -> list[Any]:
        block: Any = history.own(part, WIRE)
        if not isinstance(block, dict):
            return []
        kept = cast("dict[str, Any]", block)
        return list(kept.get("reasoning_details", [])) if kept.get("vendor") == self._profile.name else []

    def _parts(self, part: Part) -> Iterator[dict[str, Any]]:
        if isinstance(part, Text | Stored):
            for piece in _pieces(part.text if isinstance(part, Text) else part.preview):
                yield {"type": "text", "text": piece}
        elif isinstance(part, Image | Audio | Document):
            if not part.data and not part.url:
                raise history.cannot_take(self._model, part, "its bytes are not at hand")
            if isinstance(part, Image):
                yield self._image(part)
            elif isinstance(part, Audio):
                yield self._audio(part)
            else:
                yield from self._document(part)

    def _image(self, part: Image) -> dict[str, Any]:
        if not self._profile.images:
            raise history.cannot_take(self._model, part)
        return {"type": "image_url", "image_url": {"url": history.data_url(part)}}

    def _audio(self, part: Audio) -> dict[str, Any]:
        form = _SOUNDS.get(history.media_type(part))
        if not self._profile.audio:
            raise history.cannot_take(self._model, part)
        if not part.data or form is None:
            raise history.cannot_take(self._model, part, "it takes the bytes of WAV or MP3 only")
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": form}}

    def _document(self, part: Document) -> Iterator[dict[str, Any]]:
        text = _written(part)
        if text is not None:
            yield from self._parts(Text(text=f"{part.name}:\n\n{text}" if part.name else text))
            return
        if not self._profile.documents:
            raise history.cannot_take(self._model, part)
        if part.url and not self._profile.document_urls:
            raise history.cannot_take(self._model, part, "it takes bytes, not addresses")
        yield {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": history.data_url(part)}}


def checked_name(name: str) -> str:
    """Return the name of a tool. Raises ``BadRequest`` for one that no vendor takes."""
    if not history.PLAIN_ID.fullmatch(name):
        raise BadRequest(f"the tool {name!r} needs a name of 1 to 64 letters, digits, '_' and '-'")
    return name


def _text(text: str) -> Any:
    """Return a text as content, in several parts if it is too long for one."""
    if len(text) <= LONGEST:
        return text
    return [{"type": "text", "text": piece} for piece in _pieces(text)]


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + LONGEST] for start in range(0, len(text), LONGEST))


def _joined(first: Any, second: Any) -> Any:
    if isinstance(first, str) and isinstance(second, str):
        return _text(f"{first}\n\n{second}")
    return [*_listed(first), *_listed(second)]


def _listed(content: Any) -> list[Any]:
    parts = cast("list[Any]", content)
    return parts if isinstance(content, list) else [{"type": "text", "text": content}] if content else []


def _thinking(content: Content) -> Iterator[dict[str, Any]]:
    for part in content:
        if isinstance(part, Reasoning) and part.text:
            yield {"type": "thinking", "thinking": [{"type": "text", "text": part.text}]}
        elif isinstance(part, Text) and part.text:
            yield {"type": "text", "text": part.text}


def _written(part: Document) -> str | None:
    """Return the words of a document that has nothing else: they need no model that reads files."""
    if not part.data or not _WRITTEN.fullmatch(history.media_type(part)):
        return None
    try:
        return base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
