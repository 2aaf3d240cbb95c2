"""Which files the rules let be read."""

from collections.abc import Callable

from vaka.core.ports.policy import Policy
from vaka.core.types.tool import Deny
from vaka.policy.paths import absolute_path
from vaka.policy.policy import LayeredPolicy


def make_read_filter(policy: Policy) -> Callable[[str], bool] | None:
    """Return a predicate for the paths that may be read; ``None`` when no rule forbids reading."""
    if not isinstance(policy, LayeredPolicy):
        return None
    tight = ("deny", "ask") if policy.mode == "dontAsk" else ("deny",)
    if not any(rule.kind in tight and rule.path is not None for rule in policy.rules):
        return None
    return lambda path: is_readable(policy, path)


def is_readable(policy: LayeredPolicy, path: str, cwd: str = "") -> bool:
    """Return whether the rules let a file be read under each of its names; ``cwd`` is the base of a relative path."""
    return not isinstance(policy.may_read(absolute_path(path, cwd or policy.cwd, policy.home)), Deny)
