"""The sandboxes for Linux: bubblewrap, and Landlock for systems without it."""

from collections.abc import Iterable
from typing import Any

from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.select import INSTALL_BUBBLEWRAP, detect_capabilities, enforced_limits, find_bubblewrap
from vaka.sandbox.sensitive import secret_paths
from vaka.sandbox.warden_client import PROXY_URL, SandboxedProcess, build_job, build_seccomp_filter_hex, start_job
from vaka.system.landlock import SCOPE_ABI

MIN_ABI = 3
"""Earlier versions of Landlock cannot restrict truncation."""


class _LinuxSandbox:
    """The common part of both sandboxes: their commands start through the warden, with limits and hidden secrets."""

    name: str

    def __init__(
        self, allow_env: Iterable[str], secrets: Iterable[str] | None, user: tuple[int, int] | None, *, cgroups: bool
    ) -> None:
        self._allow_env = tuple(allow_env)
        self._user = user
        self._cgroups = cgroups
        self._secrets = tuple(secrets) if secrets is not None else secret_paths()

    @property
    def enforces(self) -> frozenset[str]:
        """The restrictions that the operating system enforces."""
        return frozenset({"write", "read", "network"}) | enforced_limits(self._user, cgroups=self._cgroups)

    @property
    def has_proxy(self) -> bool:
        """Whether its commands can be given a proxy as their only network."""
        return True

    async def _start_job(self, command: Command, *, has_own_tmp: bool, **fields: Any) -> SandboxedProcess:
        has_proxy = bool(command.proxy) and not command.network
        fields |= {"secrets": self._secrets, "user": self._user, "cgroups": self._cgroups, "listen": has_proxy}
        job = build_job(self.name, command, self._allow_env, fields, proxy=PROXY_URL if has_proxy else "")
        if has_own_tmp:
            job.env["TMPDIR"] = command.env.get("TMPDIR", "/tmp")  # noqa: S108  # nosec B108  # a tmpfs of the command
        return await start_job(job, command.stdin, proxy=command.proxy if has_proxy else "")


class Bubblewrap(_LinuxSandbox):
    """Commands see a read-only system, their own writable folders, an empty ``/tmp`` and no network."""

    name = "bubblewrap"

    def __init__(
        self,
        *,
        allow_env: Iterable[str] = (),
        secrets: Iterable[str] | None = None,
        user: tuple[int, int] | None = None,
        cgroups: bool = True,
        mount_trees: bool = True,
    ) -> None:
        """``allow_env`` names variables that are passed although they look like secrets; ``secrets`` are hidden paths.

        ``user``: the user and group that commands of root run as; by default the owner of the folder they work in.
        ``mount_trees``: protect and hide paths with mounts by descriptor, where the kernel has them; otherwise
        bubblewrap mounts them by path, and protected links are refused. Raises ``SandboxError`` if bubblewrap is
        missing or does not work.
        """
        self._program, problem = find_bubblewrap()
        if not self._program:
            raise SandboxError(problem)
        super().__init__(allow_env, secrets, user, cgroups=cgroups)
        self._mount_trees = mount_trees

    async def start(self, command: Command) -> SandboxedProcess:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as requested."""
        return await self._start_job(
            command,
            has_own_tmp=True,
            program=self._program,
            filter=build_seccomp_filter_hex(),
            trees=self._mount_trees,
        )


class Landlock(_LinuxSandbox):
    """Commands write to their own folders only, read no secrets and open no sockets.

    With namespaces it enforces what ``Bubblewrap`` does, except that commands see other processes. Without them it
    cannot protect or hide existing paths inside writable folders: ``strict`` refuses such commands. What appears at a
    missing protected path is removed as with ``Bubblewrap``.
    """

    name = "landlock"

    def __init__(
        self,
        *,
        allow_env: Iterable[str] = (),
        secrets: Iterable[str] | None = None,
        strict: bool = True,
        user: tuple[int, int] | None = None,
        cgroups: bool = True,
        namespaces: bool | None = None,
    ) -> None:
        """``namespaces``: whether to use them; by default where they work.

        Raises ``SandboxError`` if the kernel has no Landlock.
        """
        machine = detect_capabilities()
        if machine.landlock_abi < MIN_ABI or not machine.has_seccomp_filter:
            has = f"version {machine.landlock_abi}" if machine.landlock_abi else "none"
            raise SandboxError(
                f"this kernel has no Landlock of version {MIN_ABI} or later (it has {has}); use Linux 6.2 or "
                f"later with Landlock among its security modules, or {INSTALL_BUBBLEWRAP}"
            )
        super().__init__(allow_env, secrets, user, cgroups=cgroups)
        self._use_namespaces = machine.has_namespaces if namespaces is None else namespaces and machine.has_namespaces
        self._strict, self._scopes_signals = strict, machine.landlock_abi >= SCOPE_ABI

    @property
    def has_proxy(self) -> bool:
        return self._use_namespaces

    @property
    def limitations(self) -> tuple[str, ...]:
        """The restrictions that it cannot enforce on this machine."""
        without_namespaces = (
            "existing protected and hidden paths inside writable folders cannot be protected",
            "modes and times of files can be changed by their owner",
            "names of hidden files can be listed",
            "commands cannot use a proxy",
        )
        without_scopes = ("signals can be sent to other processes of the same user",)
        return (
            *(() if self._use_namespaces else without_namespaces),
            *(() if self._scopes_signals else without_scopes),
        )

    async def start(self, command: Command) -> SandboxedProcess:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as requested."""
        sockets = build_seccomp_filter_hex(sockets="network" if self._use_namespaces or command.network else "none")
        return await self._start_job(
            command,
            has_own_tmp=self._use_namespaces,
            filter=sockets,
            strict=self._strict,
            spaces=self._use_namespaces,
        )
