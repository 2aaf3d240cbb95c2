"""Where a memory comes from, and how far it can be trusted now. Pure: the time is an argument."""

from typing import Literal, TypeAlias, get_args

import msgspec

from vaka.core.types.errors import InvalidInput

SourceType: TypeAlias = Literal["bootstrapped", "user_input", "tool_output", "agent"]
SOURCE_TYPES: tuple[SourceType, ...] = get_args(SourceType)
ConfidenceTier: TypeAlias = Literal["very_high", "high", "medium", "low", "very_low"]

DAY = 86_400.0
HALF_LIFE = 30 * DAY
"""Seconds without a change after which a memory is trusted half as much."""
CORROBORATION_BONUS, MAX_CORROBORATION_BONUS = 0.05, 0.20
RECENCY_WINDOW, RECENCY_BONUS = 30 * DAY, 0.3 * 0.1
"""The bonus of a use at this moment; it falls to nothing over the window."""
PRUNE_THRESHOLD, EXPLICIT_FACTOR = 0.20, 0.7
"""A memory below the threshold may be pruned. The threshold is multiplied by the factor for memories that a person
stated explicitly."""

MAX_SOURCES = 100
"""The most sources that a memory has: a fact that every session repeats does not grow for ever."""
_INITIAL_CONFIDENCE: dict[SourceType, float] = {
    "bootstrapped": 0.95,
    "user_input": 0.70,
    "agent": 0.60,
    "tool_output": 0.50,
}
_EXPLICIT_USER_CONFIDENCE = 0.90
_TIERS: tuple[tuple[float, ConfidenceTier], ...] = ((0.9, "very_high"), (0.7, "high"), (0.5, "medium"), (0.3, "low"))


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The origin of a memory. ``confidence`` is the base value: decay and bonuses are computed from it on each read."""

    source_type: SourceType
    confidence: float
    sources: tuple[str, ...] = ()
    """Names of data sources, such as a session, a document or a tool; ``revoke_data_source`` takes one back."""
    created_at: float
    """Seconds since 1970, as all times here."""
    updated_at: float
    version: int = 1
    is_explicit: bool = False
    """Whether a person stated it to be remembered."""
    corroboration_count: int = 0
    last_accessed_at: float = 0.0
    tags: tuple[str, ...] = ()


def initial_confidence(source_type: SourceType, *, is_explicit: bool = False) -> float:
    """Return the base confidence of a new memory. Raises ``InvalidInput`` for another source type."""
    if source_type not in SOURCE_TYPES:
        raise InvalidInput(f"source type {source_type!r} must be one of {', '.join(SOURCE_TYPES)}")
    if source_type == "user_input" and is_explicit:
        return _EXPLICIT_USER_CONFIDENCE
    return _INITIAL_CONFIDENCE[source_type]


def confidence_at(provenance: Provenance, now: float) -> float:
    """Return the confidence in a memory at a time, between 0 and 1."""
    value = provenance.confidence
    if provenance.source_type != "bootstrapped":
        value *= 0.5 ** (max(now - provenance.updated_at, 0.0) / HALF_LIFE)
    value += min(CORROBORATION_BONUS * provenance.corroboration_count, MAX_CORROBORATION_BONUS)
    unused = max(now - provenance.last_accessed_at, 0.0)
    if provenance.last_accessed_at and unused < RECENCY_WINDOW:
        value += RECENCY_BONUS * (1 - unused / RECENCY_WINDOW)
    return min(max(value, 0.0), 1.0)


def tier_of(confidence: float) -> ConfidenceTier:
    """Return the name of a confidence."""
    for least, name in _TIERS:
        if confidence > least:
            return name
    return "very_low"


def may_prune(provenance: Provenance, now: float, threshold: float = PRUNE_THRESHOLD) -> bool:
    """Whether a memory is trusted so little that it may be removed; a bootstrapped one never."""
    if provenance.source_type == "bootstrapped":
        return False
    return confidence_at(provenance, now) < threshold * (EXPLICIT_FACTOR if provenance.is_explicit else 1.0)


def add_source(provenance: Provenance, source: str, now: float) -> Provenance:
    """Return the provenance with one more source, up to the last ``MAX_SOURCES``; unchanged when it has the source."""
    if not source or source in provenance.sources:
        return provenance
    return _apply_change(provenance, now, sources=(*provenance.sources, source)[-MAX_SOURCES:])


def corroborate(provenance: Provenance, source: str, now: float) -> Provenance:
    """Return the provenance after another source has said the same; a source that it has counts once."""
    if not source:
        raise InvalidInput("a memory is corroborated by a source; name it")
    if source in provenance.sources:
        return provenance
    count = provenance.corroboration_count + 1
    return msgspec.structs.replace(add_source(provenance, source, now), corroboration_count=count)


def remove_source(provenance: Provenance, source: str) -> Provenance:
    """Return the provenance without a source, and without its corroboration; what is left does not become younger."""
    if source not in provenance.sources:
        return provenance
    left = tuple(name for name in provenance.sources if name != source)
    count = max(provenance.corroboration_count - 1, 0)
    return msgspec.structs.replace(provenance, sources=left, corroboration_count=count, version=provenance.version + 1)


def mark_changed(provenance: Provenance, now: float) -> Provenance:
    """Return the provenance of a memory whose content has changed now."""
    return _apply_change(provenance, now)


def mark_accessed(provenance: Provenance, now: float) -> Provenance:
    """Return the provenance of a memory that was used now; its age stays."""
    return msgspec.structs.replace(provenance, last_accessed_at=max(provenance.last_accessed_at, now))


def _apply_change(provenance: Provenance, now: float, **fields: object) -> Provenance:
    return msgspec.structs.replace(provenance, updated_at=now, version=provenance.version + 1, **fields)
