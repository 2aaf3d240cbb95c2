"""The ways of commands to the network: a proxy for each command, with the hosts that it may reach."""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial

from vaka.core.types.tool import CommandAccess
from vaka.sandbox.proxy import DecideURL, HostLists, Proxy, RefusedHost


class CommandNetwork:
    """Opens the ways; their sockets are in one folder, which is made for the first command."""

    def __init__(self, hosts: Sequence[str], decide: DecideURL, owner: AsyncExitStack) -> None:
        """Every command may use ``hosts``; ``decide`` applies the network rules; ``owner`` removes the folder."""
        self._hosts = tuple(hosts)
        self._decide = decide
        self._owner = owner
        self._lock = asyncio.Lock()
        self._folder = ""

    async def open(self, access: CommandAccess) -> "CommandProxy":
        """Open the way of one command."""
        async with self._lock:
            if not self._folder:
                self._folder = await asyncio.to_thread(tempfile.mkdtemp, prefix="vaka-proxies-")
                remove = partial(shutil.rmtree, self._folder, ignore_errors=True)
                self._owner.push_async_callback(asyncio.to_thread, remove)
        allowed = (*self._hosts, *access.hosts)
        lists = HostLists(allow=allowed, deny=access.denied_hosts, admit=access.requested_hosts)
        proxy = Proxy(lists, self._decide, folder=self._folder)
        await proxy.__aenter__()
        return CommandProxy(proxy)


class CommandProxy:
    """The proxy of one command; implements ``CommandGate``."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self._is_closed = False

    @property
    def address(self) -> str:
        return self._proxy.address

    @property
    def refused_hosts(self) -> Sequence[RefusedHost]:
        return self._proxy.refused_hosts

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            await self._proxy.__aexit__()
