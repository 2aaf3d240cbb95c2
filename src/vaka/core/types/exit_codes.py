"""The exit code of each error code, for a failure that is known only by the code in the log."""

EXIT_CODES: dict[str, int] = {}
"""Filled by ``VakaError.__init_subclass__``."""
