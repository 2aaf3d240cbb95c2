"""What a command uses: a folder, and which of its files."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.parse.syntax import Word, literal_word
from vaka.policy.decision import FolderUse

PathFilter: TypeAlias = Callable[[str], bool]
"""Whether a command uses the file at this path, relative to the folder."""


def accept_all(_path: str) -> bool:
    return True


class RecursiveOperand(NamedTuple):
    """A folder of which a command uses some files."""

    folder: Word
    use: FolderUse
    destination: Word | None = None
    """Where it puts them, if it does."""


def any_file(description: str, *, writes: bool = False) -> RecursiveOperand:
    """Return the operand for a file whose name is not known; only rules about changes count for a change."""
    use = FolderUse(accept_all, writes=writes, only_changes=writes, scope="anywhere", word=description)
    return RecursiveOperand(literal_word("."), use)
