"""Limits on the length of files."""

from collections.abc import Iterator

from scripts.gates.tree import File, Problem

CODE = (".py", ".rs", ".ts", ".tsx", ".luau", ".sql", ".sh")
GENERATED = (".generated.ts", ".d.ts")
CORE = ("src", "vaka", "core")
TURN = "src/vaka/core/loop/turn.py"


def line_limit_of(file: File) -> int:
    """Return the number of lines that a file must stay under."""
    if file.path == TURN:
        return 200
    return 300 if file.parts[:3] == CORE else 500


def check_file(file: File) -> Iterator[Problem]:
    """Yield a problem if the file is too long."""
    if not file.path.endswith(CODE) or file.path.endswith(GENERATED):
        return
    if (count := len(file.lines)) >= line_limit_of(file):
        yield file.problem(count, f"{count} lines; it must stay under {line_limit_of(file)}")
