"""Tell a person who looks elsewhere that the chat needs them: with the bell, or a notification of the desktop."""

import asyncio
import os
import shutil
from collections.abc import Mapping

from vaka.cli.kit.render import shorten

BELL = "\x07"
MAX_TEXT = 120

_TERMINALS_WITH_777 = ("rxvt", "foot")


def notification_sequence(text: str, environ: Mapping[str, str]) -> str:
    """Return the escape sequence with which a terminal shows a notification of the desktop."""
    shown = shorten(text, MAX_TEXT)
    if environ.get("TERM", "").startswith(_TERMINALS_WITH_777):
        return f"\x1b]777;notify;vaka;{shown}{BELL}"
    return f"\x1b]9;vaka: {shown}{BELL}"


def notification_command(text: str, environ: Mapping[str, str]) -> list[str] | None:
    """Return the command that shows a notification on the desktop of this machine, ``None`` without one."""
    local = environ.get("DISPLAY") or environ.get("WAYLAND_DISPLAY")
    program = shutil.which("notify-send", path=environ.get("PATH")) if local else None
    return [program, "--app-name=vaka", "--", "vaka", shorten(text, MAX_TEXT)] if program else None


async def run_notification(command: list[str]) -> None:
    """Run a command of ``notification_command``; a desktop that shows nothing is not an error."""
    devnull = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=devnull, stdout=devnull, stderr=devnull)
        await process.wait()
    except OSError:
        return


class Notifier:
    """Notifies in the way of the setting ``notify``: ``off``, ``bell`` or ``desktop``."""

    def __init__(self, way: str) -> None:
        self._way = way
        self._task: asyncio.Task[None] | None = None

    def notify(self, text: str) -> str:
        """Return what to write to the terminal, ``""`` for nothing."""
        if self._way == "off":
            return ""
        if self._way == "bell":
            return BELL
        command = notification_command(text, os.environ)
        if command is None:
            return notification_sequence(text, os.environ)
        self._task = asyncio.create_task(run_notification(command))
        return ""
