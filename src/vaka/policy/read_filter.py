"""Which files the rules deny: to the tools that list and search, and to the sandbox of commands."""

from collections.abc import Callable

from vaka.core.ports.policy import Policy
from vaka.core.types.tool import Deny
from vaka.policy.decision import DecisionKind
from vaka.policy.paths import PathPattern, absolute_path
from vaka.policy.policy import LayeredPolicy


def make_read_filter(policy: Policy) -> Callable[[str], bool] | None:
    """Return a predicate for the paths that may be read; ``None`` when no rule forbids reading."""
    if not isinstance(policy, LayeredPolicy):
        return None
    if not list_denied_patterns(policy, edits=False):
        return None
    return lambda path: is_readable(policy, path)


def is_readable(policy: LayeredPolicy, path: str, cwd: str = "") -> bool:
    """Return whether the rules let a file be read under each of its names; ``cwd`` is the base of a relative path."""
    return not isinstance(policy.may_read(absolute_path(path, cwd or policy.cwd, policy.home)), Deny)


def list_denied_patterns(policy: Policy, *, edits: bool) -> list[PathPattern]:
    """Return the patterns of the rules that deny reading, or with ``edits`` changing, a file with any tool.

    In the mode ``dontAsk`` these are also the rules that ask. ``find_covered_paths`` finds the files that they match.
    """
    if not isinstance(policy, LayeredPolicy):
        return []
    kinds: tuple[DecisionKind, ...] = ("deny", "ask") if policy.mode == "dontAsk" else ("deny",)
    return [pattern for kind in kinds for _, pattern in policy.compiled_path_rules(kind, "", edits=edits)]
