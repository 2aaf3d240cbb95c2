"""``Feature``: the parts of one feature as a value, and the features that are installed.

A feature is a folder of ``vaka`` with a ``feature.py``, whose ``FEATURE`` is such a value. ``runtime``, ``cli`` and
``server`` iterate over the features that they find; no other place lists the parts of a feature. This module and every
``feature.py`` import only msgspec and the standard library: a loader imports a part when it is used.
"""

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

if TYPE_CHECKING:
    import click

    from vaka.cli.kit.checks import Check
    from vaka.core.loop.feature_middleware import FeatureMiddlewareFactory
    from vaka.core.ports.feature_records import FeatureRecords
    from vaka.server.kit.door import DoorFactory
    from vaka.server.kit.operation import Operation

T = TypeVar("T")


class Feature(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of one feature."""

    name: str
    """The name of its folder in ``vaka``."""
    extra: str = ""
    """The extra that installs its libraries; the error for a missing library names it."""
    commands: Mapping[str, str] = {}
    """The names of its commands, each with its line of help."""
    load_commands: "Callable[[], Sequence[click.Command]] | None" = None
    """Returns its commands, under the names of ``commands``."""
    load_session_commands: "Callable[[], Sequence[click.Command]] | None" = None
    """Returns its commands below ``vaka sessions``."""
    load_operations: "Callable[[], Sequence[Operation]] | None" = None
    """Returns its operations of the HTTP API, below ``/api/v1``."""
    load_door: "Callable[[], DoorFactory] | None" = None
    """Returns a function that makes its other routes for a server."""
    server_feature: str = ""
    """What switches its door on in the settings of a server; ``""``: its door is always open."""
    load_middleware: "Callable[[], FeatureMiddlewareFactory] | None" = None
    """Returns a function that makes its middleware for every agent; an option of the runtime switches it on."""
    load_checks: "Callable[[], Iterable[Check]] | None" = None
    """Returns what ``vaka doctor`` says about it."""
    load_records: "Callable[[], FeatureRecords] | None" = None
    """Returns what it stores of sessions and owners beside their logs, to copy and to erase."""

    def load(self, loader: Callable[[], T]) -> T:
        """Call one of its loaders. Raises ``ConfigError`` if a library of its extra is missing."""
        try:
            return loader()
        except ModuleNotFoundError as error:
            if not self.extra or (error.name or "").partition(".")[0] == "vaka":
                raise
            from vaka.core.types.errors import ConfigError  # noqa: PLC0415  # only this error needs it

            raise ConfigError(
                f"{error.name} is not installed; add it with: pip install 'vaka[{self.extra}]'"
            ) from error


@cache
def find_features() -> tuple[Feature, ...]:
    """Return the features whose folders exist, in the order of their names."""
    names = sorted(path.parent.name for path in Path(__file__).parent.glob("*/feature.py"))
    return tuple(importlib.import_module(f"vaka.{name}.feature").FEATURE for name in names)


def has_feature(name: str) -> bool:
    """Return whether the folder of a feature exists."""
    return (Path(__file__).parent / name / "feature.py").is_file()


def missing_folder_of(error: ModuleNotFoundError) -> str:
    """Return the folder of ``vaka`` that an import did not find, ``""`` if it did not find something else."""
    package, _, name = (error.name or "").partition(".")
    folder = name.partition(".")[0]
    return folder if package == "vaka" and folder and not (Path(__file__).parent / folder).exists() else ""


def require_feature(name: str, use: str) -> Feature:
    """Return an installed feature. Raises ``ConfigError`` otherwise; ``use`` needs it, such as ``runtime.memories``."""
    if not has_feature(name):
        from vaka.core.types.errors import ConfigError  # noqa: PLC0415  # only this error needs it

        raise ConfigError(f"{use} needs the feature {name!r}, and this installation has no folder vaka/{name}")
    feature: Feature = importlib.import_module(f"vaka.{name}.feature").FEATURE
    return feature
