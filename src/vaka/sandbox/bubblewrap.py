"""The first choice: namespaces made by bubblewrap, a filter of system calls, and limits."""

from collections.abc import Iterable

from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.capabilities import enforced_limits, find_bubblewrap
from vaka.sandbox.sensitive_paths import secret_paths
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
