"""Remove the origin tag from provider blocks; it differs for each server address."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, ReasoningChunk
from vaka.core.types.message import Citation
from vaka.models.compatibility import ORIGIN_KEY

_OpaqueHolder = TypeVar("_OpaqueHolder", Citation, ReasoningChunk)


def strip_origin(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return chunks as the reader of a wire makes them."""
    return [_strip_chunk(chunk) for chunk in chunks]


def _strip_chunk(chunk: Chunk) -> Chunk:
    if isinstance(chunk, ReasoningChunk):
        return _strip_opaque(chunk)
    return CitationChunk(_strip_opaque(chunk.citation)) if isinstance(chunk, CitationChunk) else chunk


def _strip_opaque(holder: _OpaqueHolder) -> _OpaqueHolder:
    if holder.opaque is None:
        return holder
    opaque = {**cast("dict[str, Any]", holder.opaque)}
    del opaque[ORIGIN_KEY]
    return msgspec.structs.replace(holder, opaque=opaque)
