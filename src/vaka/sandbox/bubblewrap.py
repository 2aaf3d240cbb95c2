"""The first choice: namespaces made by bubblewrap, a filter of system calls, and limits."""

import functools
from collections.abc import Iterable

from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.abilities import abilities, bubblewrap
from vaka.sandbox.ordering import PROXY, order_of
from vaka.sandbox.paths import secret_paths
from vaka.sandbox.process import Running, start
from vaka.sandbox.warden import kernel, seccomp


class Bubblewrap:
    """Commands see a read-only system, their own writable folders, an empty ``/tmp`` and no network."""

    name = "bubblewrap"

    def __init__(
        self, *, allow_env: Iterable[str] = (), secrets: Iterable[str] | None = None,
        user: tuple[int, int] | None = None, cgroups: bool = True, trees: bool = True,
    ) -> None:  # fmt: skip
        """``allow_env`` names variables that pass though they look like secrets; ``secrets`` are paths nobody may read.

        ``user``: whom commands of root run as; otherwise the owner of the folder they work in. ``trees``: whether the
        kernel's newer calls are used, where it has them, to protect and to hide; otherwise bubblewrap does that, and
        protected links are refused. Raises ``SandboxError`` where bubblewrap is not there or does not work.
        """
        self._program, why = bubblewrap()
        if not self._program:
            raise SandboxError(why)
        self._allow = tuple(allow_env)
        self._secrets = tuple(secrets) if secrets is not None else secret_paths()
        self._user, self._cgroups, self._trees = user, cgroups, trees

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to."""
        return frozenset({"write", "read", "network"}) | enforced(self._user, cgroups=self._cgroups)

    async def start(self, command: Command) -> Running:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as asked."""
        single = bool(command.proxy) and not command.network
        more = {
            "program": self._program, "secrets": self._secrets, "listen": single, "user": self._user,
            "filter": filtered(), "cgroups": self._cgroups, "trees": self._trees,
        }  # fmt: skip
        order = order_of(self.name, command, self._allow, more, proxy=PROXY if single else "")
        order.env["TMPDIR"] = command.env.get("TMPDIR", "/tmp")  # noqa: S108  # nosec B108  # its own
        return await start(order, command.stdin, proxy=command.proxy if single else "")


@functools.cache
def filtered(*, sockets: seccomp.Sockets = "network") -> str:
    """Return the filter of system calls for this processor, in hex; empty if there is none."""
    machine = kernel.ARCHITECTURE
    return seccomp.build(machine, sockets).hex() if seccomp.supported(machine) else ""


def enforced(user: tuple[int, int] | None, *, cgroups: bool) -> frozenset[str]:
    """Return what limits and the filter see to on this machine."""
    here = abilities()
    # Root obeys no limit on processes but that of a control group, unless it becomes somebody else.
    counted = not here.root or (user is not None and user[0] != 0) or (cgroups and "pids" in here.groups)
    found = {"memory"} | ({"processes"} if counted else set[str]()) | ({"syscalls"} if here.filter else set[str]())
    return frozenset(found)
