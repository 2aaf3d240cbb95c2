"""Classes of environment variables that decide what programs run, load, trust, or where they send data."""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("variable_classes.toml").read_text("utf-8"))

VARIABLE_CLASSES: Mapping[str, str] = _TABLES["classes"]
"""Regular expressions for the names of each class, without regard to case."""

_CLASSES = [
    (what, re.compile("|".join(patterns.split()), re.IGNORECASE)) for what, patterns in VARIABLE_CLASSES.items()
]

_HARMLESS = frozenset(_TABLES["harmless"].split())
"""Variables of these classes that only select a platform, a mode or what is printed."""


def class_of_variable(name: str) -> str:
    """Return what a variable decides, ``""`` if it steers no known program."""
    if name.upper() in _HARMLESS:
        return ""
    return next((what for what, pattern in _CLASSES if pattern.fullmatch(name)), "")
