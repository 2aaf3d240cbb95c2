"""Knowledge about programs: the tables of programs.toml and file_programs.toml."""

import tomllib
from functools import cache
from importlib import resources
from typing import Any


@cache
def name_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


@cache
def _load_tables() -> dict[str, dict[str, Any]]:
    folder = resources.files("vaka.policy.bash")
    tables: dict[str, dict[str, Any]] = {}
    for name in ("programs.toml", "file_programs.toml"):
        tables |= tomllib.loads(folder.joinpath(name).read_text("utf-8"))
    return tables


def read_table(section: str) -> dict[str, Any]:
    """Return the entries of a section by program."""
    return {name: entry for names, entry in _load_tables()[section].items() for name in names.split()}


def read_set(name: str) -> frozenset[str]:
    """Return one of the ``sets``."""
    return name_set(_load_tables()["sets"][name])
