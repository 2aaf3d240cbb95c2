"""Registered secrets never reach the log: they are replaced in what an event says before it is stored."""

from collections.abc import Iterable
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec

MARK = "[redacted]"
SHORTEST = 6
"""A shorter value would be found in ordinary words."""

B = TypeVar("B", bound=msgspec.Struct)


class Secrets:
    """Values that must not be written down."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._words: tuple[str, ...] = ()
        self.forms: tuple[bytes, ...] = ()
        """The values as they stand in JSON; none when nothing is registered."""
        for value in values:
            self.add(value)

    def add(self, value: str) -> None:
        """Register a value; the form it takes inside JSON is covered too, for texts that quote some."""
        if len(value) < SHORTEST:
            return
        quoted = msgspec.json.encode(value)[1:-1].decode()
        self._words = tuple(sorted({*self._words, value, quoted}, key=len, reverse=True))
        self.forms = tuple(msgspec.json.encode(word)[1:-1] for word in self._words)

    def __bool__(self) -> bool:
        return bool(self._words)

    def within(self, encoded: bytes) -> bool:
        """Whether encoded JSON may hold a registered value."""
        return any(form in encoded for form in self.forms)

    def clean(self, value: B) -> B:
        """Return a body with every registered value replaced in what it says; names and choices stay as they are."""
        changes = {name: self._clean(getattr(value, name)) for name in _free(type(value))}
        return msgspec.structs.replace(value, **changes)

    def cleaned(self, value: Any) -> Any:
        """Return plain data with every registered value replaced."""
        return self._clean(value) if self._words else value

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            for word in self._words:
                value = value.replace(word, MARK)
            return value
        if isinstance(value, msgspec.Struct):
            return self.clean(value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(item) for key, item in cast("Any", value).items()}
        if isinstance(value, list | tuple):
            return tuple([self._clean(item) for item in cast("Any", value)])
        return value


@cache
def _free(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields that hold words, data or further parts: all but ids, digests, choices and numbers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _holds_words(field.type))


def _holds_words(kind: Any) -> bool:
    if kind is str or kind is Any:
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return True
    return any(_holds_words(inner) for inner in get_args(kind) if not isinstance(inner, str))
