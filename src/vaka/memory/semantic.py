"""Semantic memory: texts found by meaning, with provenance, confidence that decays, corroboration and lineage."""

import asyncio
import hashlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import Embedder
from vaka.core.ports.store import Store
from vaka.core.ports.vectors import VectorQuery, VectorRecord
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import ConfigError, ConflictError, InvalidInput, ModelError, NotFound, VakaError
from vaka.core.types.ids import JSON
from vaka.core.types.message import replace_surrogates
from vaka.matching.secrets import SECRET_FORMATS
from vaka.memory import provenance as origin
from vaka.memory.lineage import LineageStats, Removal, descendants_of, lineage_stats, plan_removal
from vaka.memory.memory_record import FoundMemory, Memory, found_memory, parse_memory, stored_filter, to_record
from vaka.memory.provenance import Provenance, SourceType

DEFAULT_COLLECTION = "memories"
MAX_TEXT_CHARS = 20_000
MAX_METADATA_BYTES = 64 * 1024
SAME_SIMILARITY = 0.995
"""The similarity from which on two memories with equal words are one."""
ACCESS_INTERVAL = 3600.0
"""Seconds after which a use of a memory is recorded again."""
MAX_ATTEMPTS = 8
"""Attempts to change memories that other processes change at the same time."""
EQUAL_TEXTS = 16
"""Ids that are made from one text: ids before the last have memories that were changed or merged since."""
_PAGE = 256
_MAX_OVERFETCH = 64


RegenerateText: TypeAlias = Callable[[Sequence[str]], Awaitable[str]]
"""Makes one text of several."""


class MemorySource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the text of a new memory comes from."""

    type: SourceType = "agent"
    name: str = ""
    """The name of the data source, such as a session or a document; ``revoke_data_source`` takes it."""
    is_explicit: bool = False
    """Whether a person stated it to be remembered."""
    confidence: float | None = None
    """The base confidence between 0 and 1; default: the confidence of the type."""

    def base_confidence(self) -> float:
        """Return the base confidence. Raises ``InvalidInput``."""
        default = origin.initial_confidence(self.type, is_explicit=self.is_explicit)
        given = default if self.confidence is None else self.confidence
        if not 0.0 <= given <= 1.0:
            raise InvalidInput(f"confidence must be between 0 and 1, not {given!r}")
        return float(given)


class ScopedMemory:
    """The semantic memory of one scope of a store.

    ``redact`` removes secrets from texts and metadata before they are stored. All changes are safe against changes of
    other processes. Methods raise ``NotFound`` for an unknown id and ``InvalidInput`` for other bad arguments.
    """

    def __init__(
        self,
        store: Store,
        embedder: Embedder,
        scope: str,
        *,
        clock: Clock,
        collection: str = DEFAULT_COLLECTION,
        redact: Callable[[Any], Any] | None = None,
    ) -> None:
        self.scope, self.collection = scope, collection
        self._store = store
        self._embedder = embedder
        self._clock = clock
        self._redact = redact or Secrets(finders=(SECRET_FORMATS,)).redact_data
        self._embedder_checked = False

    @property
    def store(self) -> Store:
        return self._store

    def current_time(self) -> float:
        return self._clock.time()

    # -------------------------------------------------------------------------------------------------------- writing

    async def add(
        self,
        text: str,
        source: MemorySource = MemorySource(),
        *,
        tags: Sequence[str] = (),
        metadata: Mapping[str, JSON] | None = None,
        derived_from: Sequence[str] = (),
        key: str = "",
    ) -> Memory:
        """Store a text and return its memory; if a memory has the same words, ``source`` corroborates it instead.

        The same ``key`` and text again return the memory of the first call. A memory made from others gets their
        sources.
        """
        base, name = source.base_confidence(), self._redact(source.name)
        id = f"mem_{_digest(self.scope, key) if key else uuid.uuid4().hex[:24]}"
        if key and derived_from and (known := await self._find(id)) is not None:
            return known
        text, now = self.clean_text(text), self.current_time()
        vector = (await self._embed([text]))[0]
        if not derived_from and (same := await self._find_same(text, vector)) is not None:
            return await self._corroborate(same, name, is_explicit=source.is_explicit)
        provenance = Provenance(
            source_type=source.type,
            confidence=base,
            sources=(name,) if name else (),
            created_at=now,
            updated_at=now,
            is_explicit=source.is_explicit,
            tags=tuple(dict.fromkeys(self._redact(list(tags)))),
        )
        made = Memory(
            id=id, text=text, metadata=self._check_metadata(metadata or {}), provenance=provenance, made_by=key
        )
        if derived_from:
            return await self._insert(made, vector, derived_from)
        stored, is_new = await self._insert_once(made, vector)
        return stored if is_new else await self._corroborate(stored, name, is_explicit=source.is_explicit)

    async def _insert_once(self, made: Memory, vector: Sequence[float]) -> tuple[Memory, bool]:
        """Store a memory under an id made from its words. Return the memory with these words, and whether it is new.

        Of several processes that add the same words at the same moment, one stores them, and the others find them.
        """
        words = " ".join(_words_of(made.text))
        ids = [f"mem_{_digest(self.scope, words, str(number))}" for number in range(EQUAL_TEXTS)]
        for _ in range(MAX_ATTEMPTS):
            records = await self._store.vectors.get(self.collection, self.scope, ids)
            taken = {record.id: parse_memory(record) for record in records}
            for known in taken.values():
                if known.made_by == made.made_by != "":
                    return known, True  # the call runs again; another one has changed the text since
                if _same_words(known.text, made.text) and not known.superseded_by:
                    return known, False
            made = msgspec.structs.replace(made, id=next((id for id in ids if id not in taken), made.id))
            if await self.write([made], {made.id: vector}):
                return msgspec.structs.replace(made, revision=1), True
        raise ConflictError("memories with these words are being changed by other processes; try again")

    async def _insert(self, made: Memory, vector: Sequence[float], derived_from: Sequence[str]) -> Memory:
        """Store a memory, and mark those that it is made from; again when another process has changed one of these."""
        own = made.sources
        for _ in range(MAX_ATTEMPTS):
            parents = [await self.get(parent) for parent in dict.fromkeys(derived_from)]
            sources = dict.fromkeys((*own, *(name for parent in parents for name in parent.sources)))
            made = msgspec.structs.replace(
                made,
                derived_from=tuple(parent.id for parent in parents),
                provenance=msgspec.structs.replace(made.provenance, sources=tuple(sources)[: origin.MAX_SOURCES]),
            )
            marked = [msgspec.structs.replace(parent, has_derived=True) for parent in parents]
            if await self.write([made, *marked], {made.id: vector}):
                return msgspec.structs.replace(made, revision=1)
            if (known := await self._find(made.id)) is not None:
                return known  # another call with the same key was faster
        raise ConflictError("a memory that this one is made from is being changed by other processes; try again")

    async def update(
        self, id: str, text: str, *, source: str = "", is_explicit: bool | None = None, key: str = ""
    ) -> Memory:
        """Replace the text of a memory. The same ``key`` again changes nothing."""
        text = self.clean_text(text)
        vector = (await self._embed([text]))[0]

        def change(memory: Memory, now: float) -> Memory:
            changed = origin.mark_changed(origin.add_source(memory.provenance, self._redact(source), now), now)
            if is_explicit is not None:
                changed = msgspec.structs.replace(changed, is_explicit=is_explicit)
            return msgspec.structs.replace(memory, text=text, provenance=changed)

        return await self._change(id, change, vector=vector, key=key)

    async def update_metadata(self, id: str, metadata: Mapping[str, JSON], *, tags: Sequence[str] = ()) -> Memory:
        """Merge ``metadata`` into the metadata of a memory (``None`` removes a key), and add tags."""
        given = self._check_metadata(metadata)
        added = self._redact(list(tags))

        def change(memory: Memory, now: float) -> Memory:
            merged = {name: value for name, value in {**memory.metadata, **given}.items() if value is not None}
            tagged = msgspec.structs.replace(
                origin.mark_changed(memory.provenance, now),
                tags=tuple(dict.fromkeys((*memory.provenance.tags, *added))),
            )
            return msgspec.structs.replace(memory, metadata=merged, provenance=tagged)

        return await self._change(id, change)

    async def corroborate(self, id: str, source: str) -> Memory:
        """Record that another source says the same; a source that the memory has counts once."""
        named = self._redact(source)
        return await self._change(
            id,
            lambda memory, now: msgspec.structs.replace(
                memory, provenance=origin.corroborate(memory.provenance, named, now)
            ),
        )

    async def delete(self, id: str) -> Removal:
        """Delete a memory; those made from it are made again from what remains, or deleted if nothing does."""
        memory = await self.get(id)
        if not memory.has_derived and not memory.derived_from and await self.write([memory], {}, delete=[id]):
            return Removal(deleted=(id,))
        return await self._remove(lambda memories: {id} & memories.keys(), "")

    async def revoke_data_source(self, source: str, *, regenerate: RegenerateText | None = None) -> Removal:
        """Remove what only ``source`` says, and what was made from it; memories with other sources stay without it.

        A memory that was made from several gets a new text from the remaining ones: ``await regenerate(texts)``, by
        default the texts themselves.
        """
        if not source:
            raise InvalidInput("name the data source to revoke")

        revoked: str = self._redact(source)

        def find_roots(memories: Mapping[str, Memory]) -> set[str]:
            single = [memory for memory in memories.values() if memory.sources == (revoked,)]
            return {memory.id for memory in single if not memory.derived_from}

        return await self._remove(find_roots, revoked, regenerate)

    async def prune(self, threshold: float = origin.PRUNE_THRESHOLD) -> list[str]:
        """Delete the memories that are trusted too little by now; return their ids."""
        now, removed = self.current_time(), list[str]()
        found = [memory async for memory in self.scan() if origin.may_prune(memory.provenance, now, threshold)]
        for first in range(0, len(found), _PAGE):
            removed += await self._remove_unchanged(found[first : first + _PAGE])
        return removed

    async def _remove_unchanged(self, memories: Sequence[Memory]) -> list[str]:
        """Delete the memories that no other process has changed meanwhile; return their ids."""
        ids = [memory.id for memory in memories]
        if await self.write(memories, {}, delete=ids):
            return ids
        return [memory.id for memory in memories if await self.write([memory], {}, delete=[memory.id])]

    # -------------------------------------------------------------------------------------------------------- reading

    async def get(self, id: str) -> Memory:
        """Return a memory. Raises ``NotFound``."""
        memory = await self._find(id)
        if memory is None:
            raise NotFound(f"there is no memory {id[:60]!r} in this scope")
        return memory

    async def scan(self, filter: Mapping[str, JSON] | None = None) -> AsyncGenerator[Memory]:
        """Yield all memories by id; ``filter`` has ``source_type``, ``sources``, ``tags``, or keys of the metadata."""
        after, chosen = "", stored_filter(filter or {})
        while True:
            page = await self._store.vectors.scan(self.collection, self.scope, filter=chosen, after=after, limit=_PAGE)
            for record in page:
                yield parse_memory(record)
            if len(page) < _PAGE:
                return
            after = page[-1].id

    async def page(self, filter: Mapping[str, JSON] | None = None, *, after: str = "", limit: int = 50) -> list[Memory]:
        """Return memories in the order of their ids, from after the id ``after``; fewer than ``limit`` at the end."""
        page = await self._store.vectors.scan(
            self.collection, self.scope, filter=stored_filter(filter or {}), after=after, limit=limit
        )
        return [parse_memory(record) for record in page]

    async def search(
        self,
        query: str,
        *,
        top_k: int = 5,
        threshold: float = 0.0,
        min_confidence: float = 0.0,
        filter: Mapping[str, JSON] | None = None,
        mark: bool = True,
    ) -> list[FoundMemory]:
        """Return the memories nearest in meaning, the most relevant (similarity × confidence) first.

        ``threshold`` is the least similarity. Memories trusted less than ``min_confidence`` now are left out, and those
        that were merged into others. With ``mark`` the use of each result is recorded.
        """
        await self._check_embedder()
        asked = self.cut_text(query)
        if not asked:
            raise InvalidInput("the query is empty; say what to look for")
        vector = (await self._embed([asked]))[0]
        return await self.search_vector(
            vector, top_k=top_k, threshold=threshold, min_confidence=min_confidence, filter=filter, mark=mark
        )

    async def search_by_source_type(self, query: str, source_type: SourceType, *, top_k: int = 5) -> list[FoundMemory]:
        """Return the most relevant memories of one source type."""
        origin.initial_confidence(source_type)
        return await self.search(query, top_k=top_k, filter={"source_type": source_type})

    async def search_vector(
        self,
        vector: Sequence[float],
        *,
        top_k: int = 5,
        threshold: float = 0.0,
        min_confidence: float = 0.0,
        filter: Mapping[str, JSON] | None = None,
        mark: bool = True,
    ) -> list[FoundMemory]:
        """Search as ``search`` does, by a vector of the embedder."""
        if top_k < 1:
            raise InvalidInput(f"top_k must be at least 1, not {top_k!r}")
        now, chosen = self.current_time(), {**stored_filter(filter or {}), "superseded_by": None}
        count = 2 * top_k  # confidence changes the order, and leaves some out
        while True:
            query = VectorQuery(vector=tuple(vector), top_k=count, filter=chosen, threshold=threshold)
            matches = await self._store.vectors.query(self.collection, self.scope, query)
            found = [one for one in (found_memory(match, now) for match in matches) if one.confidence >= min_confidence]
            if len(found) >= top_k or len(matches) < count or count >= _MAX_OVERFETCH * top_k:
                break
            count *= 4
        best = sorted(found, key=lambda one: (-one.relevance, one.memory.id))[:top_k]
        if mark:
            await self._mark_accessed([one.memory for one in best], now)
        return best

    async def get_by_source(self, source: str) -> list[Memory]:
        """Return the memories that have a source."""
        return [memory async for memory in self.scan({"sources": source})]

    async def get_derived(self, id: str) -> list[Memory]:
        """Return what was made from a memory, directly or by steps, in the order in which it was made."""
        await self.get(id)
        memories = await self.load_all()
        return [memories[derived] for derived in descendants_of(memories, {id})]

    async def stats(self) -> LineageStats:
        """Return how many memories there are, by source type and tier, and how deep their lineage is."""
        memories, now = await self.load_all(), self.current_time()
        tiers = [origin.tier_of(origin.confidence_at(memory.provenance, now)) for memory in memories.values()]
        return lineage_stats(memories, tiers)

    async def load_all(self) -> dict[str, Memory]:
        """Return all memories by id."""
        return {memory.id: memory async for memory in self.scan()}

    # ------------------------------------------------------------------------------------------------- for other parts

    async def write(
        self, memories: Sequence[Memory], vectors: Mapping[str, Sequence[float]], *, delete: Sequence[str] = ()
    ) -> bool:
        """Write memories in one transaction; ``vectors`` has the vectors of new texts.

        Returns false and writes nothing if another process has changed a memory.
        """
        records = [to_record(memory, vectors.get(memory.id, ())) for memory in memories]
        for record in records:
            _check_size(record)
        await self._check_embedder(is_first=True)
        return await self._store.vectors.upsert(self.collection, self.scope, records, delete=delete)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts."""
        return await self._embed(texts)

    async def vectors_of(self, ids: Sequence[str]) -> dict[str, tuple[float, ...]]:
        """Return the stored vectors of memories."""
        records = await self._store.vectors.get(self.collection, self.scope, ids, with_vectors=True)
        return {record.id: record.vector for record in records}

    async def _change(
        self, id: str, change: Callable[[Memory, float], Memory], *, vector: Sequence[float] = (), key: str = ""
    ) -> Memory:
        """Change one memory; again when another process was faster."""
        for _ in range(MAX_ATTEMPTS):
            memory = await self.get(id)
            if key and memory.last_call == key:
                return memory
            changed = msgspec.structs.replace(change(memory, self.current_time()), last_call=key or memory.last_call)
            if changed == memory:
                return memory
            if await self.write([changed], {id: vector} if vector else {}):
                return msgspec.structs.replace(changed, revision=memory.revision + 1)
        raise ConflictError(f"memory {id!r} is being changed by other processes; try again")

    async def _corroborate(self, memory: Memory, name: str, *, is_explicit: bool) -> Memory:
        def change(memory: Memory, now: float) -> Memory:
            changed = origin.corroborate(memory.provenance, name, now) if name else memory.provenance
            if is_explicit and not changed.is_explicit:
                changed = msgspec.structs.replace(changed, is_explicit=True)
            return msgspec.structs.replace(memory, provenance=changed)

        return await self._change(memory.id, change)

    async def _remove(
        self,
        find_roots: Callable[[Mapping[str, Memory]], set[str]],
        source: str,
        regenerate: RegenerateText | None = None,
    ) -> Removal:
        """Apply a removal in one transaction; again when another process has changed one of the memories."""
        for _ in range(MAX_ATTEMPTS):
            memories = await self.load_all()
            removal = plan_removal(memories, find_roots(memories), source, self.current_time())
            changed: list[Memory] = []
            for memory in removal.changed:
                texts = [self.clean_text(text) for text in removal.rewritten.get(memory.id, ())]
                if texts:
                    text = "\n".join(texts) if regenerate is None or len(texts) == 1 else await regenerate(texts)
                    memory = msgspec.structs.replace(memory, text=self.clean_text(text))
                changed.append(memory)
            new = [memory for memory in changed if memory.text != memories[memory.id].text]
            vectors = await self._embed([memory.text for memory in new]) if new else []
            by_id = {memory.id: vector for memory, vector in zip(new, vectors, strict=True)}
            if not (removal.deleted or changed) or await self.write(changed, by_id, delete=removal.deleted):
                return msgspec.structs.replace(removal, changed=tuple(changed))
        raise ConflictError("the memories are being changed by other processes; try again")

    async def _mark_accessed(self, memories: Sequence[Memory], now: float) -> None:
        """Record the use of memories, except memories that another process changes at the same moment."""
        marked = [
            msgspec.structs.replace(memory, provenance=origin.mark_accessed(memory.provenance, now))
            for memory in memories
            if now - memory.provenance.last_accessed_at >= ACCESS_INTERVAL
        ]
        if marked and not await self.write(marked, {}):
            for memory in marked:
                await self.write([memory], {})

    async def _find(self, id: str) -> Memory | None:
        found = await self._store.vectors.get(self.collection, self.scope, [id])
        return parse_memory(found[0]) if found else None

    async def _find_same(self, text: str, vector: Sequence[float]) -> Memory | None:
        """Return the memory that has the same words."""
        await self._check_embedder()
        query = VectorQuery(vector=tuple(vector), top_k=3, threshold=SAME_SIMILARITY, filter={"superseded_by": None})
        for match in await self._store.vectors.query(self.collection, self.scope, query):
            if _same_words(match.record.text, text):
                return parse_memory(match.record)
        return None

    async def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the vectors of texts. Raises ``ModelError`` also for an error of the embedder that is not one."""
        (vectors,) = await asyncio.gather(self._embedder.embed(texts), return_exceptions=True)
        if isinstance(vectors, Exception) and not isinstance(vectors, VakaError):
            raise ModelError(f"the embedder failed: {type(vectors).__name__}: {vectors}") from vectors
        if isinstance(vectors, BaseException):
            raise vectors
        if len(vectors) != len(texts) or not all(vectors):
            raise InvalidInput(f"the embedder returned {sum(map(bool, vectors))} vectors for {len(texts)} texts")
        return vectors

    async def _check_embedder(self, *, is_first: bool = False) -> None:
        """Raise ``ConfigError`` when another embedder made the vectors: the two cannot be compared.

        ``is_first``: if there are no vectors yet, vectors of this embedder follow.
        """
        if self._embedder_checked:
            return
        name = str(getattr(self._embedder, "name", type(self._embedder).__name__))
        key, values = f"memory/semantic/{self.collection}/embedder", self._store.values
        used = await values.get(key) or (await values.put_if_absent(key, name) if is_first else None)
        if used is not None and used != name:
            raise ConfigError(
                f"the memories in {self.collection!r} were made with the embedder {used!r}, not {name!r}; use that "
                "one, or another collection"
            )
        self._embedder_checked = used is not None

    def clean_text(self, text: str) -> str:
        """Return a text without secrets. Raises ``InvalidInput`` when it is empty or too long."""
        clean: str = self._redact(replace_surrogates(text).strip())
        if not clean or len(clean) > MAX_TEXT_CHARS:
            raise InvalidInput(f"a memory has between 1 and {MAX_TEXT_CHARS} characters, not {len(clean)}")
        return clean

    def cut_text(self, text: str) -> str:
        """Return as much of a text as a memory may have, without secrets; ``""`` when there is nothing."""
        clean: str = self._redact(replace_surrogates(text).strip())  # first: half of a secret would not be recognised
        return clean[:MAX_TEXT_CHARS].strip()

    def _check_metadata(self, metadata: Mapping[str, JSON]) -> dict[str, Any]:
        try:
            clean: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(self._redact(dict(metadata))))
        except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
            raise InvalidInput(f"the metadata of a memory must be JSON: {error}") from error
        return clean


def _same_words(one: str, other: str) -> bool:
    return _words_of(one) == _words_of(other)


def _words_of(text: str) -> list[str]:
    return text.casefold().split()


def _check_size(record: VectorRecord) -> None:
    try:
        size = len(msgspec.json.encode(record.metadata))
    except ValueError as error:
        raise InvalidInput(f"tags, sources and metadata of a memory must be text and JSON: {error}") from error
    if size > MAX_METADATA_BYTES:
        raise InvalidInput(f"tags, sources and metadata of a memory have at most {MAX_METADATA_BYTES} bytes")


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:24]
