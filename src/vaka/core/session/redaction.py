"""Redaction of secrets, in values before they are stored, and in a text that is still streaming."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar, cast, get_args

import msgspec

from vaka.core.ports.log import SecretFinder
from vaka.core.types.errors import InvalidInput
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import Digest

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 8
"""Shorter values occur in ordinary text."""

MIN_FORMAT_LENGTH = 8
"""Characters of the shortest text that can be recognized as a secret."""

_SEQUENCES = frozenset[type]({tuple, list})
_PREFIX_LENGTH, _FEW_PREFIXES = 3, 12

B = TypeVar("B", bound=msgspec.Struct)


class SecretValues:
    """Registered values; of several that match at one position the longest counts."""

    context = 0

    def __init__(self) -> None:
        self.values: tuple[str, ...] = ()
        self.json_forms: list[bytes] = []
        """The values as JSON encodes them; always the same list."""
        self.add()

    def add(self, *values: str) -> None:
        self.values = tuple(sorted({*self.values, *values}, key=lambda word: (-len(word), word)))
        self.json_forms[:] = [msgspec.json.encode(word)[1:-1] for word in self.values]
        self._prefixes = tuple(sorted({word[:_PREFIX_LENGTH] for word in self.values}))
        self._partial_prefixes = tuple({prefix[:size] for prefix in self._prefixes for size in range(1, len(prefix))})
        first_chars = {word[0] for word in self.values}
        self._any_value, self._any_prefix = _match_any(self.values), _match_any(self._prefixes)
        self._by_first_char = {char: [word for word in self.values if word[0] == char] for char in first_chars}
        self._first_chars = _match_any(first_chars)

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        return (match.span() for match in self._any_value.finditer(text, start))

    def possible_start(self, text: str, start: int) -> int:
        size = len(text)
        longest = len(self.values[0]) if self.values else 1
        for match in self._first_chars.finditer(text, max(start, size - longest + 1)):
            at = match.start()
            for word in self._by_first_char[text[at]]:
                if len(word) > size - at and word.startswith(text[at:]):
                    return at
        return size

    def clear_context(self, text: str, start: int) -> int:
        """Return 0 if the text has no prefix of a value, and does not end in a part of one; else -1."""
        if text.endswith(self._partial_prefixes):
            return -1
        if len(self._prefixes) > _FEW_PREFIXES:
            return 0 if self._any_prefix.search(text) is None else -1
        for prefix in self._prefixes:  # faster than a generator, and for a few than the expression
            if prefix in text:
                return -1
        return 0

    def occur_in(self, encoded: bytes) -> bool:
        """Whether encoded JSON has a value."""
        for form in self.json_forms:  # noqa: SIM110  # faster than a generator
            if form in encoded:
                return True
        return False


def _match_any(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)) or r"(?!)")  # without words nothing matches


class Secrets:
    """The secrets of a runtime: registered values, and the matches of ``finders``."""

    def __init__(
        self,
        values: Iterable[str] = (),
        *,
        registered: SecretValues | None = None,
        finders: Sequence[SecretFinder] = (),
    ) -> None:
        self._values = registered if registered is not None else SecretValues()
        self.finders: tuple[SecretFinder, ...] = tuple(finders)
        self.all_finders: tuple[SecretFinder, ...] = (self._values, *self.finders)
        self.value_forms = self._values.json_forms
        """The registered values as JSON encodes them."""
        self.is_active = bool(self.finders or self._values.values)
        """Whether there is anything to redact."""
        self.clean_digests: set[Digest | None] = {None}
        """The digests of texts that contain no secret."""
        for value in values:
            self.add(value)

    def with_finders(self, *finders: SecretFinder) -> "Secrets":
        """Return secrets with more finders that share the registered values, also those added later."""
        return Secrets(registered=self._values, finders=(*self.finders, *finders))

    def add(self, value: str) -> None:
        """Register a value, and its JSON form for texts that quote JSON. Raises ``InvalidInput`` if it is short."""
        if len(value) < MIN_SECRET_LENGTH:
            raise InvalidInput(
                f"a secret of {len(value)} characters cannot be registered: it would be redacted wherever ordinary text"
                f" has the same characters; register values of at least {MIN_SECRET_LENGTH}"
            )
        self._values.add(value, msgspec.json.encode(value)[1:-1].decode())
        self.is_active = True
        self.clean_digests = {None}

    def active_finders(self) -> tuple[SecretFinder, ...]:
        """Return the finders that may find anything."""
        return self.all_finders if self._values.values else self.finders

    def __bool__(self) -> bool:
        return self.is_active

    def may_contain(self, events: Sequence[Event]) -> bool:
        """Whether one of the events may contain a secret: False is certain."""
        if self.value_forms and self._values.occur_in(b"".join([event.stored for event in events])):
            return True
        items: list[Any] = []
        for event in events if self.finders else ():
            if (text_of := texts_of[type(event.data)]) is not None:
                texts = text_of(event.data)
                items += texts if type(texts) is tuple else (texts,)
        for item in filter(None, items):  # it grows: a call for each value would cost more than the check
            kind: type[Any] = item.__class__
            if kind is str:
                if item[MIN_FORMAT_LENGTH - 1 :] and self._text_may_match(item):
                    return True
            elif kind is dict:
                items += [f'{key}="{value}' if type(value) is str else value for key, value in item.items()]
            elif kind in _SEQUENCES:
                items += item
            elif (text_of := texts_of[kind]) is not None:
                texts = text_of(item)
                items += texts if type(texts) is tuple else (texts,)
        return False

    def _text_may_match(self, text: str) -> bool:
        for finder in self.finders:  # noqa: SIM110  # faster than a generator
            if finder.clear_context(text, 0) < 0:
                return True
        return False

    def redact_struct(self, value: B) -> B:
        """Return a struct with secrets replaced in its text fields; ids, digests and literals stay as they are."""
        changes = {name: self._redact(getattr(value, name)) for name in _text_fields(type(value))}
        return msgspec.structs.replace(value, **changes)

    def redact_data(self, value: Any) -> Any:
        """Return plain data with secrets replaced."""
        return self._redact(value) if self.is_active else value

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._redact_text(value)
        if isinstance(value, msgspec.Struct):
            return self.redact_struct(value)
        if isinstance(value, dict):
            return {self._redact(key): self._redact_item(key, item) for key, item in cast("Any", value).items()}
        if isinstance(value, list | tuple):
            return tuple([self._redact(item) for item in cast("Any", value)])
        return value

    def _redact_text(self, text: str, context: str = "") -> str:
        """Return a text without secrets; ``context`` is what stands before it, such as the name of a field."""
        for finder in self.active_finders():
            if finder.clear_context(context + text, len(context)) < 0:
                text = redact_text(finder, context + text, len(context))
        return text

    def _redact_item(self, key: Any, value: Any) -> Any:
        """Return an item of an object; a name such as ``password`` makes its value a secret."""
        return self._redact_text(value, f'{key}="') if isinstance(value, str) else self._redact(value)


def redact_text(finder: SecretFinder, text: str, start: int = 0) -> str:
    """Return a complete text from ``start`` on with all matches of a finder replaced; what is before is context."""
    pieces: list[str] = []
    at = start
    for begin, end in finder.find_spans(text, start):
        pieces += (text[at:begin], REDACTED)
        at = end
    return "".join([*pieces, text[at:]])


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields that may hold text: all but ids, digests, literals and numbers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _can_hold_text(field.type))


_NAME_FIELDS = frozenset(
    {"agent", "model", "name", "provider_id", "key", "input", "inputs", "limit", "expires", "deadline"}
)


class _TextGetters(dict[type, "Callable[[Any], Any] | None"]):
    """For each type a function that returns its text of users, models or tools, without names; a tuple of several."""

    def __missing__(self, kind: type) -> "Callable[[Any], Any] | None":
        paths = list(_text_paths(kind)) if issubclass(kind, msgspec.Struct) else []
        self[kind] = getter = attrgetter(*paths) if paths else None
        return getter


def _text_paths(kind: type[msgspec.Struct]) -> Iterator[str]:
    """Yield the fields of a struct with such text: ``field``, or ``field.inner`` if the field holds a struct."""
    for field in msgspec.structs.fields(kind):
        if field.name not in _text_fields(kind) or field.name in _NAME_FIELDS:
            continue
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from (f"{field.name}.{path}" for path in _text_paths(field.type))
        else:
            yield field.name


texts_of = _TextGetters()
"""The getter of each type, ``None`` for a type without such fields."""


def has_text(body: Body) -> bool:
    """Whether a body may hold text of users, models or tools."""
    return texts_of[type(body)] is not None


def _can_hold_text(kind: Any) -> bool:
    if kind in (str, Any):
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return any(_can_hold_text(field.type) for field in msgspec.structs.fields(kind))
    return any(_can_hold_text(inner) for inner in get_args(kind) if not isinstance(inner, str))
