"""Sandboxes of Linux: bubblewrap, and Landlock where namespaces are not allowed."""

from collections.abc import Iterable

from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.capabilities import INSTALL_BUBBLEWRAP, detect_capabilities, enforced_limits, find_bubblewrap
from vaka.sandbox.sensitive_paths import secret_paths
from vaka.sandbox.warden.landlock import MIN_ABI, SIGNAL_SCOPE_ABI
from vaka.sandbox.warden_client import PROXY_URL, SandboxedProcess, build_job, build_seccomp_filter_hex, start_job


class Bubblewrap:
    """Commands see a read-only system, their own writable folders, an empty ``/tmp`` and no network."""

    name = "bubblewrap"

    def __init__(
        self, *, allow_env: Iterable[str] = (), secrets: Iterable[str] | None = None,
        user: tuple[int, int] | None = None, cgroups: bool = True, mount_trees: bool = True,
    ) -> None:  # fmt: skip
        """``allow_env`` names variables that pass though they look like secrets; ``secrets`` are paths nobody may read.

        ``user``: whom commands of root run as; otherwise the owner of the folder they work in. ``trees``: whether the
        kernel's newer calls are used, where it has them, to protect and to hide; otherwise bubblewrap does that, and
        protected links are refused. Raises ``SandboxError`` where bubblewrap is not there or does not work.
        """
        self._program, why = find_bubblewrap()
        if not self._program:
            raise SandboxError(why)
        self._allow_env = tuple(allow_env)
        self._secrets = tuple(secrets) if secrets is not None else secret_paths()
        self._user, self._cgroups, self._mount_trees = user, cgroups, mount_trees

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to."""
        return frozenset({"write", "read", "network"}) | enforced_limits(self._user, cgroups=self._cgroups)

    async def start(self, command: Command) -> SandboxedProcess:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as asked."""
        single = bool(command.proxy) and not command.network
        more = {
            "program": self._program, "secrets": self._secrets, "listen": single, "user": self._user,
            "filter": build_seccomp_filter_hex(), "cgroups": self._cgroups, "trees": self._mount_trees,
        }  # fmt: skip
        order = build_job(self.name, command, self._allow_env, more, proxy=PROXY_URL if single else "")
        order.env["TMPDIR"] = command.env.get("TMPDIR", "/tmp")  # noqa: S108  # nosec B108  # its own
        return await start_job(order, command.stdin, proxy=command.proxy if single else "")


class Landlock:
    """Commands write to their own folders only, read no secrets and open no sockets.

    Where namespaces can be made it does what ``Bubblewrap`` does, but for the processes, which it sees. Where they
    cannot, protected and hidden paths inside writable folders cannot be held: ``strict`` refuses such commands.
    """

    name = "landlock"

    def __init__(
        self, *, allow_env: Iterable[str] = (), secrets: Iterable[str] | None = None, strict: bool = True,
        user: tuple[int, int] | None = None, cgroups: bool = True, namespaces: bool | None = None,
    ) -> None:  # fmt: skip
        """``namespaces``: whether to use them, otherwise wherever they work.

        Raises ``SandboxError`` where there is no Landlock.
        """
        here = detect_capabilities()
        if here.landlock_abi < MIN_ABI or not here.has_seccomp_filter:
            has = f"version {here.landlock_abi}" if here.landlock_abi else "none"
            raise SandboxError(
                f"this kernel has no Landlock of version {MIN_ABI} or later (it has {has}); use Linux 6.2 or later "
                f"with Landlock among its security modules, or {INSTALL_BUBBLEWRAP}"
            )
        self._use_namespaces = here.has_namespaces if namespaces is None else namespaces and here.has_namespaces
        self._allow_env = tuple(allow_env)
        self._secrets = tuple(secrets) if secrets is not None else secret_paths()
        self._strict, self._user, self._cgroups = strict, user, cgroups
        self._scopes_signals = here.landlock_abi >= SIGNAL_SCOPE_ABI

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to."""
        return frozenset({"write", "read", "network"}) | enforced_limits(self._user, cgroups=self._cgroups)

    @property
    def limitations(self) -> tuple[str, ...]:
        """What it cannot do on this machine."""
        found: list[str] = []
        if not self._use_namespaces:
            found += [
                "protected and hidden paths inside writable folders cannot be held",
                "modes and times of files can be changed where their owner may",
                "names of hidden files can be listed",
                "no way out through a proxy",
            ]
        if not self._scopes_signals:
            found.append("other processes of the same user can be sent signals")
        return tuple(found)

    async def start(self, command: Command) -> SandboxedProcess:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as asked."""
        single = bool(command.proxy) and not command.network
        sockets = build_seccomp_filter_hex(sockets="network" if self._use_namespaces or command.network else "none")
        more = {
            "secrets": self._secrets, "listen": single, "user": self._user, "filter": sockets, "strict": self._strict,
            "spaces": self._use_namespaces, "cgroups": self._cgroups,
        }  # fmt: skip
        order = build_job(self.name, command, self._allow_env, more, proxy=PROXY_URL if single else "")
        if self._use_namespaces:
            order.env["TMPDIR"] = command.env.get("TMPDIR", "/tmp")  # noqa: S108  # nosec B108  # its own
        return await start_job(order, command.stdin, proxy=command.proxy if single else "")
