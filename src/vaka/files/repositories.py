"""The git repository that a folder belongs to: where it is, and what is checked out, named and staged in it."""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MAX_PARENTS = 64
_NAMED = ("refs/heads/", "refs/tags/", "refs/stash")
"""References that commands of a person change; references of remotes follow a server."""
_OPERATIONS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge/done", "rebase-apply/next", "BISECT_LOG")
"""Files that exist while git is in the middle of an operation."""
_COMMIT = re.compile(r"[0-9a-f]{40,64}")
_MAX_FILE_BYTES = 64 * 1024**2


class Repository(NamedTuple):
    """The git repository that a folder belongs to."""

    top: str
    git_folder: str
    common_folder: str


def find_repository(folder: str) -> Repository | None:
    """Return the repository whose working tree a folder is in, ``None`` if it is in none."""
    top = os.path.realpath(folder)
    for _ in range(_MAX_PARENTS):
        git_folder = _git_folder_of(top)
        if git_folder:
            common = read_text(Path(git_folder, "commondir")).strip()
            return Repository(top, git_folder, os.path.normpath(Path(git_folder, common)) if common else git_folder)
        parent = os.path.dirname(top)  # noqa: PTH120  # a text of any bytes
        if parent == top:
            return None
        top = parent
    return None


def _git_folder_of(top: str) -> str:
    place = Path(top, ".git")
    if place.is_dir():
        return str(place) if (place / "HEAD").is_file() else ""
    named = read_text(place).removeprefix("gitdir:").strip()
    return os.path.normpath(Path(top, named)) if named else ""


def head_of(repository: Repository) -> str:
    """Return the commit that is checked out and its branch, as git stores them; nothing that is neither."""
    head = read_text(Path(repository.git_folder, "HEAD")).strip()
    name = head.removeprefix("ref: ")
    if name == head:
        return _commit_in(head)
    if not name.startswith("refs/") or ".." in name:  # it would name a file of another folder
        return ""
    places = (Path(repository.git_folder, name), Path(repository.common_folder, name))
    commit = next((commit for place in places if (commit := _commit_in(read_text(place)))), "")
    return f"{name} {commit or dict(_packed_references(repository)).get(name, '')}"


def _commit_in(text: str) -> str:
    """Return the text of a reference if it is a commit: in a hostile repository it may be a link to any file."""
    return text.strip() if _COMMIT.fullmatch(text.strip()) else ""


def digest_references(repository: Repository) -> str:
    """Return a digest of branches, tags, the stash, and of the operation that git is in the middle of."""
    found = {name: commit for name, commit in _packed_references(repository) if name.startswith(_NAMED)}
    found |= {name: commit for name, commit in _loose_references(repository) if name.startswith(_NAMED)}
    for name in _OPERATIONS:
        found[name] = read_text(Path(repository.git_folder, name))
    found["reftable"] = read_text(Path(repository.common_folder, "reftable/tables.list"))
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()


def _packed_references(repository: Repository) -> Iterator[tuple[str, str]]:
    for line in read_text(Path(repository.common_folder, "packed-refs")).splitlines():
        commit, _, name = line.partition(" ")
        yield name, commit


def _loose_references(repository: Repository) -> Iterator[tuple[str, str]]:
    common = Path(repository.common_folder)
    for top in ("refs/heads", "refs/tags"):
        for folder, _, names in os.walk(common / top):
            for name in names:
                path = Path(folder, name)
                yield path.relative_to(common).as_posix(), read_text(path).strip()
    stash = read_text(common / "refs/stash").strip()
    if stash:
        yield "refs/stash", stash


def read_text(path: Path) -> str:
    """Return the content of a file of a repository, nothing if it cannot be read, is no file or is very large."""
    try:
        with open(path, "rb", opener=_open_at_once) as file:  # a pipe must not make vaka wait
            status = os.fstat(file.fileno())
            data = file.read() if stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_FILE_BYTES else b""
    except OSError:
        return ""
    return data.decode("utf-8", "surrogateescape")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
