"""Filter lines by a regular expression: a program of its own, so that it can be killed whatever the pattern does.

It reads from its standard input one JSON line with ``{pattern, most, final}`` and then text in UTF-8, and writes one
JSON line: ``{problem}``, or ``{lines, used}`` with the matching lines, up to ``most`` characters of them, and how many
bytes of the text were consumed. A longer line is cut. A last line without a line end counts if ``final`` is true. It
imports only the standard library.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

CHUNK_BYTES = 1024**2
"""Bytes filtered at once; a longer line counts as several."""


def filter_text(source: BinaryIO, order: dict[str, Any]) -> dict[str, Any]:
    """Return the answer for a text: a problem, or the matching lines and the bytes consumed."""
    try:
        search = re.compile(order["pattern"]).search
    except (re.error, OverflowError, RecursionError) as error:
        return {"problem": str(error)}
    found: list[str] = []
    used, room = 0, int(order["most"])
    rest = b""
    while piece := source.read(CHUNK_BYTES):
        rest += piece
        end = rest.rfind(b"\n") + 1 or (_last_character_start(rest) if len(rest) >= CHUNK_BYTES else 0)
        taken, room = _collect_matches(rest[:end].decode("utf-8", "replace"), search, found, room)
        used += taken
        if room < 0:
            return {"lines": found, "used": used}
        rest = rest[end:]
    if order["final"] and rest:
        used += _collect_matches(rest.decode("utf-8", "replace"), search, found, room)[0]
    return {"lines": found, "used": used}


def _last_character_start(data: bytes) -> int:
    """Return the start of the last character, which may continue in the next chunk."""
    end = len(data) - 1
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return end


def _collect_matches(text: str, search: Callable[[str], object], found: list[str], room: int) -> tuple[int, int]:
    """Append matching lines to ``found`` up to ``room``; return the bytes consumed and the room left."""
    lines = text.split("\n")
    hits = [number for number, line in enumerate(lines) if search(line) and (line or number + 1 < len(lines))]
    for number in hits:
        line = _shorten_line(lines[number].removesuffix("\r"), room if not found else sys.maxsize)
        if found and len(line) > room:
            return sum(len(other.encode()) + 1 for other in lines[:number]), -1
        found.append(line)
        room = max(room - len(line) - 1, 0)
    return len(text.encode()), room


def _shorten_line(line: str, most: int) -> str:
    return line if len(line) <= most else f"{line[:most]}… [{len(line) - most} more characters in this line]"


def main() -> None:
    """Answer one request from standard input."""
    order = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(filter_text(sys.stdin.buffer, order)) + "\n")


if __name__ == "__main__":
    main()
