"""A newer version of vaka, for tests: this one with more migrations."""

import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import vaka
from tests.unmeasured import without_coverage
from vaka.stores.common import FIRST_SCHEMA

STORES = ("sqlite", "postgres")

TIMEOUT = 60
"""Seconds after which a command counts as hanging."""


class NewerVaka:
    """A copy of the package, made of links, in which the stores have the folders ``migrations`` to themselves."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        package = Path(vaka.__file__).parent
        _link_files(package, folder / "vaka", apart=("stores",))
        _link_files(package / "stores", folder / "vaka" / "stores", apart=STORES)
        for store in STORES:
            _link_files(package / "stores" / store, folder / "vaka" / "stores" / store, apart=("migrations",))
            migrations = package / "stores" / store / "migrations"
            _link_files(migrations, folder / "vaka" / "stores" / store / "migrations")

    def migrations(self, store: str) -> Path:
        return self._folder / "vaka" / "stores" / store / "migrations"

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which ``python -m vaka`` is this version."""
        known = without_coverage(os.environ if env is None else env)
        return {**known, "PYTHONPATH": str(self._folder), "HOME": str(self._folder)}

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "vaka", *words],
            cwd=self._folder,
            env=self.environment(),
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        """Run a command; return its exit code and what it printed."""
        return read_to_end(self.start(*words))


def read_to_end(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    """Return the exit code of a process and what it printed."""
    out, err = process.communicate(timeout=TIMEOUT)
    return process.returncode, out, err


def next_migration(number: int) -> str:
    """Return the name of the file of a migration that follows the first one."""
    return f"{FIRST_SCHEMA + number:04}_test.sql"


def _link_files(source: Path, target: Path, apart: Iterable[str] = ()) -> None:
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.name not in (*apart, "__pycache__"):
            (target / file.name).symlink_to(file)
