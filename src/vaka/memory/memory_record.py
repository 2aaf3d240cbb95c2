"""A memory, and its form in the vector store."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vaka.core.ports.vectors import VectorMatch, VectorRecord
from vaka.core.types.errors import Corrupt
from vaka.core.types.ids import JSON
from vaka.memory.provenance import ConfidenceTier, Provenance, confidence_at, tier_of

_metadata_key = "metadata.{}".format


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """A text that is remembered."""

    id: str
    text: str
    provenance: Provenance
    metadata: dict[str, Any] = {}
    derived_from: tuple[str, ...] = ()
    """The ids of the memories that it was made from."""
    superseded_by: str = ""
    """The memory that it was merged into; searches return that one."""
    has_derived: bool = False
    """Whether a memory was made from it."""
    made_by: str = ""
    """The key of the call that stored it."""
    last_call: str = ""
    """The key of the call that last changed it."""
    revision: int = 0
    """The number of writes to it, by which changes of other processes are noticed."""

    @property
    def sources(self) -> tuple[str, ...]:
        return self.provenance.sources


class FoundMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory that a search has found."""

    memory: Memory
    similarity: float
    confidence: float
    """The confidence at the time of the search."""

    @property
    def relevance(self) -> float:
        return self.similarity * self.confidence

    @property
    def tier(self) -> ConfidenceTier:
        return tier_of(self.confidence)


def parse_memory(record: VectorRecord) -> Memory:
    """Return the memory of a stored record. Raises ``Corrupt`` when it is not one."""
    stored = record.metadata
    prefix = _metadata_key("")
    try:
        return Memory(
            id=record.id,
            text=record.text,
            provenance=msgspec.convert(stored["provenance"], Provenance),
            metadata={name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)},
            derived_from=msgspec.convert(stored.get("derived_from", []), tuple[str, ...]),
            superseded_by=msgspec.convert(stored.get("superseded_by", ""), str),
            has_derived=msgspec.convert(stored.get("has_derived", False), bool),
            made_by=msgspec.convert(stored.get("made_by", ""), str),
            last_call=msgspec.convert(stored.get("call", ""), str),
            revision=record.version or 0,
        )
    except (KeyError, TypeError, msgspec.ValidationError) as error:
        raise Corrupt(f"the stored memory {record.id!r} is damaged; delete it: {error}") from error


def to_record(memory: Memory, vector: Sequence[float]) -> VectorRecord:
    provenance = memory.provenance
    metadata: dict[str, Any] = {_metadata_key(name): value for name, value in memory.metadata.items()}
    metadata |= {
        "provenance": msgspec.to_builtins(provenance),
        "source_type": provenance.source_type,
        "sources": list(provenance.sources),
        "tags": list(provenance.tags),
        "derived_from": list(memory.derived_from),
    }
    optional = {
        "superseded_by": memory.superseded_by,
        "has_derived": memory.has_derived,
        "made_by": memory.made_by,
        "call": memory.last_call,
    }
    metadata |= {name: value for name, value in optional.items() if value}
    return VectorRecord(
        id=memory.id, text=memory.text, metadata=metadata, vector=tuple(vector), version=memory.revision
    )


_FILTER_KEYS = frozenset({"source_type", "sources", "tags", "derived_from", "superseded_by"})


def stored_filter(filter: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name if name in _FILTER_KEYS else _metadata_key(name): value for name, value in filter.items()}


def found_memory(match: VectorMatch, now: float) -> FoundMemory:
    memory = parse_memory(match.record)
    confidence = confidence_at(memory.provenance, now)
    return FoundMemory(memory=memory, similarity=match.similarity, confidence=confidence)
