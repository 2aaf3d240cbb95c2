"""What rules say of files that are only listed: one that may not be read is not shown either."""

from collections.abc import Callable

from vaka.core.ports.policy import Policy
from vaka.core.types.tool import Deny
from vaka.policy.layered import LayeredPolicy
from vaka.policy.paths import absolute


def readable(policy: Policy) -> Callable[[str], bool] | None:
    """Return what tells whether a file may be read, by its path; ``None`` when nothing is kept from being read."""
    if not isinstance(policy, LayeredPolicy):
        return None
    tight = ("deny", "ask") if policy.mode == "dontAsk" else ("deny",)
    if not any(rule.kind in tight and rule.path is not None for rule in policy.rules):
        return None
    return lambda path: may_read(policy, path)


def may_read(policy: LayeredPolicy, path: str, cwd: str = "") -> bool:
    """Return whether the rules let a file be read, under each of its names; a relative path begins at ``cwd``."""
    return not isinstance(policy.may_read(absolute(path, cwd or policy.cwd, policy.home)), Deny)
