"""Logs in PostgreSQL, shared by every machine that reaches it."""

from vaka.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
