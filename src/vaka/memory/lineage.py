"""The lineage of memories: what was made from what, and what a removal leaves of it. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from vaka.memory import provenance as origin
from vaka.memory.memory_record import Memory


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a removal: the ids of deleted memories, and the changed memories."""

    deleted: tuple[str, ...] = ()
    changed: tuple[Memory, ...] = ()
    rewritten: dict[str, tuple[str, ...]] = {}
    """The texts that a changed memory is to be made of again, by its id."""


class LineageStats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of memories."""

    memories: int
    by_source_type: dict[str, int]
    by_tier: dict[str, int]
    derived: int
    """The memories that were made from others."""
    superseded: int
    """The memories that were merged into others."""
    depth: int
    """The longest chain of memories made from one another, 0 when none was."""


def order_by_lineage(memories: Mapping[str, Memory]) -> list[Memory]:
    """Return memories so that each comes after its sources; a cycle, which is damage, is cut."""
    ordered: dict[str, Memory] = {}
    for start in sorted(memories):
        path, entered = [start], set[str]()
        while path:
            memory = memories[path[-1]]
            waiting = [id for id in memory.derived_from if id in memories and id not in ordered and id not in entered]
            if memory.id in ordered or memory.id in entered or not waiting:
                ordered.setdefault(memory.id, memory)
                path.pop()
            else:
                path += waiting
            entered.add(memory.id)
    return list(ordered.values())


def descendants_of(memories: Mapping[str, Memory], roots: Collection[str]) -> list[str]:
    """Return the ids of what was made from the roots, directly or by steps, in the order of the lineage."""
    found = set(roots)
    derived: list[str] = []
    for memory in order_by_lineage(memories):
        if memory.id not in found and found.intersection(memory.derived_from):
            found.add(memory.id)
            derived.append(memory.id)
    return derived


def plan_removal(memories: Mapping[str, Memory], roots: Collection[str], source: str, now: float) -> Removal:
    """Return the changes of memories if ``roots`` are deleted and ``source``, if given, is revoked.

    A memory that was not made from others only loses the source. If it was made from a deleted or changed memory,
    it is made again of the texts of the memories that remain, or deleted if none remain.
    """
    deleted: list[str] = []
    changed: dict[str, Memory] = {}
    rewritten: dict[str, tuple[str, ...]] = {}
    gone = set(roots)
    for memory in order_by_lineage(memories):
        parents = [id for id in memory.derived_from if id in memories]
        left = [id for id in parents if id not in gone]
        revoked = bool(source) and source in memory.sources
        touched = len(left) < len(parents) or any(id in rewritten for id in left)
        if memory.id in gone or (memory.derived_from and (touched or revoked) and not left):
            gone.add(memory.id)
            deleted.append(memory.id)
        elif memory.derived_from and (touched or revoked):
            kept = [changed.get(id, memories[id]) for id in left]
            changed[memory.id] = _remade(memory, kept, now)
            rewritten[memory.id] = tuple(text for one in kept for text in rewritten.get(one.id, (one.text,)))
        elif revoked:
            changed[memory.id] = msgspec.structs.replace(
                memory, provenance=origin.remove_source(memory.provenance, source)
            )
    for memory in memories.values():  # a memory that was merged into a deleted one is found again
        if memory.superseded_by in gone and memory.id not in gone:
            changed[memory.id] = msgspec.structs.replace(changed.get(memory.id, memory), superseded_by="")
    return Removal(deleted=tuple(deleted), changed=tuple(changed.values()), rewritten=rewritten)


def _remade(memory: Memory, kept: Sequence[Memory], now: float) -> Memory:
    sources = tuple(dict.fromkeys(name for one in kept for name in one.sources))
    provenance = msgspec.structs.replace(origin.mark_changed(memory.provenance, now), sources=sources)
    return msgspec.structs.replace(memory, provenance=provenance, derived_from=tuple(one.id for one in kept))


def lineage_stats(memories: Mapping[str, Memory], tiers: Iterable[str]) -> LineageStats:
    """Return counts of memories; ``tiers`` has the confidence tier of each."""
    depths: dict[str, int] = {}
    for memory in order_by_lineage(memories):
        depths[memory.id] = max((depths.get(id, 0) + 1 for id in memory.derived_from if id in memories), default=0)
    return LineageStats(
        memories=len(memories),
        by_tier=dict(Counter(tiers)),
        depth=max(depths.values(), default=0),
        by_source_type=dict(Counter(memory.provenance.source_type for memory in memories.values())),
        derived=sum(bool(memory.derived_from) for memory in memories.values()),
        superseded=sum(bool(memory.superseded_by) for memory in memories.values()),
    )
