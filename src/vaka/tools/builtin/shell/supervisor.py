"""The processes of commands, and the supervisor that owns them for all sessions of a runtime."""

import asyncio
import codecs
import re
import shlex
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from vaka.core.ports.files import MultiRootFiles
from vaka.core.ports.sandbox import Command, Process, RemovedPath, ResourceLimits
from vaka.core.ports.tool import ToolContext, World
from vaka.core.types.errors import Closed, ConfigError, InvalidInput
from vaka.core.types.ids import SessionId
from vaka.tools.builtin.shell.network_gate import CommandGate, OpenGate
from vaka.tools.builtin.shell.output import DEFAULT_QUOTA, Spool, SpoolStore
from vaka.tools.builtin.shell.removed_paths import CheckedProcess, RemovedPaths

ShellStatus: TypeAlias = Literal["running", "completed", "failed", "killed"]

OutputListener: TypeAlias = Callable[[str], None]

MAX_COMMAND_BYTES = 100_000
"""The largest command; the kernel's limit for one argument is little higher."""

CLOSE_SECONDS = 0.3
"""Seconds after the exit of bash; output that is still open then is held by a process left behind."""

LINGER_SECONDS = 1.0
"""Seconds that processes left behind have to close the output."""

GRACE_SECONDS = 2.0

_MAX_REPORT_BYTES = 64 * 1024

# Both output streams share one pipe, so that they stay in order. The other pipe reports the folder in which bash ends;
# child processes do not inherit it, or a server started with & would hold it open. The report is written at the end of
# the command and at the exit of bash: a command that calls "exit" reaches only the second, one with a trap the first.
_REPORT_SCRIPT = (
    '{ { builtin printf "\\0cwd\\0"; builtin pwd -P; builtin printf "\\0\\0jobs\\0"; '
    'builtin jobs -pr; builtin printf "\\0"; } >&9; } 2>/dev/null'
)

_WRAPPER_SCRIPT = (
    f"trap '{_REPORT_SCRIPT}' EXIT; exec 9>&2 2>&1; "
    f'{{ eval "shift; $1"; }} 9>&-; {{ builtin set +x -- "$?"; {_REPORT_SCRIPT}; }} 2>/dev/null; builtin exit "$1"'
)

_REPORT_PATTERN = re.compile(rb"\0cwd\0([^\0]*?)\n?\0\0jobs\0([\s\d]*)\0")


def argv_of(command: str) -> tuple[str, ...]:
    """Return the argument vector for a command. Raises ``InvalidInput`` when it is empty, too long or has a NUL."""
    if not command.strip():
        raise InvalidInput("the command is empty")
    if "\0" in command:
        raise InvalidInput("a command cannot have a NUL character in it")
    size = len(command.encode("utf-8", "surrogatepass"))
    if size > MAX_COMMAND_BYTES:
        raise InvalidInput(
            f"the command has {size} bytes, at most {MAX_COMMAND_BYTES} can be run; Write it to a file, run that"
        )
    return ("bash", "-c", _WRAPPER_SCRIPT, "bash", command)


class ShellProcess:
    """A command that runs or has ended."""

    def __init__(self, id: str, session: SessionId, command: str, cwd: str, process: Process, spool: Spool) -> None:
        self.id = id
        self.session = session
        self.command = command
        self.cwd = cwd
        self.spool = spool
        self.listener: OutputListener | None = None
        """Called with each piece of output while a call shows it live."""
        self.in_foreground = True
        """Whether a call waits for it. Then it ends with bash, else with all processes that hold its output."""
        self.status: ShellStatus = "running"
        self.exit_code: int | None = None
        """The exit code; negative for the signal that killed it."""
        self.final_directory = ""
        """The working folder in which bash ended, if reported."""
        self.killed_leftovers = False
        """Whether processes that the command left running were killed."""
        self.output_error = ""
        """The error that ended the reading of its output, if any."""
        self.gate: CommandGate | None = None
        """Its way to the network, if it has one of its own."""
        self._process = process
        self._report = bytearray()
        self._has_jobs = False
        """Whether bash ended with jobs in the background."""
        self._killed = False
        self._stopping: asyncio.Task[None] | None = None
        self.task = asyncio.create_task(self._run())

    @property
    def running(self) -> bool:
        return self.status == "running"

    async def wait_for_end(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for its end and return whether it ended. Cancelling this call kills the command."""
        try:
            done, _ = await asyncio.wait([self.task], timeout=seconds)
        except asyncio.CancelledError:
            await self.stop()
            raise
        return bool(done)

    async def stop(self) -> None:
        """Kill it with all its child processes; a second call waits for the first."""
        if self._stopping is None:
            self._killed = self.running
            self._stopping = asyncio.create_task(self._stop_process())
        await asyncio.shield(self._stopping)

    async def _stop_process(self) -> None:
        await self._process.stop(GRACE_SECONDS)
        await asyncio.wait([self.task])

    async def _run(self) -> None:
        reading = asyncio.create_task(self._read_output())
        await asyncio.sleep(0)  # wait() before a reader has started would discard the output
        self.exit_code = await self._process.wait()
        try:
            await self._drain_output(reading)
            if self.gate is not None:
                await self.gate.close()
        finally:
            self.status = "killed" if self._killed else "completed" if self.exit_code == 0 else "failed"

    async def _drain_output(self, reading: "asyncio.Task[None]") -> None:
        """Read the rest of the output; in the foreground kill processes left behind that hold it open."""
        if self.in_foreground and not self._killed:
            await asyncio.wait([reading], timeout=CLOSE_SECONDS)
            self.killed_leftovers = reading.done() and self._has_jobs  # jobs that print elsewhere are killed with it
            await asyncio.wait([reading], timeout=LINGER_SECONDS)
            if not reading.done():
                self.killed_leftovers = True
                await self._process.stop(GRACE_SECONDS)
        await asyncio.wait([reading])
        await self._process.stop(0)  # the output is closed: remove what is left
        error = reading.exception()
        if error is not None:
            self.output_error = str(error)

    async def _read_output(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with aclosing(self._process.output()) as pieces:
            async for stream, data in pieces:
                if stream == "stderr":
                    self._report = (self._report + data)[-_MAX_REPORT_BYTES:]
                else:
                    await self._append_output(decoder.decode(data))
        await self._append_output(decoder.decode(b"", final=True))
        for report in _REPORT_PATTERN.finditer(self._report):
            self.final_directory = report[1].decode("utf-8", "surrogateescape")
            self._has_jobs = bool(report[2].strip())
        # The rest of this pipe is from the sandbox: why it killed a command or could not start it.
        await self._append_output(_REPORT_PATTERN.sub(b"", self._report).decode("utf-8", "replace"))

    async def _append_output(self, text: str) -> None:
        if text:
            await self.spool.append(text)
            if self.listener is not None:
                self.listener(text)


TASK_ID_PREFIX = "bash_"

_MAX_PAST_EXITS = 10_000
"""Commands of which only the exit is remembered."""

_TASK_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class CommandScope(msgspec.Struct, frozen=True, kw_only=True):
    """The environment and access of commands besides the workspace, which they may write."""

    env: Mapping[str, str] = {}
    writable: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    masked: tuple[str, ...] = ()
    """Folders that commands see empty, except for the workspace."""
    network: bool = False
    proxy: str = ""
    bounds: ResourceLimits = ResourceLimits()


class RestrictedPaths(NamedTuple):
    """Paths that commands must not change, and must not read, as they are now."""

    protected: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    remove_created: Callable[[], Sequence[RemovedPath]] | None = None
    """Called in a thread after the command: remove what it must not have created, and return that."""
    find_rule: Callable[[str], str] = lambda _: ""
    """Return the rule because of which a path was removed, ``""`` for a path that is always protected."""


class CommandOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are run; times in milliseconds."""

    timeout: int = 120_000
    """The timeout of a command that sets none."""
    longest: int = 600_000
    """The largest timeout that a command may set."""
    late_goes_on: bool = False
    """Whether a command goes on in the background after its timeout; else it is killed."""
    running: int = 50
    """The largest number of running background commands of one session."""
    ended: int = 50
    """Ended background commands of one session whose output is kept."""
    quota: int = DEFAULT_QUOTA
    """Bytes of output stored for all sessions together."""

    def __post_init__(self) -> None:
        for name, least in (("timeout", 1), ("longest", 1), ("running", 0), ("ended", 0), ("quota", 0)):
            if (given := getattr(self, name)) < least:
                raise InvalidInput(f"{name} is at least {least}, not {given!r}")


class ExitRecord(msgspec.Struct, frozen=True):
    """The status and exit code of an ended command."""

    status: ShellStatus
    code: int | None


class ShellSupervisor:
    """Starts commands and owns those in the background; implements ``Lasting``."""

    def __init__(
        self,
        scope: CommandScope | None = None,
        options: CommandOptions | None = None,
        *,
        folder: str | Path | None = None,
        find_restricted: Callable[[], RestrictedPaths] | None = None,
        before_command: Callable[[], None] = lambda: None,
        find_setup: Callable[[SessionId], str] | None = None,
        open_gate: OpenGate | None = None,
    ) -> None:
        """``folder`` holds long output while its session is open; by default a temporary folder of the system.

        ``find_restricted`` is called in a thread before each command for paths in addition to ``scope``. An error of
        ``before_command`` is raised as the error of the command, which does not start. ``find_setup`` returns a text
        that bash runs before each command of a session; its output is dropped. ``open_gate`` opens the way of one
        command to the hosts that rules and persons allow.
        """
        self._find_restricted, self._before_command = find_restricted, before_command
        self._find_setup, self._open_gate = find_setup, open_gate
        self.scope, self.options = scope or CommandScope(), options or CommandOptions()
        self._store = SpoolStore(folder, quota=self.options.quota)
        self._sessions: dict[SessionId, _SessionShells] = {}
        self._past_exits: OrderedDict[tuple[SessionId, str], ExitRecord] = OrderedDict()
        self._foreground: set[ShellProcess] = set()
        """Commands that a call waits for."""
        self._removed = RemovedPaths()
        self._closed = False

    async def start_foreground(self, context: ToolContext, command: str, cwd: str) -> ShellProcess:
        """Start a command that the caller waits for; it has no id."""
        shell = await self._start_shell(context, "", command, cwd)
        self._foreground.add(shell)
        shell.task.add_done_callback(lambda _: self._foreground.discard(shell))
        return shell

    async def start_background(
        self, context: ToolContext, command: str, cwd: str, *, id: str = "", last_number: int = 0
    ) -> ShellProcess:
        """Start a command in the background with this id, or a new one above ``last_number``.

        Raises ``InvalidInput`` for an id that is taken, or when too many commands run.
        """
        session = self._session_shells(context.session)
        id = session.reserve_id(id, last_number, self.options.running)
        try:
            shell = await self._start_shell(context, id, command, cwd)
        except BaseException:
            session.reserved_ids.discard(id)
            raise
        shell.in_foreground = False
        await self._register(session, shell)
        return shell

    async def keep_in_background(self, shell: ShellProcess, *, last_number: int = 0) -> None:
        """Give a foreground command an id and keep it. Raises ``InvalidInput`` when too many commands run."""
        session = self._session_shells(shell.session)
        shell.id = session.reserve_id("", last_number, self.options.running if shell.running else None)
        shell.in_foreground = not shell.running
        self._foreground.discard(shell)
        await self._register(session, shell)

    def find(self, session: SessionId, id: str) -> ShellProcess | None:
        return next((shell for shell in self.list_shells(session) if shell.id == id), None)

    def past_exit_of(self, session: SessionId, id: str) -> "ExitRecord | None":
        """Return the exit of a command whose output is not kept any more."""
        return self._past_exits.get((session, id))

    def list_shells(self, session: SessionId) -> list[ShellProcess]:
        """Return the background commands of a session, oldest first."""
        known = self._sessions.get(session)
        return list(known.shells.values()) if known else []

    def take_removed(self) -> list[RemovedPath]:
        """Return what was removed since the last call, because commands must not create it."""
        return self._removed.take()

    def announce(self, path: str) -> None:
        """Tell the running commands that a tool is about to create a file."""
        self._removed.announce(path)

    async def close(self, session: SessionId | None = None) -> None:
        """Kill the commands of a session; without one kill all and refuse new ones."""
        self._closed = self._closed or session is None
        shells = [shell for shell in self._foreground if session is None or shell.session == session]
        for closed in [session] if session is not None else list(self._sessions):
            known = self._sessions.pop(closed, None)
            shells += known.shells.values() if known else []
        await asyncio.gather(*(self._end_shell(shell) for shell in shells))

    def _session_shells(self, session: SessionId) -> "_SessionShells":
        return self._sessions.setdefault(session, _SessionShells())

    async def _register(self, session: "_SessionShells", shell: ShellProcess) -> None:
        session.reserved_ids.discard(shell.id)
        if self._closed or self._sessions.get(shell.session) is not session:
            await self._end_shell(shell)
            raise Closed("the session was closed while the command was being started; it was ended")
        session.shells[shell.id] = shell
        ended = [other for other in session.shells.values() if not other.running and other is not shell]
        for other in ended[: max(len(ended) - self.options.ended, 0)]:
            del session.shells[other.id]
            await self._end_shell(other)

    async def _end_shell(self, shell: ShellProcess) -> None:
        await shell.stop()
        await shell.spool.close()
        if shell.id:
            self._past_exits[shell.session, shell.id] = ExitRecord(shell.status, shell.exit_code)
            if len(self._past_exits) > _MAX_PAST_EXITS:
                self._past_exits.popitem(last=False)

    async def _start_shell(self, context: ToolContext, id: str, command: str, cwd: str) -> ShellProcess:
        self._require_open("nothing more can be started")
        argv = argv_of(command)
        setup = self._find_setup(context.session) if self._find_setup is not None else ""
        if setup:
            argv = (*argv[:-1], f"{{ builtin eval {shlex.quote(setup)}; }} >/dev/null 2>&1; {argv[-1]}")
        world, gate = await self._prepare_network(context)
        try:
            process = await self.start_process(world, argv, cwd, proxy=gate.address if gate is not None else "")
        except BaseException:
            if gate is not None:
                await gate.close()
            raise
        shell = ShellProcess(id, context.session, command, cwd, process, Spool(self._store))
        shell.gate = gate
        try:
            self._require_open("the command was ended while it was being started")
        except Closed:
            await self._end_shell(shell)
            raise
        return shell

    async def _prepare_network(self, context: ToolContext) -> tuple[World, CommandGate | None]:
        """Return the world that a command runs in, and its way to the network, ``None`` if the world decides on that.

        Raises ``InvalidInput`` for an access that this runtime cannot give.
        """
        world, access = context.world, context.access
        if access.unsandboxed:
            if world.unconfined is None:
                raise InvalidInput("this runtime runs no command without the sandbox; nothing was run")
            return msgspec.structs.replace(world, sandbox=world.unconfined), None
        sandbox = world.sandbox
        confined = sandbox is not None and "network" in sandbox.enforces and not self.scope.network
        if confined and self._open_gate is not None and getattr(sandbox, "has_proxy", False):
            return world, await self._open_gate(access)
        if confined and access.requested_hosts:
            raise InvalidInput("the sandbox of this machine cannot let a command reach single hosts; nothing was run")
        return world, None

    async def start_process(
        self,
        world: World,
        argv: tuple[str, ...],
        cwd: str,
        *,
        env: Mapping[str, str] | None = None,
        writable: tuple[str, ...] = (),
        stdin: bytes | Literal["pipe"] = b"",
        proxy: str = "",
    ) -> Process:
        """Start a program with the access of commands; it may also write to ``writable``. The caller ends it.

        ``env`` is added to the variables of commands. ``proxy``: the proxy of this program, in place of the common one.
        """
        scope, sandbox = msgspec.structs.asdict(self.scope), world.sandbox
        scope["proxy"] = proxy or self.scope.proxy
        scope["writable"] = tuple(dict.fromkeys((*workspace_roots_of(world), *self.scope.writable, *writable)))
        if sandbox is None:
            raise ConfigError("this runtime gives tools no sandbox, so no command can be run")
        found = RestrictedPaths()
        if self._find_restricted is not None and "read" in sandbox.enforces:
            found = await asyncio.to_thread(self._find_restricted)
            scope["protected"] = tuple(dict.fromkeys((*self.scope.protected, *found.protected)))
            scope["hidden"] = tuple(dict.fromkeys((*self.scope.hidden, *found.hidden)))
        if env:
            scope["env"] = {**self.scope.env, **env}
        self._before_command()
        started = await sandbox.start(Command(argv=argv, cwd=cwd, stdin=stdin, **scope))
        process = CheckedProcess(started, found.remove_created, found.find_rule)
        self._removed.follow(process)
        return process

    def _require_open(self, otherwise: str) -> None:
        if self._closed:
            raise Closed(f"the runtime is closed; {otherwise}")


class _SessionShells:
    """The background commands of one session."""

    def __init__(self) -> None:
        self.shells: OrderedDict[str, ShellProcess] = OrderedDict()
        self.reserved_ids: set[str] = set()
        self._last_number = 0

    def reserve_id(self, id: str, last_number: int, max_running: int | None) -> str:
        """Reserve this id, or a new one. Raises ``InvalidInput``."""
        running = sum(shell.running for shell in self.shells.values()) + len(self.reserved_ids)
        if max_running is not None and running >= max_running:
            raise InvalidInput(f"{max_running} commands run in the background already; end one with KillTask first")
        if id and not _TASK_ID.match(id):
            raise InvalidInput(f"task_id {id!r} must be up to 64 letters, digits, - and _")
        if id and (id in self.shells or id in self.reserved_ids):
            raise InvalidInput(f"there is a task {id!r} already")
        while not id or id in self.shells or id in self.reserved_ids:
            self._last_number = max(self._last_number, last_number) + 1
            id = f"{TASK_ID_PREFIX}{self._last_number}"
        self.reserved_ids.add(id)
        return id


def supervisor_of(context: ToolContext) -> ShellSupervisor:
    """Return the supervisor of this runtime. Raises ``ConfigError`` when it has none."""
    shells = context.world.shells
    if not isinstance(shells, ShellSupervisor):
        raise ConfigError("this runtime runs no commands; give tools a sandbox and shells (World(sandbox=…, shells=…))")
    return shells


def workspace_roots_of(world: World) -> tuple[str, ...]:
    """Return the folders of the workspace; commands start in the first. Raises ``ConfigError`` without one."""
    files = world.files
    known = (files.root, *(files.roots if isinstance(files, MultiRootFiles) else ())) if files is not None else ()
    roots = tuple(dict.fromkeys(folder for folder in (world.cwd, *known) if folder))
    if not roots:
        raise ConfigError("this runtime has no folder for commands to run in; give it one with cwd=…")
    return roots
