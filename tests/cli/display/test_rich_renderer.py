"""Parts of a conversation as lines of a terminal."""

import pytest

from vaka.cli.display.rich_renderer import RichRenderer
from vaka.cli.display.view import SessionView
from vaka.core.types.ids import CallId
from vaka.core.types.message import Text, ToolCall, ToolResult


def call_of(name: str, **arguments: object) -> ToolCall:
    return ToolCall(id=CallId("c"), name=name, arguments=dict(arguments))


def lines_of(source: str, width: int = 30, *, unicode: bool = True) -> list[str]:
    return RichRenderer(width, theme="none", unicode=unicode).markdown(source).split("\n")[:-2]


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("1. a\n   - b\n   - c", [" 1. a", "     • b", "     • c"]),
        ("12. twelve", ["12. twelve"]),
        ("| a | b |\n|---|--:|\n| 汉字 x | 10 |", ["a        b", "──────────", "汉字 x  10"]),
        ("---", ["─" * 30]),
        ("```\n  x\n\ny\n```", ["    x", "", "  y"]),
        ("a\tb\x1b[31m\u202ec", ["a   b\\u001b[31m\\u202ec"]),
        ("می\u200cخواهم 👩\u200d💻 a\u200cb \u200d", ["می\u200cخواهم 👩\u200d💻 a\\u200cb \\u200d"]),
        ("e" + "\u0301" * 500, ["e" + "\u0301" * 4]),
    ],
)
def test_markdown_is_shown_in_lines(source: str, lines: list[str]) -> None:
    assert lines_of(source) == lines


def test_a_terminal_without_unicode_gets_ascii_only() -> None:
    shown = "\n".join(lines_of("- a — “b”\n\n| a |\n|---|\n| ü |\n\n> q\n\n---", unicode=False))
    assert shown.isascii()
    assert "* a" in shown


def test_wrapped_lines_of_a_call_stay_behind_their_bar() -> None:
    renderer = RichRenderer(30, theme="none")
    assert renderer.panel("Approve?\n  │ rm -rf everything and [y] once\n  Why: it asks about each command") == (
        "Approve?\n  │ rm -rf everything and [y]\n  │ once\n  Why: it asks about each\n  command"
    )
    result = ToolResult(call=CallId("c"), content=(Text(text="\nit failed because of a file\n"),), failed=True)
    assert renderer.tool_call(call_of("Read", file_path="x"), result) == (
        "✗ Read x\n  │ it failed because of a\n  │ file\n"
    )


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (call_of("Glob", pattern="**/*.py"), "○ Glob **/*.py\n"),
        (call_of("TodoWrite", todos=[1, 2]), "○ TodoWrite todos: 2 items\n"),
        (call_of("pay", amount=3, to="kim"), "○ pay amount: 3, to: kim\n"),
        (call_of("Bash", command="汉字" * 20), "○ Bash 汉字汉字汉字汉字汉字汉…\n"),
    ],
)
def test_a_call_is_one_line(call: ToolCall, line: str) -> None:
    assert RichRenderer(30, theme="none").tool_call(call, None) == line


@pytest.mark.parametrize("width", [20, 40, 60])
def test_the_line_of_activity_fits_the_terminal(width: int) -> None:
    view = SessionView(RichRenderer(width, theme="none"), clock=lambda: 100.0)
    view.turn_since, view.activity = 7.0, "thinking"
    line = view.live_text("Esc interrupts")
    assert len(line) <= width
    assert "think" in line
    assert "1m 33s" in line
