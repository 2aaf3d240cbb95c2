"""Markdown for a terminal: headings at the left margin, and code on the background of the terminal."""

from typing import ClassVar

from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.padding import Padding
from rich.syntax import Syntax


class _LeftHeading(Heading):
    """A heading at the left margin, without a box."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _IndentedCode(CodeBlock):
    """Highlighted code, indented by two columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        syntax = Syntax("", self.lexer_name, theme=self.theme, background_color="default")
        code = syntax.highlight(str(self.text).rstrip())
        code.rstrip()
        code.no_wrap, code.overflow = False, "fold"
        yield Padding(code, (0, 0, 0, 2))


class TerminalMarkdown(Markdown):
    """Markdown with the elements above."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements, "heading_open": _LeftHeading, "fence": _IndentedCode, "code_block": _IndentedCode,
    }  # fmt: skip
