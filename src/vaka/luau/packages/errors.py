"""What can be wrong with packages.

::

    InvalidInput
    ├── NotFound               no such package, version or module               (of the core)
    └── PackageError           a version, range, name, manifest or archive that makes no sense
        └── ResolutionError    no set of versions suits everybody; ``clashes`` says who asked for what
            └── PackageCycle   packages that need each other; ``chain`` names them
    Corrupt                    bytes are not the ones that were published or installed  (of the core)
"""

from collections.abc import Sequence

from vaka.core.types.errors import InvalidInput

_MAX_QUOTED_CHARS = 80


class PackageError(InvalidInput):
    """A version, a range, a name, a manifest or an archive makes no sense; nothing was done."""

    code = "package"


class ResolutionError(PackageError):
    """No set of versions suits everybody; ``clashes`` has a line for each package that is in the way."""

    code = "package_conflict"

    def __init__(self, message: str, clashes: Sequence[str] = ()) -> None:
        super().__init__("\n".join([message, *(f"- {clash}" for clash in clashes)]))
        self.clashes = tuple(clashes)


class PackageCycle(ResolutionError):
    """Packages need each other in a circle; ``chain`` names them, the first one again at its end."""

    code = "package_cycle"

    def __init__(self, chain: Sequence[str]) -> None:
        super().__init__(f"packages need each other in a circle: {' → '.join(chain)}")
        self.chain = tuple(chain)


def quote_text(text: str) -> str:
    """Return a text as an error quotes it: escaped, and cut when it is long."""
    return repr(text if len(text) <= _MAX_QUOTED_CHARS else f"{text[:_MAX_QUOTED_CHARS]}…")
