"""What of a conversation one provider can take: media only where it has eyes for them, private blocks only its own.

The log keeps everything. A model that cannot take a picture of the past gets a note in its place, so that the session
goes on with it; what is attached to the words that it is to answer now is told as an error, since nobody may believe
that it was looked at. A block that a provider encrypted or signed is of use to nobody else, and others refuse it, even
those that speak the same wire: it is marked with where it came from, and sent back only there. Blocks of older logs
have no mark and count as one's own.
"""

import hashlib
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, Model, NoticeChunk, Prompt, ReasoningChunk, TextChunk
from vaka.core.types.content import Audio, Citation, Content, Document, Image, Part, Reasoning, Text
from vaka.core.types.errors import BadRequest
from vaka.core.types.ids import JSON
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, UserMessage
from vaka.core.types.monitor import Logged
from vaka.models import history
from vaka.models.around import Around

FROM = "from"
"""Where the mark stands, beside the block."""
KEPT = 1024
"""Conversations that are remembered to have been told."""

Media: TypeAlias = Image | Audio | Document
_Opaque = TypeVar("_Opaque", Reasoning, Citation, ReasoningChunk)

_VERSION = re.compile(r"/v\d+[a-z0-9]*$")


def source(base_url: str) -> str:
    """Return a short name for where a provider is, which does not give its address away."""
    try:
        parts = urlsplit(base_url)
        place = f"{parts.hostname or ''}:{parts.port or parts.scheme}{parts.path}"
    except ValueError:  # it will be told where it is dialed
        place = base_url
    return hashlib.sha256(_VERSION.sub("", place.rstrip("/")).encode(errors="replace")).hexdigest()[:12]


class Past:
    """The past of conversations, as the provider at ``base_url`` can take it.

    ``take`` writes a part down for it, and raises ``BadRequest`` for one that ``model`` has no place for. Without an
    address private blocks are left alone, for whoever knows it.
    """

    def __init__(self, model: str, base_url: str, take: Callable[[Media], object]) -> None:
        self._model, self._take, self._source = model, take, source(base_url) if base_url else ""
        self._told: dict[tuple[str, ...], None] = {}

    def of(self, prompt: Prompt) -> tuple[Prompt, tuple[NoticeChunk, ...]]:
        """Return ``prompt`` as it can be sent, and what operators are to know: once for each conversation.

        A conversation in which this model has answered since was told by whoever asked it then.
        """
        missing: Counter[str] = Counter()
        messages: list[Message] = []
        changed = known = False
        for message in prompt.messages:
            known = known or (bool(missing) and self._is_mine(message))
            messages.append(self._message(message, missing, now=message is prompt.messages[-1]))
            changed = changed or messages[-1] is not message
        if not changed:
            return prompt, ()
        notices = () if known else self._notices(prompt, missing)
        return msgspec.structs.replace(prompt, messages=tuple(messages)), notices

    def marked(self, chunk: Chunk) -> Chunk:
        """Return a piece of an answer whose private block says where it came from."""
        if isinstance(chunk, TextChunk):  # nearly always
            return chunk
        if isinstance(chunk, ReasoningChunk):
            return self._mark(chunk)
        return CitationChunk(self._mark(chunk.citation)) if isinstance(chunk, CitationChunk) else chunk

    def _mark(self, of: _Opaque) -> _Opaque:
        opaque: Any = of.opaque
        return msgspec.structs.replace(of, opaque={**opaque, FROM: self._source}) if isinstance(opaque, dict) else of

    def _message(self, message: Message, missing: Counter[str], *, now: bool) -> Message:
        if isinstance(message, ToolMessage):
            results = tuple([
                result if (content := self._content(result.content, missing)) is result.content
                else msgspec.structs.replace(result, content=content)
                for result in message.results
            ])  # fmt: skip
            same = all(new is old for new, old in zip(results, message.results, strict=True))
            return message if same else ToolMessage(results=results)
        if now and isinstance(message, UserMessage):
            return message  # what it cannot take of this is an error, told where it is written down
        content = self._content(message.content, missing)
        return message if content is message.content else msgspec.structs.replace(message, content=content)

    def _content(self, content: Content, missing: Counter[str]) -> Content:
        if len(content) == 1 and isinstance(content[0], Text) and not content[0].citations:  # nearly always
            return content
        made = tuple([self._part(part, missing) for part in content])
        return content if all(new is old for new, old in zip(made, content, strict=True)) else made

    def _part(self, part: Part, missing: Counter[str]) -> Part:
        if isinstance(part, Reasoning):
            return self._own(part)
        if isinstance(part, Text):
            if not part.citations:
                return part
            cited = tuple([self._own(citation) for citation in part.citations])
            same = all(new is old for new, old in zip(cited, part.citations, strict=True))
            return part if same else msgspec.structs.replace(part, citations=cited)
        if not isinstance(part, Image | Audio | Document):
            return part
        try:
            self._take(part)
        except BadRequest:
            missing[type(part).__name__.lower()] += 1
            return Text(text=note(part))
        return part

    def _own(self, of: _Opaque) -> _Opaque:
        mark = _mark_of(of.opaque)
        return of if not (mark and self._source) or mark == self._source else msgspec.structs.replace(of, opaque=None)

    def _is_mine(self, message: Message) -> bool:
        """Whether this model has said that; providers tell their own ids of models, some with a date."""
        if not isinstance(message, AssistantMessage) or not message.model:
            return False
        return message.model.rpartition("/")[2].startswith(self._model.rpartition("/")[2])

    def _notices(self, prompt: Prompt, missing: Counter[str]) -> tuple[NoticeChunk, ...]:
        key = (prompt.session, prompt.agent, *prompt.path)
        if not missing or key in self._told:
            return ()
        if prompt.session:
            if len(self._told) >= KEPT:
                del self._told[next(iter(self._told))]
            self._told[key] = None
        what = ", ".join(f"{count} {kind}{'s' if count > 1 else ''}" for kind, count in sorted(missing.items()))
        return (
            NoticeChunk(
                Logged(
                    level="warning",
                    message=f"{self._model} cannot take {what} of this conversation; it is told that they are left out",
                )
            ),
        )


class TextOnly(Around):
    """A model that reads nothing but text, whatever its wire has a place for."""

    def __init__(self, inner: Model) -> None:
        super().__init__(inner)
        self._past = Past(inner.name, "", self._take)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does. Raises ``BadRequest`` for what is shown to it now."""
        seen, notices = self._past.of(prompt)
        for part in (part for message in seen.messages[-1:] if isinstance(message, UserMessage)
                     for part in message.content):  # fmt: skip
            if isinstance(part, Image | Audio | Document):
                self._take(part)
        for notice in notices:
            yield notice
        async with aclosing(self._inner.stream(seen)) as chunks:
            async for chunk in chunks:
                yield chunk

    def _take(self, part: Media) -> NoReturn:
        raise history.cannot_take(self.name, part, "it reads text only")


def note(part: Media) -> str:
    """Return what a model reads in the place of something that it cannot take."""
    name = f" {part.name!r}" if isinstance(part, Document) and part.name else ""
    kind = type(part).__name__.lower()
    return f"[{kind}{name} ({history.media_type(part)}) left out: this model cannot take it]"


def _mark_of(opaque: JSON) -> Any:
    return cast("dict[str, Any]", opaque).get(FROM) if isinstance(opaque, dict) else None
