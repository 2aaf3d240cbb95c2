"""The paths in the commits that a command of git shows, as far as they can be found with bounded work."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from vaka.policy.decision import CommitRange
from vaka.policy.git_objects import GitObjects, UnreadableObject

MAX_OBJECTS = 5_000
"""Commits and trees that are read for one decision; what more of them contain is not known."""


class HistoryTooLarge(Exception):
    """Not every commit or tree was read."""


def find_committed_paths(
    root: str, shown: CommitRange, matches: Callable[[str], bool], limit: int = MAX_OBJECTS
) -> Iterator[str]:
    """Yield the paths in the trees of commits for which ``matches`` is true, relative to the top of the repository.

    Raises ``HistoryTooLarge`` when that needs more than ``limit`` objects, or an object that cannot be read.
    """
    with closing(GitObjects(root)) as objects:
        walk = _HistoryWalk(objects, matches, limit)
        try:
            yield from walk.find_paths(shown)
        except UnreadableObject:
            raise HistoryTooLarge(root) from None


class _HistoryWalk:
    def __init__(self, objects: GitObjects, matches: Callable[[str], bool], limit: int) -> None:
        self._objects = objects
        self._matches = matches
        self._left = limit
        self._seen: set[tuple[str, str]] = set()

    def find_paths(self, shown: CommitRange) -> Iterator[str]:
        starts = self._resolve(shown.revisions or ("HEAD",)) if not shown.everything else None
        steps = shown.steps
        if starts is None:
            starts, steps = sorted(self._objects.list_tips()), None
        elif any(".." in name for name in shown.revisions):
            yield from self._find_in_range(starts, both=any("..." in name for name in shown.revisions))
            return
        pending, known = deque((start, 0) for start in starts), set(starts)
        while pending:
            commit, distance = pending.popleft()
            yield from self._find_in_commit(commit)
            for parent in self._parents_of(commit) if steps is None or distance < steps else ():
                if parent not in known:
                    known.add(parent)
                    pending.append((parent, distance + 1))

    def _resolve(self, names: Iterable[str]) -> list[str] | None:
        """Return the commits that names mean, ``None`` if one is not known."""
        found: list[str] = []
        for name in names:
            for end in name.replace("...", "..").split("..") if ".." in name else [name.lstrip("^")]:
                commit = self._objects.resolve(end or "HEAD")
                if commit is None:
                    return None
                found.append(commit)
        return found

    def _find_in_range(self, ends: Sequence[str], *, both: bool) -> Iterator[str]:
        """Follow the ends of a range to the commits that the first and another one have in common.

        ``both``: whether the commits of the first end are shown as well.
        """
        first, reached = ends[0], {end: {end} for end in ends}
        pending, met = deque((end, end) for end in reached), len(reached) < 2
        while pending:
            origin, commit = pending.popleft()
            if both or origin != first or commit == first:
                yield from self._find_in_commit(commit)
            others = (one for one in reached if (one == first) != (origin == first))
            if any(commit in reached[one] for one in others):
                met = True
            elif not met or origin != first:
                new = [parent for parent in self._parents_of(commit) if parent not in reached[origin]]
                reached[origin].update(new)
                pending.extend((origin, parent) for parent in new)

    def _parents_of(self, commit: str) -> list[str]:
        try:
            return self._objects.parents_of(commit)
        except UnreadableObject:
            return []  # the end of a shallow clone

    def _take(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise HistoryTooLarge

    def _find_in_commit(self, commit: str) -> Iterator[str]:
        self._take()
        try:
            kind, _ = self._objects.read(commit)
        except UnreadableObject:
            return  # the end of a shallow clone, or an entry of a log that was removed
        peeled = self._objects.peel(commit) if kind in {"commit", "tag"} else None
        if peeled is not None:
            yield from self._find_in_tree(self._objects.tree_of(peeled))

    def _find_in_tree(self, tree: str) -> Iterator[str]:
        pending = [(tree, "")]
        while pending:
            one = pending.pop()
            if one in self._seen:
                continue
            self._seen.add(one)
            self._take()
            folder = one[1]
            for entry in self._objects.list_tree(one[0]):
                path = os.path.join(folder, entry.name)  # noqa: PTH118  # text, not a file
                if self._matches(path):
                    yield path
                elif entry.is_folder:
                    pending.append((entry.id, path))
