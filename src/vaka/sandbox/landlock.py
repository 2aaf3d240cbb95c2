"""The second choice: Landlock and a filter of system calls, with namespaces where the system allows them."""

from collections.abc import Iterable

from vaka.core.ports.sandbox import Command
from vaka.core.types.errors import SandboxError
from vaka.sandbox.abilities import GET_BUBBLEWRAP, abilities
from vaka.sandbox.bubblewrap import enforced, filtered
from vaka.sandbox.ordering import PROXY, order_of
from vaka.sandbox.paths import secret_paths
from vaka.sandbox.process import Running, start
from vaka.sandbox.warden.rules import LEAST_ABI, SIGNALS_ABI


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
        here = abilities()
        if here.landlock < LEAST_ABI or not here.filter:
            has = f"version {here.landlock}" if here.landlock else "none"
            raise SandboxError(
                f"this kernel has no Landlock of version {LEAST_ABI} or later (it has {has}); use Linux 6.2 or later "
                f"with Landlock among its security modules, or {GET_BUBBLEWRAP}"
            )
        self._spaces = here.namespaces if namespaces is None else namespaces and here.namespaces
        self._allow = tuple(allow_env)
        self._secrets = tuple(secrets) if secrets is not None else secret_paths()
        self._strict, self._user, self._cgroups = strict, user, cgroups
        self._signals = here.landlock >= SIGNALS_ABI

    @property
    def enforces(self) -> frozenset[str]:
        """What the operating system sees to."""
        return frozenset({"write", "read", "network"}) | enforced(self._user, cgroups=self._cgroups)

    @property
    def notes(self) -> tuple[str, ...]:
        """What it cannot do on this machine."""
        found: list[str] = []
        if not self._spaces:
            found += [
                "protected and hidden paths inside writable folders cannot be held",
                "modes and times of files can be changed where their owner may",
                "names of hidden files can be listed",
                "no way out through a proxy",
            ]
        if not self._signals:
            found.append("other processes of the same user can be sent signals")
        return tuple(found)

    async def start(self, command: Command) -> Running:
        """Start a command. Raises ``SandboxError`` when it cannot be confined as asked."""
        single = bool(command.proxy) and not command.network
        sockets = filtered(sockets="network" if self._spaces or command.network else "none")
        more = {
            "secrets": self._secrets, "listen": single, "user": self._user, "filter": sockets, "strict": self._strict,
            "spaces": self._spaces, "cgroups": self._cgroups,
        }  # fmt: skip
        order = order_of(self.name, command, self._allow, more, proxy=PROXY if single else "")
        if self._spaces:
            order.env["TMPDIR"] = command.env.get("TMPDIR", "/tmp")  # noqa: S108  # nosec B108  # its own
        return await start(order, command.stdin, proxy=command.proxy if single else "")
