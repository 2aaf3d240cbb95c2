"""Recall of earlier conversations: the messages of turns by meaning, with those around them from the log."""

import hashlib
from collections.abc import Sequence
from contextlib import aclosing

import msgspec

from vaka.core.ports.messages import MessageFilter, MessageQuery
from vaka.core.ports.store import SessionInfo, Store
from vaka.core.types.control import InputAdded
from vaka.core.types.event import Event
from vaka.core.types.hidden_messages import hidden_messages_of, is_hidden
from vaka.core.types.ids import SessionId
from vaka.core.types.message import text_of
from vaka.core.types.progress import MessageCompleted
from vaka.memory.memory_record import FoundMemory, Memory, stored_filter
from vaka.memory.memory_scope import is_below, is_owned_scope, memory_scope
from vaka.memory.provenance import Provenance, SourceType, initial_confidence
from vaka.memory.semantic import DEFAULT_COLLECTION, ScopedMemory
from vaka.memory.semantic_tools import session_source

NEARBY_EVENTS = 100
"""Events that are read before and after a message to find its neighbours."""
MAX_LINE_CHARS = 600
_COMPARED_CHARS = 200
_MAX_PAGES = 20
"""Pages of messages in which one is looked for, in a thread of which some were deleted."""


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
    now = memory.current_time()
    cut = [SpokenText(message.role, memory.cut_text(message.text)) for message in messages]
    made = [_to_memory(session, turn, head, message, now) for message in cut if message.text]
    if not made:
        return
    vectors = await memory.embed([one.text for one in made])
    for one, vector in zip(made, vectors, strict=True):
        await memory.write([one], {one.id: vector})  # false when it is stored already


def _to_memory(session: str, turn: str, head: int, message: SpokenText, now: float) -> Memory:
    digest = hashlib.sha256(f"{session}\0{turn}\0{message.role}".encode()).hexdigest()[:32]
    source_type: SourceType = "user_input" if message.role == "user" else "agent"
    return Memory(
        id=f"msg_{digest}",
        text=message.text,
        metadata={"session": session, "turn": turn, "role": message.role, "seq": head},
        provenance=Provenance(
            source_type=source_type,
            confidence=initial_confidence(source_type),
            sources=(session_source(session),),
            created_at=now,
            updated_at=now,
        ),
    )


async def recall_passages(
    memory: ScopedMemory, query: str, *, session: str, top_k: int, threshold: float, around: int
) -> list[RecalledPassage]:
    """Return the passages nearest in meaning, without passages of ``session`` and deleted passages."""
    found = await memory.search(query, top_k=2 * top_k, threshold=threshold, mark=False)
    passages: list[RecalledPassage] = []
    for one in found:
        origin = str(one.memory.metadata.get("session", ""))
        if origin == session or len(passages) == top_k or any(_is_in(one, passage) for passage in passages):
            continue
        info = await memory.store.sessions.find(SessionId(origin))
        seq = None if info is None or info.erased else await _find_seq(memory.store, one, info)
        if info is None or seq is None:
            await memory.store.vectors.delete(memory.collection, memory.scope, [one.memory.id])
            continue
        # The messages around it belong to the owner that the session has now.
        shown = around if may_see(memory.scope, info) else 0
        passages.append(await _read_passage(memory.store, _spoken_by(one), info, seq, shown))
    return passages


async def _find_seq(store: Store, found: FoundMemory, info: SessionInfo) -> int | None:
    """Return about where a message is in its log, ``None`` when it was deleted from the thread.

    Deleting messages lets the others of the thread follow again, so a message may be there at another place.
    """
    hidden, hit = hidden_messages_of(info.metadata), _spoken_by(found)
    if not hidden:
        return int(found.memory.metadata.get("seq", 0))
    filter = MessageFilter(role=hit.role, keywords=(hit.text[:_COMPARED_CHARS],))
    cursor = ""
    for _ in range(_MAX_PAGES):
        page = await store.messages.list(info.id, MessageQuery(filter=filter, reverse=True, cursor=cursor))
        for row in page.messages:
            if not is_hidden(hidden, row.seq) and _is_same(SpokenText(row.role, row.text), hit):
                return row.seq
        cursor = page.next
        if not cursor:
            break
    return None


def may_see(scope: str, info: SessionInfo) -> bool:
    """Whether a session belongs to the owner of a scope; scopes of no owner are shared by all."""
    if not is_owned_scope(scope):
        return True
    return bool(info.owner) and is_below(scope, memory_scope(user=info.owner))


async def erase_messages(store: Store, owner: str, session: str, *, dry_run: bool = False) -> int:
    """Delete the messages of a session from the memories of its owner, or only count them; return how many.

    Those in collections with another name than the default stay until they are recalled.
    """
    count, collection = 0, messages_collection(DEFAULT_COLLECTION)
    chosen = stored_filter({"session": session})
    for scope in await store.vectors.scopes(collection, memory_scope(user=owner)) if owner else ():
        after = ""
        while page := await store.vectors.scan(collection, scope, filter=chosen, after=after):
            count, after = count + len(page), page[-1].id
            if not dry_run:
                await store.vectors.delete(collection, scope, [record.id for record in page])
    return count


def messages_collection(collection: str) -> str:
    """Return the collection of the messages of conversations, beside the collection of memories."""
    return f"{collection}.messages"


async def _read_passage(store: Store, hit: SpokenText, info: SessionInfo, seq: int, around: int) -> RecalledPassage:
    """Return a message with those around it, which are looked for near ``seq``."""
    if not around:
        return RecalledPassage(info.id, (hit,))
    hidden = hidden_messages_of(info.metadata)
    lines: list[SpokenText] = []
    at = None
    after, upto = max(seq - NEARBY_EVENTS, 0), seq + NEARBY_EVENTS
    async with aclosing(store.events.read(info.id, after=after, upto=upto)) as events:
        async for event in events:
            spoken = _spoken_text(event)
            if spoken is None or is_hidden(hidden, event.seq):
                continue
            if _is_same(spoken, hit):
                at = len(lines)
            lines.append(spoken)
    if at is None:
        return RecalledPassage(info.id, (hit,))
    return RecalledPassage(info.id, tuple(lines[max(at - around, 0) : at + around + 1]))


def _spoken_by(found: FoundMemory) -> SpokenText:
    return SpokenText(str(found.memory.metadata.get("role", "")), found.memory.text)


def _is_in(found: FoundMemory, passage: RecalledPassage) -> bool:
    """Whether a passage has the message that was found."""
    hit = _spoken_by(found)
    same_session = found.memory.metadata.get("session") == passage.session
    return same_session and any(_is_same(line, hit) for line in passage.lines)


def _is_same(line: SpokenText, other: SpokenText) -> bool:
    """Whether two are one message; a stored one may be cut at its end."""
    return line.role == other.role and line.text.strip()[:_COMPARED_CHARS] == other.text[:_COMPARED_CHARS]


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
