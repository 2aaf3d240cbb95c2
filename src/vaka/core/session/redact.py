"""Registered secrets never reach the log: they are replaced in what an event says before it is stored."""

import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast, get_args

import msgspec

MARK = "[redacted]"
SHORTEST = 6
"""A shorter value would be found in ordinary words."""
_START, _FEW = 3, 12

B = TypeVar("B", bound=msgspec.Struct)


class Finder(Protocol):
    """Finds what must not be seen, in a text that is whole or still arriving."""

    def spans(self, text: str, at: int) -> Iterable[tuple[int, int]]:
        """Yield where something found begins and ends, in order, from ``at`` on; what is before may be looked at."""
        ...

    def open(self, text: str, at: int) -> int:
        """Return the first place from ``at`` on where something may begin that more text would make longer or whole."""
        ...

    def clear(self, text: str) -> bool:
        """Whether nothing in a text can be, or become, any part of what is found; ``False`` when that takes a look."""
        ...


class Words:
    """Registered values; the longest that begins at a place counts."""

    def __init__(self) -> None:
        self.all: tuple[str, ...] = ()
        self.forms: tuple[bytes, ...] = ()
        self._any = self._first = self._begun = re.compile(r"(?!)")
        self._starts: tuple[str, ...] = ()
        self._ends: tuple[str, ...] = ()

    def add(self, *words: str) -> None:
        """Register values."""
        self.all = tuple(sorted({*self.all, *words}, key=lambda word: (-len(word), word)))
        self.forms = tuple(msgspec.json.encode(word)[1:-1] for word in self.all)
        self._any = re.compile("|".join(map(re.escape, self.all)))
        self._first = re.compile(
            "[" + "".join(re.escape(sign) for sign in sorted({word[0] for word in self.all})) + "]"
        )
        self._starts = tuple(sorted({word[:_START] for word in self.all}))
        self._ends = tuple(sorted({start[:size] for start in self._starts for size in range(1, len(start))}))
        self._begun = re.compile("|".join(map(re.escape, self._starts)))

    def spans(self, text: str, at: int) -> Iterable[tuple[int, int]]:
        """Yield where values are."""
        return (found.span() for found in self._any.finditer(text, at))

    def open(self, text: str, at: int) -> int:
        """Return where a value may have begun."""
        size = len(text)
        longest = len(self.all[0]) if self.all else 1
        for found in self._first.finditer(text, max(at, size - longest + 1)):
            tail = text[found.start() :]
            if any(len(word) > len(tail) and word.startswith(tail) for word in self.all):
                return found.start()
        return size

    def clear(self, text: str) -> bool:
        """Whether no value begins here: neither its first few characters, nor as many of them as fit at the end."""
        if text.endswith(self._ends):
            return False
        if len(self._starts) > _FEW:
            return self._begun.search(text) is None
        for start in self._starts:  # noqa: SIM110  # for a few this is quicker, and quicker than a generator
            if start in text:
                return False
        return True


class Secrets:
    """Values that must not be written down, and whatever else ``finders`` find."""

    def __init__(
        self, values: Iterable[str] = (), *, words: Words | None = None, finders: Sequence[Finder] = ()
    ) -> None:
        self._words = words if words is not None else Words()
        self.finders: tuple[Finder, ...] = tuple(finders)
        self._stages: tuple[Finder, ...] = (self._words, *self.finders)
        for value in values:
            self.add(value)

    @property
    def forms(self) -> tuple[bytes, ...]:
        """The values as they stand in JSON; none when there is nothing to look for."""
        return self._words.forms if not self.finders else (b"",)

    @property
    def stages(self) -> tuple[Finder, ...]:
        """What is looked for, one after the other."""
        return self._stages

    def also(self, *finders: Finder) -> "Secrets":
        """Return secrets that hold these values, now and later, and what other finders find."""
        return Secrets(words=self._words, finders=(*self.finders, *finders))

    def add(self, value: str) -> None:
        """Register a value; the form it takes inside JSON is covered too, for texts that quote some."""
        if len(value) >= SHORTEST:
            self._words.add(value, msgspec.json.encode(value)[1:-1].decode())

    def __bool__(self) -> bool:
        return bool(self.forms)

    def within(self, encoded: bytes) -> bool:
        """Whether encoded JSON may hold a registered value."""
        return any(form in encoded for form in self.forms)

    def clean(self, value: B) -> B:
        """Return a body with every registered value replaced in what it says; names and choices stay as they are."""
        changes = {name: self._clean(getattr(value, name)) for name in _free(type(value))}
        return msgspec.structs.replace(value, **changes)

    def cleaned(self, value: Any) -> Any:
        """Return plain data with every registered value replaced."""
        return self._clean(value) if self.forms else value

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            for stage in self._stages:
                value = replaced(stage, value)
            return value
        if isinstance(value, msgspec.Struct):
            return self.clean(value)
        if isinstance(value, dict):
            return {self._clean(key): self._clean(item) for key, item in cast("Any", value).items()}
        if isinstance(value, list | tuple):
            return tuple([self._clean(item) for item in cast("Any", value)])
        return value


def replaced(finder: Finder, text: str) -> str:
    """Return a whole text with what is found in it replaced."""
    pieces: list[str] = []
    at = 0
    for start, end in finder.spans(text, 0):
        pieces += (text[at:start], MARK)
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


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
