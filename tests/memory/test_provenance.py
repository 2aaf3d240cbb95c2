"""Confidence in memories: base values, decay, bonuses, tiers and pruning."""

import pytest

from vaka.core.types.errors import InvalidInput
from vaka.memory.provenance import (
    DAY,
    MAX_SOURCES,
    Provenance,
    SourceType,
    add_source,
    confidence_at,
    corroborate,
    initial_confidence,
    mark_accessed,
    may_prune,
    remove_source,
    tier_of,
)

NOW = 1_000_000_000.0


def made(source_type: SourceType = "agent", confidence: float = 0.6, *, is_explicit: bool = False) -> Provenance:
    return Provenance(
        source_type=source_type,
        confidence=confidence,
        sources=("a",),
        created_at=NOW,
        updated_at=NOW,
        is_explicit=is_explicit,
    )


def test_the_initial_confidence_depends_on_the_source() -> None:
    kinds: list[SourceType] = ["bootstrapped", "user_input", "agent", "tool_output"]
    assert [initial_confidence(kind) for kind in kinds] == [0.95, 0.70, 0.60, 0.50]
    assert initial_confidence("user_input", is_explicit=True) == 0.90
    assert initial_confidence("agent", is_explicit=True) == 0.60
    with pytest.raises(InvalidInput, match="bootstrapped"):
        initial_confidence("rumour")  # type: ignore[arg-type]  # as untyped callers may


def test_confidence_halves_every_thirty_days_and_reading_it_changes_nothing() -> None:
    memory = made()
    assert confidence_at(memory, NOW) == confidence_at(memory, NOW - DAY) == 0.6
    assert confidence_at(memory, NOW + 30 * DAY) == pytest.approx(0.3)
    assert confidence_at(memory, NOW + 60 * DAY) == confidence_at(memory, NOW + 60 * DAY) == pytest.approx(0.15)
    assert confidence_at(made("bootstrapped", 0.95), NOW + 900 * DAY) == 0.95


def test_corroboration_adds_a_twentieth_per_source_up_to_a_fifth_and_counts_a_source_once() -> None:
    memory = made()
    for count, source in enumerate("bcdefg", 1):
        memory = corroborate(memory, source, NOW)
        assert corroborate(memory, source, NOW + 1) == memory
        assert confidence_at(memory, NOW) == pytest.approx(0.6 + min(0.05 * count, 0.2))
    assert (memory.corroboration_count, memory.version, memory.confidence) == (6, 7, 0.6)
    assert confidence_at(corroborate(made(confidence=0.99), "b", NOW), NOW) == 1.0
    assert add_source(memory, "g", NOW) == add_source(memory, "", NOW) == memory
    less = remove_source(memory, "c")
    assert (less.sources, less.corroboration_count) == (("a", "b", "d", "e", "f", "g"), 5)
    assert (less.version, less.updated_at) == (memory.version + 1, memory.updated_at)  # not trusted more
    assert remove_source(memory, "unknown") == memory
    with pytest.raises(InvalidInput, match="source"):
        corroborate(memory, "", NOW)


def test_a_recent_use_adds_up_to_three_hundredths_and_does_not_stop_the_decay() -> None:
    used = mark_accessed(made(), NOW)
    assert confidence_at(used, NOW) == pytest.approx(0.63)
    assert confidence_at(used, NOW + 15 * DAY) == pytest.approx(0.6 * 0.5**0.5 + 0.015)
    assert confidence_at(used, NOW + 30 * DAY) == pytest.approx(0.3)
    assert mark_accessed(used, NOW - DAY).last_accessed_at == NOW


def test_tiers_begin_above_their_bounds() -> None:
    assert [tier_of(value) for value in (0.91, 0.9, 0.7, 0.5, 0.3, 0.0)] == [
        "very_high",
        "high",
        "medium",
        "low",
        "very_low",
        "very_low",
    ]


def test_explicit_memories_are_pruned_later_and_bootstrapped_ones_never() -> None:
    assert not may_prune(made(), NOW + 47 * DAY)
    assert may_prune(made(), NOW + 48 * DAY)
    assert not may_prune(made(is_explicit=True), NOW + 62 * DAY)
    assert may_prune(made(is_explicit=True), NOW + 64 * DAY)
    assert not may_prune(made("bootstrapped", 0.01), NOW + 9000 * DAY)


def test_a_fact_that_every_session_repeats_keeps_its_last_sources() -> None:
    known = Provenance(source_type="user_input", confidence=0.7, created_at=0.0, updated_at=0.0)
    for number in range(MAX_SOURCES + 10):
        known = corroborate(known, f"session/{number}", float(number))
    assert len(known.sources) == MAX_SOURCES
    assert known.sources[-1] == f"session/{MAX_SOURCES + 9}"
    assert (known.corroboration_count, known.updated_at) == (MAX_SOURCES + 10, float(MAX_SOURCES + 9))
