"""Code that all stores share: checks before a write, the decisions of a batch, page cursors, values, and failpoints.

Failpoints are places where a test may kill a process in the middle of a write. Their names, in order:
``append.before_begin``, ``append.after_rows``, ``append.after_commit``, ``append.before_ack``. Each transaction that
appends or offers passes each of them once.
"""

import asyncio
import base64
import binascii
import hashlib
import re
from bisect import bisect_left
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args

import msgspec

from vaka.core.ports.store import PendingDecision, SessionInfo, SessionPage, SessionQuery
from vaka.core.session.index_rows import find_asked_decisions, find_settled_decisions
from vaka.core.types import control, progress
from vaka.core.types.errors import ConfigError, Corrupt, InvalidInput, LogError, NotFound
from vaka.core.types.event import Event
from vaka.core.types.ids import JSON, DecisionId, Digest, SessionId

Durability: TypeAlias = Literal["power", "process"]
"""What an acknowledged event survives: a power cut, or only the death of the process."""

on_failpoint: Callable[[str], None] | None = None
"""Called with the name of each failpoint; ``None`` in production. Only ``vaka.testing.crashes`` sets it."""


def hit_failpoint(name: str) -> None:
    """Pass a failpoint where a transaction does not run often."""
    if on_failpoint is not None:
        on_failpoint(name)


_decode_cursor = msgspec.json.Decoder(tuple[str, str]).decode

_DECISION_EVENTS = frozenset[type](
    {
        control.ApprovalExpired,
        control.ApprovalRequested,
        control.ApprovalResolved,
        control.QuestionAnswered,
        control.QuestionAsked,
        control.SessionReverted,
        progress.TurnCancelled,
        progress.TurnCompleted,
        progress.TurnFailed,
        progress.TurnInterrupted,
    }
)
"""Events that open or settle a decision; a batch without any of them needs no further look."""

_OFFERED_EVENTS = (
    control.InputAdded,
    control.InterruptRequested,
    control.ApprovalResolved,
    control.QuestionAnswered,
)


FIRST_SCHEMA = 13
"""The schema of vaka 0.1.0, the oldest schema that is migrated. Only unreleased versions wrote earlier schemas."""


@cache
def migration_files(folder: Path) -> tuple[tuple[int, Path], ...]:
    """Return the migrations in a folder, in order: ``0014_labels.sql`` makes schema 14 of schema 13."""
    matches = [(re.fullmatch(r"(\d{4})_\w+\.sql", file.name), file) for file in folder.iterdir()]
    return tuple(sorted((int(match[1]), file) for match, file in matches if match))


def require_known_schema(version: int, newest: int, place: str, *, backup: str, restore: str) -> None:
    """Raise ``ConfigError`` for a schema that this code neither has nor migrates; 0 stands for an empty database.

    ``backup`` and ``restore`` are the commands that export and import the data of a database.
    """
    if version > newest:
        raise ConfigError(
            f"{place} was written by a newer vaka: its schema is {version}, this one knows schemas up to {newest}; "
            f"install a newer vaka"
        )
    if 0 < version < FIRST_SCHEMA:
        raise ConfigError(
            f"{place} has schema {version}, which a vaka before 0.1.0 wrote; this one expects schema {newest} and "
            f"migrates no schema before {FIRST_SCHEMA}. Nothing was changed. Export the data with the vaka that wrote "
            f"it: {backup}; then import it with this one: {restore}"
        )


def check_durability(durability: Durability) -> None:
    """Raise ``ConfigError`` for a value that is not a ``Durability``."""
    if durability not in get_args(Durability):
        raise ConfigError(f"durability {durability!r} must be 'power' or 'process'")


def check_batch(session: SessionId, events: Sequence[Event], *, head: int, head_hash: str) -> None:
    """Raise ``LogError`` unless the events are sealed to follow, one after the other, the event ``head``."""
    for event in events:
        head += 1
        if event.seq != head or not event.stored:
            raise LogError(f"session {session!r}: expected event {head} next, got {event.seq or 'one without a seq'}")
        if event.prev != head_hash:
            raise LogError(f"session {session!r}: event {head} does not carry the hash of event {head - 1}")
        head_hash = event.digest or event.hash  # a sealed event has its digest


def check_offer(event: Event, key: str) -> None:
    """Raise ``InvalidInput`` unless a process that is not the writer may append this event, under this key."""
    if not isinstance(event.data, _OFFERED_EVENTS):
        raise InvalidInput(f"{event.type} cannot be offered: only the session's writer may append it")
    own_key = control.key_of(event.data)
    if not key or key != own_key:
        raise InvalidInput(f"{event.type} has the key {own_key!r} and cannot be offered under {key!r}")


def decision_changes(
    session: SessionId, events: Sequence[Event]
) -> "tuple[list[PendingDecision], list[DecisionId], bool]":
    """Return the decisions these events leave open, the ids they settle, and whether they settle all older ones."""
    events = [event for event in events if type(event.data) in _DECISION_EVENTS]
    if not events:
        return [], [], False
    settled, settles_all = find_settled_decisions(events)
    opened = {row.id: row for row in find_asked_decisions(session, events)}
    if opened and (settled or settles_all):
        opened.clear()
        for event in events:
            settled_here, settles_older = find_settled_decisions((event,))
            for decision in list(opened) if settles_older else settled_here:
                opened.pop(decision, None)
            opened.update((row.id, row) for row in find_asked_decisions(session, (event,)))
    return list(opened.values()), settled, settles_all


def sort_decisions(rows: Iterable[PendingDecision]) -> list[PendingDecision]:
    """Return open decisions in the order of their requests."""
    return sorted(rows, key=lambda row: (row.event.ts, row.session, row.seq))


def page_of(found: Sequence[SessionInfo], query: SessionQuery) -> SessionPage:
    """Return the page of the sessions found, of which there is one more than fits if there is another page."""
    page = tuple(found[: query.limit])
    more = msgspec.json.encode((page[-1].updated, page[-1].id)) if len(found) > len(page) else b""
    return SessionPage(sessions=page, next=base64.urlsafe_b64encode(more).decode())


def parse_cursor(query: SessionQuery) -> tuple[str, str] | None:
    """Return ``(updated, id)`` of the session the query continues after; ``InvalidInput`` for a cursor of no page."""
    if query.limit < 1:
        raise InvalidInput(f"limit {query.limit} must be at least 1")
    if not query.after:
        return None
    try:
        return _decode_cursor(base64.b64decode(query.after, altchars=b"-_", validate=True))
    except (binascii.Error, msgspec.MsgspecError, ValueError) as error:
        raise InvalidInput(f"{query.after[:60]!r} is not the cursor of a page") from error


def check_blob(digest: Digest, data: object) -> bytes:
    """Return the stored bytes of a blob; ``NotFound`` for ``None``, ``Corrupt`` when they do not match its digest."""
    if data is None:
        raise NotFound(f"there is no blob {digest[:64]!r}")
    if not isinstance(data, bytes) or hashlib.sha256(data).hexdigest() != digest:
        raise Corrupt(f"blob {digest!r}: its bytes do not match its digest")
    return data


def encode_value(key: str, value: JSON) -> bytes:
    """Return a value as JSON; ``InvalidInput`` when it is not."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"the value of {key[:60]!r} is not JSON: {error}") from error


def encode_present_value(key: str, value: JSON) -> bytes:
    """Return a value as JSON; ``InvalidInput`` when it is not, or is ``None``, which stands for no value."""
    if value is None:
        raise InvalidInput(f"the value of {key[:60]!r} is None, which is not stored; put another value")
    return encode_value(key, value)


def join_tags(tags: Sequence[str]) -> str:
    """Return tags as one text in which every tag is between two line ends, so that one can be searched for."""
    return "\n".join(("", *tags, "")) if tags else ""


def split_tags(text: str) -> tuple[str, ...]:
    """Return the tags that ``join_tags`` has joined."""
    return tuple(text[1:-1].split("\n")) if text else ()


def tag_pattern(tag: str) -> str:
    """Return the part of joined tags that says a session has the tag; no tag has a line end."""
    return "\n\n" if "\n" in tag else tag and f"\n{tag}\n"


def metadata_filter(query: SessionQuery) -> dict[str, JSON]:
    """Return the values that metadata must have. Raises ``InvalidInput`` for lists, objects and values without JSON."""
    for key, value in query.metadata.items():
        is_scalar = isinstance(value, str | int) or (isinstance(value, float) and isfinite(value))
        if not is_scalar or "\0" in key:
            raise InvalidInput(f"metadata {key[:60]!r} can be compared with a text, a number or a boolean only")
        encode_value(key, value)
    return query.metadata


def has_metadata(metadata: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether metadata have all these keys with values that are equal as JSON."""
    return all(key in metadata and equals_json(metadata[key], value) for key, value in wanted.items())


def equals_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 equals 1.0, and a number never equals a boolean."""
    pair = (one, other)
    if any(isinstance(value, bool) for value in pair):
        return one is other
    if all(isinstance(value, Mapping) for value in pair):
        return one.keys() == other.keys() and all(equals_json(one[key], other[key]) for key in one)
    if all(isinstance(value, list | tuple) for value in pair):
        return len(one) == len(other) and all(map(equals_json, one, other))
    return bool(one == other)


def equal_texts(value: JSON) -> list[str]:
    """Return the JSON texts of all values that are equal to a text, a number or a boolean."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return [msgspec.json.encode(value).decode()]
    equal: list[float] = [] if value else [-0.0]
    if value == int(value):
        equal.append(int(value))
    with suppress(OverflowError):
        equal += [float(value)] if float(value) == value else []
    return [msgspec.json.encode(number).decode() for number in equal]


T = TypeVar("T")


class ShieldedTasks:
    """Work of a store handle that runs to its end even if its caller is cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of the work. A caller that is cancelled ends at once, the work does not."""
        return await asyncio.shield(self.start(work))

    async def wait(self) -> None:
        """Return when no work is left."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _on_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller has seen it or was cancelled


MAX_ROWS_READ = 1024


def split_seqs(seqs: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield ascending seqs in parts: the rows between the first and the last of each are read with one query.

    A row that is not wanted costs less than a query, so parts are split where less than a quarter of the rows are.
    """
    begin = 0
    while begin < len(seqs):
        end = bisect_left(seqs, seqs[begin] + MAX_ROWS_READ, begin)
        while seqs[end - 1] - seqs[begin] >= 4 * (end - begin):
            end = (begin + end) // 2
        yield seqs[begin:end]
        begin = end


def current_time() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
