"""Match a pattern in files: a program of its own, so that it can be killed whatever the pattern does.

It reads from its standard input one JSON line with ``{python, literal, ignore_case, multiline, need}``, then for each
chunk of a file a JSON line ``{size, more}`` and the bytes. When a file is complete (``more`` is false) it writes a JSON
line with ``{count, hits}``: the number of matches, and the lines ``[first, last]`` of the first ``need`` of them. It
imports only the standard library.
"""

import codecs
import json
import re
import sys
from typing import Any

MAX_BYTES = 64 * 1024**2
"""The largest line, and the largest file searched across lines."""


class PatternSearch:
    """The compiled pattern and its options."""

    def __init__(self, order: dict[str, Any]) -> None:
        flags = re.IGNORECASE if order["ignore_case"] else re.NOFLAG
        self.multiline: bool = order["multiline"]
        if self.multiline:
            flags |= re.MULTILINE | re.DOTALL
        self.pattern = re.compile(order["python"], flags)
        self.literal: str = "" if order["ignore_case"] else order["literal"]
        self.need: int = order["need"]


class FileSearch:
    """The search of one file."""

    def __init__(self, search: PatternSearch) -> None:
        self._search = search
        self._pending = bytearray()
        self._line = 1
        self._encoding = ""
        self._started = False
        self.binary = False
        self.count = 0
        self.hits: list[list[int]] = []

    def feed(self, data: bytes) -> None:
        """Search the complete lines of the next chunk."""
        if not self._started:
            self._started = True
            if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                self._encoding = "utf-16"
            data = data.removeprefix(codecs.BOM_UTF8)
        self.binary = self.binary or (not self._encoding and b"\0" in data)
        if self.binary:
            self._pending.clear()
            return
        self._pending += data
        if self._encoding or self._search.multiline:
            return
        end = self._pending.rfind(b"\n") + 1
        if len(self._pending) - end > MAX_BYTES:
            end = len(self._pending)
        if end:
            self._search_lines(self._pending[:end].decode("utf-8", "surrogateescape"))
            del self._pending[:end]

    def finish(self) -> dict[str, Any]:
        """Search the rest and return the result."""
        if not self.binary and self._pending:
            text = self._pending.decode(self._encoding or "utf-8", "replace" if self._encoding else "surrogateescape")
            if self._search.multiline:
                self._search_text(text)
            else:
                self._search_lines(text)
        if self.binary:
            return {"count": 0, "hits": []}
        return {"count": self.count, "hits": self.hits}

    def _search_lines(self, text: str) -> None:
        search, literal = self._search.pattern.search, self._search.literal
        lines = text.split("\n")
        ended = not lines[-1]
        if ended:
            lines.pop()
        if not literal or literal in text:
            for number, line in enumerate(lines, self._line):
                if search(line.removesuffix("\r")):
                    self.count += 1
                    if len(self.hits) < self._search.need:
                        self.hits.append([number, number])
        self._line += len(lines)

    def _search_text(self, text: str) -> None:
        line, at = 1, 0
        for found in self._search.pattern.finditer(text):
            start, end = found.span()
            if start == len(text) and (not text or text.endswith("\n")):
                break  # after the last line
            self.count += 1
            line += text.count("\n", at, start)
            at = start
            last = line + text.count("\n", start, max(end - 1, start))
            if self.hits and line <= self.hits[-1][1]:
                self.hits[-1][1] = max(last, self.hits[-1][1])
            elif len(self.hits) < self._search.need:
                self.hits.append([line, last])


def main() -> None:
    """Search files from standard input until its end."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    search = PatternSearch(json.loads(source.readline()))
    file = FileSearch(search)
    while header := source.readline():
        piece = json.loads(header)
        file.feed(source.read(piece["size"]))
        if not piece["more"]:
            sink.write(json.dumps(file.finish()).encode() + b"\n")
            sink.flush()
            file = FileSearch(search)


if __name__ == "__main__":
    main()
