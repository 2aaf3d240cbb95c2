"""The port that records what commands change in the files of the workspace."""

from typing import Protocol, runtime_checkable

from vaka.core.types.ids import JSON, CallId, SessionId

COMMAND_FILES_KEY = "files.command"
"""The session value with the record of the latest command; the log has every earlier one."""

LINK_PREFIX = "link:"
"""The begin of the digest of a link: that of its target follows."""


@runtime_checkable
class CommandBackups(Protocol):
    """Records the files of the workspace before and after a command, so that its changes can be undone.

    A record is plain JSON for the log under ``COMMAND_FILES_KEY``. A folder that cannot be recorded is named in it and
    does not stop the command.
    """

    async def begin_command(self, call: CallId, command: str) -> JSON:
        """Record the files before a command and return the record; ``None`` if the command changes no file."""
        ...

    async def end_command(self, begun: JSON, session: SessionId, *, goes_on: bool = False) -> JSON:
        """Return the record of a command after its end, or when it goes on in the background.

        What the files contained before is stored as blobs of the session.
        """
        ...
