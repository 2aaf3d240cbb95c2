"""Recall of earlier conversations: the messages of turns by meaning, with those around them from the log."""

import hashlib
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vaka.core.ports.store import Store
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Event
from vaka.core.types.ids import SessionId
from vaka.core.types.message import text_of
from vaka.core.types.progress import MessageCompleted
from vaka.memory.memory_record import FoundMemory, Memory
from vaka.memory.provenance import Provenance, SourceType, initial_confidence
from vaka.memory.semantic import MAX_TEXT_CHARS, ScopedMemory
from vaka.memory.semantic_tools import session_source

NEARBY_EVENTS = 100
"""Events that are read before and after a message to find its neighbours."""
MAX_LINE_CHARS = 600


class SpokenText(msgspec.Struct, frozen=True):
    """A message of a turn."""

    role: str
    text: str


class RecalledPassage(msgspec.Struct, frozen=True):
    """A message that was found, and those around it, in their order."""

    session: str
    lines: tuple[SpokenText, ...]


async def store_messages(
    memory: ScopedMemory, session: str, turn: str, head: int, messages: Sequence[SpokenText]
) -> None:
    """Store the messages of a turn, which is about at event ``head`` of the log; once for each turn and role."""
    now, kept = memory.current_time(), [message for message in messages if message.text.strip()]
    if not kept:
        return
    made = [_to_memory(memory, session, turn, head, message, now) for message in kept]
    vectors = await memory.embed([one.text for one in made])
    for one, vector in zip(made, vectors, strict=True):
        await memory.write([one], {one.id: vector})  # false when it is stored already


def _to_memory(memory: ScopedMemory, session: str, turn: str, head: int, message: SpokenText, now: float) -> Memory:
    digest = hashlib.sha256(f"{session}\0{turn}\0{message.role}".encode()).hexdigest()[:32]
    source_type: SourceType = "user_input" if message.role == "user" else "agent"
    return Memory(
        id=f"msg_{digest}", text=memory.clean_text(message.text[:MAX_TEXT_CHARS]),
        metadata={"session": session, "turn": turn, "role": message.role, "seq": head},
        provenance=Provenance(
            source_type=source_type, confidence=initial_confidence(source_type), sources=(session_source(session),),
            created_at=now, updated_at=now,
        ),
    )  # fmt: skip


async def recall_passages(
    memory: ScopedMemory, query: str, *, session: str, top_k: int, threshold: float, around: int
) -> list[RecalledPassage]:
    """Return the passages of other sessions that are nearest in meaning; those of deleted sessions are removed."""
    found = await memory.search(query, top_k=2 * top_k, threshold=threshold, mark=False)
    passages: list[RecalledPassage] = []
    seen: set[tuple[str, str]] = set()
    for one in found:
        origin = str(one.memory.metadata.get("session", ""))
        turn = str(one.memory.metadata.get("turn", ""))
        if origin == session or (origin, turn) in seen or len(passages) == top_k:
            continue
        if await memory.store.sessions.find(SessionId(origin)) is None:
            await memory.store.vectors.delete(memory.collection, memory.scope, [one.memory.id])
            continue
        seen.add((origin, turn))
        passages.append(await _read_passage(memory.store, one, origin, turn, around))
    return passages


async def _read_passage(store: Store, found: FoundMemory, session: str, turn: str, around: int) -> RecalledPassage:
    hit = SpokenText(str(found.memory.metadata.get("role", "")), found.memory.text)
    if not around:
        return RecalledPassage(session, (hit,))
    seq = int(found.memory.metadata.get("seq", 0))
    lines: list[SpokenText] = []
    at = None
    after, upto = max(seq - NEARBY_EVENTS, 0), seq + NEARBY_EVENTS
    async with aclosing(store.events.read(SessionId(session), after=after, upto=upto)) as events:
        async for event in events:
            spoken = _spoken_text(event)
            if spoken is None:
                continue
            if spoken.role == hit.role and spoken.text[:200] == hit.text[:200]:
                at = len(lines)
            lines.append(spoken)
    if at is None:
        return RecalledPassage(session, (hit,))
    return RecalledPassage(session, tuple(lines[max(at - around, 0) : at + around + 1]))


def _spoken_text(event: Event) -> SpokenText | None:
    body = event.data
    if event.path:
        return None
    if isinstance(body, InputAdded):
        return SpokenText("user", text_of(body.content))
    if isinstance(body, MessageCompleted) and text_of(body.content):
        return SpokenText("assistant", text_of(body.content))
    return None


def describe_passage(passage: RecalledPassage) -> str:
    """Return a passage as lines for the model."""
    lines = [f"{line.role}: {' '.join(line.text.split())[:MAX_LINE_CHARS]}" for line in passage.lines]
    return "\n".join((f"In session {passage.session}:", *lines))
