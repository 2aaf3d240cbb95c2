"""Markdown that arrives in pieces: finished blocks are separated from the block that is still growing."""

import re

MAX_CODE_LINES = 40
"""Lines of an open code block after which they are returned as a finished block."""
MAX_LINE_LENGTH = 4000
"""Characters of an unfinished line after which it is returned as a finished block."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`\s]*)")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")


class MarkdownStream:
    """Splits streamed Markdown into blocks. Each character is scanned once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        """The complete lines of the open block."""
        self._partial = ""
        """The line that has no end yet."""
        self._fence = self._language = ""

    def feed(self, text: str) -> list[str]:
        """Add text; return the blocks that are complete now."""
        *complete, rest = text.split("\n")
        blocks: list[str] = []
        for line in complete:
            blocks += self._end_line(self._partial + line)
            self._partial = ""
        self._partial += rest
        if len(self._partial) > MAX_LINE_LENGTH:
            cut = self._partial.rfind(" ", 1) + 1 or len(self._partial)
            self._lines.append(self._partial[:cut])
            self._partial = self._partial[cut:]
            blocks += self._flush_code() if self._fence else self._flush()
        return blocks

    def finish(self) -> list[str]:
        """Return what is left, at the end of the text."""
        if self._partial:
            self._lines.append(self._partial)
        blocks = self._flush()
        self._partial = self._fence = self._language = ""
        return blocks

    @property
    def open_block(self) -> str:
        """The block that is not finished yet."""
        return "\n".join([*self._lines, self._partial] if self._partial else self._lines)

    def _end_line(self, line: str) -> list[str]:
        if self._fence:
            return self._end_code_line(line)
        fence = _FENCE.match(line)
        if fence is not None:
            blocks = self._flush()
            self._fence, self._language = fence[1], fence[2]
            self._lines = [line]
            return blocks
        if not line.strip():
            return self._flush()
        if _HEADING.match(line):
            blocks = self._flush()
            self._lines = [line]
            return blocks + self._flush()
        self._lines.append(line)
        return []

    def _end_code_line(self, line: str) -> list[str]:
        self._lines.append(line)
        closing = line.strip()
        if closing.startswith(self._fence) and not closing.strip(self._fence[0]):
            self._fence = self._language = ""
            return self._flush()
        return self._flush_code() if len(self._lines) > MAX_CODE_LINES else []

    def _flush_code(self) -> list[str]:
        """Return the lines of an open code block as a block of their own; the rest of it goes on in the next one."""
        blocks = ["\n".join([*self._lines, self._fence])]
        self._lines = [f"{self._fence}{self._language}"]
        return blocks

    def _flush(self) -> list[str]:
        lines, self._lines = self._lines, []
        return ["\n".join(lines)] if any(line.strip() for line in lines) else []
