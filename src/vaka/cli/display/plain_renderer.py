"""Plain text of a conversation: prompts, tool calls, diffs and notes, without colours and control sequences."""

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from vaka.cli.display.call_summary import NO_DECLARED_TRAITS, TraitsByName, summary_of
from vaka.cli.kit.render import as_printable, shorten
from vaka.cli.strings import translate
from vaka.core.types.message import ToolCall, ToolResult

if TYPE_CHECKING:
    from vaka.cli.display.markdown import MarkdownStream

MAX_RESULT_LINES = 6
"""Lines of a result that a tool call shows."""
MAX_FULL_LINES = 2000
"""Lines of a result that is shown whole."""
MAX_DIFF_LINES = 60
"""Lines of a diff that a tool call shows."""
MAX_PROMPT_LINES = 12
"""Lines of a prompt that are shown when it is sent."""
MAX_LINE_LENGTH = 2000
"""Characters of one line of a result or diff."""

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


class MarkdownBlock(NamedTuple):
    """A part of a text that can be rendered alone."""

    source: str
    continued: bool = False
    """Whether the next block is a part of the same paragraph, list, table or code."""


class PlainStream:
    """Text that is shown as it arrives. Has the methods of ``MarkdownStream``."""

    open_block = ""

    def __init__(self) -> None:
        self._line_open = False

    def feed(self, text: str) -> list[MarkdownBlock]:
        self._line_open = not text.endswith("\n") if text else self._line_open
        return [MarkdownBlock(text, continued=True)] if text else []

    def finish(self) -> list[MarkdownBlock]:
        """End the line."""
        was_open, self._line_open = self._line_open, False
        return [MarkdownBlock("\n")] if was_open else []


class LineStream:
    """Text that is shown line by line. Has the methods of ``MarkdownStream``."""

    def __init__(self) -> None:
        self.open_block = ""

    def feed(self, text: str) -> list[MarkdownBlock]:
        *lines, self.open_block = (self.open_block + text).split("\n")
        return [MarkdownBlock(line, continued=True) for line in lines]

    def finish(self) -> list[MarkdownBlock]:
        rest, self.open_block = self.open_block, ""
        return [MarkdownBlock(rest)] if rest else []


class PlainRenderer:
    """Renders parts of a conversation as plain text, for lines of one width."""

    def __init__(self, width: int = 100, *, declared: TraitsByName = NO_DECLARED_TRAITS) -> None:
        """``declared`` has the traits of tools that are not built in."""
        self.width, self.declared = width, declared

    def new_stream(self) -> "MarkdownStream | PlainStream":
        """Return what splits streamed text into the blocks that ``markdown`` renders."""
        return PlainStream()

    def markdown(self, source: str, *, continued: bool = False) -> str:
        """Return a block of the answer."""
        return as_printable(source, joiners=True)

    def prompt(self, text: str) -> str:
        """Return what a user said, and an empty line."""
        lines = prompt_lines(text)
        return "\n".join(["❯ " + lines[0], *("  " + line for line in lines[1:]), "", ""])

    def panel(self, text: str) -> str:
        """Return text that may have colours of its own, wrapped at words."""
        return text

    def note(self, text: str, style: str = "note") -> str:
        """Return a remark about the conversation."""
        return f"{as_printable(text)}\n"

    def tool_call(
        self, call: ToolCall, result: ToolResult | None, *, depth: int = 0, full: bool = False, head: bool = True
    ) -> str:
        """Return a call with its result: a line, and below it the beginning of the result or the diff of a file."""
        indent = "  " * depth
        lines: list[str] = []
        if head:
            sign = "→" if result is None else "✗" if result.failed else "●"
            name = as_printable(call.name, lines=False)
            lines.append(f"{indent}{sign} {name} {shorten(summary_of(call, self.declared), self.width)}".rstrip())
        if result is not None:
            bar = "✗" if result.failed and not head else "│"
            lines += [f"{indent}  {bar} {line}".rstrip() for line in self._result_lines(result, full=full)]
        return "".join(f"{line}\n" for line in lines)

    def _result_lines(self, result: ToolResult, *, full: bool) -> Iterator[str]:
        diff = diff_of(result)
        if diff:
            rows = [f"{row.number} {row.sign} {row.text}" for row in diff_rows(diff)]
            limit = len(rows) if full else MAX_DIFF_LINES
            lines, more = rows[:limit], len(rows) - limit
        else:
            lines, more = first_lines(result.text, MAX_FULL_LINES if full else MAX_RESULT_LINES)
            lines = lines if full else [shorten_end(line, self.width) for line in lines]
        yield from lines
        if more > 0:
            yield more_lines(more)


def more_lines(count: int) -> str:
    """Return how many lines are not shown."""
    return translate("… {count} more lines", count=count)


def more_characters(count: int) -> str:
    """Return how many characters are not shown."""
    return translate("… {count} more characters", count=count)


def shorten_end(line: str, width: int) -> str:
    """Return a line with an ellipsis where it is cut; its blanks stay."""
    return line if len(line) <= width else f"{line[: width - 1]}…"


def first_lines(text: str, limit: int) -> tuple[list[str], int]:
    """Return the first lines of a result, each with an end, and how many there are more."""
    text = text.strip("\n")
    lines = text.split("\n", limit)[:limit]
    return [as_printable(line[:MAX_LINE_LENGTH]).expandtabs(4) for line in lines], text.count("\n") + 1 - limit


def prompt_lines(text: str) -> list[str]:
    """Return the first lines of what a user said."""
    lines = [_cut_line(line) for line in text.split("\n", MAX_PROMPT_LINES)[:MAX_PROMPT_LINES]]
    more = text.count("\n") + 1 - MAX_PROMPT_LINES
    return [*lines, more_lines(more)] if more > 0 else lines


def _cut_line(line: str) -> str:
    more = len(line) - MAX_LINE_LENGTH
    shown = as_printable(line[:MAX_LINE_LENGTH], joiners=True).expandtabs(4)
    return f"{shown} {more_characters(more)}" if more > 0 else shown


def diff_of(result: ToolResult) -> str:
    """Return the diff of a file that a call has changed, ``""`` for none."""
    value: Any = result.value
    diff: Any = cast("dict[str, Any]", value).get("diff") if isinstance(value, dict) else None
    return diff if isinstance(diff, str) and not result.failed else ""


class DiffRow(NamedTuple):
    """A line of a diff."""

    number: str
    sign: str
    """``+`` or ``-``, ``" "`` for an unchanged line, ``…`` between two changes."""
    text: str
    other: str | None = None
    """The line that it replaces, or that replaces it, if that is known."""


def diff_rows(diff: str) -> Iterator[DiffRow]:
    """Return the lines of a unified diff with their numbers."""
    old = new = 0
    lines = as_printable(diff).split("\n")
    number = 0
    while number < len(lines):
        line = lines[number][:MAX_LINE_LENGTH]
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = int(hunk[1]), int(hunk[2])
            if number:
                yield DiffRow("    ", "…", "")
        elif line.startswith(("-", "+")):
            removed = _run_of(lines, number, "-")
            added = _run_of(lines, number + len(removed), "+")
            yield from _changed_rows(removed, added, old, new)
            old, new = old + len(removed), new + len(added)
            number += len(removed) + len(added)
            continue
        else:
            yield DiffRow(f"{new:>4}", " ", line[1:])
            old, new = old + 1, new + 1
        number += 1


def _run_of(lines: Sequence[str], start: int, sign: str) -> list[str]:
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        end += 1
    return [line[1 : MAX_LINE_LENGTH + 1] for line in lines[start:end]]


def _changed_rows(removed: list[str], added: list[str], old: int, new: int) -> Iterator[DiffRow]:
    pairs = len(removed) == len(added)
    for n, line in enumerate(removed):
        yield DiffRow(f"{old + n:>4}", "-", line, added[n] if pairs else None)
    for n, line in enumerate(added):
        yield DiffRow(f"{new + n:>4}", "+", line, removed[n] if pairs else None)


def format_cost(cost: float) -> str:
    """Return US dollars; cents have two more digits while the sum is small."""
    return f"${cost:.2f}" if cost >= 1 else f"${cost:.4f}".rstrip("0").rstrip(".") if cost else ""


def format_tokens(count: int) -> str:
    return (
        f"{count / 1_000_000:.1f}M" if count >= 1_000_000 else f"{count / 1000:.1f}k" if count >= 1000 else str(count)
    )


def tokens_text(count: int) -> str:
    return translate("{count} tokens", count=format_tokens(count))


def format_seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds < 60 else f"{seconds // 60:.0f}m {seconds % 60:.0f}s"
