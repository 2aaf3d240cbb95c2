"""Where logs are kept: in memory, in SQLite, in PostgreSQL. All SQL lives here."""
