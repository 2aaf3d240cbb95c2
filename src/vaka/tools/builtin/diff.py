"""What changed between two texts, short enough to be read."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher

AROUND = 3
"""Unchanged lines shown around a change."""
MOST_LINES = 60
LONGEST = 200
_COMPARED = 1_000
"""Changed lines up to which they are compared one by one; beyond it the old ones go and the new ones come."""


def diff(old: str, new: str) -> str:
    """Return the changed lines as a unified diff without file names, cut after ``MOST_LINES``."""
    before, after = old.splitlines(), new.splitlines()
    top = _same(before, after)
    bottom = _same(before[top:][::-1], after[top:][::-1])
    first = max(top - AROUND, 0)
    last = max(bottom - AROUND, 0)
    shown = list(_hunks(before[first : len(before) - last], after[first : len(after) - last], first))
    if not shown and old != new:
        return "(only how lines end, or blanks at the end of the file)"
    more = len(shown) - MOST_LINES
    return "\n".join([*shown[:MOST_LINES], *([f"… {more} more lines of changes"] if more > 0 else [])])


def _hunks(before: Sequence[str], after: Sequence[str], first: int) -> Iterator[str]:
    if len(before) + len(after) > _COMPARED:
        yield f"@@ -{first + 1},{len(before)} +{first + 1},{len(after)} @@"
        yield from (_line("-", line) for line in before[:MOST_LINES])
        yield from (_line("+", line) for line in after)
        return
    for group in SequenceMatcher(None, before, after, autojunk=False).get_grouped_opcodes(AROUND):
        (_, a, _, c, _), (_, _, b, _, d) = group[0], group[-1]
        yield f"@@ -{first + a + 1},{b - a} +{first + c + 1},{d - c} @@"
        for kind, start, end, begin, stop in group:
            if kind == "equal":
                yield from (_line(" ", line) for line in before[start:end])
                continue
            yield from (_line("-", line) for line in before[start:end])
            yield from (_line("+", line) for line in after[begin:stop])


def _same(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many lines are the same at the beginning of both."""
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count


def _line(sign: str, line: str) -> str:
    return f"{sign}{line[:LONGEST]}…" if len(line) > LONGEST else f"{sign}{line}"
