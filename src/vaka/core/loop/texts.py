"""Large parts and repeated texts live as blobs; events name them by digest."""

import base64
import binascii

import msgspec

from vaka.core.loop.scope import Kept, Turn
from vaka.core.ports.store import Blobs
from vaka.core.session.redact import Secrets
from vaka.core.types.content import Audio, Content, Document, Image, Part, Reasoning, Stored, Text
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.ids import Digest
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, ToolResult, UserMessage

LARGE = 32 * 1024
"""A part with more bytes than this becomes a blob."""
PREVIEW = 1000
MEDIA = (Image, Audio, Document)

_encode = msgspec.json.Encoder().encode
_thought = msgspec.json.Decoder(Reasoning).decode


async def keep(turn: Turn, kept: Kept) -> Digest | None:
    """Keep a text the model sees, once; return its digest."""
    if turn.log.secrets.forms:
        kept = Kept(turn.log.secrets.clean(Text(text=kept.text)).text)
    if kept.digest is not None and kept.digest not in turn.env.known:
        await turn.log.store.blobs.put(kept.text.encode())
        turn.env.known.add(kept.digest)
    return kept.digest


async def offload(turn: Turn, content: Content) -> Content:
    """Return ``content`` with its large parts put away as blobs."""
    if not [part for part in content if _large(part)]:
        return content
    return await put_away(turn.log.store.blobs, turn.log.secrets, content)


async def put_away(blobs: Blobs, secrets: Secrets, content: Content) -> Content:
    """Return ``content`` with its large parts put away as blobs, and no registered secret in them."""
    return tuple([await _put_away(blobs, secrets, part) if _large(part) else part for part in content])


def _large(part: Part) -> bool:
    if isinstance(part, Text):
        return len(part.text) * 4 > LARGE
    if isinstance(part, Reasoning):
        return part.blob is None and len(_encode(part)) > LARGE
    return isinstance(part, MEDIA) and len(part.data) > LARGE


async def _put_away(blobs: Blobs, secrets: Secrets, part: Part) -> Part:
    if isinstance(part, Text):
        text = secrets.clean(part).text
        data = text.encode()
        if len(data) <= LARGE:
            return part
        return Stored(blob=await blobs.put(data), size=len(data), preview=text[:PREVIEW])
    if isinstance(part, Reasoning):
        return Reasoning(blob=await blobs.put(_encode(secrets.clean(part))))
    assert isinstance(part, MEDIA)  # noqa: S101  # nothing else is large
    try:
        data = base64.b64decode(part.data, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"the data of the {type(part).__name__.lower()} is not base64: {error}") from error
    return msgspec.structs.replace(part, data="", blob=await blobs.put(data))


async def offload_result(turn: Turn, result: ToolResult) -> ToolResult:
    """Return ``result`` with its large texts put away as blobs, and without data that would be as large."""
    content = await offload(turn, result.content)
    if content is result.content:
        return result
    value = result.value if len(_encode(result.value)) <= LARGE else None
    return msgspec.structs.replace(result, content=content, value=value)


async def restore(blobs: Blobs, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return ``messages`` with the parts that were put away back in their places."""
    for message in messages:
        if _any_away(message):
            return tuple([await _message(blobs, message) for message in messages])
    return messages


def _any_away(message: Message) -> bool:
    if isinstance(message, ToolMessage):
        return any(_away(result.content) for result in message.results)
    return _away(message.content)


async def _message(blobs: Blobs, message: Message) -> Message:
    if isinstance(message, ToolMessage):
        if not any(_away(result.content) for result in message.results):
            return message
        contents = [await restored(blobs, result.content) for result in message.results]
        both = zip(message.results, contents, strict=True)
        return ToolMessage(results=tuple(msgspec.structs.replace(result, content=content) for result, content in both))
    return await _said(blobs, message)


async def _said(blobs: Blobs, message: UserMessage | AssistantMessage) -> Message:
    if not _away(message.content):
        return message
    return msgspec.structs.replace(message, content=await restored(blobs, message.content))


def _away(content: Content) -> bool:
    return bool([part for part in content if type(part) is not Text and getattr(part, "blob", None)])


async def restored(blobs: Blobs, content: Content) -> Content:
    """Return ``content`` with the parts that were put away back in their places; of an erased one, how it began."""
    if not _away(content):
        return content
    return tuple([await _restored(blobs, part) for part in content])


async def _restored(blobs: Blobs, part: Part) -> Part:
    digest: Digest | None = getattr(part, "blob", None)
    if digest is None:
        return part
    if isinstance(part, Stored) and part.cut:
        return Text(text=part.preview)
    try:
        data = await blobs.get(digest)
    except NotFound:
        if isinstance(part, Reasoning):
            return Reasoning()  # what was thought is of no use in part
        return Text(text=f"{getattr(part, 'preview', '')}\n[the rest of this part was erased]".lstrip())
    if isinstance(part, Reasoning):
        return _thought(data)
    if isinstance(part, MEDIA):
        return msgspec.structs.replace(part, data=base64.b64encode(data).decode(), blob=None)
    return Text(text=data.decode())
