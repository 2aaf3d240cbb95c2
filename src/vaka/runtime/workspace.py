"""The folder that a session belongs to: described for its log, and compared before a turn runs."""

import os
import re
import socket
from pathlib import Path
from typing import Any

import msgspec

from vaka.agents.react import Agent, is_agent_tool
from vaka.core.types.control import RunSettings, SessionWorkspace
from vaka.core.types.errors import InvalidInput
from vaka.core.types.message import replace_surrogates
from vaka.policy import tool_targets
from vaka.runtime.options import Options


def describe_workspace(options: Options) -> SessionWorkspace | None:
    """Return the folders of the tools of a runtime; ``None`` if it has a file system of its own, or no files."""
    workspace = options.workspace
    if workspace.tools is not None:
        return describe_folder(workspace.tools.folder) if workspace.tools.folder else None
    if workspace.files is not None:
        return None
    return describe_folder(workspace.folder, tuple(workspace.add_dirs))


def describe_folder(root: str, directories: tuple[str, ...] = ()) -> SessionWorkspace | None:
    """Return a folder with its identity, ``""`` for the current one; ``None`` if a log cannot have its name."""
    real = os.path.realpath(root or os.curdir)
    added = tuple(os.path.realpath(os.path.expanduser(folder)) for folder in directories)  # noqa: PTH111
    if any(replace_surrogates(path) != path for path in (real, *added)):
        return None
    try:
        found = Path(real).stat()
    except OSError:
        return SessionWorkspace(root=real, directories=added)
    host = replace_surrogates(socket.gethostname())
    return SessionWorkspace(root=real, directories=added, device=found.st_dev, inode=found.st_ino, host=host)


def works_in_folder(agent: Agent[Any, Any]) -> bool:
    """Return whether an agent or one of its child agents has built-in tools that read, change or run files."""
    waiting: list[Any] = [*agent.tools]
    seen: dict[int, Any] = {id(agent): agent}
    for tool in waiting:  # it grows
        child: Any = tool.agent if is_agent_tool(tool) else tool
        if id(child) in seen:  # a tool may be in many steps, and agents may offer each other
            continue
        seen[id(child)] = child
        if isinstance(child, Agent):
            waiting += child.tools
            continue
        name = tool if isinstance(tool, str) else getattr(tool, "name", None)  # a name costs no schema
        if name is None:
            name = getattr(getattr(tool, "spec", None), "name", "")
        if tool_targets.works_in_folder(name):
            return True
        for step in getattr(tool, "steps", ()):  # of a composite tool
            waiting.append(step.tool)
    return False


def require_same_folder(session: str, recorded: SessionWorkspace, here: SessionWorkspace) -> None:
    """Raise ``InvalidInput`` unless a runtime works in the folder that a session belongs to."""
    if recorded.root != here.root:
        raise InvalidInput(
            f"session {session!r} belongs to the folder {recorded.root!r}, but this runtime works in {here.root!r}; "
            f"continue it there: `vaka run --session {session}` enters its folder, in Python use Workspace(cwd=…); "
            f"or bind it to this folder: vaka sessions move {session}"
        )
    if not recorded.is_same_folder(here):
        raise _folder_error(session, recorded, "but another folder has that name now")


def require_folder(session: str, recorded: SessionWorkspace) -> None:
    """Raise ``InvalidInput`` unless the folder of a session exists and is the folder in which it was opened."""
    found = describe_folder(recorded.root)
    if found is None or not found.inode or not os.path.isdir(found.root):  # noqa: PTH112  # false for what cannot be read
        raise _folder_error(session, recorded, "which does not exist any more")
    if not recorded.is_same_folder(found):
        raise _folder_error(session, recorded, "but another folder has that name now")


def require_unchanged(opened: SessionWorkspace | None) -> None:
    """Raise ``InvalidInput`` if the folder of a runtime was moved, replaced or removed since the runtime opened it."""
    if opened is None or not opened.inode:
        return
    try:
        found = os.stat(opened.root).st_ino  # noqa: PTH116  # before each turn and command, so without a Path
    except OSError:
        found = 0
    if found != opened.inode:
        raise InvalidInput(
            f"the folder {opened.root!r} was moved, replaced or removed while this process works in it; nothing was "
            f"run. Start again in the folder that is meant; `vaka sessions move SESSION FOLDER` binds a session to it"
        )


def _folder_error(session: str, recorded: SessionWorkspace, problem: str) -> InvalidInput:
    return InvalidInput(
        f"session {session!r} belongs to the folder {recorded.root!r}, {problem}; if its files were moved, bind it to "
        f"their folder: vaka sessions move {session} FOLDER"
    )


def relocate_run(run: RunSettings, old: SessionWorkspace, new: SessionWorkspace) -> RunSettings:
    """Return how a session was run with the paths below its old folder below its new one."""
    before, after = (msgspec.json.encode(f"{workspace.root}/")[1:-1] for workspace in (old, new))
    # A path begins a text, or follows the sign before it in a flag or a rule; elsewhere it is part of a longer path.
    path = re.compile(rb'(?<=["@:=( /])' + re.escape(before))
    return msgspec.json.decode(path.sub(lambda _: after, msgspec.json.encode(run)), type=RunSettings)
