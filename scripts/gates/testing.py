"""Rules for tests: no patching of our own code, no waiting for time to pass."""

import ast
from collections.abc import Iterator

from scripts.gates.tree import File, Problem

OURS = ("vaka", "pyluau")
MOCKS = ("unittest.mock", "mock", "pytest_mock")
SLEEPS = {"time.sleep", "asyncio.sleep", "anyio.sleep", "trio.sleep"}
PATCHES = {"setattr", "delattr", "setitem", "delitem"}


def aliases(tree: ast.Module) -> dict[str, str]:
    """Return each name that a module imports, with its full dotted name."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            tops = {alias.name.partition(".")[0] for alias in node.names if not alias.asname}
            found.update({top: top for top in tops})
            found.update({alias.asname: alias.name for alias in node.names if alias.asname})
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update({alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names})
    return found


def dotted(node: ast.expr, known: dict[str, str]) -> str:
    """Return the full dotted name of an expression, as far as imports tell."""
    head, _, rest = ast.unparse(node).partition(".")
    full = known.get(head, head)
    return f"{full}.{rest}" if rest else full


def is_ours(name: str) -> bool:
    """Tell whether a dotted name is in one of our packages."""
    return name.partition(".")[0] in OURS


def mocks(file: File) -> Iterator[Problem]:
    """Yield each import of a mock library."""
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Import) and any(alias.name.startswith(MOCKS) for alias in node.names):
            yield file.problem(node.lineno, "no mocks: use the fakes of vaka.testing")
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            if any(name == mock or name.startswith(f"{mock}.") for name in named for mock in MOCKS):
                yield file.problem(node.lineno, "no mocks: use the fakes of vaka.testing")


def is_zero(call: ast.Call) -> bool:
    """Tell whether a sleep only lets others run."""
    return len(call.args) == 1 and isinstance(call.args[0], ast.Constant) and call.args[0].value == 0


def sleeps(call: ast.Call, known: dict[str, str]) -> bool:
    """Tell whether a call waits for time to pass; ``asyncio.sleep(0)`` does not."""
    name = dotted(call.func, known)
    return name == "time.sleep" or (name in SLEEPS and not is_zero(call))


def patches(call: ast.Call, known: dict[str, str]) -> bool:
    """Tell whether a call patches code of ours."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in PATCHES or not call.args:
        return False
    target = call.args[0]
    name = str(target.value) if isinstance(target, ast.Constant) else dotted(target, known)
    return "monkeypatch" in ast.unparse(call.func.value) and is_ours(name)


def calls(file: File) -> Iterator[Problem]:
    """Yield each sleep and each patch of our own code."""
    known = aliases(file.tree)
    for node in ast.walk(file.tree):
        if not isinstance(node, ast.Call):
            continue
        if sleeps(node, known):
            yield file.problem(node.lineno, "no sleeps: own the clock, or wait for the event itself")
        if patches(node, known):
            yield file.problem(node.lineno, "no patching of our own code: hand over a fake")


def check(file: File) -> Iterator[Problem]:
    """Yield what is wrong with one test file."""
    if file.is_python("tests"):
        yield from mocks(file)
        yield from calls(file)
