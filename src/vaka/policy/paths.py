"""Path patterns of rules, and the names of a file."""

import os
import re
import unicodedata
from collections.abc import Callable, Collection
from functools import lru_cache
from typing import TypeAlias

import msgspec

from vaka.matching.globs import compile_name, is_literal, matches_names, matches_parts, parse_bracket
from vaka.policy.decision import DecisionKind

PathSegments: TypeAlias = tuple[str, ...]

NamePredicate: TypeAlias = Callable[[str], bool]

ANY_CHILD = "\0"
"""Stands for any name in a folder; it is not a valid name of a file."""

_MAX_SYMLINKS = 40
"""The limit of the Linux kernel."""

_LEADING_DOT_SLASH = re.compile(r"(?:\./+)+")


class PathAnchors(msgspec.Struct, frozen=True, kw_only=True):
    """The absolute folders that patterns are relative to."""

    cwd: str
    home: str
    folder: str
    """The folder of the settings file, for ``/x``."""


class PathPattern:
    """A path pattern of a rule. Raises ``ValueError`` with the problem."""

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
        elif not explicit and kind != "allow" and parts[:1] == ["**"] and not text.startswith("./"):
            anchor = os.sep
        self._reserved_segments = int(only_folder and kind == "allow")  # "x/" allows only what is inside the folder
        roots = {split_path(root) for root in (anchor, os.path.realpath(anchor))}
        self._roots = tuple({fold_path_case(root) if self._ignore_case else root for root in roots})
        literal = parts[:-1] if parts[-1:] == ["**"] else parts
        known = bool(literal) and all(map(is_literal, literal))
        self.literal_path = os.path.join(anchor, *literal) if known else ""  # noqa: PTH118  # text, not a file
        """The path that it matches with everything inside it, if it has no wildcards."""
        matchers = [self._compile_part(part, last=index == len(parts) - 1) for index, part in enumerate(parts)]
        self._matchers = (*matchers, None)  # a match includes what is inside it

    def covers(self, path: PathSegments) -> bool:
        """Return whether the pattern matches this path, or a folder that contains it."""
        path = fold_path_case(path) if self._ignore_case else path
        end = len(path) - self._reserved_segments
        return any(
            path[: len(root)] == root and matches_names(self._matchers, path[len(root) : end]) for root in self._roots
        )

    def may_cover_below(self, folder: PathSegments) -> bool:
        """Return whether the pattern may match a path in this folder, whether it exists or not."""
        folder = fold_path_case(folder) if self._ignore_case else folder
        return any(
            root[: len(folder)] == folder or (folder[: len(root)] == root and self._may_continue(folder[len(root) :]))
            for root in self._roots
        )

    def _may_continue(self, names: PathSegments) -> bool:
        positions = {0}
        for name in names:
            positions = {
                position if self._matchers[position] is None else position + 1
                for position in self._skip_any_depth(positions)
                if (matcher := self._matchers[position]) is None or matcher(name)
            }
        return bool(positions)

    def _skip_any_depth(self, positions: set[int]) -> set[int]:
        """Add the positions after ``**``, which also matches no name; the last one matches whatever is inside."""
        reached = set[int]()
        for start in positions:
            position = start
            reached.add(position)
            while position < len(self._matchers) - 1 and self._matchers[position] is None:
                position += 1
                reached.add(position)
        return reached

    def may_end(self, parent: str, name: str) -> bool:
        """Return whether a path that ends with these names may be the topmost match of the pattern."""
        if self._ignore_case:
            parent, name = _fold_name(parent), _fold_name(name)
        last, before = self._matchers[-2] if len(self._matchers) > 1 else None, self._matchers[-3:-2]
        if last is not _match_anything or not before or before[0] is None:
            return last is None or last(name)
        return before[0](parent)

    def _compile_part(self, part: str, *, last: bool) -> NamePredicate | None:
        if part == "**":
            return _match_anything if last else None  # at the end: all that is inside, not the folder itself
        return _compile_name_pattern(_fold_name(part) if self._ignore_case else part)


@lru_cache(maxsize=256)  # one path is held against many patterns
def fold_path_case(path: PathSegments) -> PathSegments:
    """Return a path as case-insensitive file systems compare it."""
    return tuple(map(_fold_name, path))


def split_path(path: str) -> PathSegments:
    """Return the parts of an absolute path."""
    return tuple(part for part in path.split(os.sep) if part)  # noqa: PTH206  # text, not a file


def absolute_path(path: str, cwd: str, home: str) -> str:
    """Return the absolute path that a tool means; ``..`` is kept, since it may follow a symbolic link."""
    if path == "~" or path.startswith(f"~{os.sep}"):
        path = home + path[1:]
    return os.path.join(cwd, path)  # noqa: PTH118  # a Path would drop "." and "//"


def names_of(path: str) -> tuple[str, ...]:
    """Return every name of a file: the path as written, after each symbolic link, and fully resolved.

    Raises ``ValueError`` when it is not a valid path.
    """
    if "\0" in path:
        raise ValueError("it contains a NUL")
    plain, real = os.path.normpath(path), resolve_links(path)
    if plain == real and ".." not in path:
        return (plain,)
    return tuple(dict.fromkeys((plain, *_symlink_names_of(path), real)))


def resolve_links(path: str) -> str:
    """Return a path without links; a path that may not be looked at, such as ``/proc/1/root``, stays as written."""
    try:
        return os.path.realpath(path)
    except OSError:
        return os.path.normpath(path)


def is_inside(path: PathSegments, folder: PathSegments) -> bool:
    """Return whether a path is in a folder, or the folder itself."""
    return path[: len(folder)] == folder


def is_in_bare_repository(path: PathSegments, roots: Collection[PathSegments]) -> bool:
    """Return whether a folder below one of the roots is in a bare repository.

    A repository can contain a bare repository, and git obeys the settings of the repository that it finds.
    """
    while path and path not in roots:
        folder = os.sep + os.sep.join(path)  # noqa: PTH118  # text, not a file
        has = {name for name in ("HEAD", "objects", "refs", "commondir") if os.path.lexists(f"{folder}/{name}")}
        if "HEAD" in has and ("commondir" in has or {"objects", "refs"} <= has):
            return True
        path = path[:-1]
    return False


def exact_path_pattern(path: str) -> str:
    """Return the pattern that matches exactly this absolute path."""
    return "/" + re.sub(r"([*?\[\]\\])", r"\\\1", path)


def _symlink_names_of(path: str) -> list[str]:
    """Resolve a path as the kernel does, and return it after each symbolic link."""
    names: list[str] = []
    resolved, remaining = os.sep, [*reversed(split_path(path))]
    while remaining and len(names) < _MAX_SYMLINKS:
        part = remaining.pop()
        if part in (".", ".."):
            resolved = os.path.dirname(resolved) if part == ".." else resolved  # noqa: PTH120  # text, not a file
            continue
        current = os.path.join(resolved, part)  # noqa: PTH118
        try:
            target = os.readlink(current)  # noqa: PTH115
        except OSError:
            resolved = current
            continue
        resolved = os.sep if target.startswith(os.sep) else resolved
        remaining += reversed(split_path(target))
        names.append(os.path.normpath(os.path.join(resolved, *reversed(remaining))))  # noqa: PTH118
    return names


def _split_anchor(text: str, anchors: PathAnchors) -> tuple[str, str, bool]:
    """Return the anchor of a pattern, the rest of it, and whether the anchor is explicit."""
    text = re.sub(r"(?<!\\)\s+\Z", "", text)
    if not text:
        raise ValueError("it is empty; expected a path such as ./src/**")
    if text.startswith("!"):
        raise ValueError("a rule cannot cancel another one; write the paths you mean")
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
    """Apply ``..``: leading ones to the anchor, others to the part before."""
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


def _parse_bracket(part: str, index: int) -> tuple[str, int]:
    bracket = parse_bracket(part, index, git=False)
    if bracket is None:
        raise ValueError("'[' is never closed; write \\[ for the bracket itself")
    return bracket
