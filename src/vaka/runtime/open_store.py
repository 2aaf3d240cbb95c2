"""Open the store, or the backup of a store, that a URL names. Each kind is imported on its first use."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from vaka.core.ports.store import Store
from vaka.core.types.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from vaka.core.ports.backup import StoreBackup

Durability: TypeAlias = Literal["power", "process"]


def open_store(url: str, *, durability: Durability = "power", namespace: str = "") -> Store:
    """Return the store of a URL: ``memory:``, ``sqlite:///PATH`` or ``postgresql://…``."""
    scheme = url.partition(":")[0]
    if scheme == "memory":
        from vaka.stores.memory import MemoryStore

        return MemoryStore(namespace=namespace)
    if scheme == "sqlite":
        from vaka.stores.sqlite import SqliteStore

        return SqliteStore(_sqlite_path(url), durability=durability, namespace=namespace)
    if scheme in ("postgresql", "postgres"):
        from vaka.runtime.extras import explain_missing_extra

        with explain_missing_extra():
            from vaka.stores.postgres import PostgresStore

        return PostgresStore(url, durability=durability, namespace=namespace)
    raise ConfigError(f"store {url!r} is not known; expected memory:, sqlite:///PATH or postgresql://…")


def open_backup(url: str) -> "StoreBackup":
    """Return what backs up and restores the store of a URL. Raises ``InvalidInput`` for one in memory."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from vaka.stores.sqlite.backup import SqliteBackup

        return SqliteBackup(_sqlite_path(url))
    if scheme in ("postgresql", "postgres"):
        from vaka.runtime.extras import explain_missing_extra

        with explain_missing_extra():
            from vaka.stores.postgres.backup import PostgresBackup

        return PostgresBackup(url)
    raise InvalidInput("only stores of SQLite and PostgreSQL have backups; name one with --store")


def _sqlite_path(url: str) -> Path:
    """Return the path of a URL: ``sqlite:///vaka.db`` is relative, ``sqlite:////var/vaka.db`` absolute."""
    parts = urlsplit(url)
    if parts.netloc or not parts.path.startswith("/") or len(parts.path) == 1:
        raise ConfigError(f"store {url!r} names no file; expected sqlite:///PATH (four slashes for an absolute path)")
    return Path(unquote(parts.path[1:]))
