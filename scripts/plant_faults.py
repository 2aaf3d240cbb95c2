"""Plant single-line faults in a private copy of the tree and report those that no test notices.

``python -m scripts.plant_faults --seed 7 --count 100 --minutes 60``. Faults are chosen at random in the code of
``--packages``. Each is tried against the tests that name its module, and as long as they pass against the folder of its
tests, the folders around that, other tests that import its package, and the tests of the runtime. A test that lasts
longer than ``--hang`` fails. Tests that do not end in ``--seconds`` catch the fault if they end in half of that without
it, and decide nothing otherwise. The same seed chooses the same faults as long as the code is the same; ``--first``
begins with a later one, so that two processes can share them, and ``--list`` only prints them. A fault that is not
caught is either no fault, because the program does the same as before, or needs a test. A test that fails runs again
alone, and counts if it fails again. At the end, the tests that failed run once more without a fault; those that fail
then are named, and what they alone had caught counts as undecided.
"""

import argparse
import ast
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeAlias, cast

ROOT = Path(__file__).parent.parent
PACKAGES = ("core", "policy", "stores", "server")
TIMEOUT = ["timeout"]
INSTALLED_TESTS = ("blackbox", "e2e", "journeys")
"""Folders of tests of an installed vaka, which would have to be built with each fault."""
MAX_NAMED_TESTS = 12
"""Test files that name a module; more of them say little about it."""
DISTANT_TESTS = {
    "core": ("tests/contract/test_stores_memory.py", "tests/runtime"),
    "policy": ("tests/tools", "tests/runtime"),
    "stores": ("tests/contract", "tests/runtime"),
    "server": ("tests/contract", "tests/runtime"),
}
"""Tests elsewhere that use a package through its public face."""
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
"""What replaces each operator: the comparison at the boundary, or the opposite."""
UNSWAPPED = ("isinstance", "issubclass", "map", "filter", "getattr", "hasattr")
"""Functions that fail on swapped arguments at once: such a fault only says whether a test reaches the line."""
TextOf: TypeAlias = Callable[[ast.expr], str]


class Fault(NamedTuple):
    """One replacement in one line of a file."""

    path: str
    line: int
    kind: str
    old: str
    new: str


def list_faults(path: str, source: str) -> Iterator[Fault]:
    """Yield the faults that may be planted in a module; none changes messages, docstrings or annotations."""
    lines = [line.encode() for line in source.splitlines()]  # columns are bytes

    def text_of(part: ast.expr) -> str:
        if part.lineno != part.end_lineno:
            return ""
        return lines[part.lineno - 1][part.col_offset : part.end_col_offset].decode()

    for node in _list_code(ast.parse(source)):
        for kind, part, text in _propose(node, text_of):
            if part.lineno == part.end_lineno:
                old = lines[part.lineno - 1]
                new = old[: part.col_offset] + text.encode() + old[part.end_col_offset :]
                yield Fault(path, part.lineno, kind, old.decode(), new.decode())


def compiles(root: Path, fault: Fault) -> bool:
    """Return whether a module with the fault is still valid Python, and another one than before."""
    lines = (root / fault.path).read_text("utf-8").splitlines()
    lines[fault.line - 1] = fault.new
    with contextlib.suppress(SyntaxError):
        ast.parse("\n".join(lines))
        return fault.new != fault.old
    return False


def _list_code(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, without annotations, texts, assertions, class options, imports for type checkers."""
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "type_params") or (name == "keywords" and isinstance(node, ast.ClassDef)):
            continue
        for child in cast("Sequence[object]", value) if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr | ast.Assert):
                continue
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
                continue
            yield child
            if not isinstance(child, ast.Raise):  # what it raises is mostly a message
                yield from _list_code(child)


Proposal: TypeAlias = tuple[str, "ast.expr | ast.stmt", str]
"""The kind of a fault, the part of the code that it replaces, and the replacement."""


def _propose(node: ast.AST, text_of: TextOf) -> Iterator[Proposal]:
    if isinstance(node, ast.stmt):
        yield from _change_statement(node, text_of)
    elif isinstance(node, ast.Call):
        yield from _change_call(node, text_of)
    elif isinstance(node, ast.expr):
        yield from _change_expression(node, text_of)


def _change_statement(node: ast.stmt, text_of: TextOf) -> Iterator[Proposal]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield "negated condition", test, f"(not ({text_of(test)}))"
        case ast.Raise():
            yield "removed raise", node, "pass"
        case ast.Expr(value=ast.Await() | ast.Call()):
            yield "removed call", node, "pass"
        case ast.Return(value=ast.expr() as value) if text_of(value) != "None":
            yield "removed return value", node, "return None"
        case _:
            return


def _change_call(node: ast.Call, text_of: TextOf) -> Iterator[Proposal]:
    function = text_of(node.func)
    if node.keywords:
        kept = [text_of(part) for part in node.args]
        kept += [
            f"{one.arg}={text_of(one.value)}" if one.arg else f"**{text_of(one.value)}" for one in node.keywords[:-1]
        ]
        yield "dropped argument", node, f"{function}({', '.join(kept)})"
    elif len(node.args) == 2 and function not in UNSWAPPED and all(isinstance(one, ast.Name) for one in node.args):
        first, second = map(text_of, node.args)
        yield "swapped arguments", node, f"{function}({second}, {first})"


def _change_expression(node: ast.expr, text_of: TextOf) -> Iterator[Proposal]:
    """Change a condition or a number, but no round one: that is a size or a time, and the next is as good."""
    match node:
        case ast.IfExp(test=test):
            yield "negated condition", test, f"(not ({text_of(test)}))"
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            yield "comparison", node, f"{text_of(left)} {_COMPARISONS[type(operator)]} {text_of(right)}"
        case ast.BoolOp(op=operator, values=values):
            word = " or " if isinstance(operator, ast.And) else " and "
            yield "and/or", node, f"({word.join(f'({text_of(value)})' for value in values)})"
        case ast.BinOp(op=ast.Add() | ast.Sub() as operator, left=left, right=right):
            sign = "-" if isinstance(operator, ast.Add) else "+"
            yield "plus/minus", node, f"{text_of(left)} {sign} {text_of(right)}"
        case ast.Constant(value=bool() as value):
            yield "swapped constant", node, str(not value)
        case ast.Constant(value=int() as value) if value < 10 or (value % 10 and value & (value - 1)):
            yield "off by one", node, str(value + 1)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "removed not", node, f"({text_of(operand)})"
        case _:
            return


def choose_faults(root: Path, packages: Sequence[str], count: int, seed: int) -> list[Fault]:
    """Choose faults at random, at most one for each line."""
    found: dict[tuple[str, int], list[Fault]] = {}
    for package in packages:
        for file in sorted((root / "src" / "vaka" / package).rglob("*.py")):
            path = str(file.relative_to(root))
            for fault in list_faults(path, file.read_text("utf-8")):
                found.setdefault((path, fault.line), []).append(fault)
    chance, places = random.Random(seed), sorted(found)
    chance.shuffle(places)
    chosen = (chance.choice(found[place]) for place in places)
    return list(islice((fault for fault in chosen if compiles(root, fault)), count))


def find_named_tests(root: Path, path: str) -> list[str]:
    """Return the test files that belong to a module by their name or import it, those of its own folder first."""
    module = path.removeprefix("src/").removesuffix(".py").replace("/", ".")
    contract = "_".join(Path(path.partition("_")[0]).with_suffix("").parts[2:4])  # such as stores_sqlite
    stem, folder = Path(path).stem, _test_folder_of(root, path)
    imports = re.compile(rf"^(?:from {re.escape(module)} import|import {re.escape(module)}\b)", re.MULTILINE)
    named: list[tuple[bool, bool, str]] = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        if file.relative_to(root / "tests").parts[0] in INSTALLED_TESTS:
            continue
        is_contract = file.stem == f"test_{contract}" and file.parent.name == "contract"
        is_import = imports.search(file.read_text("utf-8")) is not None
        if is_contract or is_import or stem in file.stem.removeprefix("test_"):
            test = str(file.relative_to(root))
            named.append((not test.startswith(folder), not (is_import or file.stem == f"test_{stem}"), test))
    return [test for *_, test in sorted(named)[:MAX_NAMED_TESTS]]


def find_importing_tests(root: Path, path: str) -> list[str]:
    """Return the test files in distant folders that import the package of a module or one of its modules."""
    package = str(Path(path).relative_to("src").parent).replace("/", ".")
    imports = re.compile(rf"^(?:from|import) {re.escape(package)}\b", re.MULTILINE)
    top = str(Path(path).relative_to("src/vaka").parts[0])
    found: list[tuple[int, str]] = []
    for file in sorted((root / "tests").rglob("test_*.py")):
        if file.relative_to(root / "tests").parts[0] not in (*INSTALLED_TESTS, top):
            count = len(imports.findall(file.read_text("utf-8")))
            found += [(-count, str(file.relative_to(root)))] if count else []
    return [test for _, test in sorted(found)[:MAX_NAMED_TESTS]]


def list_runs(root: Path, path: str) -> list[list[str]]:
    """Return what to run one after the other for a fault in a module, the nearest tests first."""
    folder = Path(_test_folder_of(root, path))
    around = [[str(one)] for one in (folder, *folder.parents) if one.parent != one and str(one) != "tests"]
    distant = DISTANT_TESTS.get(Path(path).relative_to("src/vaka").parts[0], ())
    far = [[one] for one in distant if (root / one).exists()]
    runs = [find_named_tests(root, path), *around, find_importing_tests(root, path), *far]
    return [tests for tests in runs if tests]


def _test_folder_of(root: Path, path: str) -> str:
    """Return the deepest folder of tests that mirrors the folder of a module."""
    folder = Path(path).relative_to("src/vaka").parent
    while not (root / "tests" / folder).is_dir():
        folder = folder.parent
    return str(Path("tests") / folder)


def run_tests(root: Path, tests: Sequence[str], seconds: float, *options: str) -> list[str]:
    """Run tests and return the names of those that failed, or ``TIMEOUT``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=no", *options]
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_PROCESS_")}
    environment = {**unmeasured, "PYTHONPATH": str(root / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, "-m", "not exhaustive", *tests],
            cwd=root,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            return TIMEOUT
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        text = output.read().decode(errors="replace")
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", text, re.MULTILINE)
    return [] if code in (0, 5) else failed or [f"exit code {code}"]


class Trial:
    """Faults that are planted one after the other in one tree."""

    def __init__(self, root: Path, seconds: float, hang: float) -> None:
        self.root = root
        self.seconds, self.hang = seconds, hang
        self._ends: dict[tuple[str, ...], bool] = {}

    def run(self, tests: Sequence[str], *, seconds: float = 0.0, to_end: bool = False) -> list[str]:
        options = [f"--timeout={self.hang:g}", *([] if to_end else ["-x"])]
        return run_tests(self.root, tests, seconds or self.seconds, *options)

    def try_fault(self, fault: Fault) -> list[str]:
        """Plant a fault, run its tests, and take it out again; return the tests that caught it."""
        file = self.root / fault.path
        original = file.read_text("utf-8")
        lines = original.splitlines(keepends=True)
        lines[fault.line - 1] = f"{fault.new}\n"
        file.write_text("".join(lines), "utf-8")
        endless: list[list[str]] = []
        try:
            for tests in list_runs(self.root, fault.path):
                caught = self.run(tests)
                if caught == TIMEOUT:
                    endless.append(tests)
                elif caught and self.run(_names_of(caught) or tests):
                    return caught
        finally:
            file.write_text(original, "utf-8")
        stopped = next((tests for tests in endless if self._ends_without_fault(tests)), None)
        return [f"no end: {' '.join(stopped)}"] if stopped else TIMEOUT if endless else []

    def _ends_without_fault(self, tests: Sequence[str]) -> bool:
        key = tuple(tests)
        if key not in self._ends:
            self._ends[key] = self.run(tests, seconds=self.seconds / 2) != TIMEOUT
        return self._ends[key]


def _names_of(caught: Sequence[str]) -> list[str]:
    """Return the names of tests; a run that ends without them is named by its exit code."""
    return [test for test in caught if "::" in test]


def copy_tree(target: Path) -> None:
    """Copy the files that git knows, as they are now."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source = ROOT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def describe(number: int, fault: Fault) -> str:
    return f"{number}. {fault.path}:{fault.line} {fault.kind}\n  - {fault.old.strip()}\n  + {fault.new.strip()}"


def plant_all(trial: Trial, faults: Sequence[tuple[int, Fault]], minutes: float) -> int:
    """Try faults one after the other until the time is over; return 1 if one of them was not caught."""
    end = time.monotonic() + minutes * 60
    missed, undecided = list[str](), list[str]()
    caught_by = dict[str, list[str]]()
    for number, fault in faults:
        if time.monotonic() > end:
            break
        caught, planted = trial.try_fault(fault), describe(number, fault)
        outcome = "no result in time" if caught == TIMEOUT else f"caught: {caught[0]}" if caught else "NOT CAUGHT"
        say(f"{planted}\n  {outcome}")
        if not caught:
            missed.append(planted)
        elif caught == TIMEOUT:
            undecided.append(planted)
        else:
            caught_by[planted] = caught
    tests = sorted({test for caught in caught_by.values() for test in _names_of(caught)})
    unreliable = trial.run(tests, seconds=max(trial.seconds, 600), to_end=True) if tests else []
    undecided += [planted for planted, caught in caught_by.items() if set(caught) <= set(unreliable)]
    count = len(missed) + len(undecided)
    total = len(caught_by) + len(missed) + sum(planted not in caught_by for planted in undecided)
    say(f"{total} planted, {total - count} caught, {len(missed)} not caught, {len(undecided)} undecided")
    for title, faults_of in (("not caught", missed), ("undecided", undecided)):
        for planted in faults_of:
            say(f"{title}: {planted}")
    for test in unreliable:
        say(f"fails also without a fault: {test}")
    return 1 if missed else 0


def main() -> int:
    """Plant faults until all are tried or the time is over, and print which were not caught."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    options.add_argument("--count", type=int, default=100)
    options.add_argument("--minutes", type=float, default=60.0, help="stop after this time")
    options.add_argument("--seconds", type=float, default=240.0, help="the time of one run of tests")
    options.add_argument("--hang", type=float, default=60.0, help="the time of one test")
    options.add_argument("--first", type=int, default=1, help="begin with this fault of the seed")
    options.add_argument("--packages", nargs="+", default=PACKAGES)
    options.add_argument("--list", action="store_true", help="print the faults and run nothing")
    given = options.parse_args()
    os.nice(15)
    with tempfile.TemporaryDirectory(prefix="vaka-faults-") as folder:
        root = Path(folder)
        copy_tree(root)
        faults = choose_faults(root, given.packages, given.count, given.seed)
        say(f"seed {given.seed}: {len(faults)} faults")
        numbered = [(n, fault) for n, fault in enumerate(faults, start=1) if n >= given.first]
        if given.list:
            say("\n".join(describe(number, fault) for number, fault in numbered))
            return 0
        return plant_all(Trial(root, given.seconds, given.hang), numbered, given.minutes)


if __name__ == "__main__":
    sys.exit(main())
