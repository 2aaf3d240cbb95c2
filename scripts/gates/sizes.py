"""Limits on the length of files."""

import ast
import io
import tokenize
from collections.abc import Iterable, Iterator

from scripts.gates.tree import File, Problem

CODE = (".py", ".rs", ".ts", ".tsx", ".luau", ".sql", ".sh")
GENERATED = (".generated.ts", ".d.ts")
NO_CODE = (
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
)
CORE = ("src", "vaka", "core")
TYPES_AND_PORTS = ("types", "ports")
TURN = "vaka.core.loop.turn"
"""A turn with one tool call runs through this module and those of the core that it imports."""
MAX_TURN_FILES = 20
MAX_TURN_LINES = 4_000
"""Types and ports are not counted."""


def line_limit_of(file: File) -> int:
    """Return the maximum number of lines of code of a file."""
    return 350 if file.parts[:3] == CORE else 500


def count_code_lines(file: File) -> int:
    """Count the lines of a file without blank lines, comments and docstrings.

    Only whole-line comments are known in languages other than Python.
    """
    if file.path.endswith(".py"):
        return len(_python_code_lines(file))
    return sum(1 for line in file.lines if (text := line.strip()) and not text.startswith(("//", "--", "#", "/*", "*")))


def check_file(file: File) -> Iterator[Problem]:
    """Yield a problem if the file is too long."""
    if not file.path.endswith(CODE) or file.path.endswith(GENERATED):
        return
    if (count := count_code_lines(file)) > line_limit_of(file):
        yield file.problem(len(file.lines), f"{count} lines of code; at most {line_limit_of(file)}")


def _python_code_lines(file: File) -> set[int]:
    """Return the numbers of the lines that a statement occupies, docstrings and attribute docstrings left out."""
    lines = set[int]()
    for token in tokenize.generate_tokens(io.StringIO(file.text or "").readline):
        if token.type not in NO_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in file.nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


def check_turn(files: Iterable[File]) -> Iterator[Problem]:
    """Yield a problem if the modules of the core that a turn runs through are too many or too long together."""
    counted = [file for file in files if file.parts[:3] == CORE and file.parts[3] not in TYPES_AND_PORTS]
    modules = {".".join(file.parts[1:]).removesuffix(".py").removesuffix(".__init__"): file for file in counted}
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
        text = f"a turn runs through {len(closure)} files of the core with {count} lines"
        yield modules[TURN].problem(1, f"{text}; at most {MAX_TURN_FILES} and {MAX_TURN_LINES}")


def _imports_of(file: File) -> Iterator[str]:
    """Yield the modules that a module imports when it is loaded: not those for type checkers alone."""
    for node in file.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
