"""The stored record of a working memory: one value of the store, changed by compare-and-set."""

from collections.abc import Callable
from typing import Any

import msgspec

from vaka.core.ports.env import format_timestamp
from vaka.core.ports.values import KeyValueStore, session_values_prefix
from vaka.core.types.errors import Corrupt, InvalidInput, VakaError
from vaka.core.types.ids import JSON, digest_of
from vaka.memory.owner import encode_name

RESOURCE_PREFIX = "memory/working/"
"""The keys of the working memories of owners."""
THREAD_KEY = "working_memory"
"""The key of the working memory of a session, after the prefix of the session's values."""
MAX_BYTES = 64 * 1024
MAX_TTL = 100 * 365 * 86_400.0
"""Seconds: a time of expiry after that cannot be written as a date."""
_DAMAGED = ".damaged/"
_MAX_CALLS = 32
"""The calls whose change the record remembers, so that a call that runs again changes nothing."""


class MemoryMeta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The owner of a memory, and the time when it was written."""

    thread_id: str = ""
    resource_id: str = ""
    created_at: str = ""
    updated_at: str = ""
    expires_at: str = ""


class WorkingMemoryRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The value that is stored."""

    meta: MemoryMeta
    content: str
    calls: tuple[str, ...] = ()
    """The keys of the last calls that have changed it."""


class NotInMemory(VakaError, code="not_in_memory"):
    """The text to replace is not in the working memory."""


class StoredWorkingMemory:
    """One working memory in the values of a store.

    Every change is atomic, also between processes. ``call`` is the key of the tool call that makes a change: a second
    change with the same key does nothing.
    """

    def __init__(  # noqa: PLR0913
        self,
        values: KeyValueStore,
        key: str,
        ids: MemoryMeta,
        *,
        now: Callable[[], float],
        ttl: float | None = None,
        find_problem: Callable[[str], str] = lambda _: "",
        redact: Callable[[str], str] = str,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        check_limits(ttl, max_bytes)
        self._values = values
        self._key = key
        self._ids = ids
        self._now = now
        self._ttl = ttl
        self._max_bytes = max_bytes
        self._find_problem, self._redact = find_problem, redact

    async def get(self) -> str:
        """Return the content, ``""`` when there is none. An expired one is deleted. Raises ``Corrupt``."""
        _, record = await self._load()
        return record.content if record is not None else ""

    async def read_meta(self) -> MemoryMeta | None:
        """Return when it was written and when it expires, ``None`` when there is no content."""
        _, record = await self._load()
        return record.meta if record is not None else None

    async def update(self, content: str, *, call: str = "") -> None:
        """Replace the whole content. A damaged record is kept under another key. Raises ``InvalidInput``."""
        if not content.strip():
            raise InvalidInput("the new working memory is empty; give a content, or delete it")
        try:
            await self._change(lambda _: content, call)
        except Corrupt:
            await self._put_damaged_aside()
            await self._change(lambda _: content, call)

    async def append(self, text: str, *, call: str = "") -> None:
        """Add a text after a blank line."""
        if not text.strip():
            raise InvalidInput("the text to append is empty")
        await self._change(lambda old: f"{old.rstrip()}\n\n{text}" if old.strip() else text, call)

    async def find_and_replace(self, search: str, text: str, *, call: str = "") -> None:
        """Replace the first place with a text; an empty search, or an empty memory, appends. Raises ``NotInMemory``."""

        def replace(old: str) -> str:
            if not old.strip() and text.strip():
                return text
            if search not in old:
                raise NotInMemory(f"the working memory does not contain {search[:200]!r}")
            return old.replace(search, text, 1)

        if search.strip():
            await self._change(replace, call)
        else:
            await self.append(text, call=call)

    async def delete(self) -> bool:
        """Delete the record; return whether there was one."""
        while (value := await self._values.get(self._key)) is not None:
            if await self._values.compare_and_set(self._key, value, None):
                return True
        return False

    async def _change(self, make: Callable[[str], str], call: str) -> None:
        while True:
            value, record = await self._load()
            calls = record.calls if record is not None else ()
            if call and call in calls:
                return
            new = self._make_record(record, make(record.content if record is not None else ""), calls, call)
            stored = await self._values.compare_and_set(
                self._key, value, msgspec.to_builtins(new), expires=new.meta.expires_at
            )
            if stored:
                return

    def _make_record(
        self, old: WorkingMemoryRecord | None, content: str, calls: tuple[str, ...], call: str
    ) -> WorkingMemoryRecord:
        content, now = self._redact(content), self._now()
        size = len(content.encode("utf-8", "replace"))
        if size > self._max_bytes:
            raise InvalidInput(f"a working memory has at most {self._max_bytes} bytes, this one would have {size}")
        if problem := self._find_problem(content):
            raise InvalidInput(f"the working memory does not fit its schema: {problem}")
        meta = msgspec.structs.replace(
            self._ids,
            created_at=old.meta.created_at if old is not None else format_timestamp(now),
            updated_at=format_timestamp(now),
            expires_at="" if self._ttl is None else format_timestamp(now + self._ttl),
        )
        return WorkingMemoryRecord(meta=meta, content=content, calls=(*calls, call)[-_MAX_CALLS:] if call else calls)

    async def _load(self) -> tuple[JSON, WorkingMemoryRecord | None]:
        """Return the stored value and its record; an expired value is removed."""
        while True:
            value = await self._values.get(self._key)
            record = None if value is None else self._decode(value)
            if record is None or not record.meta.expires_at or record.meta.expires_at > format_timestamp(self._now()):
                return value, record
            await self._values.compare_and_set(self._key, value, None)

    def _decode(self, value: JSON) -> WorkingMemoryRecord:
        try:
            return msgspec.convert(value, WorkingMemoryRecord)
        except msgspec.ValidationError as error:
            raise Corrupt(f"the stored working memory {self._key!r} is damaged: {error}") from error

    async def _put_damaged_aside(self) -> None:
        try:
            value: Any = await self._values.get(self._key)
        except Corrupt:  # its bytes cannot be read
            value = None
        if value is not None:
            await self._values.put_if_absent(f"{self._key}{_DAMAGED}{digest_of(value)[:16]}", value)
        await self._values.put(self._key, None)


def check_limits(ttl: float | None, max_bytes: int) -> None:
    """Raise ``InvalidInput`` for limits that no memory can have."""
    if ttl is not None and not 0 < ttl <= MAX_TTL:
        raise InvalidInput(f"ttl must be more than 0 and at most {MAX_TTL:.0f} seconds, or None, not {ttl!r}")
    if max_bytes < 1:
        raise InvalidInput(f"max_bytes must be at least 1, not {max_bytes!r}")


def find_content_problem(
    schema: "dict[str, Any] | None", find_schema_problem: Callable[[JSON, JSON], str], content: str
) -> str:
    """Return why a content does not fit a schema, ``""`` if it does: it is JSON, or of the type ``string`` a text."""
    if schema is None:
        return ""
    value: Any = content
    if schema.get("type") != "string":
        try:
            value = msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            return f"it is not JSON: {error}"
    return find_schema_problem(schema, value).removeprefix("arguments: ")  # it is written for calls of tools


def thread_key(session: str) -> str:
    """Return the key of the memory of a session, which is deleted with the session."""
    return f"{session_values_prefix(session)}{THREAD_KEY}"


def resource_key(owner: str) -> str:
    """Return the key of the memory of an owner."""
    return f"{RESOURCE_PREFIX}{encode_name(owner)}"


async def copy_thread_memory(values: KeyValueStore, origin: str, session: str) -> None:
    """Give a forked session the working memory of its origin; a damaged memory is not copied."""
    try:
        value = await values.get(thread_key(origin))
        record = None if value is None else msgspec.convert(value, WorkingMemoryRecord)
    except (Corrupt, msgspec.ValidationError):
        return
    if record is not None:
        meta = msgspec.structs.replace(record.meta, thread_id=session)
        new = msgspec.to_builtins(msgspec.structs.replace(record, meta=meta, calls=()))
        await values.compare_and_set(thread_key(session), None, new, expires=meta.expires_at)


async def erase_resource_memory(values: KeyValueStore, owner: str, *, dry_run: bool = False) -> int:
    """Delete the working memory of an owner, also what is damaged, or only count it; return how many values it is."""
    key = resource_key(owner)
    keys = [found for found in await values.keys(key) if found == key or found.startswith(f"{key}{_DAMAGED}")]
    for found in () if dry_run else keys:
        await values.put(found, None)
    return len(keys)
