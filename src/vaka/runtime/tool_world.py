"""The files, sandbox, shells and network that a runtime gives to tools, created on first use."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vaka.core.ports.files import Files, MultiRootFiles
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.policy import Policy
from vaka.core.ports.sandbox import Command, Process, RemovedPath, Sandbox
from vaka.core.ports.store import Store
from vaka.core.ports.tool import SharedState, World
from vaka.core.types.control import SessionWorkspace
from vaka.core.types.errors import ConfigError, SandboxError, VakaError
from vaka.core.types.ids import SessionId
from vaka.files.snapshots import CommandSnapshots, FileSnapshots
from vaka.files.workspace import WorkspaceFiles
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.policy.denied_paths import DeniedPaths, find_created_paths, find_denied_paths, find_rule_against
from vaka.policy.policy import LayeredPolicy
from vaka.policy.read_filter import make_read_filter
from vaka.runtime.command_network import CommandNetwork
from vaka.runtime.model_registry import ModelRegistry, UnavailableModel
from vaka.runtime.options import Options
from vaka.runtime.workspace import require_unchanged
from vaka.sandbox.proxy import Proxy
from vaka.sandbox.removal import remove_created
from vaka.sandbox.select import INSTALL_BUBBLEWRAP, select_sandbox
from vaka.sandbox.sensitive import find_nested_paths, protected_paths, secret_paths
from vaka.sandbox.unconfined import Unconfined
from vaka.tools.builtin.shell.network_gate import OpenGate
from vaka.tools.builtin.shell.supervisor import CommandScope, RestrictedPaths, ShellSupervisor

if TYPE_CHECKING:
    from vaka.core.ports.tool import CommandBackups

_JOURNAL_SUFFIXES = ("", "-journal")
"""Name suffixes of the store files that commands must not create or replace: SQLite replays a journal that it finds,
so a forged one would change the log. They are protected even while they do not exist."""
_STORE_SUFFIXES = (*_JOURNAL_SUFFIXES, "-wal", "-shm", "-live")
ALL_HOSTS = "*"
"""The wildcard for all hosts."""


class WorldFactory:
    """Creates the ``World`` of one runtime and closes its network and proxy."""

    def __init__(
        self,
        options: Options,
        policy: Policy,
        models: ModelRegistry,
        store: Store,
        task_store: Store | None,
        workspace: SessionWorkspace | None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        """Create a factory; ``variables`` are added to the environment of commands, as they are when one starts."""
        self._options = options
        self._policy = policy
        self._models = models
        self._store = store
        self._variables: Mapping[str, str] = {} if variables is None else variables
        self._require_folder = partial(require_unchanged, workspace)
        paths: list[Path | None] = [getattr(one, "path", None) for one in (store, task_store)]
        self._store_paths = [os.path.realpath(path) for path in paths if path is not None]
        self._resources = AsyncExitStack()
        self._record_folders: list[str] = []
        """The folders with records of what commands changed, once there are any."""

    def create_world(
        self, tasks: SharedState | None = None, find_setup: Callable[[SessionId], str] | None = None
    ) -> World:
        """Return the world of the tools. Raises ``SandboxError`` when a required sandbox is not available.

        ``find_setup`` returns what bash runs before each command of a session, such as variables that hooks set.
        """
        options = self._options
        self._require_folder()
        network = options.network.client or self._open_network()
        shared = World(
            network=network,
            reader=self._page_reader(),
            search=options.network.search,
            tasks=tasks,
            may_read=make_read_filter(self._policy),
            patience=options.permissions.question_timeout,
        )
        tools = options.workspace.tools
        is_off = tools is not None and not tools.folder
        if is_off and not options.commands.sandboxed:
            return shared
        cwd = os.path.realpath(options.workspace.tool_folder or options.workspace.folder or os.curdir)
        read_only = self._read_only_roots(cwd)
        files = None if is_off else self._open_files(cwd, read_only)
        roots = _roots_of(files) if files is not None else ()
        folders = [root for root in roots if root not in read_only]
        shells = ShellSupervisor(
            self._command_scope(folders, read_only),
            find_restricted=lambda: self._find_restricted(folders),
            before_command=self._require_folder,
            find_setup=find_setup,
            open_gate=self._command_gates(network),
        )
        has_snapshots = options.workspace.snapshots
        return msgspec.structs.replace(
            shared,
            files=files,
            sandbox=self._select_sandbox(network),
            shells=shells,
            unconfined=self._make_unconfined(),
            cwd=cwd if is_off else _working_folder(cwd, folders),
            snapshots=self._make_snapshots(files, folders) if has_snapshots and files is not None else None,
        )

    def _make_snapshots(self, files: Files, folders: Sequence[str]) -> FileSnapshots:
        if not files.root or not folders:
            return FileSnapshots(files, self._store.blobs)
        skipped = self._store_files()

        def make() -> "CommandBackups":
            from vaka.runtime.command_records import make_recorder

            return make_recorder(self._store, folders, skipped, self._resources, self._record_folders)

        return CommandSnapshots(files, self._store.blobs, make)

    def _open_files(self, cwd: str, read_only: Sequence[str]) -> Files:
        workspace = self._options.workspace
        if workspace.files is not None and workspace.tools is None:
            return workspace.files
        return WorkspaceFiles(cwd, [*self._extra_roots(), *read_only], protected=[*self._store_files(), *read_only])

    def _select_sandbox(self, network: Network) -> Sandbox | None:
        """Return the sandbox of commands; none for tools in a workspace if it would not keep them there."""
        sandbox = self._make_sandbox(network)
        return sandbox if self._options.workspace.tools is None or sandbox.enforces >= {"read", "write"} else None

    def replace_policy(self, world: World, policy: Policy) -> World:
        """Return a world of this factory in which files are hidden by another policy; further folders stay the same."""
        self._policy = policy
        return msgspec.structs.replace(world, may_read=make_read_filter(policy))

    async def close(self) -> None:
        await self._resources.aclose()

    def _open_network(self) -> Network:
        connector = Connector(NetworkRules(trusted=tuple(self._options.network.trusted_hosts)))
        self._resources.push_async_callback(connector.close)
        return connector

    def _make_sandbox(self, network: Network) -> Sandbox:
        commands = self._options.commands
        wanted, hosts = commands.sandbox, tuple(commands.hosts)
        sandbox = select_sandbox(wanted, allow_env=tuple(commands.env)) if isinstance(wanted, str) else wanted
        if commands.sandboxed and not sandbox.enforces:
            programs = " and ".join(commands.sandboxed)
            raise SandboxError(f"{programs} must run in a sandbox, and there is none: {INSTALL_BUBBLEWRAP}")
        if not hosts or ALL_HOSTS in hosts:
            return sandbox
        return ProxiedSandbox(sandbox, Proxy(hosts, network.decide), self._resources)

    def _command_gates(self, network: Network) -> OpenGate | None:
        hosts = tuple(self._options.commands.hosts)
        return None if ALL_HOSTS in hosts else CommandNetwork(hosts, network.decide, self._resources).open

    def _make_unconfined(self) -> Sandbox | None:
        """Return what starts commands without the sandbox; ``None`` where the sandbox is required."""
        commands = self._options.commands
        may_leave = commands.sandbox in ("auto", "off") and self._options.workspace.tools is None
        return Unconfined(allow_env=tuple(commands.env)) if may_leave else None

    def _command_scope(self, folders: Sequence[str], read_only: Sequence[str]) -> CommandScope:
        options = self._options
        return CommandScope(
            env=self._variables,
            protected=(
                *(path for folder in folders for path in protected_paths(folder)),
                *self._store_files(*_JOURNAL_SUFFIXES),
                *read_only,
            ),
            hidden=tuple(
                path for path in (*secret_paths(), *self._store_files()) if not _contains_folder(path, folders)
            ),
            masked=options.workspace.tools.masked if options.workspace.tools is not None else (),
            network=ALL_HOSTS in options.commands.hosts,
            bounds=options.commands.limits,
        )

    def _find_restricted(self, folders: Sequence[str]) -> RestrictedPaths:
        """Return the paths in the workspace that commands must not change or read, as it is now."""
        denied, since = find_denied_paths(self._policy, folders), time.time()
        origin = self._options.agent.origin if self._options.agent is not None else None
        own = origin.own_files() if origin is not None else ()
        unchangeable = [part for path in denied.unchangeable for part in _parts_in(path, folders)]
        return RestrictedPaths(
            protected=(*(path for folder in folders for path in find_nested_paths(folder)), *own, *unchangeable),
            hidden=tuple(
                path for path in (*denied.unreadable, *self._record_folders) if not _contains_folder(path, folders)
            ),
            remove_created=partial(self._remove_created, folders, denied, since),
            find_rule=partial(self._find_rule, folders),
        )

    def _find_rule(self, folders: Sequence[str], path: str) -> str:
        """Return the rule because of which a path was removed while a command ran."""
        is_always_protected = any(path in protected_paths(folder) for folder in folders)
        return "" if is_always_protected else find_rule_against(self._policy, path)

    def _remove_created(self, folders: Sequence[str], before: DeniedPaths, since: float) -> Sequence[RemovedPath]:
        return remove_created(find_created_paths(self._policy, folders, before, since), folders)

    def _read_only_roots(self, cwd: str) -> list[str]:
        """Return the folders with skills and plugins of the user, whose files skills refer to."""
        source = self._options.project.content
        if source is None or self._options.workspace.tools is not None:
            return []
        home = os.path.expanduser("~/.claude")  # noqa: PTH111
        named = [os.path.realpath(folder) for folder in (f"{home}/skills", f"{home}/plugins", *source.plugin_dirs)]
        return [folder for folder in named if Path(folder).is_dir() and not _contains_folder(folder, [cwd])]

    def _extra_roots(self) -> list[str]:
        """Return the additional folders of tools, from ``add_dirs`` and from the policy."""
        if self._options.workspace.tools is not None:
            return []
        added = self._options.workspace.add_dirs
        named = self._policy.directories if isinstance(self._policy, LayeredPolicy) else []
        folders = [os.path.realpath(os.path.expanduser(folder)) for folder in (*added, *named)]  # noqa: PTH111
        for folder in folders[: len(added)]:
            if not Path(folder).is_dir():
                raise ConfigError(f"add_dirs: {folder!r} is not a folder")
        return [folder for folder in folders if Path(folder).is_dir()]

    def _store_files(self, *suffixes: str) -> tuple[str, ...]:
        """Return the files of the stores, which commands must neither read nor change."""
        return tuple(f"{path}{end}" for path in self._store_paths for end in suffixes or _STORE_SUFFIXES)

    def _page_reader(self) -> Model | None:
        """Return the model that answers questions about web pages: the model of the tier ``low``, else the default.

        A model that cannot be created fails when it is called, since other tools do not need it.
        """
        try:
            return self._models.choose("low") if "low" in self._models.config.tiers else self._models.default
        except VakaError as error:
            return UnavailableModel("low", error)


class ProxiedSandbox:
    """A sandbox whose commands reach the allowed hosts through a proxy, which starts with the first command."""

    def __init__(self, inner: Sandbox, proxy: Proxy, owner: AsyncExitStack) -> None:
        self._inner = inner
        self._proxy = proxy
        self._owner = owner
        self._start_lock = asyncio.Lock()
        self._listening = False

    @property
    def name(self) -> str:
        return self._inner.name

    @property
    def enforces(self) -> frozenset[str]:
        return self._inner.enforces

    @property
    def has_proxy(self) -> bool:
        """Whether its commands can be given a proxy as their only network."""
        return getattr(self._inner, "has_proxy", False)

    async def start(self, command: Command) -> Process:
        """Start a command with the address of the proxy, unless it has one of its own."""
        if command.proxy:
            return await self._inner.start(command)
        async with self._start_lock:
            if not self._listening:
                await self._owner.enter_async_context(self._proxy)
                self._listening = True
        return await self._inner.start(msgspec.structs.replace(command, proxy=self._proxy.address))


def _roots_of(files: Files) -> Sequence[str]:
    return files.roots if isinstance(files, MultiRootFiles) else [files.root] if files.root else []


def _working_folder(cwd: str, folders: Sequence[str]) -> str:
    """Return ``cwd`` if it lies in one of the folders of the tools, else the first of them."""
    inside = any(_contains_folder(folder, [cwd]) for folder in folders)
    return cwd if inside else next(iter(folders), "")


def _parts_in(path: str, folders: Sequence[str]) -> Sequence[str]:
    """Return a path, or the folders that it contains."""
    return [folder for folder in folders if _contains_folder(path, [folder])] or [path]


def _contains_folder(path: str, folders: Sequence[str]) -> bool:
    """Return whether a path is or contains one of the folders."""
    return any(folder == path or folder.startswith(f"{path.rstrip('/')}/") for folder in folders)
