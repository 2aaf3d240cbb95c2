"""Remove what a command must not have created, from the process that owns the command."""

import os
from collections.abc import Iterable

from vaka.core.ports.sandbox import RemovedPath
from vaka.sandbox.warden.quarantine import Quarantine
from vaka.system.openat2 import open_without_links


def quarantine_folders() -> tuple[str, ...]:
    """Return where removed entries are kept: with the data of vaka, and a place for workspaces that contain it."""
    data = os.environ.get("XDG_DATA_HOME", "")
    data = data if data.startswith("/") else os.path.expanduser("~/.local/share")  # noqa: PTH111  # a string
    temporary = f"/var/tmp/vaka-quarantine-{os.geteuid()}"  # noqa: S108  # nosec B108  # used only if it is ours
    return (f"{os.path.realpath(data)}/vaka/quarantine", temporary)


def remove_created(paths: Iterable[tuple[str, str]], workspace: Iterable[str]) -> list[RemovedPath]:
    """Move paths, each with the rule that denies it, to the quarantine outside of the workspace; follow no links."""
    roots = tuple(workspace)
    quarantine = Quarantine(tuple(place for place in quarantine_folders() if not _is_inside(place, roots)))
    removed: list[RemovedPath] = []
    for path, rule in paths:
        folder, name = os.path.split(path)
        try:
            opened = open_without_links(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # it is gone, or its folder was replaced by a link
        try:
            entry = quarantine.remove(opened, name, path)
        finally:
            os.close(opened)
        if entry is not None:
            removed.append(RemovedPath(entry.path, entry.kept, entry.problem, rule))
    return removed


def _is_inside(path: str, roots: Iterable[str]) -> bool:
    return any(f"{path}/".startswith(f"{root.rstrip('/')}/") for root in roots)
