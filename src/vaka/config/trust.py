"""Folders that a person has trusted, or would not: asked once, remembered by path, in a folder of their own.

Each answer is a file of its own, so that two programs that write at once lose nothing.
"""

import contextlib
import hashlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from vaka.config.edit import replace_file
from vaka.core.types.errors import ConfigError

_NAME = "trust"


class Answer(msgspec.Struct, frozen=True):
    """What a person said of a folder."""

    folder: str
    trusted: bool


class Trust:
    """What a person has said, in the folder of their configuration."""

    def __init__(self, config: Path) -> None:
        self._folder = config / _NAME

    def of(self, root: Path) -> bool | None:
        """Return whether a folder is trusted, ``None`` when nobody was asked. What cannot be read is no yes."""
        answer = _read(self._file(root))
        return answer.trusted if answer is not None and answer.folder == str(root) else None

    def remember(self, root: Path, trusted: bool) -> None:
        """Keep an answer. Raises ``ConfigError``."""
        path = self._file(root)
        try:
            replace_file(path, msgspec.json.encode(Answer(str(root), trusted)))
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from error

    def forget(self, root: Path) -> bool:
        """Forget an answer, to be asked again; return whether there was one. Raises ``ConfigError``."""
        path = self._file(root)
        try:
            path.unlink()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{path}: cannot be removed: {error.strerror or error}") from error
        return True

    def all(self) -> Iterable[Answer]:
        """Return every answer, by folder."""
        files: list[Path] = []
        with contextlib.suppress(OSError):
            files = sorted(self._folder.glob("*.json"))
        return sorted((answer for file in files if (answer := _read(file))), key=lambda answer: answer.folder)

    def _file(self, root: Path) -> Path:
        return self._folder / f"{hashlib.sha256(str(root).encode('utf-8', 'surrogateescape')).hexdigest()[:32]}.json"


def trusted_root(cwd: Path) -> Path:
    """Return the folder that is meant when somebody in ``cwd`` is asked: the repository's, or this one."""
    here = cwd.resolve()
    return next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)


def _read(path: Path) -> Answer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Answer)
    except (OSError, msgspec.MsgspecError):
        return None
