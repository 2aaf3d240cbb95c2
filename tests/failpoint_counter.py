"""Count how often the failpoints of a store are passed."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from vaka.stores import common


@contextmanager
def count_failpoints() -> Generator[Counter[str]]:
    """Yield the number of passes of each failpoint, counted while the block runs."""
    counted: Counter[str] = Counter()

    def hit(place: str) -> None:
        counted[place] += 1

    common.on_failpoint = hit
    try:
        yield counted
    finally:
        common.on_failpoint = None
