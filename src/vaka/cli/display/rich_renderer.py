"""Terminal text of a conversation: Markdown, prompts, tool calls, diffs and notes, as strings with ANSI colours."""

import difflib
import io
import re
from collections.abc import Iterator, Mapping

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.text import Text
from rich.theme import Theme

from vaka.cli.display.call_summary import NO_DECLARED_TRAITS, TraitsByName, summary_of
from vaka.cli.display.markdown import MarkdownStream
from vaka.cli.display.plain_renderer import (
    MAX_DIFF_LINES,
    MAX_FULL_LINES,
    MAX_RESULT_LINES,
    PlainRenderer,
    diff_of,
    diff_rows,
    first_lines,
    more_lines,
    prompt_lines,
)
from vaka.cli.kit.render import as_printable, shorten
from vaka.core.types.message import ToolCall, ToolResult

THEMES = ("dark", "light", "none")

_ASCII = str.maketrans("●│✗…❯·→⇒✓○•─⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏", "*|x~>->>+o*-|/-\\|/-\\|/")

_STYLES: Mapping[str, Mapping[str, str]] = {
    "dark": {
        "prompt": "bold cyan",
        "done": "green",
        "failed": "red",
        "note": "bright_black",
        "warning": "yellow",
        "added": "green",
        "removed": "red",
        "added.word": "bold green reverse",
        "removed.word": "bold red reverse",
        "markdown.code": "cyan",
        "markdown.link_url": "blue",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.block_quote": "italic",
    },
    "light": {
        "prompt": "bold blue",
        "done": "green",
        "failed": "red",
        "note": "bright_black",
        "warning": "magenta",
        "added": "green",
        "removed": "red",
        "added.word": "bold green reverse",
        "removed.word": "bold red reverse",
        "markdown.code": "blue",
        "markdown.link_url": "blue",
        "markdown.h1": "bold",
        "markdown.h2": "bold",
        "markdown.item.bullet": "blue",
        "markdown.item.number": "blue",
        "markdown.block_quote": "italic",
    },
}
_CODE_THEMES: Mapping[str, str] = {"dark": "ansi_dark", "light": "ansi_light", "none": "ansi_dark"}
_STYLES_OF_NONE = dict.fromkeys(_STYLES["dark"], "none")

_PREFIX = re.compile(r" *(?:│ ?)?")
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


class RichRenderer(PlainRenderer):
    """Renders parts of a conversation for a terminal of one width."""

    def __init__(
        self,
        width: int,
        *,
        theme: str = "dark",
        unicode: bool = True,
        declared: TraitsByName = NO_DECLARED_TRAITS,
    ) -> None:
        super().__init__(max(width, 10), declared=declared)
        self.theme, self.unicode = theme, unicode
        styles = Theme(dict(_STYLES.get(theme, _STYLES_OF_NONE)))
        self._console = Console(
            file=io.StringIO(),
            width=self.width,
            force_terminal=True,
            legacy_windows=False,
            theme=styles,
            color_system=None if theme == "none" else "standard",
            highlight=False,
            emoji=False,
            markup=False,
        )

    def ansi(self, *parts: RenderableType) -> str:
        """Return renderables as text with escape sequences, without blanks at the ends of lines."""
        with self._console.capture() as capture:
            for part in parts:
                self._console.print(part, soft_wrap=False)
        text = capture.get() if self.unicode else capture.get().translate(_ASCII).encode("ascii", "replace").decode()
        return "\n".join(line.rstrip() for line in text.split("\n"))

    def new_stream(self) -> MarkdownStream:
        return MarkdownStream()

    def markdown(self, source: str, *, continued: bool = False) -> str:
        """Return a block of Markdown, and an empty line if it is not ``continued``."""
        from vaka.cli.display.rich_markdown import TerminalMarkdown

        shown = as_printable(source, joiners=True).expandtabs(4)
        markdown = TerminalMarkdown(shown, code_theme=_CODE_THEMES[self.theme], hyperlinks=False)
        return self.ansi(markdown).strip("\n") + ("\n" if continued else "\n\n")

    def prompt(self, text: str) -> str:
        return self.ansi(
            *(Text.assemble(("  " if n else "❯ ", "prompt"), t) for n, t in enumerate(prompt_lines(text))), ""
        )

    def panel(self, text: str) -> str:
        lines = [self._wrap_after(_PREFIX.match(line), line) for line in text.split("\n")]
        return self.ansi(*(part for parts in lines for part in parts)).rstrip("\n")

    def note(self, text: str, style: str = "note") -> str:
        return self.ansi(Text(as_printable(text), style=style))

    def tool_call(
        self, call: ToolCall, result: ToolResult | None, *, depth: int = 0, full: bool = False, head: bool = True
    ) -> str:
        failed = result is not None and result.failed
        sign, style = ("✗ ", "failed") if failed else ("● ", "done") if result is not None else ("○ ", "note")
        first = Text.assemble((sign, style), (as_printable(call.name, lines=False), "bold"), " ")
        first.append(self._fit(summary_of(call, self.declared), self.width - first.cell_len - 2 * depth))
        lines = [first] if head else []
        for line in self._shown_lines(result, full=full) if result is not None else ():
            parts = line.wrap(self._console, max(self.width - 4 - 2 * depth, 8), tab_size=4)
            lines += [Text.assemble(("  │ ", "note"), part) for part in parts]
        return self.ansi(*(Padding(line, (0, 0, 0, 2 * depth)) for line in lines))

    def _wrap_after(self, prefix: "re.Match[str] | None", line: str) -> list[Text]:
        """Wrap a line at words; each part follows the prefix, so that none looks like a line of its own."""
        start = prefix[0] if prefix is not None else ""
        parts = Text.from_ansi(line[len(start) :]).wrap(self._console, max(self.width - len(start), 8), tab_size=4)
        return [
            Text(start if not n or "│" in start else " " * (len(start) or 2)) + part for n, part in enumerate(parts)
        ]

    def _shown_lines(self, result: ToolResult, *, full: bool) -> Iterator[Text]:
        diff = diff_of(result)
        if diff:
            rows = list(diff_lines(diff))
            limit = len(rows) if full else MAX_DIFF_LINES
            shown, more = rows[:limit], len(rows) - limit
        else:
            lines, more = first_lines(result.text, MAX_FULL_LINES if full else MAX_RESULT_LINES)
            shown = [Text(line) for line in lines]
            for line in shown if not full and not result.failed else ():
                line.truncate(self.width - 4, overflow="ellipsis")
        yield from shown
        if more > 0:
            yield Text(more_lines(more), style="note")

    def _fit(self, text: str, width: int) -> str:
        line = shorten(text, max(width, 8))
        while cell_len(line) > width and len(line) > 1:  # wide characters take two columns
            line = f"{line[:-2]}…"
        return line


def diff_lines(diff: str) -> Iterator[Text]:
    """Return the lines of a unified diff with line numbers, colours, and the changed words of a changed line marked."""
    for row in diff_rows(diff):
        style = {"+": "added", "-": "removed"}.get(row.sign, "")
        text = Text(row.text, style=style)
        for start, end in _changed_words(row.text, row.other) if row.other is not None else ():
            text.stylize(f"{style}.word", start, end)
        yield Text.assemble((f"{row.number} ", "note"), (f"{row.sign} ", style or "note"), text)


def _changed_words(line: str, other: str) -> Iterator[tuple[int, int]]:
    """Return the spans of words of a line that the other one does not have; none when they have little in common."""
    words, others = _WORD.findall(line), _WORD.findall(other)
    matcher = difflib.SequenceMatcher(None, words, others, autojunk=False)
    if len(words) + len(others) > 400 or matcher.ratio() < 0.4:
        return
    for kind, first, last, _, _ in matcher.get_opcodes():
        if kind != "equal" and last > first:
            yield len("".join(words[:first])), len("".join(words[:last]))
