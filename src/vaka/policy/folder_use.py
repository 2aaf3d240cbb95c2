"""Decisions on the files of a folder that a command uses, without the command naming each of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vaka.policy.decision import DecisionKind, FolderUse, PermissionDecision
from vaka.policy.paths import PathPattern, absolute_path, names_of, resolve_links
from vaka.policy.rules import Rule

if TYPE_CHECKING:
    from vaka.policy.covered_paths import CoveredFiles


def decide_folder_use(
    path: str,
    use: FolderUse,
    rules: Sequence[tuple[Rule, PathPattern]],
    *,
    cwd: str,
    home: str,
    search: "CoveredFiles | None" = None,
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
    search = search or new_file_search()
    patterns = [pattern for _, pattern in rules]
    found = next(filter(None, (search.find(folder, patterns, use) for folder in folders)), None)
    if found is None:
        return None
    rule = rules[found.pattern][0]
    kind: DecisionKind = rule.kind if use.certain and found.path else "ask"
    reason = found.explain(rule.text, use, path, cwd)
    return PermissionDecision(decision=kind, rule=rule.text, layer=rule.layer, reason=reason)


def new_file_search() -> "CoveredFiles":
    """Return a search for files that patterns cover."""
    from vaka.policy.covered_paths import CoveredFiles  # noqa: PLC0415  # reads git repositories; most runs do not

    return CoveredFiles()
