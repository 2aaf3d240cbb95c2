"""The status line that a command of the user prints: the setting ``statusLine`` of ``.claude`` files."""

import asyncio
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from vaka.cli.kit.render import as_printable
from vaka.config.settings import SettingsFile
from vaka.hooks.command import run_command
from vaka.sandbox.sensitive import drop_secrets

LOOK_SECONDS = 0.3
"""Seconds between two looks at what the command is given."""
DEFAULT_SECONDS = 5.0
"""Seconds that the command may take."""
_STYLE_SEQUENCE = re.compile(r"\x1b\[[0-9;:]*m")


class StatusCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command whose first line of output is shown below the input."""

    command: str
    interval: float | None = None
    """Seconds after which it runs again although nothing has changed."""
    seconds: float = DEFAULT_SECONDS

    @staticmethod
    def of_setting(setting: Mapping[str, Any]) -> "StatusCommand | None":
        """Return the command of the setting, ``None`` if it has none."""
        command: object = setting.get("command") if setting.get("type") == "command" else None
        if not isinstance(command, str) or not command.strip():
            return None
        interval, seconds = (_positive(setting.get(name)) for name in ("intervalSeconds", "timeoutSeconds"))
        return StatusCommand(command=command, interval=interval, seconds=seconds or DEFAULT_SECONDS)

    async def follow(self, describe: Callable[[], dict[str, Any]], show: Callable[[str], None]) -> None:
        """Run the command whenever ``describe`` returns something new, and show what it prints; until cancelled.

        A command that fails, takes too long or prints nothing shows nothing.
        """
        loop = asyncio.get_running_loop()
        payload, ran_at = b"", 0.0
        while True:
            new = msgspec.json.encode(describe())
            due = self.interval is not None and loop.time() - ran_at >= self.interval
            if new != payload or due:
                payload, ran_at = new, loop.time()
                env = drop_secrets(os.environ)
                result = await run_command(
                    self.command, payload, cwd="", env=env, seconds=self.seconds, on_line=lambda line: None
                )
                lines = result.stdout.splitlines() if result.status == 0 and not result.timed_out else []
                show(as_printable(_STYLE_SEQUENCE.sub("", lines[0]), lines=False) if lines else "")
            await asyncio.sleep(LOOK_SECONDS)


def status_command(files: Sequence[SettingsFile]) -> StatusCommand | None:
    """Return the command of the setting ``statusLine``, if there is one."""
    if not files:
        return None
    from vaka.project.effective_settings import effective_settings

    setting = effective_settings(files).get("statusLine")
    return StatusCommand.of_setting(setting.value) if setting is not None else None


def _positive(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else None
