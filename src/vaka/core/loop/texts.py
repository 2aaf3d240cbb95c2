"""Large and repeated texts live as blobs; events name them by digest."""

import msgspec

from vaka.core.loop.scope import Kept, Turn
from vaka.core.types.content import Content, Stored, Text
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import Digest
from vaka.core.types.message import AssistantMessage, Message, ToolMessage, ToolResult, UserMessage

LARGE = 32 * 1024
"""A part with more bytes than this becomes a blob."""
PREVIEW = 1000


async def keep(turn: Turn, kept: Kept) -> Digest | None:
    """Keep a text the model sees, once; return its digest."""
    if kept.digest is not None and kept.digest not in turn.env.known:
        await turn.log.store.blobs.put(kept.text.encode())
        turn.env.known.add(kept.digest)
    return kept.digest


async def offload(turn: Turn, content: Content) -> Content:
    """Return ``content`` with its large texts put away as blobs."""
    if not any(isinstance(part, Text) and len(part.text) * 4 > LARGE for part in content):
        return content
    return tuple([await _offload(turn, part.text) if isinstance(part, Text) else part for part in content])


async def _offload(turn: Turn, text: str) -> Text | Stored:
    data = text.encode()
    if len(data) <= LARGE:
        return Text(text=text)
    blob = await turn.log.store.blobs.put(data)
    return Stored(blob=blob, size=len(data), preview=text[:PREVIEW])


async def offload_result(turn: Turn, result: ToolResult) -> ToolResult:
    """Return ``result`` with its large texts put away as blobs."""
    content = await offload(turn, result.content)
    if content is result.content:
        return result
    return msgspec.structs.replace(result, content=content, value=None)


async def restore(turn: Turn, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return ``messages`` with the texts that were put away back in their places."""
    return tuple([await _message(turn, message) for message in messages])


async def _message(turn: Turn, message: Message) -> Message:
    if isinstance(message, ToolMessage):
        results = [
            msgspec.structs.replace(result, content=await restored(turn, result.content)) for result in message.results
        ] if any(_away(result.content) for result in message.results) else message.results  # fmt: skip
        return ToolMessage(results=tuple(results))
    return await _said(turn, message)


async def _said(turn: Turn, message: UserMessage | AssistantMessage) -> Message:
    if not _away(message.content):
        return message
    return msgspec.structs.replace(message, content=await restored(turn, message.content))


def _away(content: Content) -> bool:
    return any(isinstance(part, Stored) for part in content)


async def restored(turn: Turn, content: Content) -> Content:
    """Return ``content`` with the texts that were put away back in their places; of an erased one, how it began."""
    return tuple([await _restored(turn, part) if isinstance(part, Stored) else part for part in content])


async def _restored(turn: Turn, part: Stored) -> Text:
    try:
        return Text(text=(await turn.log.store.blobs.get(part.blob)).decode())
    except NotFound:
        return Text(text=f"{part.preview}\n[the rest of this text was erased]")
