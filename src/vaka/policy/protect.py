"""Paths that no rule and no mode gives away: whoever writes there decides what runs next, or what is allowed."""

import re
import unicodedata

from vaka.policy.paths import Segments

_FOLDERS = frozenset({".git", ".vscode", ".idea", ".husky", ".devcontainer", ".vaka"})
_FILES = frozenset(
    {
        "vaka.toml", ".mcp.json", ".claude.json", "managed-settings.json", ".gitconfig", ".gitmodules", ".bashrc",
        ".bash_profile", ".bash_login", ".bash_logout", ".profile", ".zshrc", ".zshenv", ".zprofile", ".zlogin",
        ".ripgreprc", ".envrc",
    }
)  # fmt: skip
_SETTINGS = frozenset({"settings.json", "settings.local.json", "hooks"})
"""What counts in a ``.claude`` folder: its commands, agents and skills are ordinary files."""

_UNSEEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\u00ad]")
_SHORT = {"git~1": ".git", "claude~1": ".claude", "vscode~1": ".vscode"}
"""What some file systems also call them."""


def protected(path: Segments) -> str:
    """Return what of an absolute path is protected, ``""`` when nothing is."""
    names = [_plain(part) for part in path]
    for at, name in enumerate(names):
        last = at == len(names) - 1
        if name in _FOLDERS or (last and name in _FILES):
            return path[at]
        if name == ".claude" and (last or names[at + 1] in _SETTINGS):
            return ".claude" if last else f".claude/{names[at + 1]}"
        if name == "vaka" and at and names[at - 1] in (".config", "etc") and not last:
            return f"{names[at - 1]}/vaka"
    return ""


def _plain(name: str) -> str:
    """Return a name as the file system that makes the least difference between names sees it."""
    if name.isascii() and name.islower() and name[-1] not in ". " and ":" not in name:
        return _SHORT.get(name, name)
    plain = unicodedata.normalize("NFKC", _UNSEEN.sub("", name)).casefold()
    plain = plain.partition(":")[0].rstrip(". ")
    return _SHORT.get(plain, plain)
