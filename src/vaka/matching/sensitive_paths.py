"""Paths that decide what runs or what is allowed, and paths that hold secrets; for rules and for the sandbox.

They are in sensitive_paths.toml.
"""

import re
import tomllib
import unicodedata
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

_TABLES: Mapping[str, list[str]] = tomllib.loads(Path(__file__).with_name("sensitive_paths.toml").read_text("utf-8"))

_CONTROL_FOLDERS = frozenset(_TABLES["control_folders"])

SHELL_FILES = tuple(_TABLES["shell_files"])
"""Files that shells run when they start."""

_CONTROL_FILES = frozenset((*_TABLES["control_files"], *SHELL_FILES))

_CLAUDE_SETTINGS = frozenset(_TABLES["claude_settings"])

HOME_PATHS = (*SHELL_FILES, *_TABLES["home_paths"])
"""Paths below a home folder that decide what the programs of its owner run."""

_PROJECT_PATHS = tuple(_TABLES["project_paths"])
"""Paths of a project that other programs of its owner, or its build service, execute or take configuration from."""

_MORE_PATHS = {tuple(path.casefold().split("/")) for path in (*HOME_PATHS, *_PROJECT_PATHS) if path != "bin"}

_MORE_BY_FIRST: dict[str, list[tuple[str, ...]]] = {}
for _path in _MORE_PATHS:
    _MORE_BY_FIRST.setdefault(_path[0], []).append(_path)

_INVISIBLE_CHARACTERS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad]")

_SHORT_NAMES = {"git~1": ".git", "claude~1": ".claude", "vscode~1": ".vscode"}
"""Short names of the same folders on Windows file systems."""


def control_part_of(path: Sequence[str]) -> str:
    """Return the part of an absolute path whose content is never changed without a question, ``""`` without one."""
    names = [_normalize_name(part) for part in path]
    for index, name in enumerate(names):
        last = index == len(names) - 1
        if name in _CONTROL_FOLDERS or (last and name in _CONTROL_FILES):
            return path[index]
        if name == ".claude" and (last or names[index + 1] in _CLAUDE_SETTINGS):
            return ".claude" if last else f".claude/{names[index + 1]}"
        if name == "vaka" and index and names[index - 1] in (".config", "etc") and not last:
            return f"{names[index - 1]}/vaka"
    return ""


def protected_part_of(path: Sequence[str]) -> str:
    """Return the part of an absolute path that decides what runs or what is allowed, ``""`` without one."""
    part = control_part_of(path)
    if part:
        return part
    names = [_normalize_name(name) for name in path]
    for index, name in enumerate(names):
        for known in _MORE_BY_FIRST.get(name, ()):
            if tuple(names[index : index + len(known)]) == known:
                return "/".join(path[index : index + len(known)])
    return ""


_CLAUDE_CONTENT = frozenset(_TABLES["claude_content"])
"""Folders of ``.claude`` that agents read or run."""


def names_plugin_state(pattern: str, path: Sequence[str]) -> bool:
    """Return whether a file is in a plugin's own folder of ``.claude``, and the pattern of a rule names that folder."""
    folder = _plugin_state_of(path)
    return bool(folder) and re.search(rf"(?:^|/)\.claude/{re.escape(folder)}(?:/|$)", pattern) is not None


def _plugin_state_of(path: Sequence[str]) -> str:
    """Return the folder of ``.claude`` that a file is in, if only the plugin that made it uses it, else ``""``."""
    names = [_normalize_name(name) for name in path]
    index = names.index(".claude") if ".claude" in names else len(names)
    if index + 2 >= len(names):
        return ""  # not in a folder of it
    folder = names[index + 1]
    if folder in _CLAUDE_CONTENT or folder.startswith((".", "settings")):
        return ""
    around = protected_part_of(path[:index]) or protected_part_of(path[index + 2 :])
    return "" if around else path[index + 1]


def _normalize_name(name: str) -> str:
    """Return a name as the most lenient file system compares it."""
    if name.isascii() and name.islower() and name[-1] not in ". " and ":" not in name:
        return _SHORT_NAMES.get(name, name)
    plain = unicodedata.normalize("NFKC", _INVISIBLE_CHARACTERS.sub("", name)).casefold()
    plain = plain.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(plain, plain)


SECRETS_IN_HOMES = tuple(_TABLES["secrets_in_homes"])
"""Paths below a home folder that hold secrets."""

SYSTEM_SECRETS = tuple(_TABLES["system_secrets"])

_ORDINARY_IN_PROJECTS = frozenset(_TABLES["ordinary_in_projects"])

_LISTED = (
    ".docker",
    "keyrings",
    "vaka/stored_keys",
    *(path for path in SECRETS_IN_HOMES if path not in _ORDINARY_IN_PROJECTS),
)
"""Paths that hold secrets below any folder."""


@cache  # slow to compile, and many processes never need it
def _secret_paths() -> re.Pattern[str]:
    return re.compile(
        rf"(?:^|/)(?:{'|'.join(map(re.escape, _LISTED))}|\.[a-z]*_history|id_(?:rsa|dsa|ecdsa|ed25519))(?:/|$)"
        r"|^/etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host)|^/proc/.*(?:environ|mem|cmdline|maps)$"
        r"|^/(?:var/)?run/secrets|^/dev/(?!null$|zero$|urandom$|random$|stdin$|stdout$|stderr$|fd/|tty$)"
    )


_SECRET_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/1/environ", "/proc/self/environ", "/run/secrets")

_SECRET_NAMES = tuple({path.partition("/")[0] for path in _LISTED} - {".config", ".cache", ".local"})


def holds_secrets(path: str) -> bool:
    """Return whether a normalized path, which may start with ``~``, is known to hold secrets."""
    return _secret_paths().search(path) is not None


def may_match_secrets(pattern: str) -> bool:
    """Return whether a pattern that leads out of its folder may match a file with secrets."""
    if not pattern.startswith(("/", "~", "..")):
        return False
    parts = pattern.split("/")
    dotted = [part for part in parts if part.startswith(".") and part.strip(".*?")]
    if any(fnmatchcase(name, part) for part in dotted for name in _SECRET_NAMES):
        return True
    files = (file.split("/") for file in _SECRET_FILES)
    return any(len(parts) >= len(file) and all(map(fnmatchcase, file, parts)) for file in files)
