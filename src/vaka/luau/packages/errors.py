"""Errors of packages.

::

    InvalidInput
    ├── NotFound               no such package, version or module               (of the core)
    └── PackageError           an invalid version, range, name, manifest or archive
        └── ResolutionError    no set of versions satisfies all requirements; ``clashes`` lists them
            └── PackageCycle   packages depend on each other in a cycle; ``chain`` names them
    Corrupt                    bytes differ from those that were published or installed  (of the core)
"""

from collections.abc import Sequence

from vaka.core.types.errors import InvalidInput

_MAX_QUOTED_CHARS = 80


class PackageError(InvalidInput):
    """A version, range, name, manifest or archive is invalid; nothing was changed."""

    code = "package"


class ResolutionError(PackageError):
    """No set of versions satisfies all requirements; ``clashes`` has a line for each package in conflict."""

    code = "package_conflict"

    def __init__(self, message: str, clashes: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"- {clash}" for clash in clashes)]))
        self.clashes = tuple(clashes)


class PackageCycle(ResolutionError):
    """Packages depend on each other in a cycle; ``chain`` names them, ending with the first."""

    code = "package_cycle"

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__(f"packages depend on each other in a cycle: {' → '.join(chain)}")
        self.chain = tuple(chain)


def quote_text(text: str) -> str:
    """Return a text for an error message: escaped, and truncated if it is long."""
    return repr(text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…")
