"""Print the numbers that say how simple the tree is, beside their values before the front door and their goals.

``python -m scripts.house`` or ``make house``. Nothing fails here; the limits that a build must keep are in
``scripts/gates``. The last column of a row says what is counted.
"""

import argparse
import ast
import asyncio
import inspect
import re
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import vaka
from bench import agent_run, check, startup, ways_in
from scripts.gates.phrases import find_headless
from scripts.gates.sizes import count_code_lines
from scripts.gates.source import find_own_layout, find_packed_assignments
from scripts.gates.tree import File, list_files
from vaka.core.loop.middleware import Middleware

ROOT = Path(__file__).resolve().parents[1]
TURN = "vaka.core.loop.turn"
LOG = "vaka.core.session"
TYPES_AND_PORTS = ("vaka.core.types", "vaka.core.ports")
FLAGS = ("trusted_hosts", "add_dirs", "max_cost")
"""Fields of option groups that are flags too and whose name nothing else has."""
WRITING_TOOL = "NotebookEdit"
GENERATED = (
    "src/vaka/core/types/builtin_traits.json",
    "src/vaka/server/console_assets/",
    "src/vaka/tools/builtin/specs.json",
)
"""Files and folders of the source that scripts write."""


class Row(NamedTuple):
    """One number."""

    name: str
    before: str
    """The value when the goal was set."""
    goal: str
    value: int
    counted: str
    """What is counted."""


class Tree:
    """The files of the repository, with the numbers that follow from their text."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files = list(list_files(root))
        self.source = [file for file in self.files if file.path.startswith("src/vaka/")]
        self.modules = {module_of(file): file for file in self.source if file.is_python()}

    def count_passing(self, name: str) -> int:
        """Count the files of the source that declare a value of this name or pass it on; those that read it do not."""
        return sum(any(name in names_passed_by(node) for node in ast.walk(file.tree)) for file in self.modules.values())

    def find_tool_files(self, name: str) -> list[str]:
        """Return the files of the source that a built-in tool takes, without those that a script writes."""
        description = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() + ".md"
        word = re.compile(rf"\b{name}\b")
        written = [file for file in self.source if not file.path.startswith(GENERATED) and file.text]
        return [file.path for file in written if file.parts[-1] == description or word.search(file.text or "")]

    def count_phrases(self) -> int:
        """Count headless clauses in the comments and strings of the source."""
        return sum(1 for file in self.modules.values() for _ in find_headless(file))

    def find_imported(self, start: str) -> set[str]:
        """Return the modules of the core that a module loads, directly or not, without types and ports."""
        found, waiting = set[str](), [start]
        while waiting:
            name = waiting.pop()
            is_counted = name in self.modules and name.startswith("vaka.core") and not name.startswith(TYPES_AND_PORTS)
            if is_counted and name not in found:
                found.add(name)
                waiting += imports_of(self.modules[name])
        return found

    def find_package(self, package: str) -> set[str]:
        """Return the modules of a package."""
        return {name for name in self.modules if name == package or name.startswith(package + ".")}

    def count_lines(self, modules: Iterable[str]) -> int:
        """Count all lines of modules, blank lines and comments included."""
        return sum(len(self.modules[name].lines) for name in modules)


def module_of(file: File) -> str:
    """Return the name of the module that a file of ``src`` holds."""
    return ".".join(file.parts[1:]).removesuffix(".py").removesuffix(".__init__")


def imports_of(file: File) -> list[str]:
    """Return the modules and names that a module imports when it is loaded."""
    statements = [node for node in file.tree.body if isinstance(node, ast.ImportFrom) and node.module]
    names = [f"{node.module}.{alias.name}" for node in statements for alias in node.names]
    return [*(node.module or "" for node in statements), *names]


def names_passed_by(node: ast.AST) -> tuple[str, ...]:
    """Return the names that a node declares as a field or a parameter, or gives as a keyword or a key."""
    match node:
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.arg(arg=name):
            return (name,)
        case ast.keyword(arg=str(name)):
            return (name,)
        case ast.Dict(keys=keys):
            return tuple(key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str))
        case _:
            return ()


def public_members(kind: type) -> list[str]:
    """Return the names of a class that do not begin with an underscore."""
    return [name for name in dir(kind) if not name.startswith("_")]


def count_middleware_points() -> int:
    """Count the coroutine methods that a middleware can override."""
    return sum(1 for name in public_members(Middleware) if inspect.iscoroutinefunction(getattr(Middleware, name)))


def list_text_rows(tree: Tree) -> list[Row]:
    """Return the rows that follow from the files alone."""
    flag_files = max(map(tree.count_passing, FLAGS))
    turn = tree.find_imported(TURN)
    log = tree.find_package(LOG)
    runtime = tree.find_package("vaka.runtime")
    fragments = [path for path in (tree.root / "changes").glob("*.md") if path.name != "README.md"]
    return [
        Row("parameters of Runtime", "68", "16", len(inspect.signature(vaka.Runtime).parameters), "with those by name"),
        Row("public members of Session", "30", "22", len(public_members(vaka.Session)), "methods and attributes"),
        Row("names in vaka.__all__", "52", "40", len(vaka.__all__), "names"),
        Row("files of a flag", "10", "2", flag_files, f"declare it or pass it on; most of {', '.join(FLAGS)}"),
        Row(
            "files of a tool that writes",
            "12",
            "3",
            len(tree.find_tool_files(WRITING_TOOL)),
            f"files of src that name or describe {WRITING_TOOL}, without generated ones",
        ),
        Row("SQL migrations", "24", "2", sum(file.path.endswith(".sql") for file in tree.source), "files *.sql"),
        Row("news fragments", "407", "0", len(fragments), "files of changes/"),
        Row("files that run a turn", "40", "20", len(turn), f"modules of core that {TURN} loads"),
        Row("lines that run a turn", "7132", "4000", tree.count_lines(turn), "all lines of these modules"),
        Row("files that keep the log", "-", "16", len(log), f"modules of {LOG}"),
        Row("lines that keep the log", "-", "3200", tree.count_lines(log), "all lines of these modules"),
        Row("middleware points", "15", "8", count_middleware_points(), "coroutine methods of Middleware"),
        Row("lines of runtime", "13484", "7000", tree.count_lines(runtime), "all lines of vaka/runtime"),
        Row(
            "# fmt: skip",
            "1092",
            "0",
            sum(1 for file in tree.files if file.is_python() for _ in find_own_layout(file)),
            "comments in all Python code",
        ),
        Row(
            "packed assignments",
            "348",
            "0",
            sum(1 for file in tree.files if file.is_python() for _ in find_packed_assignments(file)),
            "of three or more names, in all Python code",
        ),
        Row(
            "headless clauses",
            "544",
            "100",
            tree.count_phrases(),
            "that of, those of, one that, in comments and strings",
        ),
        Row(
            "lines of code of src",
            "111383",
            "103383",
            sum(map(count_code_lines, tree.modules.values())),
            "no blanks or comments",
        ),
    ]


def list_run_rows() -> list[Row]:
    """Return the rows for which vaka has to run."""
    modules = check.count_modules()
    run, request = ways_in.count_run(ways_in.SESSION_ARGUMENTS), ways_in.count_request()
    calls = round(asyncio.run(agent_run.count_function_calls()))
    return [
        Row("function calls of a run in memory", "1213", "850", calls, "calls of Python and C functions"),
        Row("modules of import vaka", "11", "11", modules[startup.IMPORT_STATEMENT], "modules that it loads"),
        Row("modules of vaka run", "298", "260", modules["vaka run"], "modules that it loads"),
        Row(
            "functions of vaka run",
            "446",
            "200",
            len(ways_in.count_run().functions),
            "called before the loop of a turn",
        ),
        Row("stores that vaka run opens", "2", "1", run.stores, "for a session with a name"),
        Row("event loops of vaka run", "2", "1", run.loops, "for a session with a name"),
        Row("collectors of vaka run", "2", "1", run.collectors, "made before the loop of a turn"),
        Row(
            "reads of a settings file by vaka run", "6", "1", run.settings_reads, "of the file that is read most often"
        ),
        Row("functions of a request", "296", "150", len(request.functions), "called before the loop of its turn"),
        Row("look-ups of a request", "7", "1", request.look_ups, "of the session that it creates"),
        Row(
            "transactions of a request", "6", "4", round(request.transactions), "that create the session and run a turn"
        ),
    ]


def format_rows(rows: Collection[Row]) -> str:
    """Return the rows as a table in plain text."""
    titles = ("number", "before", "now", "goal", "counted")
    cells = [titles, *((row.name, row.before, str(row.value), row.goal, row.counted) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(titles) - 1)]
    aligned: Sequence[Callable[[str, int], str]] = (str.ljust, str.rjust, str.rjust, str.rjust)
    lines = (
        "  ".join([*(align(text, width) for align, text, width in zip(aligned, line, widths, strict=False)), line[-1]])
        for line in cells
    )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="scripts.house", description="Print how simple the tree is, in numbers.")
    parser.add_argument("--text", action="store_true", help="only the numbers for which nothing has to run")
    given = parser.parse_args(arguments)
    rows = list_text_rows(Tree(ROOT))
    print(format_rows(rows if given.text else [*rows, *list_run_rows()]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
