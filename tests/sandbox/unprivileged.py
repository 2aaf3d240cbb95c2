"""Run Python as a user who is not root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec

REPOSITORY = Path(__file__).resolve().parents[2]
USER_ID = 65534


def find_shared_python() -> str:
    """Return a Python like this one that every user can run, ``""`` if there is none."""
    # It must be able to start itself: a Python in root's home can be started only by a process that was root before.
    version = (
        f"import subprocess, sys; assert sys.version_info[:2] == {sys.version_info[:2]!r}\n"
        "subprocess.run([sys.executable, '-c', ''], check=True)"
    )
    for python in (sys.executable, "/usr/bin/python3"):
        if run_as_user([python, "-c", version], {}).returncode == 0:
            return python
    return ""


def run_as_user(argv: list[str], env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    drop = ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}", "--clear-groups", "--"] if os.geteuid() == 0 else []
    path = {"PATH": os.environ["PATH"], **env}
    return subprocess.run([*drop, *argv], env=path, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def python_path() -> str:
    """Return a ``PYTHONPATH`` with the modules of this repository and of msgspec."""
    return ":".join([str(REPOSITORY), str(REPOSITORY / "src"), str(Path(msgspec.__file__).parents[1])])


@contextmanager
def temporary_home() -> Generator[Path]:
    """Yield a temporary home folder of that user."""
    folder = Path(tempfile.mkdtemp(prefix="vaka-test-", dir="/home" if os.geteuid() == 0 else None))
    try:
        if os.geteuid() == 0:
            os.chown(folder, USER_ID, USER_ID)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
