"""The command line of a Python that does not have one library."""

import sys

_PROGRAM = """
import sys

missing = sys.argv.pop(1)

class Absence:
    def find_spec(self, name, path=None, target=None):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absence())
from vaka.cli.main import main
main()
"""


def vaka_without(library: str, *words: str) -> list[str]:
    """Return the program that runs a command of vaka as if a library were not installed."""
    return [sys.executable, "-c", _PROGRAM, library, *words]
