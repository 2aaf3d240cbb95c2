"""The existing files in a folder, or in the index of a git repository, that rules for paths match."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from vaka.policy.decision import DecisionKind, FolderUse, NameMatcher, PermissionDecision, Scope
from vaka.policy.git_history import HistoryTooLarge, find_committed_paths
from vaka.policy.git_index import UnreadableIndex, find_repository, read_index
from vaka.policy.paths import ANY_CHILD, PathPattern, PathSegments, absolute_path, names_of, resolve_links, split_path
from vaka.policy.rules import Rule

MAX_ENTRIES = 100_000
"""The most names that one decision looks at; a larger folder counts as if it contained any file."""


class FolderTooLarge(Exception):
    """Not every name in a folder was looked at."""


def find_covered_paths(folder: str, patterns: Sequence[PathPattern], limit: int = MAX_ENTRIES) -> Iterator[str]:
    """Yield the topmost paths below a folder that a pattern matches; links are not followed.

    Raises ``FolderTooLarge`` after ``limit`` names.
    """
    return _find_covered(folder, patterns, _Budget(limit))


class _Budget:
    """Counts the names that are looked at."""

    def __init__(self, limit: int) -> None:
        self.left = limit

    def take(self, folder: str) -> None:
        self.left -= 1
        if self.left < 0:
            raise FolderTooLarge(folder)


def _find_covered(folder: str, patterns: Sequence[PathPattern], budget: _Budget) -> Iterator[str]:
    pending = deque([folder])
    while pending and patterns:
        top = pending.popleft()  # the nearest first
        names = split_path(top)
        parent = names[-1] if names else ""
        for name, is_folder in _list_folder(top):
            budget.take(folder)
            path = os.path.join(top, name)  # noqa: PTH118  # many names
            if any(pattern.may_end(parent, name) and pattern.covers((*names, name)) for pattern in patterns):
                yield path
            elif is_folder:
                pending.append(path)


def _list_folder(folder: str) -> list[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    except OSError:
        return []


def _find_inside(path: str, budget: _Budget) -> Iterator[str]:
    """Yield a path and everything in it."""
    yield path
    pending = [path]
    while pending:
        top = pending.pop()
        for name, is_folder in _list_folder(top):
            budget.take(path)
            inside = os.path.join(top, name)  # noqa: PTH118  # many names
            yield inside
            if is_folder:
                pending.append(inside)


def _expand(folder: str, parts: Sequence[NameMatcher], budget: _Budget) -> Iterator[str]:
    """Yield the paths that bash expands a pattern to; links are followed, but for ``**``."""
    if not parts:
        yield folder
        return
    part, rest = parts[0], parts[1:]
    if isinstance(part, str):
        path = os.path.join(folder, part)  # noqa: PTH118  # many names
        if os.path.lexists(path) or all(isinstance(one, str) for one in rest):  # it may be created
            yield from _expand(path, rest, budget)
        return
    if part is None:
        yield from _expand(folder, rest, budget)
    for name, is_folder in _list_folder(folder):
        budget.take(folder)
        path = os.path.join(folder, name)  # noqa: PTH118  # many names
        if part is None and is_folder:
            yield from _expand(path, parts, budget)
        elif part is None and not rest:
            yield path
        elif part is not None and part(name):
            yield from _expand(path, rest, budget)


class CoveredFile(NamedTuple):
    """A file that a pattern matches; ``""`` when it is not known which file is used."""

    path: str
    pattern: int
    """The index of the pattern."""

    def explain(self, rule: str, use: FolderUse, folder: str, cwd: str) -> str:
        """Return why a rule restricts a command with this file, and what to do."""
        word = use.word or folder
        if self.path:
            name = os.path.relpath(self.path, cwd) if self.path.startswith(cwd.rstrip(os.sep) + os.sep) else self.path
            origin = f" (from {word})" if word != name else ""
            return f"{rule} matches {name}{origin}; {_ADVICE[use.scope]}"
        if use.scope == "below":
            return f"{word} may change files that {rule} matches; name the files, or let it work in another folder"
        if use.scope in {"tracked", "objects"}:
            return f"{word} may show files that {rule} matches, of too many commits to know; {_ADVICE[use.scope]}"
        return f"{word} is too large to know whether {rule} matches a file in it; name the files instead"


_ADVICE: Mapping[Scope, str] = {
    "folder": "name other files, or leave this one out",
    "path": "use another file",
    "tracked": "add the paths that you need, as in '-- src'",
    "object": "use another file",
    "below": "name the files",
    "objects": "add the paths that you need, as in '-- src'",
    "untracked": "name other files, or leave this one out",
    "anywhere": "write the name of the file that you need",
}


class CoveredFiles:
    """Finds the files of commands that patterns match, for one decision: each folder is looked through once."""

    def __init__(self, limit: int = MAX_ENTRIES) -> None:
        self._budget = _Budget(limit)
        self._covered: dict[tuple[object, ...], list[str]] = {}

    def decide(
        self, path: str, use: FolderUse, rules: Sequence[tuple[Rule, PathPattern]], *, cwd: str, home: str
    ) -> PermissionDecision | None:
        """Return the question or the denial of rules about files that are used, ``None`` if there are no such files."""
        if use.only_changes:
            rules = [(rule, pattern) for rule, pattern in rules if not rule.applies_to_access("", edits=False)]
        if not rules:
            return None
        start = absolute_path(cwd if use.scope == "anywhere" else path, cwd, home)
        folders = names_of(start) if use.scope == "path" else (resolve_links(start),)
        if use.destination is not None:
            use = use._replace(destination=resolve_links(absolute_path(use.destination, cwd, home)))
        patterns = [pattern for _, pattern in rules]
        found = next(filter(None, (self.find(folder, patterns, use) for folder in folders)), None)
        if found is None:
            return None
        rule = rules[found.pattern][0]
        kind: DecisionKind = rule.kind if use.certain and found.path else "ask"
        reason = found.explain(rule.text, use, path, cwd)
        return PermissionDecision(decision=kind, rule=rule.text, layer=rule.layer, reason=reason)

    def find(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> CoveredFile | None:
        """Return a file that a pattern matches and a command uses, ``None`` when there is none."""
        try:
            return next(self._find_used(folder, patterns, use), None)
        except (FolderTooLarge, HistoryTooLarge, UnreadableIndex):
            return CoveredFile("", 0)

    def _find_used(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        if use.destination is not None:
            yield from self._find_placed(folder, patterns, use)
        elif use.scope == "path":
            yield from _find_named(split_path(folder), patterns) if use.selects(folder) else ()
        elif use.parts:
            yield from self._find_expanded(folder, patterns, use)
        elif use.scope == "object":
            yield from _find_object(folder, use.named, patterns)
        elif use.scope == "below":
            names = split_path(folder)
            yield from (CoveredFile("", index) for index, one in enumerate(patterns) if one.may_cover_below(names))
        elif use.scope in {"tracked", "objects"}:
            yield from self._find_tracked(folder, patterns, use)
        else:
            if use.scope == "anywhere":
                yield from self._find_elsewhere(patterns, use)
            yield from self._find_existing(folder, patterns, use)

    def _find_existing(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        top = folder.rstrip(os.sep) + os.sep
        tracked = self._list_tracked(folder) if use.scope == "untracked" else frozenset[str]()
        for covered in self._list_covered(folder, patterns):
            for path in _find_inside(covered, self._budget):
                if use.selects(path.removeprefix(top)) and path not in tracked:
                    yield CoveredFile(path, _index_of_pattern(split_path(path), patterns))

    def _list_covered(self, folder: str, patterns: Sequence[PathPattern]) -> list[str]:
        key = (folder, *map(id, patterns))
        if key not in self._covered:
            self._covered[key] = list(_find_covered(folder, patterns, self._budget))
        return self._covered[key]

    def _find_expanded(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        top = folder.rstrip(os.sep) + os.sep
        for path in _expand(folder, use.parts, self._budget):
            if use.selects(path.removeprefix(top)):
                for name in names_of(path):
                    yield from _find_named(split_path(name), patterns)
            if not use.certain:  # also what is in it
                inside = use._replace(parts=(), selects=partial(_selects_below, path, top, use.selects))
                yield from self._find_existing(path, patterns, inside)

    def _find_elsewhere(self, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        for index, pattern in enumerate(patterns):
            if os.path.lexists(pattern.literal_path):
                for path in _find_inside(pattern.literal_path, self._budget):
                    if use.selects(path):
                        yield CoveredFile(path, index)

    def _find_placed(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        """Find the new names of the files that are put into another folder."""
        target = split_path(use.destination or os.sep)
        if not any(pattern.may_cover_below(target) for pattern in patterns):
            return
        for source in _expand(folder, use.parts, self._budget):
            top = (os.path.dirname(source) if use.parts else source).rstrip(os.sep) + os.sep  # noqa: PTH120  # a string
            for path in _find_inside(source, self._budget):
                if path != folder:
                    yield from _find_named((*target, *split_path(path.removeprefix(top))), patterns)

    def _find_tracked(self, folder: str, patterns: Sequence[PathPattern], use: FolderUse) -> Iterator[CoveredFile]:
        for path in find_tracked_paths(folder, patterns):
            if use.selects(os.path.relpath(path, folder)):
                yield CoveredFile(path, _index_of_pattern(split_path(path), patterns))
        root = find_repository(folder) if use.scope == "objects" else ""
        paths = [os.path.join(folder, path) for path in use.commits.paths]  # noqa: PTH118  # text, not a file
        if not root or (paths and all(map(os.path.isfile, paths))):  # a rule that matches such a path has matched
            return
        top = split_path(root)

        def matches(path: str) -> bool:
            names = (*top, *path.split("/"))
            if not any(one.may_end(names[-2], names[-1]) and one.covers(names) for one in patterns):
                return False
            return use.selects(os.path.relpath(f"{root}/{path}", folder))

        for path in find_committed_paths(root, use.commits, matches):
            yield CoveredFile(f"{root}/{path}", _index_of_pattern((*top, *path.split("/")), patterns))

    def _list_tracked(self, folder: str) -> frozenset[str]:
        """Return the paths in the index, and the folders that they are in."""
        root = find_repository(folder)
        tracked = set[str]()
        for path in read_index(root) if root else ():
            while path and path not in tracked:
                tracked.add(path)
                path = path.rpartition("/")[0]
        return frozenset(f"{root}/{path}" for path in tracked)


def _selects_below(path: str, top: str, selects: Callable[[str], bool], name: str) -> bool:
    return selects(f"{path}/{name}".removeprefix(top))


def _find_named(names: PathSegments, patterns: Iterable[PathPattern]) -> Iterator[CoveredFile]:
    for index, pattern in enumerate(patterns):
        if pattern.covers(names):
            yield CoveredFile(os.sep + os.sep.join(names), index)  # noqa: PTH118  # text, not a file


def _find_object(folder: str, name: str, patterns: Sequence[PathPattern]) -> Iterator[CoveredFile]:
    """Find the name of a file or folder in a commit or the index."""
    roots = [folder] if name.startswith(("./", "../")) else [find_repository(folder), folder]
    for root in filter(None, roots):
        names = split_path(os.path.normpath(f"{root}/{name}"))
        yield from _find_named(names, patterns)
        yield from (found._replace(path=f"{root}/{name}") for found in _find_named((*names, ANY_CHILD), patterns))


def _index_of_pattern(names: PathSegments, patterns: Sequence[PathPattern]) -> int:
    return next(index for index, pattern in enumerate(patterns) if pattern.covers(names))


def find_tracked_paths(folder: str, patterns: Sequence[PathPattern]) -> Iterator[str]:
    """Yield the paths in the index of the git repository of a folder that a pattern matches.

    Raises ``FolderTooLarge`` for an index that cannot be read.
    """
    root = find_repository(folder)
    top = split_path(root)
    try:
        for path in read_index(root) if root else ():
            if any(pattern.covers((*top, *path.split("/"))) for pattern in patterns):
                yield f"{root}/{path}"
    except UnreadableIndex:
        raise FolderTooLarge(folder) from None
