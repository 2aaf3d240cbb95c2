"""Which files the rules let be read."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress

from vaka.core.ports.policy import Policy
from vaka.core.types.tool import Deny
from vaka.policy.covered_paths import FolderTooLarge, find_covered_paths
from vaka.policy.decision import DecisionKind
from vaka.policy.paths import PathPattern, absolute_path
from vaka.policy.policy import LayeredPolicy


def make_read_filter(policy: Policy) -> Callable[[str], bool] | None:
    """Return a predicate for the paths that may be read; ``None`` when no rule forbids reading."""
    if not isinstance(policy, LayeredPolicy):
        return None
    if not _unreadable_patterns(policy):
        return None
    return lambda path: is_readable(policy, path)


def is_readable(policy: LayeredPolicy, path: str, cwd: str = "") -> bool:
    """Return whether the rules let a file be read under each of its names; ``cwd`` is the base of a relative path."""
    return not isinstance(policy.may_read(absolute_path(path, cwd or policy.cwd, policy.home)), Deny)


def find_unreadable_paths(policy: Policy, folders: Iterable[str]) -> list[str]:
    """Return the existing paths in some folders, and those that rules name, that rules forbid to read."""
    patterns = _unreadable_patterns(policy) if isinstance(policy, LayeredPolicy) else []
    found = [pattern.literal_path for pattern in patterns if os.path.lexists(pattern.literal_path)]
    for folder in folders if patterns else ():
        with suppress(FolderTooLarge):  # the nearest ones were found
            for path in find_covered_paths(folder, patterns):
                found.append(path)  # noqa: PERF402  # those before an error count
    return list(dict.fromkeys(found))


def _unreadable_patterns(policy: LayeredPolicy) -> list[PathPattern]:
    kinds: tuple[DecisionKind, ...] = ("deny", "ask") if policy.mode == "dontAsk" else ("deny",)
    rules = (rule for rule in policy.rules if rule.kind in kinds and rule.applies_to_access("", edits=False))
    return [rule.path for rule in rules if rule.path is not None]
