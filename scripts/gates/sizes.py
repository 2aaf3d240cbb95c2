"""Limits on the length of files."""

import ast
from collections.abc import Iterable, Iterator

from scripts.gates.tree import File, Problem

CODE = (".py", ".rs", ".ts", ".tsx", ".luau", ".sql", ".sh")
GENERATED = (".generated.ts", ".d.ts")
CORE = ("src", "vaka", "core")
LOOP_FOLDER = ("src", "vaka", "core", "loop")
TURN = "vaka.core.loop.turn"
"""A turn with one tool call runs through this module and those of the loop that it imports."""
MAX_TURN_FILES = 8
MAX_TURN_LINES = 1_500


def line_limit_of(file: File) -> int:
    """Return the number of lines that a file must stay under."""
    return 300 if file.parts[:3] == CORE else 500


def check_file(file: File) -> Iterator[Problem]:
    """Yield a problem if the file is too long."""
    if not file.path.endswith(CODE) or file.path.endswith(GENERATED):
        return
    if (count := len(file.lines)) >= line_limit_of(file):
        yield file.problem(count, f"{count} lines; it must stay under {line_limit_of(file)}")


def check_turn(files: Iterable[File]) -> Iterator[Problem]:
    """Yield a problem if the modules of the loop that a turn runs through are too many or too long together."""
    modules = {".".join(file.parts[1:]).removesuffix(".py"): file for file in files if file.parts[:4] == LOOP_FOLDER}
    if TURN not in modules:
        return
    closure, waiting = set[str](), [TURN]
    while waiting:
        name = waiting.pop()
        if name not in closure:
            closure.add(name)
            waiting += [imported for imported in _imports_of(modules[name]) if imported in modules]
    count = sum(len(modules[name].lines) for name in closure)
    if len(closure) > MAX_TURN_FILES or count > MAX_TURN_LINES:
        text = f"a turn runs through {len(closure)} files of core/loop with {count} lines"
        yield modules[TURN].problem(1, f"{text}; at most {MAX_TURN_FILES} and {MAX_TURN_LINES}")


def _imports_of(file: File) -> Iterator[str]:
    """Yield the modules that a module imports when it is loaded: not those for type checkers alone."""
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
