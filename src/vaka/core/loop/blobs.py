"""Store large parts and repeated prompt texts as blobs, and restore them."""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec

from vaka.core.ports.log import Log, SecretRedactor
from vaka.core.ports.store import Store
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import InvalidInput, NotFound
from vaka.core.types.ids import Digest, SessionId
from vaka.core.types.message import (
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
    ToolMessage,
    ToolResult,
)
from vaka.core.types.tokens import estimate_text_tokens

BLOB_THRESHOLD = 32 * 1024
"""A part with more bytes than this becomes a blob."""
SMALL_TEXT = BLOB_THRESHOLD // 4
"""A text with at most so many characters is below the threshold in any case: UTF-8 has at most 4 bytes each."""
PREVIEW_LENGTH = 1000
MEDIA_PARTS = (Image, Audio, Document)

_encode = msgspec.json.Encoder().encode
_decode_reasoning = msgspec.json.Decoder(Reasoning).decode


class BlobOwner(Protocol):
    """A log, or what else has a session whose events name blobs, its store, and the secrets that are redacted in it."""

    @property
    def store(self) -> Store: ...

    @property
    def secrets(self) -> SecretRedactor: ...

    @property
    def session(self) -> SessionId: ...


class BlobContext(NamedTuple):
    """The owner of the blobs of a session that has no log here."""

    store: Store
    secrets: SecretRedactor
    session: SessionId


class DigestedText:
    """A text that is part of many prompts, with its digest, which is computed once."""

    def __init__(self, text: str) -> None:
        encoded = text.encode()
        self.text = text
        self.tokens = estimate_text_tokens(len(encoded))
        self.digest = Digest(hashlib.sha256(encoded).hexdigest()) if text else None


async def put_blob(owner: BlobOwner, data: bytes) -> Digest:
    """Store the bytes of a blob that the next events of a session name."""
    return await owner.store.blobs.put(data, session=owner.session)


async def offload(log: BlobOwner, content: Content) -> Content:
    """Return ``content`` with its large parts stored as blobs, secrets redacted."""
    for part in content:
        if (len(part.text) > SMALL_TEXT) if type(part) is Text else type(part) is not CallRef and _is_large(part):
            break
    else:
        return content
    return tuple([await _offload_part(log, part) if _is_large(part) else part for part in content])


def _is_large(part: Part) -> bool:
    if isinstance(part, Text):
        return len(part.text) * 4 > BLOB_THRESHOLD
    if isinstance(part, Reasoning):
        return part.blob is None and len(_encode(part)) > BLOB_THRESHOLD
    return isinstance(part, MEDIA_PARTS) and len(part.data) > BLOB_THRESHOLD


async def _offload_part(log: BlobOwner, part: Part) -> Part:
    if isinstance(part, Text):
        text = log.secrets.redact_struct(part).text
        data = text.encode()
        if len(data) <= BLOB_THRESHOLD:
            return part
        return Stored(blob=await put_blob(log, data), size=len(data), preview=text[:PREVIEW_LENGTH])
    if isinstance(part, Reasoning):
        return Reasoning(blob=await put_blob(log, _encode(log.secrets.redact_struct(part))))
    assert isinstance(part, MEDIA_PARTS)  # noqa: S101  # _is_large is true for no other part
    try:
        data = base64.b64decode(part.data, validate=True)
    except binascii.Error as error:
        raise InvalidInput(f"the data of the {type(part).__name__.lower()} is not base64: {error}") from error
    return msgspec.structs.replace(part, data="", blob=await put_blob(log, data))


async def offload_result(log: BlobOwner, result: ToolResult) -> ToolResult:
    """Return ``result`` with its large texts stored as blobs, and without its value if that is as large."""
    content = await offload(log, result.content)
    if content is result.content:
        return result
    encoded = _encode(result.value)
    if len(encoded) <= BLOB_THRESHOLD:
        return msgspec.structs.replace(result, content=content)
    is_content = result.content == (Text(text=encoded.decode()),)
    return msgspec.structs.replace(result, content=content, value=None, value_in_content=is_content)


async def restore_messages(blobs: BlobStore, messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return ``messages`` with the content of their blobs."""
    return tuple([await restore_message(blobs, m) if names_blobs(m) else m for m in messages])


def names_blobs(message: Message) -> bool:
    """Whether a part of the message is in a blob."""
    match message:
        case ToolMessage(results=results):
            for result in results:  # noqa: SIM110  # faster than a generator, as below
                if _names_blobs(result.content):
                    return True
            return False
        case _:
            return _names_blobs(message.content)


async def restore_message(blobs: BlobStore, message: Message) -> Message:
    """Return a message with the content of its blobs."""
    if isinstance(message, ToolMessage):
        contents = [await restore_content(blobs, result.content) for result in message.results]
        pairs = zip(message.results, contents, strict=True)
        return ToolMessage(results=tuple(msgspec.structs.replace(result, content=content) for result, content in pairs))
    return msgspec.structs.replace(message, content=await restore_content(blobs, message.content))


def _names_blobs(content: Content) -> bool:
    for part in content:  # noqa: SIM110  # faster than a generator, and this runs for every message
        if type(part) is not Text and type(part) is not CallRef and getattr(part, "blob", None):
            return True
    return False


async def restore_content(blobs: BlobStore, content: Content) -> Content:
    """Return ``content`` with the content of its blobs; an erased blob becomes its preview."""
    if not _names_blobs(content):
        return content
    return tuple([await _restore_part(blobs, part) for part in content])


async def _restore_part(blobs: BlobStore, part: Part) -> Part:
    digest: Digest | None = getattr(part, "blob", None)
    if digest is None:
        return part
    if isinstance(part, Stored) and part.cut:
        return Text(text=part.preview)
    try:
        data = await blobs.get(digest)
    except NotFound:
        if isinstance(part, Reasoning):
            return Reasoning()  # a blob of reasoning has no preview
        return Text(text=f"{getattr(part, 'preview', '')}\n[the rest of this part was erased]".lstrip())
    if isinstance(part, Reasoning):
        return _decode_reasoning(data)
    if isinstance(part, MEDIA_PARTS):
        return msgspec.structs.replace(part, data=base64.b64encode(data).decode(), blob=None)
    return Text(text=data.decode())


async def store_prompt_texts(log: Log, texts: Sequence[DigestedText], stored: set[Digest | None]) -> list[DigestedText]:
    """Store texts as blobs unless ``stored`` has their digests; return them as the log may name them: redacted.

    What another session has stored may have been erased with it, and is then stored again.
    """
    found = [_redact_text(log.secrets, text) for text in texts]
    held, blobs = log.window.held_texts, log.store.blobs
    shared = {text.digest for text in found if text.digest and text.digest in stored} - held
    missing = await blobs.find_missing(shared) if shared else set[Digest]()
    for text in found:
        digest = text.digest
        if digest not in held and (digest in missing or digest not in stored):
            held.add(await put_blob(log, text.text.encode()))
            stored.add(digest)
    return found


async def confirm_prompt_texts(log: Log, texts: Sequence[DigestedText]) -> None:
    """Store texts again that were erased with another session before the log named them; from now on they stay."""
    held = log.window.held_texts
    unsure = {text.digest for text in texts if text.digest} - held
    if unsure:
        missing = await log.store.blobs.find_missing(unsure)
        for text in texts:
            if text.digest in missing:
                await put_blob(log, text.text.encode())
        held |= unsure


def _redact_text(secrets: SecretRedactor, text: DigestedText) -> DigestedText:
    if not secrets.is_active or text.digest in secrets.clean_digests:
        return text
    redacted = DigestedText(secrets.redact_data(text.text))
    if redacted.digest == text.digest:
        secrets.clean_digests.add(text.digest)
    return redacted
