"""Redaction of secrets: in whole values before they are stored, and in text that is still streaming."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar, cast, get_args

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 6
"""A shorter value would be found in ordinary words."""

_PREFIX_LENGTH, _FEW_PREFIXES = 3, 12

B = TypeVar("B", bound=msgspec.Struct)


class SecretFinder(Protocol):
    """Finds what must not be seen, in a text that is whole or still arriving."""

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        """Yield where something found begins and ends, in order, from ``at`` on; what is before may be looked at."""
        ...

    def possible_start(self, text: str, start: int) -> int:
        """Return the first place from ``at`` on where something may begin that more text would make longer or whole."""
        ...

    def is_clear(self, text: str) -> bool:
        """Whether nothing in a text can be, or become, any part of what is found; ``False`` when that takes a look."""
        ...


class SecretValues:
    """Registered values; the longest that begins at a place counts."""

    def __init__(self) -> None:
        self.values: tuple[str, ...] = ()
        self.json_forms: tuple[bytes, ...] = ()
        self._any_value = self._first_chars = self._any_prefix = re.compile(r"(?!)")
        self._prefixes: tuple[str, ...] = ()
        self._partial_prefixes: tuple[str, ...] = ()

    def add(self, *values: str) -> None:
        """Register values."""
        self.values = tuple(sorted({*self.values, *values}, key=lambda word: (-len(word), word)))
        self.json_forms = tuple(msgspec.json.encode(word)[1:-1] for word in self.values)
        self._any_value = re.compile("|".join(map(re.escape, self.values)))
        self._first_chars = re.compile(
            "[" + "".join(re.escape(sign) for sign in sorted({word[0] for word in self.values})) + "]"
        )
        self._prefixes = tuple(sorted({word[:_PREFIX_LENGTH] for word in self.values}))
        self._partial_prefixes = tuple(
            sorted({start[:size] for start in self._prefixes for size in range(1, len(start))})
        )
        self._any_prefix = re.compile("|".join(map(re.escape, self._prefixes)))

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        """Yield where values are."""
        return (found.span() for found in self._any_value.finditer(text, start))

    def possible_start(self, text: str, start: int) -> int:
        """Return where a value may have begun."""
        size = len(text)
        longest = len(self.values[0]) if self.values else 1
        for found in self._first_chars.finditer(text, max(start, size - longest + 1)):
            tail = text[found.start() :]
            if any(len(word) > len(tail) and word.startswith(tail) for word in self.values):
                return found.start()
        return size

    def is_clear(self, text: str) -> bool:
        """Whether no value begins here: neither its first few characters, nor as many of them as fit at the end."""
        if text.endswith(self._partial_prefixes):
            return False
        if len(self._prefixes) > _FEW_PREFIXES:
            return self._any_prefix.search(text) is None
        for start in self._prefixes:  # noqa: SIM110  # for a few this is quicker, and quicker than a generator
            if start in text:
                return False
        return True


class Secrets:
    """Values that must not be written down, and whatever else ``finders`` find."""

    def __init__(
        self,
        values: Iterable[str] = (),
        *,
        registered: SecretValues | None = None,
        finders: Sequence[SecretFinder] = (),
    ) -> None:
        self._values = registered if registered is not None else SecretValues()
        self.finders: tuple[SecretFinder, ...] = tuple(finders)
        self._all_finders: tuple[SecretFinder, ...] = (self._values, *self.finders)
        for value in values:
            self.add(value)

    @property
    def json_forms(self) -> tuple[bytes, ...]:
        """The values as they stand in JSON; none when there is nothing to look for."""
        return self._values.json_forms if not self.finders else (b"",)

    @property
    def all_finders(self) -> tuple[SecretFinder, ...]:
        """What is looked for, one after the other."""
        return self._all_finders

    def with_finders(self, *finders: SecretFinder) -> "Secrets":
        """Return secrets that hold these values, now and later, and what other finders find."""
        return Secrets(registered=self._values, finders=(*self.finders, *finders))

    def add(self, value: str) -> None:
        """Register a value; the form it takes inside JSON is covered too, for texts that quote some."""
        if len(value) >= MIN_SECRET_LENGTH:
            self._values.add(value, msgspec.json.encode(value)[1:-1].decode())

    def __bool__(self) -> bool:
        return bool(self.json_forms)

    def may_contain(self, encoded: bytes) -> bool:
        """Whether encoded JSON may hold a registered value."""
        return any(form in encoded for form in self.json_forms)

    def redact_struct(self, value: B) -> B:
        """Return a body with every registered value replaced in what it says; names and choices stay as they are."""
        changes = {name: self._redact(getattr(value, name)) for name in _text_fields(type(value))}
        return msgspec.structs.replace(value, **changes)

    def redact_data(self, value: Any) -> Any:
        """Return plain data with every registered value replaced."""
        return self._redact(value) if self.json_forms else value

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            for stage in self._all_finders:
                value = redact_text(stage, value)
            return value
        if isinstance(value, msgspec.Struct):
            return self.redact_struct(value)
        if isinstance(value, dict):
            return {self._redact(key): self._redact(item) for key, item in cast("Any", value).items()}
        if isinstance(value, list | tuple):
            return tuple([self._redact(item) for item in cast("Any", value)])
        return value


def redact_text(finder: SecretFinder, text: str) -> str:
    """Return a whole text with what is found in it replaced."""
    pieces: list[str] = []
    at = 0
    for start, end in finder.find_spans(text, 0):
        pieces += (text[at:start], REDACTED)
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields that hold words, data or further parts: all but ids, digests, choices and numbers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _can_hold_text(field.type))


def _can_hold_text(kind: Any) -> bool:
    if kind is str or kind is Any:
        return True
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return True
    return any(_can_hold_text(inner) for inner in get_args(kind) if not isinstance(inner, str))


_DELTAS = (progress.TextDelta, progress.ReasoningDelta, progress.ToolArgsDelta, progress.ToolOutputDelta)

_Delta: TypeAlias = progress.TextDelta | progress.ReasoningDelta | progress.ToolArgsDelta | progress.ToolOutputDelta

_TURN_ENDS = (progress.TurnCompleted, progress.TurnFailed, progress.TurnCancelled, progress.TurnInterrupted)


class StreamRedactor:
    """One finder at work on a text in pieces: what comes out is what ``replaced`` makes of the whole."""

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._withheld: str = ""
        self._previous_char: str = ""

    def feed(self, text: str, *, last: bool = False) -> str:
        """Take a piece, return what may be shown now; with ``last`` everything."""
        text = self._withheld + text
        if text and self._finder.is_clear(text):  # most pieces
            self._withheld, self._previous_char = "", text[-1]
            return text
        text, at = self._previous_char + text, len(self._previous_char)
        pieces: list[str] = []
        size = len(text)
        hold = size if last else self._finder.possible_start(text, at)
        for start, end in self._finder.find_spans(text, at):
            if hold <= start:
                break  # something that begins earlier, or is longer, may come of it
            pieces += (text[at:start], REDACTED)
            at = end
            if hold < at:
                hold = self._finder.possible_start(text, at)
        pieces.append(text[at:hold])
        self._withheld, self._previous_char = text[hold:], text[max(hold - 1, 0) : hold]
        return "".join(pieces)


class _BlockRedactor:
    """One open block."""

    def __init__(self, secrets: Secrets, scope: EventScope, body: "_Delta") -> None:
        self.scope, self.body, self.offset = scope, body, body.offset
        self._redactors = [StreamRedactor(finder) for finder in secrets.all_finders]

    def feed(self, text: str, *, last: bool = False) -> str:
        for stage in self._redactors:
            text = stage.feed(text, last=last)
        return text

    def as_delta(self, body: "_Delta", text: str) -> Body:
        if text is body.text and self.offset == body.offset:  # nothing was held back so far, nothing replaced
            self.offset += len(text)
            return body
        made = msgspec.structs.replace(body, offset=self.offset, text=text)
        self.offset += len(text)
        return made


class LiveRedactor:
    """The open blocks of a session, as far as they may be seen."""

    def __init__(self) -> None:
        self._open: dict[tuple[MessageId, int], _BlockRedactor] = {}

    def __bool__(self) -> bool:
        return bool(self._open)

    def redact(self, secrets: Secrets, scope: EventScope, body: Body) -> Iterator[tuple[EventScope, Body]]:
        """Yield what may be shown now that ``body`` has happened."""
        if not isinstance(body, _DELTAS):
            yield scope, secrets.redact_struct(body)
            return
        key = (body.message_id, body.block)
        strand = self._open.get(key)
        fresh = strand is None
        if strand is None:
            yield from self._flush([key for key, old in self._open.items() if _is_finished_by(old.body, body)])
            strand = self._open[key] = _BlockRedactor(secrets, scope, body)
        text = strand.feed(body.text)
        if text or fresh or not body.text:
            yield scope, strand.as_delta(body, text)

    def flush_closed(self, events: Iterable[Event]) -> list[tuple[EventScope, Body]]:
        """Return what is left to show of the blocks these events bring to an end."""
        left: list[tuple[EventScope, Body]] = []
        for event in events:
            body = event.data
            if isinstance(body, progress.MessageCompleted):
                left += self._flush([key for key in self._open if key[0] == body.message_id])
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                left += self._flush([key for key in self._open if key[0] == MessageId(body.result.call)])
            elif isinstance(body, progress.MessageDiscarded):
                self._drop([key for key in self._open if key[0] == body.message_id])
            elif isinstance(body, _TURN_ENDS):
                self._drop([key for key, strand in self._open.items() if strand.scope.turn == event.turn])
        return left

    def _flush(self, keys: list[tuple[MessageId, int]]) -> Iterator[tuple[EventScope, Body]]:
        for key in keys:
            strand = self._open.pop(key)
            text = strand.feed("", last=True)
            if text:
                yield strand.scope, strand.as_delta(strand.body, text)

    def _drop(self, keys: list[tuple[MessageId, int]]) -> None:
        for key in keys:
            del self._open[key]


def _is_finished_by(old: "_Delta", new: Body) -> bool:
    """Whether a block is whole because another of its message begins; calls may be written side by side."""
    return old.message_id == getattr(new, "message_id", "") and not isinstance(old, progress.ToolArgsDelta)
