"""Stores of session logs: in memory, in SQLite, in PostgreSQL. All SQL lives here."""
