"""Logs in one SQLite file."""

from vaka.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
