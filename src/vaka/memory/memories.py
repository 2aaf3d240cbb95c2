"""The memories of a store for programs: the same that ``TextMemory`` and the others give to agents."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from vaka.core.ports.env import Clock
from vaka.core.ports.files import Files
from vaka.core.ports.model import Embedder
from vaka.core.ports.store import Store
from vaka.core.ports.values import KeyValueStore
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import JSON, parse_session_id
from vaka.memory.memory_scope import MemoryScope, memory_scope
from vaka.memory.semantic import DEFAULT_COLLECTION, ScopedMemory
from vaka.memory.text import VALUES_PREFIX, memory_folder, tenant_folder
from vaka.memory.text_files import TextMemoryFiles
from vaka.memory.working_record import (
    MemoryMeta,
    StoredWorkingMemory,
    find_content_problem,
    resource_key,
    thread_key,
)


class MemoryServices(Protocol):
    """What memories need of a runtime."""

    def find_embedder(self, name: str, /) -> Embedder:
        """Return an embedder by name. Raises ``ConfigError``."""
        ...

    def open_value_files(self, values: KeyValueStore, prefix: str, /) -> Files:
        """Return a tree of files that is stored in values whose keys begin with ``prefix``."""
        ...

    async def find_lines(
        self, files: Files, folder: str, pattern: str, limit: int, /
    ) -> Sequence[tuple[str, int, str]]:
        """Return path, number and text of the lines below a folder that match a regular expression, up to a limit."""
        ...

    def find_schema_problem(self, schema: JSON, value: JSON, /) -> str:
        """Return why a value does not fit a JSON Schema, ``""`` when it does."""
        ...


class Memories:
    """Opens the memories of owners and sessions. What is written is redacted as in a log."""

    def __init__(self, store: Store, clock: Clock, secrets: Secrets, services: MemoryServices) -> None:
        self._store = store
        self._clock = clock
        self._secrets = secrets
        self._services = services

    def open_text(self, *, owner: str = "", namespace: str = "", files: Files | None = None) -> TextMemoryFiles:
        """Return the text memory of an owner, or the shared one of ``TextMemory(namespace=…)``.

        ``files`` were given to ``TextMemory``; by default the memory is in the store.
        """
        if bool(owner) == bool(namespace):
            raise InvalidInput("name either the owner or the namespace of a text memory")
        folder = memory_folder(owner, namespace)
        if files is None:
            files = self._services.open_value_files(self._store.values, VALUES_PREFIX)
        else:
            folder = tenant_folder(self._store.namespace, folder)
        return TextMemoryFiles(
            files,
            folder,
            redact=self._secrets.redact_data,
            now=self._clock.time,
            find_lines=self._services.find_lines,
        )

    def open_working(
        self, *, session: str = "", owner: str = "", schema: "dict[str, Any] | None" = None, ttl: float | None = None
    ) -> StoredWorkingMemory:
        """Return the working memory of a session or of an owner; ``schema`` and ``ttl`` as in ``WorkingMemory``."""
        if bool(session) == bool(owner):
            raise InvalidInput("name either the session or the owner of a working memory")
        key = thread_key(parse_session_id(session)) if session else resource_key(owner)
        check = partial(find_content_problem, schema, self._services.find_schema_problem)
        return StoredWorkingMemory(
            self._store.values,
            key,
            MemoryMeta(thread_id=session, resource_id=owner),
            now=self._clock.time,
            ttl=ttl,
            find_problem=check,
            redact=self._secrets.redact_data,
        )

    def open_semantic(
        self,
        scope: MemoryScope = "user",
        *,
        owner: str = "",
        project: str = "",
        resource: str = "",
        embedder: str | Embedder = "hashing",
        collection: str = DEFAULT_COLLECTION,
    ) -> ScopedMemory:
        """Return the semantic memory of a scope; for the options see ``SemanticMemory``."""
        found = self._services.find_embedder(embedder) if isinstance(embedder, str) else embedder
        name = memory_scope(scope, user=owner, project=project, resource=resource)
        return ScopedMemory(
            self._store, found, name, clock=self._clock, collection=collection, redact=self._secrets.redact_data
        )
