"""What can go wrong with files and commands."""

from vaka.core.types.errors.base import VakaError


class FileError(VakaError):
    """A file could not be read or written; the message says why."""

    code = "file"
    exit_code = 8


class FileMissing(FileError):
    """There is no such file or folder."""

    code = "file_missing"


class FileRefused(FileError):
    """The path leaves the tree, or names something that is neither a regular file nor a folder."""

    code = "file_refused"


class FileChanged(FileError):
    """The file is not what the caller knew of it: read it again first."""

    code = "file_changed"


class SandboxError(VakaError):
    """A command cannot be confined as it was asked for, so it was not started."""

    code = "sandbox"
    exit_code = 8
