"""What of the world the runtime lends to tools."""

from collections.abc import Callable
from typing import Protocol

import msgspec

from vaka.core.ports.files import Files
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.sandbox import Sandbox
from vaka.core.ports.web import Search
from vaka.core.types.ids import JSON, Digest, Path, SessionId

SHELL_FOLDER = "shell.cwd"
"""The value of a session that says in which folder its next command begins, if not in the working folder."""
CHANGED_FILE = "files.changed"
"""The value of a session that says what the file held that it is about to change; the log has all of them."""


def shell_folder(path: Path) -> str:
    """Return the name of that value for the agent at a path: a child begins anew, and moves nobody but itself."""
    return "/".join((SHELL_FOLDER, *path))


class Lasting(Protocol):
    """What goes on after the call that began it, such as a command in the background; whoever lends it ends it."""

    async def close(self, session: SessionId | None = None) -> None:
        """End what belongs to a session, or everything for good. Safe to call twice."""
        ...


class Copies(Protocol):
    """Keeps what files hold before they are changed."""

    async def before(self, path: str, *, becomes: Digest | None = None) -> JSON:
        """Keep what a file holds now, which is to hold ``becomes``; return what brings it back."""
        ...


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a tool can touch; what is ``None`` is not there for this runtime."""

    files: Files | None = None
    sandbox: Sandbox | None = None
    network: Network | None = None
    shells: Lasting | None = None
    """Where commands run that tools start."""
    reader: Model | None = None
    """The model that answers questions about pages; without it they are told as they are."""
    search: Search | None = None
    """Who finds pages; without it the one that comes with the tool is asked."""
    snapshots: Copies | None = None
    """Keeps what file tools are about to change; without it they change it for good."""
    may_read: Callable[[str], bool] | None = None
    """Whether the rules let a file be read, by its absolute path: what they do not is not listed either."""
    patience: float | None = None
    """Seconds a person has for a question of a tool; any time without it."""
    cwd: str = ""
    """Where relative paths begin, as a folder of this machine."""
