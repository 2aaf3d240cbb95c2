"""Paths that need a question: protected files that decide what runs, and places where secrets are kept."""

import re
import unicodedata
from collections.abc import Sequence
from fnmatch import fnmatchcase

from vaka.policy.paths import PathSegments

_PROTECTED_FOLDERS = frozenset({".git", ".vscode", ".idea", ".husky", ".devcontainer", ".vaka"})

_PROTECTED_FILES = frozenset(
    {
        "vaka.toml", ".mcp.json", ".claude.json", "managed-settings.json", ".gitconfig", ".gitmodules", ".bashrc",
        ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
        ".ripgreprc", ".envrc",
    }
)  # fmt: skip

_CLAUDE_SETTINGS = frozenset({"settings.json", "settings.local.json", "hooks"})
"""What counts in a ``.claude`` folder: its commands, agents and skills are ordinary files."""

_INVISIBLE_CHARACTERS = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad]")

_SHORT_NAMES = {"git~1": ".git", "claude~1": ".claude", "vscode~1": ".vscode"}
"""What some file systems also call them."""


def protected_part_of(path: PathSegments) -> str:
    """Return what of an absolute path is protected, ``""`` when nothing is."""
    names = [_normalize_name(part) for part in path]
    for at, name in enumerate(names):
        last = at == len(names) - 1
        if name in _PROTECTED_FOLDERS or (last and name in _PROTECTED_FILES):
            return path[at]
        if name == ".claude" and (last or names[at + 1] in _CLAUDE_SETTINGS):
            return ".claude" if last else f".claude/{names[at + 1]}"
        if name == "vaka" and at and names[at - 1] in (".config", "etc") and not last:
            return f"{names[at - 1]}/vaka"
    return ""


def _normalize_name(name: str) -> str:
    """Return a name as the file system that makes the least difference between names sees it."""
    if name.isascii() and name.islower() and name[-1] not in ". " and ":" not in name:
        return _SHORT_NAMES.get(name, name)
    plain = unicodedata.normalize("NFKC", _INVISIBLE_CHARACTERS.sub("", name)).casefold()
    plain = plain.partition(":")[0].rstrip(". ")
    return _SHORT_NAMES.get(plain, plain)


_SECRET_PATHS = re.compile(
    r"(?:^|/)(?:\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|\.pgpass|\.git-credentials|\.npmrc|\.pypirc"
    r"|\.config/(?:gcloud|gh|op)|\.[a-z]*_history|\.vault-token|id_(?:rsa|dsa|ecdsa|ed25519)|keyrings)(?:/|$)"
    r"|^/etc/(?:g?shadow|sudoers|ssl/private|ssh/ssh_host)|^/proc/.*(?:environ|mem|cmdline|maps)$|^/(?:var/)?run/secrets"
    r"|^/dev/(?!null$|zero$|urandom$|random$|stdin$|stdout$|stderr$|fd/|tty$)"
)

_SECRET_FILES = ("/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/1/environ", "/proc/self/environ", "/run/secrets")

_SECRET_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".netrc", ".pgpass", ".git-credentials", ".npmrc",
    ".pypirc", ".vault-token", ".bash_history",
)  # fmt: skip


def holds_secrets(path: str) -> bool:
    """Return whether keys lie at a path, which is normal and may begin with ``~``."""
    return _SECRET_PATHS.search(path) is not None


def may_match_secrets(pattern: str) -> bool:
    """Return whether a pattern that leads out of its folder may become a place where keys lie."""
    if not pattern.startswith(("/", "~", "..")):
        return False
    parts = pattern.split("/")
    dotted = [part for part in parts if part.startswith(".") and part.strip(".*?")]
    if any(fnmatchcase(name, part) for part in dotted for name in _SECRET_NAMES):
        return True
    return any(_matches_leading_parts(file.split("/"), parts) for file in _SECRET_FILES)


def _matches_leading_parts(file: Sequence[str], parts: Sequence[str]) -> bool:
    return len(parts) >= len(file) and all(map(fnmatchcase, file, parts))
