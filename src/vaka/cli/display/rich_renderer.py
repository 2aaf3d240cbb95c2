"""Terminal text of a conversation: Markdown, prompts, tool calls, diffs and notes, as strings with ANSI colours."""

import difflib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

from vaka.cli import lazy
from vaka.cli.display.plain_renderer import diff_of, summary_of
from vaka.cli.render import as_printable, shorten
from vaka.core.types.message import ToolCall, ToolResult

THEMES = ("dark", "light", "none")

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

_ASCII = str.maketrans("●│✗…❯·→⇒✓○•─", "*|x~>->>+o*-")

_STYLES: Mapping[str, Mapping[str, str]] = {
    "dark": {
        "prompt": "bold cyan", "done": "green", "failed": "red", "note": "bright_black", "warning": "yellow",
        "added": "green", "removed": "red", "added.word": "bold green reverse", "removed.word": "bold red reverse",
        "markdown.code": "cyan", "markdown.link_url": "blue", "markdown.h1": "bold", "markdown.h2": "bold",
        "markdown.item.bullet": "cyan", "markdown.item.number": "cyan", "markdown.block_quote": "italic",
    },
    "light": {
        "prompt": "bold blue", "done": "green", "failed": "red", "note": "bright_black", "warning": "magenta",
        "added": "green", "removed": "red", "added.word": "bold green reverse", "removed.word": "bold red reverse",
        "markdown.code": "blue", "markdown.link_url": "blue", "markdown.h1": "bold", "markdown.h2": "bold",
        "markdown.item.bullet": "blue", "markdown.item.number": "blue", "markdown.block_quote": "italic",
    },
}  # fmt: skip
_CODE_THEMES: Mapping[str, str] = {"dark": "ansi_dark", "light": "ansi_light", "none": "ansi_dark"}
_STYLES_OF_NONE = dict.fromkeys(_STYLES["dark"], "none")

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class Renderer:
    """Renders parts of a conversation for a terminal of one width."""

    def __init__(self, width: int, *, theme: str = "dark", unicode: bool = True) -> None:
        self.width, self.theme, self.unicode = max(width, 10), theme, unicode
        styles = Theme(dict(_STYLES.get(theme, _STYLES_OF_NONE)))
        self._console = Console(
            file=io.StringIO(), width=self.width, force_terminal=True, legacy_windows=False, theme=styles,
            color_system=None if theme == "none" else "standard", highlight=False, emoji=False, markup=False,
        )  # fmt: skip

    def ansi(self, *parts: RenderableType) -> str:
        """Return renderables as text with escape sequences, without blanks at the ends of lines."""
        with self._console.capture() as capture:
            for part in parts:
                self._console.print(part, soft_wrap=False)
        text = capture.get() if self.unicode else capture.get().translate(_ASCII).encode("ascii", "replace").decode()
        return "\n".join(line.rstrip() for line in text.split("\n"))

    def markdown(self, source: str, *, continued: bool = False) -> str:
        """Return a block of Markdown, and an empty line if it is not ``continued``."""
        shown = as_printable(source, joiners=True).expandtabs(4)
        markdown = lazy.terminal_markdown()(shown, code_theme=_CODE_THEMES[self.theme], hyperlinks=False)
        return self.ansi(markdown).strip("\n") + ("\n" if continued else "\n\n")

    def prompt(self, text: str) -> str:
        """Return what a user said."""
        lines = [_cut_line(line) for line in text.split("\n", MAX_PROMPT_LINES)[:MAX_PROMPT_LINES]]
        more = text.count("\n") + 1 - MAX_PROMPT_LINES
        lines += [f"… {more} more lines"] if more > 0 else []
        return self.ansi(
            *(self._add_prefix("❯ " if not n else "  ", "prompt", line) for n, line in enumerate(lines)), ""
        )

    def panel(self, text: str) -> str:
        """Return text that may have colours of its own, wrapped at words."""
        return self.ansi(*(Text.from_ansi(line) for line in text.split("\n"))).rstrip("\n")

    def note(self, text: str, style: str = "note") -> str:
        """Return a remark about the conversation."""
        return self.ansi(Text(as_printable(text), style=style))

    def tool_call(self, call: ToolCall, result: ToolResult | None, *, depth: int = 0, full: bool = False) -> str:
        """Return a call with its result: a line, and below it the beginning of the result or the diff of a file."""
        failed = result is not None and result.failed
        sign, style = ("✗ ", "failed") if failed else ("● ", "done") if result is not None else ("○ ", "note")
        head = Text.assemble((sign, style), (as_printable(call.name, lines=False), "bold"), " ")
        head.append(self._fit(summary_of(call), self.width - head.cell_len - 2 * depth))
        lines: list[Text] = [head]
        if result is not None:
            lines += [Text.assemble(("  │ ", "note"), line) for line in self._result_lines(result, full=full)]
        return self.ansi(*(Padding(line, (0, 0, 0, 2 * depth)) for line in lines))

    def _result_lines(self, result: ToolResult, *, full: bool) -> Iterator[Text]:
        diff = diff_of(result)
        if diff:
            shown = list(diff_lines(diff))
            limit = len(shown) if full else MAX_DIFF_LINES
        else:
            limit = MAX_FULL_LINES if full else MAX_RESULT_LINES
            lines = result.text.split("\n", limit)
            shown = [Text(as_printable(line[:MAX_LINE_LENGTH]).expandtabs(4)) for line in lines]
            for line in shown if not full else ():
                line.truncate(self.width - 4, overflow="ellipsis")
        yield from shown[:limit]
        if len(shown) > limit:
            more = len(shown) - limit if diff else result.text.count("\n") + 1 - limit
            yield Text(f"… {more} more lines", style="note")

    def _add_prefix(self, prefix: str, style: str, text: str) -> Text:
        return Text.assemble((prefix, style), text)

    def _fit(self, text: str, width: int) -> str:
        line = shorten(text, max(width, 8))
        while cell_len(line) > width and len(line) > 1:  # wide characters take two columns
            line = f"{line[:-2]}…"
        return line


def _cut_line(line: str) -> str:
    more = len(line) - MAX_LINE_LENGTH
    shown = as_printable(line[:MAX_LINE_LENGTH], joiners=True).expandtabs(4)
    return f"{shown} … {more} more characters" if more > 0 else shown


def diff_lines(diff: str) -> Iterator[Text]:
    """Return the lines of a unified diff with line numbers, colours, and the changed words of a changed line marked."""
    old = new = 0
    lines = as_printable(diff).split("\n")
    number = 0
    while number < len(lines):
        line = lines[number][:MAX_LINE_LENGTH]
        hunk = _HUNK.match(line)
        if hunk is not None:
            old, new = int(hunk[1]), int(hunk[2])
            if number:
                yield Text("…", style="note")
        elif line.startswith(("-", "+")):
            removed = _run_of(lines, number, "-")
            added = _run_of(lines, number + len(removed), "+")
            yield from _changed_lines(removed, added, old, new)
            old, new = old + len(removed), new + len(added)
            number += len(removed) + len(added)
            continue
        else:
            yield Text.assemble((f"{new:>4} ", "note"), f"  {line[1:]}")
            old, new = old + 1, new + 1
        number += 1


def _run_of(lines: Sequence[str], start: int, sign: str) -> list[str]:
    end = start
    while end < len(lines) and lines[end].startswith(sign):
        end += 1
    return [line[1 : MAX_LINE_LENGTH + 1] for line in lines[start:end]]


def _changed_lines(removed: list[str], added: list[str], old: int, new: int) -> Iterator[Text]:
    pairs = len(removed) == len(added)
    marks = [_changed_words(a, b) for a, b in zip(removed, added, strict=True)] if pairs else []
    for n, line in enumerate(removed):
        yield _mark_words(f"{old + n:>4} ", "- ", line, "removed", marks[n][0] if marks else ())
    for n, line in enumerate(added):
        yield _mark_words(f"{new + n:>4} ", "+ ", line, "added", marks[n][1] if marks else ())


def _mark_words(number: str, sign: str, line: str, style: str, words: Iterable[tuple[int, int]]) -> Text:
    text = Text(line, style=style)
    for start, end in words:
        text.stylize(f"{style}.word", start, end)
    return Text.assemble((number, "note"), (sign, style), text)


def _changed_words(before: str, after: str) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the spans of words that differ; none when the lines have little in common."""
    old, new = _WORD.findall(before), _WORD.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    if len(old) + len(new) > 400 or matcher.ratio() < 0.4:
        return [], []
    spans: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
    for kind, a, b, c, d in matcher.get_opcodes():
        if kind != "equal":
            spans[0].append((len("".join(old[:a])), len("".join(old[:b]))))
            spans[1].append((len("".join(new[:c])), len("".join(new[:d]))))
    return spans
