"""Markdown for a terminal: headings at the left margin, and code on the background of the terminal."""

from typing import ClassVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, HorizontalRule, ListItem, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.rule import Rule
from rich.segment import Segment
from rich.syntax import Syntax
from rich.table import Table


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


class _NumberedItem(ListItem):
    """An item whose number has a dot, and room for two digits: items are rendered one by one."""

    def render_number(self, console: Console, options: ConsoleOptions, number: int, last_number: int) -> RenderResult:
        numeral = f"{number}.".rjust(3) + " "
        style = console.get_style("markdown.item.number", default="none")
        lines = console.render_lines(self.elements, options.update(width=options.max_width - len(numeral)))
        for index, line in enumerate(lines):
            yield Segment(" " * len(numeral) if index else numeral, style)
            yield from line
            yield Segment.line()


class _OpenTable(TableElement):
    """A table without lines around it; long words are broken, not cut."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(
            box=box.SIMPLE_HEAD,
            show_edge=False,
            pad_edge=False,
            collapse_padding=True,
            style="note",
            header_style="markdown.table.header",
        )
        for cell in self.header.row.cells if self.header is not None and self.header.row is not None else ():
            table.add_column(cell.content, overflow="fold")
        for row in self.body.rows if self.body is not None else ():
            table.add_row(*(cell.content for cell in row.cells))
        yield table


class _ThinRule(HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Rule(style="note")


class TerminalMarkdown(Markdown):
    """Markdown with the elements above."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _LeftHeading,
        "fence": _IndentedCode,
        "code_block": _IndentedCode,
        "list_item_open": _NumberedItem,
        "table_open": _OpenTable,
        "hr": _ThinRule,
    }
