"""Secrets that commands must not read (variables, paths of keys), and the paths that they must not change."""

import contextlib
import functools
import os
import re
import stat
import tomllib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase, translate
from pathlib import Path

from vaka.matching.generated_folders import GENERATED_FOLDERS
from vaka.matching.sensitive_paths import HOME_PATHS, SECRETS_IN_HOMES, SYSTEM_SECRETS, protected_part_of
from vaka.sandbox.warden.created_paths import REPOSITORY_MARKERS

DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_TABLES: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_name("variables.toml").read_text("utf-8"))

_KNOWN_VARIABLES = tuple(_TABLES["known"])
"""Variables that commands get; any other name, such as ``COMPANY_CRED``, is dropped."""
_SECRET_NAME = re.compile("|".join(_TABLES["secret_words"]), re.IGNORECASE)
_SECRET_NAME_ENDING = re.compile(r"(?:^|_)(?:KEY|PASS|PWD|AUTH|PAT|DSN|CREDS)$", re.IGNORECASE)
"""Words that mean a secret only at the end of a name."""
_NEVER_SECRET = frozenset(("PWD", "OLDPWD"))
_SECRET_VALUE = re.compile(
    r"(?:^|[^A-Za-z0-9])(?:sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-"
    r"[\w-]{10,}|A[KS]IA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.|-----BEGIN [A-Z ]*PRIVATE KEY)"
)
_URL_WITH_PASSWORD = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", re.IGNORECASE)
_DROPPED_VARIABLES = re.compile("|".join(map(translate, (*_TABLES["cloud"], *_TABLES["sockets_and_code"]))))


@functools.lru_cache(maxsize=4096)
def is_known(name: str) -> bool:
    """Return whether a variable is known to be needed by programs and to hold no secret by its name."""
    return any(fnmatchcase(name.upper(), pattern) for pattern in _KNOWN_VARIABLES)


@functools.lru_cache(maxsize=4096)  # the same variables are checked for every command
def is_secret(name: str, value: str) -> bool:
    """Return whether a variable looks like a secret, a socket or injected code, by its name or its value."""
    upper = name.upper()
    if upper in _NEVER_SECRET:
        return False
    if _SECRET_NAME.search(upper) or _SECRET_NAME_ENDING.search(upper):
        return True
    return bool(_DROPPED_VARIABLES.match(upper) or _SECRET_VALUE.search(value) or _URL_WITH_PASSWORD.search(value))


def scrub_environment(environ: Mapping[str, str], allow: Iterable[str] = ()) -> dict[str, str]:
    """Return the known variables that look harmless; ``allow`` adds names or patterns with ``*``."""
    allowed = tuple(allow)
    return {
        name: value
        for name, value in environ.items()
        if name
        and "=" not in name
        and (any(fnmatchcase(name, pattern) for pattern in allowed) or (is_known(name) and not is_secret(name, value)))
    }


def drop_secrets(environ: Mapping[str, str], allow: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables that do not look like secrets; ``allow`` adds names or patterns with ``*``.

    This is for programs that the user has chosen, such as hooks, which may need any other variable.
    """
    allowed = tuple(allow)
    return {
        name: value
        for name, value in environ.items()
        if any(fnmatchcase(name, pattern) for pattern in allowed) or not is_secret(name, value)
    }


def build_command_environment(
    environ: Mapping[str, str], overrides: Mapping[str, str], allow: Iterable[str] = (), *, proxy: str = ""
) -> dict[str, str]:
    """Return the variables of a command: defaults, the scrubbed ``environ``, the proxy and then ``overrides``."""
    defaults = {"PATH": DEFAULT_PATH, "HOME": "/", "LANG": "C.UTF-8", "TERM": "dumb"}
    variables = {**defaults, **scrub_environment(environ, allow)}
    if proxy:
        variables |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), proxy)
        variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1")
    return {**variables, **overrides}


_IN_GIT_DIRECTORY = ("config", "config.worktree", "commondir", "hooks", "info/attributes")
"""Paths in a git directory that decide what git runs; the others change with every commit."""
PROTECTED_NAMES = (
    *(f".git/{name}" for name in _IN_GIT_DIRECTORY),
    ".gitmodules",
    ".claude",
    ".vaka",
    ".vscode",
    ".idea",
    ".husky",
    ".devcontainer",
    "vaka.toml",
    ".mcp.json",
    ".envrc",
    ".github/workflows",
    ".vim",
    ".vimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".lvimrc",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".zed",
    ".cursor",
    ".codex",
    ".gemini",
    "sitecustomize.py",
    "usercustomize.py",
)
"""Paths in a workspace that are protected also while they are missing.

Missing files that a branch often adds, such as ``.npmrc``, are not among them: ``git checkout`` must be able to.
"""
_MAX_ENTRIES = 20_000
"""Names below a workspace that are looked at for protected paths, nearest first, before each command."""
_MAX_PROTECTED_FILES = 2_000
"""Protected files that are looked at for other names, the nearest first."""


def secret_paths(homes: Iterable[Path] | None = None) -> tuple[str, ...]:
    """Return the usual paths of keys and credentials; ``homes`` are by default all home folders of this machine."""
    folders = tuple(homes) if homes is not None else _list_homes()
    host_keys = tuple(str(path) for path in Path("/etc/ssh").glob("ssh_host_*_key"))
    return (*(str(home / name) for home in folders for name in SECRETS_IN_HOMES), *SYSTEM_SECRETS, *host_keys)


def protected_paths(workspace: str, homes: Iterable[Path] | None = None) -> tuple[str, ...]:
    """Return the paths of a workspace that commands must not change, nor make so that it becomes a bare repository.

    Paths in folders below count if they exist, and so do other names (hard links) of protected files. ``homes`` are by
    default all home folders of this machine.
    """
    folder = workspace.rstrip("/")
    is_bare = all(os.path.lexists(f"{folder}/{name}") for name in REPOSITORY_MARKERS)
    more = _IN_GIT_DIRECTORY if is_bare else ("commondir",)
    if os.path.realpath(folder) in map(os.path.realpath, _list_homes() if homes is None else homes):
        more = (*more, *(name for name in HOME_PATHS if not name.startswith("Library/")))  # that is for macOS
    names = dict.fromkeys((*PROTECTED_NAMES, *more))
    paths = (*(f"{folder}/{name}" for name in names), *find_nested_paths(folder))
    return (*paths, *_find_other_names(folder, paths))


def find_nested_paths(workspace: str) -> Iterator[str]:
    """Yield the existing paths below a workspace that commands must not change."""
    pending, count = deque([workspace.rstrip("/") or "/"]), 0
    while pending and count < _MAX_ENTRIES:
        folder = pending.popleft()
        names = folder.split("/")[1:]
        for name, is_folder in _list_folder(folder):
            count += 1
            path = f"{folder}/{name}"
            if name == ".git" and os.access(path, os.W_OK):
                yield from (f"{path}/{inner}" for inner in _IN_GIT_DIRECTORY)
            elif protected_part_of((*names[-2:], name)):
                # A link to a folder around the workspace cannot be protected, and would make every command fail.
                if not f"{folder}/".startswith(f"{os.path.realpath(path)}/"):
                    yield path
            elif is_folder and name not in GENERATED_FOLDERS:
                pending.append(path)


def _find_other_names(workspace: str, protected: Iterable[str]) -> Iterator[str]:
    """Yield the other names, in a workspace, of protected files that have several."""
    linked = {*_list_linked(protected)}
    pending, count = deque([workspace] if linked else []), 0
    while pending and count < _MAX_ENTRIES:
        folder = pending.popleft()
        for entry in _scan_folder(folder):
            count += 1
            if entry.is_dir(follow_symlinks=False):
                pending.append(entry.path)
            elif entry.inode() in linked:
                yield entry.path


def _list_linked(paths: Iterable[str]) -> Iterator[int]:
    """Yield the inode numbers of the files at some paths, and in the folders there, that have several names."""
    pending, count = deque(dict.fromkeys(paths)), 0
    while pending and count < _MAX_PROTECTED_FILES:
        count += 1
        path = pending.popleft()
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            if stat.S_ISDIR(status.st_mode):
                pending += (entry.path for entry in _scan_folder(path))
            elif stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield status.st_ino


def _list_folder(folder: str) -> list[tuple[str, bool]]:
    return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in _scan_folder(folder)]


def _scan_folder(folder: str) -> list[os.DirEntry[str]]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        return [*entries]
    return []


def _list_homes() -> tuple[Path, ...]:
    homes = {Path.home(), Path("/root")}
    with contextlib.suppress(OSError):
        homes.update(path for path in Path("/home").iterdir() if path.is_dir())
    return tuple(sorted(homes))
