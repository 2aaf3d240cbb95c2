"""Rules for tests: no patches of code of this repository, no sleeps, and no vaka inside journeys."""

import ast
from collections.abc import Iterator

from scripts.gates.tree import File, Problem

OUR_PACKAGES = ("vaka", "pyluau")
MOCK_LIBRARIES = ("unittest.mock", "mock", "pytest_mock")
SLEEP_FUNCTIONS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}
JOURNEYS = "tests/journeys/"
JOURNEY_MODULES = ("tests.journeys", "tests.postgres_server")
"""Modules of the tests that a journey may import: they do not import vaka."""
PATCH_METHODS = {"setattr", "delattr", "setitem", "delitem"}


def import_aliases_of(file: File) -> dict[str, str]:
    """Return each name that a module imports, with its full dotted name."""
    found: dict[str, str] = {}
    for node in file.nodes:
        if isinstance(node, ast.Import):
            tops = {alias.name.partition(".")[0] for alias in node.names if not alias.asname}
            found.update({top: top for top in tops})
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def dotted_name_of(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full dotted name of an expression, as far as imports show it."""
    head, _, rest = ast.unparse(node).partition(".")
    full = known.get(head, head)
    return f"{full}.{rest}" if rest else full


def is_our_package(name: str) -> bool:
    """Return whether a dotted name is in a package of this repository."""
    return name.partition(".")[0] in OUR_PACKAGES


def find_mocks(file: File) -> Iterator[Problem]:
    """Yield each import of a mock library."""
    for node in file.nodes:
        if isinstance(node, ast.Import) and any(alias.name.startswith(MOCK_LIBRARIES) for alias in node.names):
            yield file.problem(node.lineno, "no mocks: use the fakes of vaka.testing")
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(name == mock or name.startswith(f"{mock}.") for name in named for mock in MOCK_LIBRARIES):
                yield file.problem(node.lineno, "no mocks: use the fakes of vaka.testing")


def is_zero_sleep(call: ast.Call) -> bool:
    """Return whether a call is a sleep of zero seconds."""
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def is_sleep(call: ast.Call, known: dict[str, str]) -> bool:
    """Return whether a call sleeps; ``asyncio.sleep(0)`` does not."""
    name = dotted_name_of(call.func, known)
    return name == "time.sleep" or (name in SLEEP_FUNCTIONS and not is_zero_sleep(call))


def is_patch(call: ast.Call, known: dict[str, str]) -> bool:
    """Return whether a call patches code of this repository."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PATCH_METHODS or not call.args:
        return False
    target = call.args[0]
    name = str(target.value) if isinstance(target, ast.Constant) else dotted_name_of(target, known)
    return "monkeypatch" in ast.unparse(call.func.value) and is_our_package(name)


def find_sleeps_and_patches(file: File) -> Iterator[Problem]:
    known = import_aliases_of(file)
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        if is_sleep(node, known):
            yield file.problem(node.lineno, "no sleeps: own the clock, or wait for the event itself")
        if is_patch(node, known):
            yield file.problem(node.lineno, "no patching of our own code: hand over a fake")


def imported_modules_of(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if isinstance(node, ast.ImportFrom) and node.module else []


def is_module_of_journeys(name: str) -> bool:
    """Return whether a journey may import a module."""
    is_test = name.partition(".")[0] == "tests"
    return not is_our_package(name) and (
        not is_test or any(name == known or name.startswith(f"{known}.") for known in JOURNEY_MODULES)
    )


def find_shortcuts(file: File) -> Iterator[Problem]:
    """Yield each use of vaka in a journey other than as an installed program with a provider."""
    for node in file.nodes:
        for name in imported_modules_of(node):
            if not is_module_of_journeys(name):
                yield file.problem(
                    getattr(node, "lineno", 1), f"a journey uses the installed vaka only: it does not import {name}"
                )
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "scripted:" in node.value:
            yield file.problem(node.lineno, "a journey has no scripted model: use the provider")


def check_file(file: File) -> Iterator[Problem]:
    """Yield the problems of one test file."""
    if file.is_python("tests"):
        yield from find_mocks(file)
        yield from find_sleeps_and_patches(file)
    if file.is_python("tests") and file.path.startswith(JOURNEYS):
        yield from find_shortcuts(file)
