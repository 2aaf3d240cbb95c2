"""Run the application of a service on sockets until a signal stops it."""

import asyncio
import gc
import signal
import socket
from collections.abc import Generator, Iterable
from contextlib import contextmanager

import uvicorn

from vaka.core.types.errors import ConfigError
from vaka.runtime.runtime import Runtime
from vaka.server.access_log import WriteLine
from vaka.server.app import create_app
from vaka.server.http_protocol import BoundedHttpProtocol
from vaka.server.kit.service import AgentService
from vaka.server.socket_protocol import BoundedSocketProtocol

MAX_MESSAGE_BYTES = 2 * 1024 * 1024
"""The largest message of a WebSocket. Its protocols refuse smaller ones themselves, with a reason."""
BACKLOG = 2048
FAREWELL_SECONDS = 3.0
"""Seconds that followers have to read why they end, when the server stops."""
CLOSE_SECONDS = 1.0
"""Seconds that the runtime gets to close even if there is no time left for turns."""
GC_THRESHOLD = 50_000
"""New objects before a search for garbage; Python's own is 700."""
UNREAD_SECONDS = 90
"""Seconds after which the system ends a connection whose client takes nothing of what was sent, also a closed one."""


def open_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises ``ConfigError`` when the address cannot be used."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"{host}:{port} cannot be listened on: {reason}; choose another --port or --host") from error
    listener.setblocking(False)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited; asyncio does not set it here
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections inherit it
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
    return listener


@contextmanager
def collect_seldom() -> Generator[None]:
    """Search for garbage seldom, and not among the objects that exist already.

    With a thousand streams that start at once, the searches of Python's own settings take a quarter of the time: each
    goes through what all turns hold, and a turn leaves hardly any cycles.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(before[0], GC_THRESHOLD), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class StoppableServer(uvicorn.Server):
    """A server that listens until its running turns have ended, and remembers the signal that stopped it.

    Until then probes are answered that it is not ready, new turns are refused, and what is stored can be read.
    """

    def __init__(self, service: AgentService, access_log: WriteLine | None = None) -> None:
        """``access_log``: as for ``create_app``."""
        self._service = service
        self.signal = 0
        """The signal that stopped the server, 0 if none did."""
        self.servers = []
        self._sockets: list[socket.socket] = []
        # uvicorn logs the addresses of WebSockets, with their tickets, at the level info
        config = uvicorn.Config(
            create_app(service, access_log),
            http=BoundedHttpProtocol,
            ws=BoundedSocketProtocol,
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_per_message_deflate=False,
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            lifespan="on",
            timeout_graceful_shutdown=max(1, round(service.settings.drain_seconds)),
        )
        super().__init__(config)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._service.refuse_turns()
        await self._service.finish_turns()
        self._close_listeners(sockets or ())
        self._service.drain()
        await self._service.streams.wait_for_followers(FAREWELL_SECONDS)  # uvicorn cuts WebSockets off
        await super().shutdown(sockets)

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        self._sockets = sockets or []
        with collect_seldom():
            await super().serve(sockets)

    def stop_listening(self) -> None:
        """Close the port at once and stop as at SIGTERM, for a process that another one replaces."""
        self._stop(signal.SIGTERM)
        self._close_listeners(self._sockets)

    def _close_listeners(self, sockets: Iterable[socket.socket]) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets:
            listener.close()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Stop at SIGINT, SIGTERM and SIGHUP; the handlers from before come back.

        A second SIGINT or SIGTERM does not wait for turns. An ignored SIGHUP, as below ``nohup``, stays ignored.
        """
        loop = asyncio.get_running_loop()
        stops = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
            stops.append(signal.SIGHUP)
        for number in stops:
            loop.add_signal_handler(number, self._stop, number)
        try:
            yield
        finally:
            for number in stops:
                loop.remove_signal_handler(number)
            if self.signal == signal.SIGHUP:
                signal.signal(self.signal, signal.SIG_IGN)

    def _stop(self, number: int) -> None:
        if number == signal.SIGHUP and self.signal == number:
            return  # the kernel and the shell may both send it when a terminal closes
        if self.should_exit:
            self.force_exit = True
            self._service.hurry()
        self.should_exit, self.signal = True, number
        self._service.refuse_turns()


async def close_in_time(runtime: Runtime, service: AgentService | None) -> bool:
    """Close a runtime when its running turns have ended; return whether they have in the time that is left for that.

    Turns that have not are left as they are: the next start of the server continues them. Raises what closing raises.
    """
    closing = asyncio.create_task(runtime.close())
    left = service.drain_time_left() if service is not None else 0.0
    done, _ = await asyncio.wait([closing], timeout=max(left, CLOSE_SECONDS))
    if done:
        closing.result()
    return bool(done)
