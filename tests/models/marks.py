"""Blocks of answers without the mark of where they came from, which is another one for each server."""

from collections.abc import Iterable
from typing import Any, TypeVar, cast

import msgspec

from vaka.core.ports.model import Chunk, CitationChunk, ReasoningChunk
from vaka.core.types.content import Citation
from vaka.models.past import FROM

_Opaque = TypeVar("_Opaque", Citation, ReasoningChunk)


def unmarked(chunks: Iterable[Chunk]) -> list[Chunk]:
    """Return chunks as the reader of a wire makes them."""
    return [_chunk(chunk) for chunk in chunks]


def _chunk(chunk: Chunk) -> Chunk:
    if isinstance(chunk, ReasoningChunk):
        return _without(chunk)
    return CitationChunk(_without(chunk.citation)) if isinstance(chunk, CitationChunk) else chunk


def _without(of: _Opaque) -> _Opaque:
    if of.opaque is None:
        return of
    opaque = {**cast("dict[str, Any]", of.opaque)}
    del opaque[FROM]
    return msgspec.structs.replace(of, opaque=opaque)
