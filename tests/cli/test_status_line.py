"""The status line of a long operation: one line at a terminal, two elsewhere."""

from io import StringIO

from vaka.cli.kit.render import StatusLine

STEPS = ("loading it …", "loading it … 0.5 s", "loading it … 1.0 s", "it is ready (1.2 s)")


class FakeTerminal(StringIO):
    def isatty(self) -> bool:
        return True


def printed_steps(screen: StringIO, *steps: str) -> str:
    tell = StatusLine(screen)
    for step in steps:
        tell(step)
    return screen.getvalue()


def test_a_file_gets_the_first_step_and_the_end() -> None:
    assert printed_steps(StringIO(), *STEPS, *STEPS) == "loading it …\nit is ready (1.2 s)\n" * 2
    assert printed_steps(StringIO(), *STEPS[:2]) == "loading it …\n"


def test_a_terminal_gets_one_line_that_is_rewritten() -> None:
    once = printed_steps(FakeTerminal(), *STEPS)
    assert once.count("\x1b[1A\x1b[2K") == 3
    assert [line.count("loading") for line in once.splitlines()] == [1, 1, 1, 0]
    assert once.endswith("\n")
    assert printed_steps(FakeTerminal(), *STEPS, *STEPS) == once * 2
