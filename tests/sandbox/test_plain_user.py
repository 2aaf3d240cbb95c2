"""What holds for root holds for everybody: the whole contract again, as a user without any privilege."""

import os

import pytest

from tests.sandbox.people import USER, as_user, home, python_for_all, python_path

pytestmark = pytest.mark.timeout(900)


KINDS = ["bubblewrap", "landlock", "none"]
SOME = "not AtHome and not processor_time and not much_output"


@pytest.mark.parametrize("kind", KINDS)
def test_the_contract_holds_for_a_plain_user(kind: str) -> None:
    contract(kind, "-k", SOME)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_contract_holds_for_a_plain_user(kind: str) -> None:
    contract(kind, "-m", "")


def contract(kind: str, *which: str) -> None:
    python = python_for_all()
    if not python:
        pytest.skip("no Python of this version can be run by a user who is not root: this one is in root's home")
    with home() as folder:
        env = {"PYTHONPATH": python_path(), "HOME": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "no:hypothesispytest", "--timeout=120"]
        tests = f"tests/contract/test_sandbox_{kind}.py"
        done = as_user([python, "-m", "pytest", *options, *which, f"--basetemp={folder}/tests", tests], env)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert os.geteuid() != USER or "passed" in done.stdout
