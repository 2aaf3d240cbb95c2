"""Exact vector search: checks and encodings that the stores share, and matrices of vectors that follow their writes."""

import asyncio
import math
import sys
import time
import zlib
from array import array
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from vaka.core.ports.vectors import VectorMatch, VectorQuery, VectorRecord
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput
from vaka.core.types.ids import JSON
from vaka.core.types.message import replace_surrogates

if TYPE_CHECKING:
    from vaka.stores.vector_matrix import VectorMatrix

MAX_NAME_BYTES = {"collection": 100, "scope": 800, "id": 300}
"""Together with the name of a namespace they fit into an index entry of PostgreSQL."""
MAX_DIMENSION = 16_384
MAX_CACHED_BYTES = 512 << 20
"""Bytes of the matrices of one database that a process keeps; the last one used is kept whatever its size."""
RETAINED_CHANGES = 10_000
"""The deletions of so many writes to a scope are kept; a matrix that is further behind is loaded again."""
LOAD_ROWS = 2_048
"""Rows that are loaded into a matrix at a time."""
THREAD_NUMBERS = 500_000
"""Numbers in a matrix from which on it is searched in a thread."""

ScopeKey: TypeAlias = tuple[str, str, str]
"""A namespace, a collection and a scope."""

_decode_metadata = msgspec.json.Decoder(dict[str, Any]).decode


class StoredVector(NamedTuple):
    """A record as it is written: checked, with encoded metadata and vector."""

    id: str
    text: str
    metadata: bytes
    vector: bytes
    """32-bit floats, the lowest byte first; empty to keep the stored ones."""
    version: int | None


def check_name(what: str, name: str) -> str:
    """Return the name of a collection or scope, or the id of a record; ``InvalidInput`` when it cannot be stored."""
    if len(name.encode("utf-8", "replace")) > MAX_NAME_BYTES[what] or replace_surrogates(name) != name:
        raise InvalidInput(f"the {what} {name[:40]!r} must be text of at most {MAX_NAME_BYTES[what]} bytes")
    return name


def check_place(collection: str, scope: str) -> tuple[str, str]:
    """Return a collection and a scope; ``InvalidInput`` when one cannot be stored."""
    if not collection:
        raise InvalidInput("a collection of vectors needs a name")
    return check_name("collection", collection), check_name("scope", scope)


def check_erased_scope(scope: str) -> str:
    """Return a scope that may be erased with the scopes below it."""
    if not scope:
        raise InvalidInput("name the scope to erase: the empty scope has all others below it")
    return check_name("scope", scope)


def check_records(records: Sequence[VectorRecord]) -> list[StoredVector]:
    """Return records as they are stored; ``InvalidInput`` if that is impossible, and for vectors of two lengths."""
    stored = [
        StoredVector(
            _check_id(record.id),
            replace_surrogates(record.text),
            _encode_metadata(record),
            encode_vector(record.vector) if record.vector else b"",
            record.version,
        )
        for record in records
    ]
    if len({record.id for record in stored}) < len(stored):
        raise InvalidInput("two of the records to write have the same id")
    lengths = {len(record.vector) // 4 for record in stored if record.vector}
    if len(lengths) > 1:
        raise InvalidInput(f"the vectors to write have different lengths: {sorted(lengths)}")
    return stored


def _check_id(id: str) -> str:
    if not id:
        raise InvalidInput("a record needs an id")
    return check_name("id", id)


def _encode_metadata(record: VectorRecord) -> bytes:
    try:
        return msgspec.json.encode(record.metadata)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"the metadata of {record.id[:60]!r} are not JSON: {error}") from error


def encode_vector(vector: Sequence[float]) -> bytes:
    """Return a vector as 32-bit floats; ``InvalidInput`` when it is not finite, all zeros, or too long."""
    try:
        packed = array("f", vector)
    except (TypeError, OverflowError) as error:
        raise InvalidInput(f"a vector has only numbers: {error}") from error
    if not 1 <= len(packed) <= MAX_DIMENSION:
        raise InvalidInput(f"a vector has between 1 and {MAX_DIMENSION} numbers, not {len(packed)}")
    if not all(map(math.isfinite, packed)) or not any(packed):
        raise InvalidInput("a vector must be finite and not all zeros: its embedder has failed")
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def decode_vector(raw: bytes) -> tuple[float, ...]:
    """Return the numbers of a stored vector."""
    packed = array("f")
    packed.frombytes(raw)
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)


def record_checksum(id: str, text: str, metadata: bytes) -> int:
    """Return the CRC-32 by which a damaged record is found; its vector has one of its own."""
    return zlib.crc32(b"\0".join((id.encode(), text.encode(), metadata)))


def decode_record(stored: StoredVector, *, with_vector: bool = False) -> VectorRecord:
    """Return a stored record; ``Corrupt`` when its metadata cannot be decoded."""
    try:
        metadata = _decode_metadata(stored.metadata)
    except (msgspec.MsgspecError, ValueError) as error:
        raise damaged_record(stored.id) from error
    vector = decode_vector(stored.vector) if with_vector else ()
    return VectorRecord(id=stored.id, text=stored.text, metadata=metadata, vector=vector, version=stored.version)


def damaged_record(id: object) -> Corrupt:
    return Corrupt(f"the stored vector record {str(id)[:60]!r} is damaged; delete it and add it again")


def dimension_of(records: Sequence[StoredVector]) -> int:
    """Return the length of the vectors of records, 0 when they have none."""
    return max((len(record.vector) // 4 for record in records), default=0)


def check_dimension(collection: str, dimension: int | None, records: Sequence[StoredVector]) -> None:
    """Raise ``InvalidInput`` unless the records fit a collection; ``dimension`` is ``None`` for a new one."""
    got = dimension_of(records)
    if dimension and got and dimension != got:
        raise dimension_error(collection, dimension, got)


def may_write(record: StoredVector, stored_version: int) -> bool:
    """Whether a record may replace the stored one, which has the version 0 when there is none."""
    return record.version in {None, stored_version} and bool(record.vector or stored_version)


def dimension_error(collection: str, dimension: int, got: int) -> InvalidInput:
    """Return the error for a vector of another length than the vectors of its collection."""
    return InvalidInput(
        f"collection {collection!r} has vectors of {dimension} numbers, got one of {got}: use the embedder that made "
        "them, or another collection"
    )


def first_change() -> int:
    """Return the number of the first write to a scope: higher than the numbers of an erased scope of the same name."""
    return time.time_ns() // 1000


def is_far_behind(change: int, after: int) -> bool:
    """Whether the changes of a scope after ``after`` are not known any more: it is old, or of an erased scope."""
    return after < 0 or not 0 <= change - after <= RETAINED_CHANGES


def matches_filter(metadata: Mapping[str, Any], filter: Mapping[str, JSON]) -> bool:
    """Whether metadata have all values of a filter; a list has each of its items."""
    for key, value in filter.items():
        found = metadata.get(key)
        if found != value and not (isinstance(found, list) and value in found):
            return False
    return True


def check_query(query: VectorQuery) -> bytes:
    """Return the vector of a query; ``InvalidInput`` when it cannot be searched for."""
    if query.top_k < 1:
        raise InvalidInput(f"top_k must be at least 1, not {query.top_k!r}")
    return encode_vector(query.vector)


class MatrixRow(NamedTuple):
    """A row: the write that gave it its vector, its number, and the vector."""

    change: int
    number: int
    vector: bytes


class MatrixChanges(NamedTuple):
    """The changes to the vectors of a scope since an earlier change."""

    change: int
    """The number of the latest write to the scope."""
    dimension: int
    """The length of the vectors, 0 while there are none."""
    removed: Sequence[int] = ()
    rows: Sequence[MatrixRow] = ()
    complete: bool = True
    """Whether these are all changes; otherwise the matrix is loaded again."""


class MatrixSource(Protocol):
    """The rows of a store, as matrices follow them; the last two items of ``key`` are collection and scope."""

    async def read_changes(self, key: ScopeKey, after: int) -> MatrixChanges:
        """Return the changes of a scope after the write ``after``, up to ``LOAD_ROWS``; with -1, only its state."""
        ...

    async def read_rows(self, key: ScopeKey, change: int, number: int) -> Sequence[MatrixRow]:
        """Return the next ``LOAD_ROWS`` rows of a scope, ordered by change and number, from after these."""
        ...


async def find_nearest(
    query: VectorQuery,
    rank: "Callable[[bytes, int], Awaitable[list[tuple[int, float]]]]",
    read_records: Callable[[Sequence[int]], Awaitable[Mapping[int, VectorRecord]]],
) -> list[VectorMatch]:
    """Return the matches of a query. A filter looks at ever more of the nearest rows until enough match.

    ``rank`` returns the numbers and similarities of the nearest rows, ``read_records`` the records of existing rows.
    """
    vector, count = check_query(query), query.top_k
    found: list[VectorMatch] = []
    seen: set[int] = set()
    while True:
        ranked = await rank(vector, count)
        near = {number: score for number, score in ranked if score >= query.threshold and number not in seen}
        records = await read_records(list(near))
        for number, similarity in near.items():
            record = records.get(number)
            if record is not None and matches_filter(record.metadata, query.filter):
                found.append(VectorMatch(record=record, similarity=similarity))
        if len(found) >= query.top_k or len(ranked) < count or ranked[-1][1] < query.threshold:
            return found[: query.top_k]
        seen.update(near)
        count *= 4


class ExactSearch:
    """Searches matrices of vectors, one for each scope in use; a query reads only what has changed since the last."""

    def __init__(self, max_bytes: int = MAX_CACHED_BYTES) -> None:
        self._max_bytes, self._bytes = max_bytes, 0
        self._matrices: OrderedDict[ScopeKey, _CachedMatrix] = OrderedDict()

    async def rank(self, source: MatrixSource, key: ScopeKey, query: bytes, count: int) -> list[tuple[int, float]]:
        """Return the numbers and similarities of the ``count`` rows nearest to a vector, the nearest first."""
        cached = self._matrices.setdefault(key, _CachedMatrix())
        self._matrices.move_to_end(key)
        async with cached.lock:
            try:
                matrix = await self._follow(source, key, cached, query)
            finally:
                self._account(key, cached)
            if matrix is None:
                return []
            if matrix.size * matrix.dimension < THREAD_NUMBERS:
                return matrix.rank(query, count)
            return await asyncio.to_thread(matrix.rank, query, count)

    async def _follow(
        self, source: MatrixSource, key: ScopeKey, cached: "_CachedMatrix", query: bytes
    ) -> "VectorMatrix | None":
        """Bring a matrix up to date. A failure leaves none: half of the changes may be in it."""
        matrix, cached.matrix = cached.matrix, None
        changes = await source.read_changes(key, matrix.change if matrix is not None else -1)
        if not changes.dimension:
            return None
        if changes.dimension * 4 != len(query):
            cached.matrix = matrix
            raise dimension_error(key[1], changes.dimension, len(query) // 4)
        if not changes.change:
            return None  # nothing was ever written to the scope
        while matrix is None or not changes.complete:
            matrix = new_matrix(changes.dimension)
            matrix.change, last = changes.change, (-1, -1)
            while rows := await source.read_rows(key, *last):
                await asyncio.to_thread(matrix.put, rows)
                last = rows[-1][:2]
            changes = await source.read_changes(key, matrix.change)  # writes while it was loaded
        matrix.remove(changes.removed)
        matrix.put(changes.rows)
        matrix.change = changes.change
        cached.matrix = matrix
        return matrix

    def _account(self, key: ScopeKey, cached: "_CachedMatrix") -> None:
        """Count the bytes of a matrix, and drop the least recently used ones beyond the limit."""
        if self._matrices.get(key) is not cached:
            return  # another query has dropped it
        size = cached.matrix.nbytes if cached.matrix is not None else 0
        self._bytes += size - cached.size
        cached.size = size
        if not size:
            del self._matrices[key]
        while self._bytes > self._max_bytes and len(self._matrices) > 1:
            _, dropped = self._matrices.popitem(last=False)
            self._bytes -= dropped.size


class _CachedMatrix:
    def __init__(self) -> None:
        self.matrix: VectorMatrix | None = None
        self.size = 0
        """The bytes that were counted."""
        self.lock = asyncio.Lock()


_searches: "WeakKeyDictionary[Any, ExactSearch]" = WeakKeyDictionary()


def search_of(hub: object) -> ExactSearch:
    """Return the search that all namespaces of one database share, so that they share its limit."""
    return _searches.setdefault(hub, ExactSearch())


def new_matrix(dimension: int) -> "VectorMatrix":
    """Return an empty matrix; ``ConfigError`` when numpy is not installed."""
    try:
        from vaka.stores.vector_matrix import VectorMatrix  # noqa: PLC0415  # numpy, on first use
    except ModuleNotFoundError as error:
        raise ConfigError("vector search needs numpy; add it with: pip install 'vaka[embeddings]'") from error
    return VectorMatrix(dimension)
