"""Sift lines by a pattern: a program of its own, so that it can be stopped whatever the pattern does to it.

It reads from its standard input one JSON line with ``{pattern, most, final}`` and then text, and writes one JSON line:
``{problem}``, or ``{lines, used}`` with the lines in which the pattern is, up to ``most`` characters of them, and how
many bytes of the text they and the lines between them take. A last line without an end counts if ``final`` is true. It
knows nothing but the standard library, and of the world only its standard input and output.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

PIECE = 1024**2
"""Bytes looked at together; a line that is longer is taken for several."""


def sift(source: BinaryIO, order: dict[str, Any]) -> dict[str, Any]:
    """Return what there is to say about a text."""
    try:
        search = re.compile(order["pattern"]).search
    except (re.error, OverflowError, RecursionError) as error:
        return {"problem": str(error)}
    found: list[str] = []
    used, room = 0, int(order["most"])
    rest = b""
    while piece := source.read(PIECE):
        rest += piece
        end = rest.rfind(b"\n") + 1 or (len(rest) if len(rest) >= PIECE else 0)
        taken, room = _take(rest[:end].decode("utf-8", "replace"), search, found, room)
        used += taken
        if room < 0:
            return {"lines": found, "used": used}
        rest = rest[end:]
    if order["final"] and rest:
        used += _take(rest.decode("utf-8", "replace"), search, found, room)[0]
    return {"lines": found, "used": used}


def _take(text: str, search: Callable[[str], object], found: list[str], room: int) -> tuple[int, int]:
    """Take the lines that match as far as there is room; return the bytes looked at and the room left."""
    lines = text.split("\n")
    hits = [number for number, line in enumerate(lines) if search(line) and (line or number + 1 < len(lines))]
    for number in hits:
        line = lines[number].removesuffix("\r")
        if found and len(line) > room:
            return sum(len(other.encode()) + 1 for other in lines[:number]), -1
        found.append(line)
        room = max(room - len(line) - 1, 0)
    return len(text.encode()), room


def main() -> None:
    """Sift what comes."""
    order = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(sift(sys.stdin.buffer, order)) + "\n")


if __name__ == "__main__":
    main()
