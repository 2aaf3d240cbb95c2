"""Markdown that arrives in pieces: finished blocks are separated from the block that is still growing."""

import re

from vaka.cli.display.plain_renderer import MarkdownBlock, more_characters

MAX_BLOCK_LINES = 40
"""Lines of open text or code after which they are returned as a block of their own."""
MAX_TABLE_LINES = 200
"""Lines of an open table, whose columns depend on all of them, after which they are a block of their own."""
MAX_LINE_LENGTH = 4000
"""Characters of an unfinished line after which they are returned as a block of their own."""
MAX_SHOWN_LENGTH = 40_000
"""Characters of one line that are returned; the rest of it is counted."""
MAX_TAIL_LINES = 16
"""Lines of an open code block that its tail has."""

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`\s]*)")
_HEADING = re.compile(r" {0,3}#{1,6}(\s|$)")
_TABLE_RULE = re.compile(r"\s*\|?\s*:?-+:?\s*(\|\s*:?-*:?\s*)*$")
_ITEM = re.compile(r" {0,3}([-*+]|\d{1,9}[.)])\s+\S")
_FIRST_ITEM = re.compile(r" {0,3}([-*+]|1[.)])\s+\S")


class MarkdownStream:
    """Splits streamed Markdown into blocks of bounded size. Each character is scanned once."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        """The complete lines of the open block."""
        self._partial = ""
        """The end of the line that is not complete yet."""
        self._line_length = 0
        """Characters of that line."""
        self._fence = self._language = ""
        self._has_blank = False
        """Whether a blank line follows the lines of an open item of a list; the item may go on after it."""

    def feed(self, text: str) -> list[MarkdownBlock]:
        """Add text; return the blocks that are complete now."""
        *complete, rest = text.split("\n")
        blocks: list[MarkdownBlock] = []
        for line in complete:
            blocks += self._add_to_line(line)
            blocks += self._end_line()
        return blocks + self._add_to_line(rest)

    def finish(self) -> list[MarkdownBlock]:
        """Return what is left, at the end of the text."""
        blocks = self._end_line() if self._line_length else []
        blocks += self._flush()
        self._fence = self._language = ""
        return blocks

    @property
    def open_block(self) -> str:
        """The end of the block that is not finished yet, as a block of its own."""
        lines = [*self._lines, self._partial] if self._partial else self._lines
        if self._fence and len(lines) > MAX_TAIL_LINES:
            lines = [lines[0], *lines[-MAX_TAIL_LINES:]]
        return "\n".join(lines)

    def _add_to_line(self, text: str) -> list[MarkdownBlock]:
        """Add text without a line end; a long line is cut between words into blocks."""
        shown = text[: max(MAX_SHOWN_LENGTH - self._line_length, 0)]
        self._line_length += len(text)
        self._partial += shown
        blocks: list[MarkdownBlock] = []
        while len(self._partial) > MAX_LINE_LENGTH:
            cut = self._partial.rfind(" ", 1, MAX_LINE_LENGTH) + 1 or MAX_LINE_LENGTH
            self._lines.append(self._partial[:cut])
            self._partial = self._partial[cut:]
            blocks += self._flush_part()
        return blocks

    def _end_line(self) -> list[MarkdownBlock]:
        line, hidden = self._partial, self._line_length - MAX_SHOWN_LENGTH
        self._partial, self._line_length = "", 0
        if hidden > 0:
            line += f" {more_characters(hidden)}"
        return self._end_code_line(line) if self._fence else self._end_text_line(line)

    def _end_text_line(self, line: str) -> list[MarkdownBlock]:
        if not line.strip():
            self._has_blank = bool(self._lines) and _ITEM.match(self._lines[0]) is not None
            return [] if self._has_blank else self._flush()
        blocks = self._end_item(line) if self._has_blank else []
        fence = _FENCE.match(line)
        if fence is not None:
            blocks += self._flush()
            self._fence, self._language = fence[1], fence[2]
            self._lines = [line]
            return blocks
        if _HEADING.match(line):
            blocks += self._flush()
            self._lines = [line]
            return blocks + self._flush()
        if self._begins_part(line):
            blocks += self._flush_part()
        self._lines.append(line)
        return blocks

    def _end_item(self, line: str) -> list[MarkdownBlock]:
        """Go on with the item of a list before a blank line if the line is indented, else return it."""
        if not line.startswith("  "):
            return self._flush()
        self._lines.append("")
        self._has_blank = False
        return []

    def _end_code_line(self, line: str) -> list[MarkdownBlock]:
        self._lines.append(line)
        closing = line.strip()
        if closing.startswith(self._fence) and not closing.strip(self._fence[0]):
            self._fence = self._language = ""
            return self._flush()
        return self._flush_part() if len(self._lines) > MAX_BLOCK_LINES else []

    def _begins_part(self, line: str) -> bool:
        """Whether a line begins an item of a list, or the open block is long."""
        if not self._lines:
            return False
        in_list = _ITEM.match(self._lines[0]) is not None
        is_nested = in_list and _indent_of(line) > _indent_of(self._lines[0]) + 1
        if not is_nested and (_ITEM if in_list else _FIRST_ITEM).match(line):
            return True
        return len(self._lines) > (MAX_TABLE_LINES if self._is_table() else MAX_BLOCK_LINES)

    def _is_table(self) -> bool:
        return len(self._lines) > 1 and "|" in self._lines[0] and _TABLE_RULE.match(self._lines[1]) is not None

    def _flush_part(self) -> list[MarkdownBlock]:
        """Return the lines of the open block; what follows has the same fence or the same head of a table."""
        head = [f"{self._fence}{self._language}"] if self._fence else self._lines[:2] if self._is_table() else []
        lines, self._lines = self._lines, head
        return [MarkdownBlock("\n".join([*lines, self._fence] if self._fence else lines), continued=True)]

    def _flush(self) -> list[MarkdownBlock]:
        lines = self._lines
        self._lines = []
        self._has_blank = False
        return [MarkdownBlock("\n".join(lines))] if any(line.strip() for line in lines) else []


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
