"""Exchanging passages of a text: exact, and each only where it is meant."""

import hashlib
import re
from collections.abc import Iterator, Sequence

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import Digest
from vaka.tools.builtin.text import ENDS, Text

_TRIES = 500
"""Texts that are tried when it is to be found out whether a change was made before."""
_WORK = 400_000_000
"""Bytes that are hashed for it at most."""
_NUMBERED = re.compile(r"\s*\d+\t")


class Exchange(msgspec.Struct, frozen=True, kw_only=True):
    """One passage for another."""

    old: str
    new: str
    every: bool = False


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a text."""

    text: str
    replaced: int


def check(exchange: Exchange) -> None:
    """Raise ``InvalidInput`` for an exchange that means nothing."""
    if not exchange.old:
        raise InvalidInput("old_string is empty; it must be the passage to replace (a new file is made with Write)")
    if exchange.old == exchange.new:
        raise InvalidInput("old_string and new_string are the same, so there is nothing to change")


def exchanged(text: str, eol: str, exchange: Exchange) -> Done:
    """Return the text with a passage exchanged; lines of the new one end as the file's do.

    Raises ``InvalidInput`` when the passage is not there, or there more than once and not all are meant.
    """
    check(exchange)
    pattern = _pattern(exchange.old)
    new = ENDS.sub(eol, exchange.new)
    if exchange.every:
        changed, count = pattern.subn(lambda _: new, text)
        if not count:
            raise InvalidInput(_missing(text, exchange.old))
        return Done(text=changed, replaced=count)
    found = pattern.search(text)
    if found is None:
        raise InvalidInput(_missing(text, exchange.old))
    if pattern.search(text, found.start() + 1):
        raise InvalidInput(_several(text, pattern))
    return Done(text=text[: found.start()] + new + text[found.end() :], replaced=1)


def was_done(text: Text, exchanges: Sequence[Exchange], known: Digest | None) -> bool:
    """Tell whether a text is surely what the exchanges make of the one with the digest ``known``."""
    if known is None:
        return False
    work, tries = 0, 0
    for before in _undone(text.text, text.eol, list(reversed(exchanges))):
        data = text.mark + before.encode(text.encoding, "replace")
        work, tries = work + len(data), tries + 1
        if tries > _TRIES + len(text.text) or work > _WORK:
            return False
        if hashlib.sha256(data).hexdigest() == known:
            return True
    return False


def _undone(text: str, eol: str, exchanges: list[Exchange]) -> Iterator[str]:
    """Yield what a text may have been before the exchanges, the last of which comes first."""
    if not exchanges:
        yield text
        return
    exchange, rest = exchanges[0], exchanges[1:]
    old, new = ENDS.sub(eol, exchange.old), ENDS.sub(eol, exchange.new)
    if exchange.every and new:
        yield from _undone(text.replace(new, old), eol, rest)
        return
    at = text.find(new)
    while at >= 0:
        yield from _undone(text[:at] + old + text[at + len(new) :], eol, rest)
        at = text.find(new, at + 1) if at < len(text) else -1


def _pattern(old: str) -> re.Pattern[str]:
    """A passage, with its lines ending in whatever way the file's do. Literal pieces only: linear."""
    return re.compile("(?:\r\n|\r|\n)".join(re.escape(line) for line in ENDS.split(old)))


def _several(text: str, pattern: re.Pattern[str]) -> str:
    places: list[int] = []
    count, at = 0, 0
    while found := pattern.search(text, at):
        count += 1
        if len(places) < 10:
            places.append(text.count("\n", 0, found.start()) + 1)
        at = found.start() + 1
    said = ", ".join(map(str, places)) + (", …" if count > len(places) else "")
    return (
        f"old_string is there {count} times (lines {said}) and must be unique: give more of what surrounds it, or set "
        "replace_all"
    )


def _missing(text: str, old: str) -> str:
    said = "old_string is not in the file; it must be there letter by letter, blanks and indentation included"
    if all(_NUMBERED.match(line) for line in old.splitlines() if line.strip()):
        return f"{said}. It begins with line numbers, which Read adds and the file does not have"
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = [line.strip() for line in text.splitlines()]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if wanted:
        for start, (number, line) in enumerate(numbered):
            if line == wanted[0] and [got for _, got in numbered[start : start + len(wanted)]] == wanted:
                return f"{said}. The lines from {number} on differ from it only in blanks"
    return said
