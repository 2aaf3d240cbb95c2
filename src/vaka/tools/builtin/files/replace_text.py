"""Replace exact passages of a text, and describe the change as a short diff."""

import hashlib
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

import msgspec

from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import Digest
from vaka.tools.builtin.files.file_content import LINE_END, DecodedText

_MAX_TRIES = 500
"""Texts that are tried when it is to be found out whether a change was made before."""

_MAX_HASHED_BYTES = 400_000_000
"""Bytes that are hashed for it at most."""

_LINE_NUMBER = re.compile(r"\s*\d+\t")


class TextReplacement(msgspec.Struct, frozen=True, kw_only=True):
    """One passage for another."""

    old: str
    new: str
    every: bool = False


class ReplacedText(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a text."""

    text: str
    replaced: int


def check_replacement(replacement: TextReplacement) -> None:
    """Raise ``InvalidInput`` for an exchange that means nothing."""
    if not replacement.old:
        raise InvalidInput("old_string is empty; it must be the passage to replace (a new file is made with Write)")
    if replacement.old == replacement.new:
        raise InvalidInput("old_string and new_string are the same, so there is nothing to change")


def replace_text(text: str, eol: str, replacement: TextReplacement) -> ReplacedText:
    """Return the text with a passage exchanged; lines of the new one end as the file's do.

    Raises ``InvalidInput`` when the passage is not there, or there more than once and not all are meant.
    """
    check_replacement(replacement)
    pattern = _pattern_of(replacement.old)
    new = LINE_END.sub(eol, replacement.new)
    if replacement.every:
        changed, count = pattern.subn(lambda _: new, text)
        if not count:
            raise InvalidInput(_missing_message(text, replacement.old))
        return ReplacedText(text=changed, replaced=count)
    found = pattern.search(text)
    if found is None:
        raise InvalidInput(_missing_message(text, replacement.old))
    if pattern.search(text, found.start() + 1):
        raise InvalidInput(_ambiguous_message(text, pattern))
    return ReplacedText(text=text[: found.start()] + new + text[found.end() :], replaced=1)


def was_applied(text: DecodedText, replacements: Sequence[TextReplacement], known: Digest | None) -> bool:
    """Tell whether a text is surely what the exchanges make of the one with the digest ``known``."""
    if known is None:
        return False
    work, tries = 0, 0
    for before in _possible_originals(text.text, text.eol, list(reversed(replacements))):
        data = text.mark + before.encode(text.encoding, "replace")
        work, tries = work + len(data), tries + 1
        if tries > _MAX_TRIES + len(text.text) or work > _MAX_HASHED_BYTES:
            return False
        if hashlib.sha256(data).hexdigest() == known:
            return True
    return False


def _possible_originals(text: str, eol: str, replacements: list[TextReplacement]) -> Iterator[str]:
    """Yield what a text may have been before the exchanges, the last of which comes first."""
    if not replacements:
        yield text
        return
    exchange, rest = replacements[0], replacements[1:]
    old, new = LINE_END.sub(eol, exchange.old), LINE_END.sub(eol, exchange.new)
    if exchange.every and new:
        yield from _possible_originals(text.replace(new, old), eol, rest)
        return
    at = text.find(new)
    while at >= 0:
        yield from _possible_originals(text[:at] + old + text[at + len(new) :], eol, rest)
        at = text.find(new, at + 1) if at < len(text) else -1


def _pattern_of(old: str) -> re.Pattern[str]:
    """A passage, with its lines ending in whatever way the file's do. Literal pieces only: linear."""
    return re.compile("(?:\r\n|\r|\n)".join(re.escape(line) for line in LINE_END.split(old)))


def _ambiguous_message(text: str, pattern: re.Pattern[str]) -> str:
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


def _missing_message(text: str, old: str) -> str:
    said = "old_string is not in the file; it must be there letter by letter, blanks and indentation included"
    if all(_LINE_NUMBER.match(line) for line in old.splitlines() if line.strip()):
        return f"{said}. It begins with line numbers, which Read adds and the file does not have"
    wanted = [line.strip() for line in old.splitlines() if line.strip()]
    lines = [line.strip() for line in text.splitlines()]
    numbered = [(number, line) for number, line in enumerate(lines, 1) if line]
    if wanted:
        for start, (number, line) in enumerate(numbered):
            if line == wanted[0] and [got for _, got in numbered[start : start + len(wanted)]] == wanted:
                return f"{said}. The lines from {number} on differ from it only in blanks"
    return said


CONTEXT_LINES = 3
"""Unchanged lines shown around a change."""

MAX_DIFF_LINES = 60

MAX_LINE_LENGTH = 200

_MAX_COMPARED_LINES = 1_000
"""Changed lines up to which they are compared one by one; beyond it the old ones go and the new ones come."""


def make_diff(old: str, new: str) -> str:
    """Return the changed lines as a unified diff without file names, cut after ``MOST_LINES``."""
    before, after = old.splitlines(), new.splitlines()
    top = _common_prefix_length(before, after)
    bottom = _common_prefix_length(before[top:][::-1], after[top:][::-1])
    first = max(top - CONTEXT_LINES, 0)
    last = max(bottom - CONTEXT_LINES, 0)
    shown = list(_diff_hunks(before[first : len(before) - last], after[first : len(after) - last], first))
    if not shown and old != new:
        return "(only how lines end, or blanks at the end of the file)"
    more = len(shown) - MAX_DIFF_LINES
    return "\n".join([*shown[:MAX_DIFF_LINES], *([f"… {more} more lines of changes"] if more > 0 else [])])


def _diff_hunks(before: Sequence[str], after: Sequence[str], first: int) -> Iterator[str]:
    if len(before) + len(after) > _MAX_COMPARED_LINES:
        yield f"@@ -{first + 1},{len(before)} +{first + 1},{len(after)} @@"
        yield from (_format_line("-", line) for line in before[:MAX_DIFF_LINES])
        yield from (_format_line("+", line) for line in after)
        return
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(CONTEXT_LINES):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield f"@@ -{first + a + 1},{b - a} +{first + c + 1},{d - c} @@"
        for kind, start, end, begin, stop in group:
            if kind == "equal":
                yield from (_format_line(" ", line) for line in before[start:end])
                continue
            yield from (_format_line("-", line) for line in before[start:end])
            yield from (_format_line("+", line) for line in after[begin:stop])


def _common_prefix_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same at the beginning of both."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _format_line(sign: str, line: str) -> str:
    return f"{sign}{line[:MAX_LINE_LENGTH]}…" if len(line) > MAX_LINE_LENGTH else f"{sign}{line}"
