"""The files, sandbox, shells and network that a runtime gives to tools, created on first use."""

import asyncio
import os
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from vaka.core.ports.files import MultiRootFiles
from vaka.core.ports.model import Model
from vaka.core.ports.net import Network
from vaka.core.ports.policy import Policy
from vaka.core.ports.sandbox import Command, Process, Sandbox
from vaka.core.ports.store import Store
from vaka.core.ports.tool import World
from vaka.core.types.errors import ConfigError, VakaError
from vaka.files.snapshots import FileSnapshots
from vaka.files.workspace import Workspace
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules
from vaka.policy.policy import LayeredPolicy, make_read_filter
from vaka.runtime.model_registry import ModelRegistry, UnavailableModel
from vaka.runtime.options import Options
from vaka.sandbox.proxy import Proxy
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.sensitive_paths import protected_paths, secret_paths
from vaka.tools.builtin.shell.supervisor import CommandScope, ShellSupervisor

_JOURNAL_SUFFIXES = ("", "-journal")
"""Files of a store by the ends of their names. Whoever makes a journal decides what is in the log from then on:
so these are held in their place, also while they are missing."""
_STORE_SUFFIXES = (*_JOURNAL_SUFFIXES, "-wal", "-shm", "-live")
ALL_HOSTS = "*"
"""The host that stands for all hosts."""


class WorldFactory:
    """Makes the world of one runtime and takes it back in the end."""

    def __init__(self, options: Options, policy: Policy, models: ModelRegistry, store: Store) -> None:
        self._options, self._policy, self._models, self._store = options, policy, models, store
        self._resources = AsyncExitStack()

    def create_world(self) -> World:
        """Return everything that tools can touch. Raises ``SandboxError`` when a sandbox was asked for in vain."""
        options = self._options
        cwd = os.path.realpath(options.working_folder or os.curdir)
        network = options.network or self._open_network()
        files = options.files or Workspace(cwd, self._extra_roots(), protected=self._store_files())
        folders = files.roots if isinstance(files, MultiRootFiles) else [files.root] if files.root else []
        return World(
            files=files, network=network, sandbox=self._make_sandbox(network),
            shells=ShellSupervisor(self._command_scope(folders), options.command_habits),
            reader=self._page_reader(), search=options.search, cwd=_working_folder(cwd, folders),
            snapshots=FileSnapshots(files, self._store.blobs) if options.snapshots else None,
            may_read=make_read_filter(self._policy), patience=options.question_timeout,
        )  # fmt: skip

    async def close(self) -> None:
        """Let go of the network."""
        await self._resources.aclose()

    def _open_network(self) -> Network:
        made = Connector(NetworkRules(trusted=self._options.trusted_hosts))
        self._resources.push_async_callback(made.close)
        return made

    def _make_sandbox(self, network: Network) -> Sandbox:
        wanted, hosts = self._options.sandbox, self._options.command_hosts
        made = select_sandbox(wanted, allow_env=self._options.command_env) if isinstance(wanted, str) else wanted
        if not hosts or ALL_HOSTS in hosts:
            return made
        return ProxiedSandbox(made, Proxy(hosts, network.decide), self._resources)

    def _command_scope(self, folders: Sequence[str]) -> CommandScope:
        options = self._options
        return CommandScope(
            protected=(
                *(path for folder in folders for path in protected_paths(folder)),
                *self._store_files(*_JOURNAL_SUFFIXES),
            ),
            hidden=tuple(
                path for path in (*secret_paths(), *self._store_files()) if not _contains_folder(path, folders)
            ),
            network=ALL_HOSTS in options.command_hosts,
            bounds=options.command_limits,
        )

    def _extra_roots(self) -> list[str]:
        """Return the other folders that tools may touch: those that were given, and those that settings name."""
        given = self._options.add_dirs
        named = self._policy.directories if isinstance(self._policy, LayeredPolicy) else []
        folders = [os.path.realpath(os.path.expanduser(folder)) for folder in (*given, *named)]  # noqa: PTH111
        for folder in folders[: len(given)]:
            if not Path(folder).is_dir():
                raise ConfigError(f"add_dirs: {folder!r} is no folder")
        return [folder for folder in folders if Path(folder).is_dir()]

    def _store_files(self, *suffixes: str) -> tuple[str, ...]:
        """Return the files of the store: what happened is not for commands to change, nor to read."""
        path: Path | None = getattr(self._store, "path", None)
        return (
            tuple(f"{os.path.realpath(path)}{end}" for end in suffixes or _STORE_SUFFIXES) if path is not None else ()
        )

    def _page_reader(self) -> Model | None:
        """Pages are read by the cheapest model there is; without any they are told as they are.

        One that cannot be had says so when it is asked: other tools need none.
        """
        try:
            return self._models.choose("low") if "low" in self._models.config.tiers else self._models.default
        except VakaError as error:
            return UnavailableModel("low", error)


class ProxiedSandbox:
    """A sandbox whose commands reach some hosts, through a proxy that begins to listen with the first of them."""

    def __init__(self, inner: Sandbox, proxy: Proxy, owner: AsyncExitStack) -> None:
        self._inner, self._proxy, self._owner = inner, proxy, owner
        self._start_lock = asyncio.Lock()
        self._listening = False

    @property
    def name(self) -> str:
        """What the sandbox is called."""
        return self._inner.name

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to."""
        return self._inner.enforces

    async def start(self, command: Command) -> Process:
        """Start a command that is told where the proxy is."""
        async with self._start_lock:
            if not self._listening:
                await self._owner.enter_async_context(self._proxy)
                self._listening = True
        return await self._inner.start(msgspec.structs.replace(command, proxy=self._proxy.address))


def _working_folder(cwd: str, folders: Sequence[str]) -> str:
    """Return where tools stand: in the working folder if it is one of theirs, else in the first that is."""
    inside = any(_contains_folder(folder, [cwd]) for folder in folders)
    return cwd if inside else next(iter(folders), "")


def _contains_folder(path: str, folders: Sequence[str]) -> bool:
    """Whether one of the folders lies in a path: who may work there cannot be kept from it."""
    return any(folder == path or folder.startswith(f"{path.rstrip('/')}/") for folder in folders)
