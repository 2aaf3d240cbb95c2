"""Registered secrets never reach the log: they are replaced in the bytes of an event before it is stored."""

from collections.abc import Iterable

import msgspec

MARK = b"[redacted]"
SHORTEST = 6
"""A shorter value would be found in ordinary words."""


class Secrets:
    """Values that must not be written down."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms: tuple[bytes, ...] = ()
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Register a value; the forms it takes inside JSON are covered, also when that JSON is quoted once more."""
        if len(value) < SHORTEST:
            return
        once = msgspec.json.encode(value)[1:-1]
        twice = msgspec.json.encode(once.decode())[1:-1]
        self._forms = tuple(sorted({*self._forms, once, twice}, key=len, reverse=True))

    def clean(self, encoded: bytes) -> bytes:
        """Return encoded JSON without any registered value."""
        for form in self._forms:
            if form in encoded:
                encoded = encoded.replace(form, MARK)
        return encoded
