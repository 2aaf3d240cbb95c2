"""Redaction of secrets: in whole values before they are stored, and in text that is still streaming."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Protocol, TypeVar, cast, get_args

import msgspec

from vaka.core.types import progress
from vaka.core.types.event import Body, Event
from vaka.core.types.ids import EventScope, MessageId

REDACTED = "[redacted]"

MIN_SECRET_LENGTH = 6
"""Shorter values would match ordinary text."""

_PREFIX_LENGTH, _FEW_PREFIXES = 3, 12

B = TypeVar("B", bound=msgspec.Struct)


class SecretFinder(Protocol):
    """Finds secrets of one kind, in a text that is complete or still streaming."""

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        """Yield start and end of each match from ``start`` on, in order; the text before it is context."""
        ...

    def possible_start(self, text: str, start: int) -> int:
        """Return the first position from ``start`` on of a match that more text may complete or extend."""
        ...

    def is_clear(self, text: str) -> bool:
        """Whether certainly no part of the text is, or may become, part of a match; a quick check before the others."""
        ...


class SecretValues:
    """Registered values; of several that match at one position the longest counts."""

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
        self._any_value, self._any_prefix = _match_any(self.values), _match_any(self._prefixes)
        self._first_chars = _match_any({word[0] for word in self.values})

    def find_spans(self, text: str, start: int) -> Iterable[tuple[int, int]]:
        return (match.span() for match in self._any_value.finditer(text, start))

    def possible_start(self, text: str, start: int) -> int:
        size = len(text)
        longest = len(self.values[0]) if self.values else 1
        for match in self._first_chars.finditer(text, max(start, size - longest + 1)):
            tail = text[match.start() :]
            if any(len(word) > len(tail) and word.startswith(tail) for word in self.values):
                return match.start()
        return size

    def is_clear(self, text: str) -> bool:
        """Whether the text has no prefix of a value, and does not end in a part of one."""
        if text.endswith(self._partial_prefixes):
            return False
        if len(self._prefixes) > _FEW_PREFIXES:
            return self._any_prefix.search(text) is None
        for prefix in self._prefixes:  # noqa: SIM110  # faster than a generator, and for a few than the expression
            if prefix in text:
                return False
        return True


def _match_any(words: Iterable[str]) -> re.Pattern[str]:
    return re.compile("|".join(map(re.escape, words)) or r"(?!)")  # without words nothing matches


class Secrets:
    """The secrets of a runtime: registered values, and the matches of ``finders``."""

    def __init__(
        self, values: Iterable[str] = (), *, registered: SecretValues | None = None,
        finders: Sequence[SecretFinder] = (),
    ) -> None:  # fmt: skip
        self._values = registered if registered is not None else SecretValues()
        self.finders: tuple[SecretFinder, ...] = tuple(finders)
        self.all_finders: tuple[SecretFinder, ...] = (self._values, *self.finders)
        self.json_forms = self._values.json_forms if not finders else [b""]
        """The values as JSON encodes them; with finders one empty form, which occurs in every event."""
        for value in values:
            self.add(value)

    def with_finders(self, *finders: SecretFinder) -> "Secrets":
        """Return secrets with more finders that share the registered values, also those added later."""
        return Secrets(registered=self._values, finders=(*self.finders, *finders))

    def add(self, value: str) -> None:
        """Register a value, and its JSON form for texts that quote JSON."""
        if len(value) >= MIN_SECRET_LENGTH:
            self._values.add(value, msgspec.json.encode(value)[1:-1].decode())

    def __bool__(self) -> bool:
        return bool(self.json_forms)

    def may_contain(self, encoded: bytes) -> bool:
        """Whether encoded JSON may hold a registered value."""
        return any(form in encoded for form in self.json_forms)

    def redact_struct(self, value: B) -> B:
        """Return a struct with secrets replaced in its text fields; ids, digests and literals stay as they are."""
        changes = {name: self._redact(getattr(value, name)) for name in _text_fields(type(value))}
        return msgspec.structs.replace(value, **changes)

    def redact_data(self, value: Any) -> Any:
        """Return plain data with secrets replaced."""
        return self._redact(value) if self.json_forms else value

    def _redact(self, value: Any) -> Any:
        if isinstance(value, str):
            for finder in self.all_finders:
                value = redact_text(finder, value)
            return value
        if isinstance(value, msgspec.Struct):
            return self.redact_struct(value)
        if isinstance(value, dict):
            return {self._redact(key): self._redact(item) for key, item in cast("Any", value).items()}
        if isinstance(value, list | tuple):
            return tuple([self._redact(item) for item in cast("Any", value)])
        return value


def redact_text(finder: SecretFinder, text: str) -> str:
    """Return a complete text with all matches of a finder replaced."""
    pieces: list[str] = []
    at = 0
    for start, end in finder.find_spans(text, 0):
        pieces += (text[at:start], REDACTED)
        at = end
    return "".join([*pieces, text[at:]]) if pieces else text


@cache
def _text_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Return the fields that may hold text: all but ids, digests, literals and numbers."""
    return tuple(field.name for field in msgspec.structs.fields(kind) if _can_hold_text(field.type))


def _can_hold_text(kind: Any) -> bool:
    if kind in (str, Any) or (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return True
    return any(_can_hold_text(inner) for inner in get_args(kind) if not isinstance(inner, str))


class StreamRedactor:
    """Redacts a text in pieces with one finder; the joined output equals ``redact_text`` of the whole text."""

    def __init__(self, finder: SecretFinder) -> None:
        self._finder = finder
        self._withheld: str = ""
        self._previous_char: str = ""

    def feed(self, text: str, *, last: bool = False) -> str:
        """Add a piece; return the text that is settled now, and with ``last`` the rest."""
        text = self._withheld + text
        if text and self._finder.is_clear(text):  # the common case
            self._withheld, self._previous_char = "", text[-1]
            return text
        text, at = self._previous_char + text, len(self._previous_char)
        pieces: list[str] = []
        size = len(text)
        hold = size if last else self._finder.possible_start(text, at)
        for start, end in self._finder.find_spans(text, at):
            if hold <= start:
                break  # more text may yield a match that begins earlier or is longer
            pieces += (text[at:start], REDACTED)
            at = end
            if hold < at:
                hold = self._finder.possible_start(text, at)
        pieces.append(text[at:hold])
        self._withheld, self._previous_char = text[hold:], text[max(hold - 1, 0) : hold]
        return "".join(pieces)


class _BlockRedactor:
    def __init__(self, secrets: Secrets, scope: EventScope, body: progress.Delta) -> None:
        self.scope, self.body, self.offset = scope, body, body.offset
        self._redactors = [StreamRedactor(finder) for finder in secrets.all_finders]

    def feed(self, text: str, *, last: bool = False) -> str:
        for redactor in self._redactors:
            text = redactor.feed(text, last=last)
        return text

    def as_delta(self, body: progress.Delta, text: str) -> Body:
        offset, self.offset = self.offset, self.offset + len(text)
        if text is body.text and offset == body.offset:  # nothing was withheld or replaced so far
            return body
        return msgspec.structs.replace(body, offset=offset, text=text)


class LiveRedactor:
    """Redacts the live events of a session; withholds the end of an open block while it may be part of a secret."""

    def __init__(self) -> None:
        self.blocks: dict[tuple[MessageId, int], _BlockRedactor] = {}
        """The open blocks."""

    def redact(self, secrets: Secrets, scope: EventScope, body: Body) -> Iterator[tuple[EventScope, Body]]:
        """Yield the bodies to publish for ``body``."""
        if not isinstance(body, progress.DELTAS):
            yield scope, secrets.redact_struct(body)
            return
        key = (body.message_id, body.block)
        block = self.blocks.get(key)
        is_new = block is None
        if block is None:
            yield from self._flush([key for key, old in self.blocks.items() if _is_finished_by(old.body, body)])
            block = self.blocks[key] = _BlockRedactor(secrets, scope, body)
        text = block.feed(body.text)
        if text or is_new or not body.text:
            yield scope, block.as_delta(body, text)

    def flush_closed(self, events: Iterable[Event]) -> list[tuple[EventScope, Body]]:
        """Return the withheld text of the blocks that these events complete; drop blocks that are discarded."""
        withheld: list[tuple[EventScope, Body]] = []
        for event in events:
            body = event.data
            if isinstance(body, progress.MessageCompleted):
                withheld += self._flush([key for key in self.blocks if key[0] == body.message_id])
            elif isinstance(body, progress.ToolCompleted | progress.ToolFailed):
                withheld += self._flush([key for key in self.blocks if key[0] == MessageId(body.result.call)])
            elif isinstance(body, progress.MessageDiscarded):
                self.blocks = {key: block for key, block in self.blocks.items() if key[0] != body.message_id}
            elif isinstance(body, progress.TURN_ENDS):
                self.blocks = {key: block for key, block in self.blocks.items() if block.scope.turn != event.turn}
        return withheld

    def _flush(self, keys: list[tuple[MessageId, int]]) -> Iterator[tuple[EventScope, Body]]:
        for key in keys:
            block = self.blocks.pop(key)
            text = block.feed("", last=True)
            if text:
                yield block.scope, block.as_delta(block.body, text)


def _is_finished_by(old: progress.Delta, new: progress.Delta) -> bool:
    """Whether the next block of a message completes an open one; the arguments of several calls may alternate."""
    return old.message_id == new.message_id and not isinstance(old, progress.ToolArgsDelta)
