"""Match regular expressions in text: a program of its own, so that it can be killed whatever a pattern does.

It talks JSON lines over its standard streams and imports only the standard library.

``regex_worker.py search`` reads ``{python, literal, ignore_case, multiline, need, seconds}``, then for each chunk of
a file ``{size, more}`` and the bytes. When a file is complete (``more`` is false) it writes ``{count, hits}``: the
number of matches, and the lines ``[first, last]`` of the first ``need`` of them.

``regex_worker.py filter`` reads ``{pattern, most, final, seconds}`` and then text in UTF-8, and writes ``{problem}``,
or ``{lines, used}`` with the matching lines, up to ``most`` characters of them, and how many bytes of the text were
consumed. A longer line is cut. A last line without a line end counts if ``final`` is true.

A pattern that takes more than ``seconds`` of processor time for one piece of text, at most a few MiB, ends the program
with ``TIMEOUT_SIGNAL``. The system does that: Python handles no signal while it matches.
"""

import codecs
import json
import re
import signal
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, BinaryIO

MAX_BYTES = 64 * 1024**2
"""The largest line, and the largest file searched across lines."""

FILTERED_BYTES = 1024**2
"""Bytes filtered at once; a longer line counts as several."""

MATCH_SECONDS = 2.0
"""The processor time that a pattern may take for one piece of text."""

TIMEOUT_SIGNAL = signal.SIGVTALRM
"""The signal that ends the program when a pattern takes longer."""


@contextmanager
def limit_time(seconds: float) -> Generator[None]:
    """End the program when the block takes more than some seconds of processor time."""
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class FileSearch:
    """The search of one file."""

    def __init__(self, pattern: "re.Pattern[str]", order: dict[str, Any]) -> None:
        self._pattern = pattern
        self._need = int(order["need"])
        self._seconds = float(order["seconds"])
        self._multiline: bool = order["multiline"]
        self._literal: str = "" if order["ignore_case"] else order["literal"]
        self._pending = bytearray()
        self._line = 1
        self._encoding = ""
        self._started = self._binary = False
        self._count = 0
        self._hits: list[list[int]] = []

    def feed(self, data: bytes) -> None:
        """Search the complete lines of the next chunk."""
        if not self._started:
            self._started = True
            if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                self._encoding = "utf-16"
            data = data.removeprefix(codecs.BOM_UTF8)
        self._binary = self._binary or (not self._encoding and b"\0" in data)
        if self._binary:
            self._pending.clear()
            return
        self._pending += data
        if self._encoding or self._multiline:
            return
        end = self._pending.rfind(b"\n") + 1
        if len(self._pending) - end > MAX_BYTES:
            end = len(self._pending)
        if end:
            with limit_time(self._seconds):
                self._search_lines(self._pending[:end].decode("utf-8", "surrogateescape"))
            del self._pending[:end]

    def finish(self) -> dict[str, Any]:
        """Search the rest and return the result."""
        if self._binary:
            return {"count": 0, "hits": []}
        if self._pending:
            text = self._pending.decode(self._encoding or "utf-8", "replace" if self._encoding else "surrogateescape")
            with limit_time(self._seconds):
                (self._search_text if self._multiline else self._search_lines)(text)
        return {"count": self._count, "hits": self._hits}

    def _search_lines(self, text: str) -> None:
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        if not self._literal or self._literal in text:
            for number, line in enumerate(lines, self._line):
                if self._pattern.search(line.removesuffix("\r")):
                    self._count += 1
                    if len(self._hits) < self._need:
                        self._hits.append([number, number])
        self._line += len(lines)

    def _search_text(self, text: str) -> None:
        line, at = 1, 0
        for found in self._pattern.finditer(text):
            start, end = found.span()
            if start == len(text) and (not text or text.endswith("\n")):
                break  # after the last line
            self._count += 1
            line += text.count("\n", at, start)
            at = start
            last = line + text.count("\n", start, max(end - 1, start))
            if self._hits and line <= self._hits[-1][1]:
                self._hits[-1][1] = max(last, self._hits[-1][1])
            elif len(self._hits) < self._need:
                self._hits.append([line, last])


def search_files() -> None:
    """Search files from standard input until its end."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    order = json.loads(source.readline())
    flags = re.IGNORECASE if order["ignore_case"] else re.NOFLAG
    pattern = re.compile(order["python"], flags | (re.MULTILINE | re.DOTALL if order["multiline"] else re.NOFLAG))
    file = FileSearch(pattern, order)
    while header := source.readline():
        piece = json.loads(header)
        file.feed(source.read(piece["size"]))
        if not piece["more"]:
            sink.write(json.dumps(file.finish()).encode() + b"\n")
            sink.flush()
            file = FileSearch(pattern, order)


def filter_text(source: BinaryIO, order: dict[str, Any]) -> dict[str, Any]:
    """Return the answer for a text: a problem, or the matching lines and the bytes consumed."""
    try:
        search = re.compile(order["pattern"]).search
    except (re.error, OverflowError, RecursionError) as error:
        return {"problem": str(error)}
    found: list[str] = []
    used, room = 0, int(order["most"])
    rest = b""
    while piece := source.read(FILTERED_BYTES):
        rest += piece
        end = rest.rfind(b"\n") + 1 or (_last_character_start(rest) if len(rest) >= FILTERED_BYTES else 0)
        with limit_time(order["seconds"]):
            taken, room = _collect_matches(rest[:end].decode("utf-8", "replace"), search, found, room)
        used += taken
        if room < 0:
            return {"lines": found, "used": used}
        rest = rest[end:]
    if order["final"] and rest:
        with limit_time(order["seconds"]):
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
        line, most = lines[number].removesuffix("\r"), room if not found else sys.maxsize
        if len(line) > most:
            line = f"{line[:most]}… [{len(line) - most} more characters in this line]"
        if found and len(line) > room:
            return sum(len(other.encode()) + 1 for other in lines[:number]), -1
        found.append(line)
        room = max(room - len(line) - 1, 0)
    return len(text.encode()), room


def filter_lines() -> None:
    """Answer one request from standard input."""
    order = json.loads(sys.stdin.buffer.readline())
    sys.stdout.write(json.dumps(filter_text(sys.stdin.buffer, order)) + "\n")


if __name__ == "__main__":
    signal.signal(TIMEOUT_SIGNAL, signal.SIG_DFL)  # a child inherits what its parent ignores and blocks
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {TIMEOUT_SIGNAL})
    {"search": search_files, "filter": filter_lines}[sys.argv[1]]()
