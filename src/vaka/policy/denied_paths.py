"""The existing files that rules deny to commands, for the sandbox to enforce, and files that a command has created.

Before each command the rules are expanded to paths, the nearest first, and folders of dependencies last. A rule without
wildcards names its path, and needs no search.
"""

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from vaka.core.ports.policy import Policy
from vaka.policy.folder_search import GIT, MAX_EXPANDED, SEARCHED_LAST, FolderSearch
from vaka.policy.paths import ANY_CHILD, PathPattern, split_path
from vaka.policy.policy import LayeredPolicy
from vaka.policy.read_filter import list_denied_patterns
from vaka.policy.rules import KINDS

_CLOCK_SECONDS = 0.1
"""The clock of file systems is this much behind at most."""


class DeniedPaths(NamedTuple):
    """Paths that commands must not read, and others that they must not change, as they are now."""

    unreadable: tuple[str, ...] = ()
    unchangeable: tuple[str, ...] = ()


def find_denied_paths(policy: Policy, folders: Sequence[str], limit: int = MAX_EXPANDED) -> DeniedPaths:
    """Return the topmost existing paths in some folders, and the paths that rules name, that rules deny."""
    reads = list_denied_patterns(policy, edits=False)
    edits = [pattern for _, pattern in _list_edit_rules(policy)]
    named = (pattern.literal_path for pattern in reads if pattern.literal_path)
    unreadable = dict.fromkeys(path for path in named if os.path.lexists(path))
    # A missing path that a rule names is protected as well: nothing may appear there.
    unchangeable = dict.fromkeys(pattern.literal_path for pattern in edits if pattern.literal_path)
    unchangeable |= dict.fromkeys(folder for folder in folders if _cover_all_in(edits, split_path(folder)))
    settled = {folder for folder in folders if folder in unchangeable}
    search, split = FolderSearch(folders, limit), lru_cache(split_path)
    for entry in search if reads or edits else ():
        above, name = split(entry.folder), entry.name
        if entry.folder in settled or name == GIT:  # what git needs to change there is not what rules mean
            settled.update([entry.path] if entry.is_folder else [])
        elif _cover(edits, above, name) or (entry.is_folder and _cover_all_in(edits, (*above, name))):
            unchangeable[entry.path] = None
            settled.add(entry.path)
        if _cover(reads, above, name):
            unreadable[entry.path] = None
        elif entry.is_folder:
            search.enter(entry)
    return DeniedPaths(tuple(unreadable), tuple(unchangeable))


class CreatedPath(NamedTuple):
    """A path that appeared although a rule denies it."""

    path: str
    rule: str


def find_created_paths(
    policy: Policy, folders: Sequence[str], before: DeniedPaths, since: float, limit: int = MAX_EXPANDED
) -> list[CreatedPath]:
    """Return the topmost paths that rules deny to change, that were not there before and changed ``since`` a time.

    Folders of dependencies and repositories are left out: programs such as git must find there what they have written.
    """
    known, rules = {*before.unreadable, *before.unchangeable}, _list_edit_rules(policy)
    found: list[CreatedPath] = []
    search = FolderSearch([folder for folder in folders if folder not in known], limit)
    split = lru_cache(split_path)
    for entry in search if rules else ():
        if entry.name in SEARCHED_LAST or entry.path in known:
            continue
        above = split(entry.folder)
        rule = next((rule for rule, pattern in rules if _cover((pattern,), above, entry.name)), "")
        if rule and _changed_since(entry.path, since):
            found.append(CreatedPath(entry.path, rule))
        elif entry.is_folder and not rule:
            search.enter(entry)
    return found


def find_rule_against(policy: Policy, path: str) -> str:
    """Return the rule that denies changing a path, or one of which the path without wildcards leads through it."""
    names = split_path(path)
    for rule, pattern in _list_edit_rules(policy):
        if pattern.covers(names) or pattern.literal_path.startswith(f"{path}/"):
            return rule
    return ""


def _list_edit_rules(policy: Policy) -> list[tuple[str, PathPattern]]:
    """Return the rules, with their patterns, that deny only changing files: files that must not be read are hidden."""
    if not isinstance(policy, LayeredPolicy):
        return []
    denied = {id(pattern) for pattern in list_denied_patterns(policy, edits=True)}
    rules = (rule for kind in KINDS for rule in policy.compiled_path_rules(kind, "", edits=True))
    only_edits = [(rule, pattern) for rule, pattern in rules if not rule.applies_to_access("", edits=False)]
    return [(rule.text, pattern) for rule, pattern in only_edits if id(pattern) in denied]


def _changed_since(path: str, since: float) -> bool:
    """Return whether an entry was created or changed after a time; it is true of each one created after it."""
    try:
        return os.lstat(path).st_ctime >= since - _CLOCK_SECONDS
    except OSError:
        return False


def _cover(patterns: Sequence[PathPattern], above: tuple[str, ...], name: str) -> bool:
    """Return whether a pattern matches a name in a folder."""
    parent = above[-1] if above else ""
    return any(pattern.may_end(parent, name) and pattern.covers((*above, name)) for pattern in patterns)


def _cover_all_in(patterns: Sequence[PathPattern], folder: tuple[str, ...]) -> bool:
    """Return whether patterns match whatever may be in a folder."""
    return _cover(patterns, folder, ANY_CHILD)
