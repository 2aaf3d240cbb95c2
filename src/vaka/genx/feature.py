"""The feature ``genx``: agents and tools of definitions, routers with match rules, and the names of GenX."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.feature import Feature

if TYPE_CHECKING:
    import click


def load_commands() -> "Sequence[click.Command]":
    from vaka.genx.cli import match

    return [match]


FEATURE = Feature(
    name="genx",
    extra="definitions",
    commands={"match": "Check rule files, and test rules with models or offline."},
    load_commands=load_commands,
)
