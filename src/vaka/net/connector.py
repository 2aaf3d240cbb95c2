"""The connector: requests under rules and limits, over connections to vetted addresses."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from vaka.core.ports.net import NetHead, NetRequest, NetResponse, NetStream, NetVerdict
from vaka.core.types.errors import Closed, NetworkTimeout, NetworkTooLarge
from vaka.net.address import Address
from vaka.net.limits import Limits
from vaka.net.message import check, location, redirected
from vaka.net.proxy import read_proxy
from vaka.net.resolve import Resolver, addresses_of, system_resolver
from vaka.net.rules import Judge, Rules
from vaka.net.unpack import unpacker
from vaka.net.url import Target, join, parse, refuse

if TYPE_CHECKING:
    from vaka.net.wire import Reply, Wire

_DRAINED = 16 * 1024


class Connector:
    """A ``Network`` with rules and limits of its own; it keeps connections until it is closed.

    ``proxy`` is the only way to have one: the environment is not asked. Names are then looked up by the proxy, which
    must judge the addresses itself; what is written in a URL is still judged here.
    """

    def __init__(
        self,
        rules: Rules = Rules(),
        limits: Limits = Limits(),
        *,
        resolver: Resolver = system_resolver,
        certificates: ssl.SSLContext | None = None,
        proxy: str | None = None,
        agent: str = "vaka",
    ) -> None:
        self.rules, self.limits = rules, limits
        self._judge = Judge(rules)
        self._resolver, self._certificates, self._agent = resolver, certificates, agent
        self._proxy = None if proxy is None else read_proxy(proxy)
        self._wire: Wire | None = None
        self._closed = False
        self._opening = asyncio.Lock()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def decide(self, url: str) -> NetVerdict:
        """Say whether ``url`` may be asked, and why not. Looks nothing up and dials nobody."""
        return self._judge.decide(url)

    async def send(self, request: NetRequest) -> NetResponse:
        """Send a request and return the whole answer, unpacked."""
        async with self.stream(request) as answer, aclosing(answer.chunks()) as chunks:
            body = b"".join([chunk async for chunk in chunks])
            head = answer.head
        return NetResponse(status=head.status, headers=head.headers, url=head.url, body=body)

    @asynccontextmanager
    async def stream(self, request: NetRequest) -> AsyncGenerator[NetStream]:
        """Send a request and hand over the answer as it arrives; leaving the context ends it."""
        check(request)
        target = parse(request.url)
        self._judge.check(target)
        wire = await self._opened()  # before the clock starts: loading what it needs is not the request's fault
        seconds = min(request.timeout, self.limits.total)
        deadline = Deadline(asyncio.get_running_loop().time() + seconds, seconds)
        reply = await self._follow(wire, request, target, deadline)
        try:
            yield Answer(reply, deadline, min(request.max_bytes, self.limits.max_bytes))
        finally:
            await reply.close()

    async def close(self) -> None:
        """Close every connection; requests under way fail, later ones raise ``Closed``."""
        async with self._opening:
            self._closed = True
            if self._wire is not None:
                await self._wire.close()

    async def _follow(self, wire: "Wire", request: NetRequest, target: Target, deadline: "Deadline") -> "Reply":
        follows = request.redirects > 0
        request = msgspec.structs.replace(request, redirects=min(request.redirects, self.limits.redirects))
        try:
            async with asyncio.timeout_at(deadline.at):
                while True:
                    reply = await wire.ask(request, target, self._agent)
                    if not follows or (onward := await self._onward(reply, request, target)) is None:
                        return reply
                    request, target = onward
        except TimeoutError as error:
            raise deadline.passed(target.origin) from error

    async def _onward(self, reply: "Reply", request: NetRequest, target: Target) -> tuple[NetRequest, Target] | None:
        """Return the request that follows a redirect, ``None`` when ``reply`` is none; a redirect is closed."""
        kept = False
        try:
            place = location(reply.head)
            if place is None:
                kept = True
                return None
            if request.redirects == 0:
                refuse("redirects", f"{target.origin} redirects once more than is allowed")
            onward = join(target, place)
            self._judge.check_redirect(target, onward)
            await _drain(reply)
            return redirected(request, reply.head.status, target, onward), onward
        finally:
            if not kept:
                await reply.close()

    async def _opened(self) -> "Wire":
        async with self._opening:
            if self._closed:
                raise Closed("the connector was closed")
            if self._wire is None:
                self._wire = await asyncio.to_thread(self._open)
            return self._wire

    def _open(self) -> "Wire":
        # In a thread: the library and the machine's certificates take their time to load.
        from vaka.net.wire import Wire  # noqa: PLC0415 - who sends nothing does not pay for the library

        return Wire(self._vet, self.limits, self._certificates, self._proxy)

    async def _vet(self, host: str, port: int) -> tuple[Address, ...]:
        """Look a host up, once, and return its addresses; one that may not be dialed condemns them all."""
        addresses = await addresses_of(host, self._resolver)
        if self._proxy is None:
            for address in addresses:
                self._judge.check_address(host, port, address)
        return addresses


class Deadline(msgspec.Struct, frozen=True):
    """When a request must be over, by the loop's clock, and after how long that is."""

    at: float
    seconds: float

    def passed(self, origin: str) -> NetworkTimeout:
        """Return the error for having missed it."""
        return NetworkTimeout(f"{origin} took longer than the {self.seconds:g} s it had", reason="total")


class Answer:
    """An answer whose body is still arriving; see ``NetStream``."""

    def __init__(self, reply: "Reply", deadline: Deadline, most: int) -> None:
        self._reply, self._deadline, self._most = reply, deadline, most
        self._sent = self._given = 0

    @property
    def head(self) -> NetHead:
        """Status, headers and address."""
        return self._reply.head

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the unpacked body as it arrives."""
        data = await self._read()
        if not data:
            return
        unpack = unpacker(self.head.header_values("content-encoding"))
        while data:
            for piece in unpack.feed(data):
                self._given += len(piece)
                self._check(self._given, "unpacks to")
                yield piece
            data = await self._read()
        unpack.finish()

    async def _read(self) -> bytes:
        try:
            async with asyncio.timeout_at(self._deadline.at):
                data = await self._reply.read()
        except TimeoutError as error:
            raise self._deadline.passed(self._reply.origin) from error
        if data and not self._sent:
            self._check(_announced(self.head), "has")
        self._sent += len(data)
        self._check(self._sent, "has")
        return data

    def _check(self, size: int, verb: str) -> None:
        if size > self._most:
            raise NetworkTooLarge(f"the body {verb} {size} bytes or more, {self._most} are allowed", reason="body")


def _announced(head: NetHead) -> int:
    length = head.header("content-length")
    return int(length) if length.isdecimal() else 0


async def _drain(reply: "Reply") -> None:
    """Read the short text that comes with a redirect, so that the connection can be used again."""
    if reply.head.header("content-length") and _announced(reply.head) <= _DRAINED:
        while await reply.read():
            pass
