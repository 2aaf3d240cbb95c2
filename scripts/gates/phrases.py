"""The number of clauses without a noun in the comments and strings of the source. It may only fall."""

import re
from collections.abc import Iterable, Iterator

from scripts.gates.tree import File, Problem

HEADLESS = re.compile(r"\b(?:that|those)\s+of\b|\bones?\s+(?:that|which|whose)\b", re.IGNORECASE)
"""Words that begin a clause without a noun. A reader has to look back for what they stand for."""
LIMIT = 1
"""The number of such clauses in the source. A commit that removes some lowers it; none raises it."""
PLACE = "scripts/gates/phrases.py"


def find_headless(file: File) -> Iterator[tuple[int, str]]:
    """Yield the line and the words of each clause without a noun in the comments and strings of a Python file."""
    for token in file.prose if HEADLESS.search(file.text or "") else ():
        for found in HEADLESS.finditer(token.string):
            yield token.start[0] + token.string.count("\n", 0, found.start()), " ".join(found[0].split())


def check_all(files: Iterable[File], limit: int = LIMIT) -> Iterator[Problem]:
    """Yield every clause without a noun if there are more than ``limit``, and a problem if there are fewer."""
    source = [file for file in files if file.is_python("src")]
    found = [(file, line, words) for file in source for line, words in find_headless(file)]
    if len(found) > limit:
        for file, line, words in found:
            yield file.problem(line, f"{words!r}: name the noun; src has {len(found)} such clauses, at most {limit}")
    elif source and len(found) < limit:
        yield Problem(PLACE, 1, f"src has only {len(found)} clauses without a noun; lower LIMIT from {limit}")
