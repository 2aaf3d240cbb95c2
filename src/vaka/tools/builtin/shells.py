"""The commands of one runtime: started in its sandbox, kept by session, ended with it."""

import asyncio
import re
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

import msgspec

from vaka.core.ports.files import Rooted
from vaka.core.ports.sandbox import Bounds, Command, Sandbox
from vaka.core.ports.tool import ToolContext
from vaka.core.types.errors import Closed, ConfigError, InvalidInput
from vaka.core.types.ids import SessionId
from vaka.tools.builtin.shell import Shell, Status, argv_of
from vaka.tools.builtin.spool import QUOTA, Spool, Store

PREFIX = "bash_"
_PAST = 10_000
"""Commands of which no more is remembered than how they ended."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """What commands may touch besides the folders of the workspace, which they may write to."""

    env: Mapping[str, str] = {}
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False
    proxy: str = ""
    bounds: Bounds = Bounds()


class Habits(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are run; times in milliseconds."""

    timeout: int = 120_000
    """For a command that names none."""
    longest: int = 600_000
    """No command that is waited for may ask for more."""
    late_goes_on: bool = False
    """Whether a command that takes too long goes on in the background; else it is ended."""
    running: int = 50
    """Commands in the background of one session at a time."""
    ended: int = 50
    """Those that have ended and whose output is still at hand."""
    quota: int = QUOTA
    """Bytes of output that are kept on disk for all sessions together."""

    def __post_init__(self) -> None:
        for name, least in (("timeout", 1), ("longest", 1), ("running", 0), ("ended", 0), ("quota", 0)):
            if (given := getattr(self, name)) < least:
                raise InvalidInput(f"{name} is at least {least}, not {given!r}")


class Ended(msgspec.Struct, frozen=True):
    """How a command ended."""

    status: Status
    code: int | None


class Shells:
    """Starts commands and remembers those that were not waited for; implements ``Lasting``."""

    def __init__(
        self, fence: Fence | None = None, habits: Habits | None = None, *, folder: str | Path | None = None
    ) -> None:
        """``folder``: where long output lies while its session is open; otherwise where this system keeps such."""
        self.fence, self.habits = fence or Fence(), habits or Habits()
        self._store = Store(folder, quota=self.habits.quota)
        self._sessions: dict[SessionId, _Session] = {}
        self._past: OrderedDict[tuple[SessionId, str], Ended] = OrderedDict()
        self._others: set[Shell] = set()
        """Those that somebody waits for."""
        self._closed = False

    async def run(self, context: ToolContext, command: str, cwd: str) -> Shell:
        """Start a command that somebody waits for; it has no name."""
        shell = await self._start(context, "", command, cwd)
        self._others.add(shell)
        shell.task.add_done_callback(lambda _: self._others.discard(shell))
        return shell

    async def start(self, context: ToolContext, command: str, cwd: str, *, id: str = "", above: int = 0) -> Shell:
        """Start a command in the background, under a name of its own; numbers up to ``above`` are taken.

        Raises ``InvalidInput`` for a name that is taken, or when there are too many.
        """
        session = self._session(context.session)
        id = session.reserve(id, above, self.habits.running)
        try:
            shell = await self._start(context, id, command, cwd)
        except BaseException:
            session.reserved.discard(id)
            raise
        shell.waited_for = False
        await self._put(session, shell)
        return shell

    async def keep(self, shell: Shell, *, above: int = 0) -> None:
        """Give a command that was waited for a name, and keep it. Raises ``InvalidInput`` when there are too many."""
        session = self._session(shell.session)
        shell.id = session.reserve("", above, self.habits.running if shell.running else None)
        shell.waited_for = not shell.running
        self._others.discard(shell)
        await self._put(session, shell)

    def find(self, session: SessionId, id: str) -> Shell | None:
        """Return a command of a session."""
        known = self._sessions.get(session)
        return known.shells.get(id) if known else None

    def past(self, session: SessionId, id: str) -> "Ended | None":
        """Return how a command of a session ended that is not at hand any more."""
        return self._past.get((session, id))

    def all(self, session: SessionId) -> list[Shell]:
        """Return the commands of a session, the first one first."""
        known = self._sessions.get(session)
        return list(known.shells.values()) if known else []

    async def close(self, session: SessionId | None = None) -> None:
        """End the commands of a session, or all of them for good."""
        self._closed = self._closed or session is None
        gone = [session] if session is not None else list(self._sessions)
        shells = [shell for shell in self._others if session is None or shell.session == session]
        for name in gone:
            known = self._sessions.pop(name, None)
            shells += known.shells.values() if known else []
        await asyncio.gather(*(self._end(shell) for shell in shells))

    def _session(self, session: SessionId) -> "_Session":
        return self._sessions.setdefault(session, _Session())

    async def _put(self, session: "_Session", shell: Shell) -> None:
        session.reserved.discard(shell.id)
        if self._closed or self._sessions.get(shell.session) is not session:
            await self._end(shell)
            raise Closed("the session was closed while the command was being started; it was ended")
        session.shells[shell.id] = shell
        ended = [other for other in session.shells.values() if not other.running and other is not shell]
        for other in ended[: max(len(ended) - self.habits.ended, 0)]:
            del session.shells[other.id]
            await self._end(other)

    async def _end(self, shell: Shell) -> None:
        await shell.stop()
        await shell.spool.close()
        if shell.id:
            self._past[shell.session, shell.id] = Ended(shell.status, shell.code)
            if len(self._past) > _PAST:
                self._past.popitem(last=False)

    async def _start(self, context: ToolContext, id: str, command: str, cwd: str) -> Shell:
        self._require_open("nothing more can be started")
        argv, fence = argv_of(command), self.fence
        process = await _sandbox(context).start(
            Command(
                argv=argv,
                cwd=cwd,
                env=fence.env,
                writable=tuple(dict.fromkeys((*roots(context), *fence.writable))),
                protected=fence.protected,
                hidden=fence.hidden,
                network=fence.network,
                proxy=fence.proxy,
                bounds=fence.bounds,
            )
        )
        shell = Shell(id, context.session, command, cwd, process, Spool(self._store))
        try:
            self._require_open("the command was ended while it was being started")
        except Closed:
            await self._end(shell)
            raise
        return shell

    def _require_open(self, otherwise: str) -> None:
        if self._closed:
            raise Closed(f"the runtime is closed; {otherwise}")


class _Session:
    """The commands of one session."""

    def __init__(self) -> None:
        self.shells: OrderedDict[str, Shell] = OrderedDict()
        self.reserved: set[str] = set()
        self._number = 0

    def reserve(self, id: str, above: int, most: int | None) -> str:
        """Return a name nobody else gets."""
        if most is not None and sum(one.running for one in self.shells.values()) + len(self.reserved) >= most:
            raise InvalidInput(f"{most} commands run in the background already; end one with KillTask first")
        if id and not _NAME.match(id):
            raise InvalidInput(f"task_id {id!r} must be up to 64 letters, digits, - and _")
        if id and (id in self.shells or id in self.reserved):
            raise InvalidInput(f"there is a task {id!r} already")
        while not id or id in self.shells or id in self.reserved:
            self._number = max(self._number, above) + 1
            id = f"{PREFIX}{self._number}"
        self.reserved.add(id)
        return id


def shells_of(context: ToolContext) -> Shells:
    """Return where commands of this runtime run. Raises ``ConfigError`` when there is no such place."""
    shells = context.world.shells
    if not isinstance(shells, Shells):
        raise ConfigError("this runtime runs no commands; lend tools a sandbox and shells (World(sandbox=…, shells=…))")
    return shells


def roots(context: ToolContext) -> tuple[str, ...]:
    """Return the folders of the workspace, the first one being where commands begin."""
    world = context.world
    files = world.files
    known = (files.root, *(files.roots if isinstance(files, Rooted) else ())) if files is not None else ()
    found = tuple(dict.fromkeys(folder for folder in (world.cwd, *known) if folder))
    if not found:
        raise ConfigError("this runtime has no folder for commands to run in; give it one with cwd=…")
    return found


def _sandbox(context: ToolContext) -> Sandbox:
    if context.world.sandbox is None:
        raise ConfigError("this runtime lends no sandbox to tools, so no command can be run")
    return context.world.sandbox
