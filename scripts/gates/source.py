"""Rules for Python source that no linter has."""

import ast
import re
import sys
import tokenize
from collections.abc import Iterator

from scripts.gates.tree import File, Problem

IGNORE = re.compile(r"#\s*(type|pyright):\s*ignore(?P<rest>.*)")
WITH_REASON = re.compile(r"^\[[\w\-, ]+\]\s*(#|:|-|–|—)\s*\S.*")
PENDING_MARK = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
OWN_LAYOUT = re.compile(r"#\s*fmt:\s*(skip|off)\b")
MAX_PACKED_NAMES = 2
CATCH_ALL = {"Exception", "BaseException"}
MAX_BLIND_EXCEPTS = 2
CORE_IMPORTS = {*sys.stdlib_module_names, "msgspec", "vaka"} - {"sqlite3"}


def list_comments(file: File, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the comments of a Python file with their lines, if the file has the pattern anywhere."""
    for token in file.prose if pattern.search(file.text or "") else ():
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def find_unexplained_ignores(file: File) -> Iterator[Problem]:
    """Yield each type-checker ignore that has no code or no reason."""
    for line, text in list_comments(file, IGNORE):
        found = IGNORE.search(text)
        if found and not WITH_REASON.match(found["rest"]):
            yield file.problem(line, "an ignore needs its code and a reason: # type: ignore[code]  # reason")


def find_relative_imports(file: File) -> Iterator[Problem]:
    """Yield each relative import."""
    for node in file.nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            yield file.problem(node.lineno, "imports are absolute")


def find_pending_marks(file: File) -> Iterator[Problem]:
    """Yield each comment that marks unfinished work."""
    for line, text in list_comments(file, PENDING_MARK):
        if found := PENDING_MARK.search(text):
            yield file.problem(line, f"{found[0]}: do it, or leave it out")


def find_own_layout(file: File) -> Iterator[Problem]:
    """Yield each comment that keeps the formatter from a statement."""
    for line, text in list_comments(file, OWN_LAYOUT):
        if found := OWN_LAYOUT.search(text):
            yield file.problem(line, f"{found[0]}: ruff decides the layout")


def find_packed_assignments(file: File) -> Iterator[Problem]:
    """Yield each assignment of several values to several names that could be a statement for each."""
    for node in file.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
            packed = [target for target in node.targets if isinstance(target, ast.Tuple)]
            if any(len(target.elts) > MAX_PACKED_NAMES for target in packed):
                yield file.problem(node.lineno, f"assign at most {MAX_PACKED_NAMES} names in one statement")


def list_imports(file: File) -> Iterator[tuple[int, str]]:
    """Yield the modules that a file imports, each with its line."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def is_for_type_checkers(file: File, line: int) -> bool:
    """Tell whether a line stands under ``if TYPE_CHECKING``, so that no program runs it."""
    blocks = [node for node in file.nodes if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return any(block.body[0].lineno <= line <= (block.body[-1].end_lineno or 0) for block in blocks)


def find_core_imports(file: File) -> Iterator[Problem]:
    """Yield each import of the core that is not the standard library, msgspec or the core itself."""
    for line, name in list_imports(file):
        top, *rest = name.split(".")
        if name == "typing_extensions" and is_for_type_checkers(file, line):
            continue
        if top not in CORE_IMPORTS or (top == "vaka" and rest[:1] != ["core"]):
            yield file.problem(line, f"the core imports the standard library, msgspec and itself, not {name!r}")


def exception_names_of(node: ast.expr | None) -> Iterator[str]:
    """Yield the names of the exceptions that an except clause lists."""
    if node is None:
        yield "BaseException"
    elif isinstance(node, ast.Tuple):
        for element in node.elts:
            yield from exception_names_of(element)
    elif isinstance(node, ast.Name | ast.Attribute):
        yield ast.unparse(node).removeprefix("builtins.")


def reraises(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler ends by raising the exception again."""
    last = handler.body[-1]
    return isinstance(last, ast.Raise) and last.exc is None


def is_blind(node: ast.AST) -> bool:
    """Return whether this handler swallows every exception."""
    if isinstance(node, ast.ExceptHandler):
        return bool(CATCH_ALL & set(exception_names_of(node.type))) and not reraises(node)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in {"suppress", "contextlib.suppress"}:
        return bool(CATCH_ALL & {name for argument in node.args for name in exception_names_of(argument)})
    return False


def find_blind_excepts(file: File) -> Iterator[Problem]:
    """Yield each handler that swallows every exception."""
    for node in file.nodes:
        if isinstance(node, ast.ExceptHandler | ast.Call) and is_blind(node):
            yield file.problem(node.lineno, "a blind except")


def check_file(file: File) -> Iterator[Problem]:
    """Yield the problems of one Python file."""
    if not file.is_python():
        return
    yield from find_unexplained_ignores(file)
    yield from find_relative_imports(file)
    yield from find_own_layout(file)
    yield from find_packed_assignments(file)
    if file.is_python("src"):
        yield from find_pending_marks(file)
    if file.parts[:3] == ("src", "vaka", "core"):
        yield from find_core_imports(file)


def check_files(everything: list[File]) -> Iterator[Problem]:
    """Yield the blind excepts of src, if there are more than the two that are allowed."""
    blind = [problem for file in everything if file.is_python("src") for problem in find_blind_excepts(file)]
    if len(blind) > MAX_BLIND_EXCEPTS:
        for problem in blind:
            yield Problem(
                problem.path, problem.line, f"{problem.text}: {len(blind)} in src, {MAX_BLIND_EXCEPTS} allowed"
            )
