"""The sandbox contract holds for an unprivileged user as well."""

import os

import pytest

from tests.sandbox.unprivileged import USER_ID, find_shared_python, python_path, run_as_user, temporary_home

pytestmark = pytest.mark.timeout(900)


KINDS = ["bubblewrap", "landlock", "unconfined"]
SELECTION = "not AtHome and not WhereTheKernelIsOld and not processor_time and not much_output"


def test_the_contract_holds_for_an_unprivileged_user() -> None:
    run_contract(KINDS, "-k", SELECTION)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_contract_holds_for_an_unprivileged_user(kind: str) -> None:
    run_contract([kind], "-m", "")


def run_contract(kinds: list[str], *which: str) -> None:
    python = find_shared_python()
    if not python:
        pytest.skip("no Python of this version can be run by a user who is not root: this one is in root's home")
    with temporary_home() as folder:
        env = {"PYTHONPATH": python_path(), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "--timeout=120"]
        tests = [f"tests/contract/test_sandbox_{kind}.py" for kind in kinds]
        done = run_as_user([python, "-m", "pytest", *options, *which, f"--basetemp={folder}/tests", *tests], env)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert os.geteuid() != USER_ID or "passed" in done.stdout
