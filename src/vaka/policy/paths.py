"""Paths in rules: patterns, working directories, and the files that are protected or hold secrets."""

import os
import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TypeAlias

import msgspec

from vaka.matching.globs import compile_name, is_literal, matches_parts
from vaka.policy.decision import DecisionKind

PathSegments: TypeAlias = tuple[str, ...]

NamePredicate: TypeAlias = Callable[[str], bool]

ANY_CHILD = "\0"
"""The name of something in a folder, whatever it is called: no file has this name."""

_MAX_SYMLINKS = 40
"""Links after which the kernel gives up, too."""

_LEADING_DOT_SLASH = re.compile(r"(?:\./+)+")


class PathAnchors(msgspec.Struct, frozen=True, kw_only=True):
    """Where patterns begin; each folder is absolute."""

    cwd: str
    home: str
    folder: str
    """Of the settings a rule stands in."""


class PathPattern:
    """A pattern for paths, as a rule has it. Raises ``ValueError`` saying what is wrong with it."""

    def __init__(self, text: str, kind: DecisionKind, anchors: PathAnchors) -> None:
        self._ignore_case = kind != "allow"
        anchor, rest, explicit = _split_anchor(text, anchors)
        only_folder = rest.endswith("/")
        parts = [part for part in rest.split("/") if part not in ("", ".")]
        anchor, parts = _resolve_parent_parts(anchor, parts)
        explicit = explicit or (kind == "allow" and text.startswith("./"))
        if not explicit and _matches_any_depth(parts, kind, only_folder=only_folder):
            parts.insert(0, "**")
            anchor = anchor if kind == "allow" or text.startswith("./") else os.sep
        self._reserved_segments = (
            1 if only_folder and kind == "allow" else 0
        )  # "x/" is a folder: what it allows is inside it
        roots = {split_path(root) for root in (anchor, os.path.realpath(anchor))}
        self._roots = tuple({fold_path_case(root) if self._ignore_case else root for root in roots})
        self._matchers = tuple(self._compile_part(part, last=at == len(parts) - 1) for at, part in enumerate(parts))

    def covers(self, path: PathSegments) -> bool:
        """Return whether the pattern means this path, or a folder it is in."""
        path = fold_path_case(path) if self._ignore_case else path
        return any(path[: len(root)] == root and self._matches_below_root(path[len(root) :]) for root in self._roots)

    def _matches_below_root(self, path: PathSegments) -> bool:
        """Match from a root on. What follows a match is inside it, so the first one is enough."""
        steps, usable = self._matchers, len(path) - self._reserved_segments
        at, step = 0, 0
        again: tuple[int, int] | None = None
        while step < len(steps):
            fits = steps[step]
            if fits is None:
                step, again = step + 1, (step + 1, at)
            elif at < usable and fits(path[at]):
                step, at = step + 1, at + 1
            elif again is not None and again[1] < usable:
                again = (again[0], again[1] + 1)
                step, at = again
            else:
                return False
        return True

    def _compile_part(self, part: str, *, last: bool) -> NamePredicate | None:
        if part == "**":
            return _match_anything if last else None  # at the end: all that is inside, not the folder itself
        return _compile_name_pattern(_fold_name(part) if self._ignore_case else part)


@lru_cache(maxsize=256)  # one path is held against many patterns
def fold_path_case(path: PathSegments) -> PathSegments:
    """Return a path as file systems see it that make no difference between upper and lower case."""
    return tuple(map(_fold_name, path))


def split_path(path: str) -> PathSegments:
    """Return an absolute path in its parts."""
    return tuple(part for part in path.split(os.sep) if part)  # noqa: PTH206  # text, not a file


def absolute_path(path: str, cwd: str, home: str) -> str:
    """Return a path as a tool means it, from the root on; ``..`` stays, since a link may stand before it."""
    if path == "~" or path.startswith(f"~{os.sep}"):
        path = home + path[1:]
    return os.path.join(cwd, path)  # noqa: PTH118  # a Path would drop "." and "//", which are not ours to drop


def names_of(path: str) -> tuple[str, ...]:
    """Return every name of what an absolute path leads to: as written, each link on the way, and the file itself.

    Raises ``ValueError`` when it cannot be the name of a file.
    """
    if "\0" in path:
        raise ValueError("it holds a NUL")
    plain, real = os.path.normpath(path), os.path.realpath(path)
    if plain == real and ".." not in path:
        return (plain,)
    return tuple(dict.fromkeys((plain, *_symlink_names_of(path), real)))


def is_inside(path: PathSegments, folder: PathSegments) -> bool:
    """Return whether a path is in a folder, or the folder itself."""
    return path[: len(folder)] == folder


def is_in_bare_repository(path: PathSegments, roots: Collection[PathSegments]) -> bool:
    """Return whether a folder below one of the roots lies in a repository without a working tree.

    Such a one can come along inside another, and git does what its settings say wherever it finds them.
    """
    while path and path not in roots:
        folder = os.sep + os.sep.join(path)  # noqa: PTH118  # text, not a file
        has = {name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(f"{folder}/{name}")}
        if "HEAD" in has and ("commondir" in has or {"objects", "refs"} <= has):
            return True
        path = path[:-1]
    return False


def exact_path_pattern(path: str) -> str:
    """Return the pattern that means exactly this absolute path."""
    return "/" + re.sub(r"([*?\[\]\\])", r"\\\1", path)


def _symlink_names_of(path: str) -> list[str]:
    """Walk as the kernel does and note what each link makes of the path."""
    found: list[str] = []
    done, left = os.sep, [*reversed(split_path(path))]
    while left and len(found) < _MAX_SYMLINKS:
        part = left.pop()
        if part in (".", ".."):
            done = os.path.dirname(done) if part == ".." else done  # noqa: PTH120  # text, not a file
            continue
        here = os.path.join(done, part)  # noqa: PTH118
        try:
            target = os.readlink(here)  # noqa: PTH115
        except OSError:
            done = here
            continue
        done = os.sep if target.startswith(os.sep) else done
        left += reversed(split_path(target))
        found.append(os.path.normpath(os.path.join(done, *reversed(left))))  # noqa: PTH118
    return found


def _split_anchor(text: str, anchors: PathAnchors) -> tuple[str, str, bool]:
    """Return where a pattern begins, what follows, and whether it says so itself."""
    text = re.sub(r"(?<!\\)\s+\Z", "", text)
    if not text:
        raise ValueError("it is empty; expected a path such as ./src/**")
    if text.startswith("!"):
        raise ValueError("a rule cannot take back another one; write the paths you mean")
    if text.startswith("//"):
        return os.sep, text[2:], True
    if text == "~" or text.startswith("~/"):
        return anchors.home, text[2:], True
    if text.startswith("~"):
        raise ValueError("expected ~/ for your own home; write // and the whole path for another one")
    if text.startswith("/"):
        return anchors.folder, text[1:], True
    rest = _LEADING_DOT_SLASH.sub("", text, count=1) if text.startswith("./") else text
    return anchors.cwd, rest, rest.partition("/")[0] in (".", "..")


def _resolve_parent_parts(anchor: str, parts: list[str]) -> tuple[str, list[str]]:
    """Follow leading ``..`` up from the anchor; in the middle they take back the folder before."""
    kept: list[str] = []
    for part in parts:
        if part != "..":
            kept.append(part)
        elif not kept:
            anchor = os.path.dirname(anchor)  # noqa: PTH120  # text, not a file
        elif not is_literal(kept[-1]):
            raise ValueError("'..' cannot follow a wildcard")
        else:
            kept.pop()
    return anchor, kept


def _matches_any_depth(parts: list[str], kind: DecisionKind, *, only_folder: bool) -> bool:
    if len(parts) == 1:
        return kind != "allow" or not only_folder
    return kind != "allow" and len(parts) == 2 and parts[1] in ("*", "**") and parts[0] != "**"


def _fold_name(text: str) -> str:
    return text if text.isascii() and text.islower() else unicodedata.normalize("NFC", text).casefold()


def _match_anything(name: str) -> bool:
    return True


def _compile_name_pattern(part: str) -> NamePredicate:
    """Return a function that matches one name of a path with one part of a pattern."""
    if is_literal(part):
        return part.__eq__
    if not re.search(r"[?\[\\]", part):
        pieces = part.split("*")
        return _match_anything if not any(pieces) else lambda name: matches_parts(pieces, name)
    return compile_name(part, _parse_bracket)


def _parse_bracket(part: str, at: int) -> tuple[str, int]:
    """Parse ``[a-z]`` or ``[!a-z]`` after its bracket as a regular expression; a backwards range is empty."""
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    body, first = "", True
    while first or part[at : at + 1] != "]":
        first = False
        low, at = _parse_class_member(part, at)
        high = low
        if part[at : at + 1] == "-" and part[at + 1 : at + 2] not in ("]", ""):
            high, at = _parse_class_member(part, at + 1)
        body += f"\\U{ord(low):08x}-\\U{ord(high):08x}" if low <= high else ""
    if not body:
        return ("." if negated else "(?!)"), at + 1
    return f"[{'^' if negated else ''}{body}]", at + 1


def _parse_class_member(part: str, at: int) -> tuple[str, int]:
    at += part[at : at + 1] == "\\"
    if at >= len(part):
        raise ValueError("'[' is never closed; write \\[ for the bracket itself")
    return part[at], at + 1


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
