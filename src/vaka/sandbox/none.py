"""No sandbox: a process group, limits and no keys, and it says that it enforces nothing."""

import os
from collections.abc import Iterable

from vaka.core.ports.sandbox import Command, Process
from vaka.core.types.errors import SandboxError
from vaka.sandbox.abilities import LINUX
from vaka.sandbox.environment import command_environment
from vaka.sandbox.portable import start_portably


class Unconfined:
    """Commands do whatever this user can do. They still end with all they started, within their limits."""

    name = "none"
    enforces: frozenset[str] = frozenset()

    def __init__(self, *, allow_env: Iterable[str] = (), portable: bool = not LINUX) -> None:
        """``portable``: start commands as any system can, without a keeper that finds what runs away."""
        self._allow = tuple(allow_env)
        self._portable = portable

    async def start(self, command: Command) -> Process:
        """Start a command. Raises ``SandboxError`` when it cannot be started."""
        proxy = command.proxy if command.proxy and not command.network else ""
        if proxy and not proxy.startswith("http://"):
            raise SandboxError(
                f"without a sandbox a command finds its proxy by an address like http://…, not {proxy!r}"
            )
        if self._portable:
            return await start_portably(command, command_environment(os.environ, command.env, self._allow, proxy=proxy))
        # They name system calls of Linux when they are loaded.
        from vaka.sandbox.ordering import order_of  # noqa: PLC0415
        from vaka.sandbox.process import start  # noqa: PLC0415

        return await start(order_of(self.name, command, self._allow, {}, proxy=proxy), command.stdin)
