"""The question about commands where not every file that rules deny can be found before a command runs."""

from collections.abc import Iterable

import msgspec

from vaka.policy.decision import PermissionDecision
from vaka.policy.folder_search import MAX_EXPANDED, is_too_large
from vaka.policy.paths import PathPattern
from vaka.policy.rules import Rule

LARGE_FOLDER_QUESTION = "large folder"
"""The name of the question, which grants answer."""


def ask_in_large_folders(
    decision: PermissionDecision, denied: Iterable[tuple[Rule, PathPattern]], folders: Iterable[str]
) -> PermissionDecision:
    """Turn the permission of a command into a question if a rule needs a search of folders that are too large."""
    rule = next((rule for rule, pattern in denied if not pattern.literal_path), None)
    if rule is None or not is_too_large(folders):
        return decision
    reason = (
        f"the working directories have more than {MAX_EXPANDED:,} files, so the sandbox cannot find each file that "
        f"the rule {rule.text} denies; a rule with the whole path, such as Read(/.env), needs no search"
    )
    return msgspec.structs.replace(
        decision,
        decision="ask",
        rule=rule.text,
        layer=rule.layer,
        reason=reason,
        subject=rule.text,
        asks=(LARGE_FOLDER_QUESTION,),
    )
