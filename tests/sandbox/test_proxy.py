"""The proxy: which hosts it allows, and that a confined command has no other network."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from vaka.core.ports.net import NetVerdict
from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import ConfigError, SandboxError
from vaka.net.rules import NetworkRules, RuleChecker
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.proxy import (
    MAX_REFUSED_HOSTS,
    HostLists,
    Proxy,
    ProxyRefusal,
    parse_allowed_host,
    parse_proxy_address,
)
from vaka.sandbox.unconfined import Unconfined
from vaka.testing.sandboxes import run_to_end, shell_command

ALLOW_LOCAL = RuleChecker(NetworkRules(trusted=("127.0.0.1", "10.0.0.0/8"))).decide
ALLOW_PUBLIC = RuleChecker(NetworkRules()).decide


def make_resolver(**known: str) -> Any:
    """Return a resolver that knows these names."""

    async def resolve(name: str) -> Sequence[str]:
        if name.replace(".", "_") not in known:
            raise OSError("no such name")
        return known[name.replace(".", "_")].split()

    return resolve


class RecordingServer:
    """A server that records requests."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.port = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "RecordingServer":
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or b"0")
        self.requests.append(head + await reader.readexactly(length))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
        await writer.drain()
        writer.close()


@pytest.fixture
async def server() -> AsyncIterator[RecordingServer]:
    async with RecordingServer() as made:
        yield made


async def send_raw(proxy: Proxy, text: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(proxy.address.removeprefix("unix:"))
    writer.write(text)
    answer = await reader.read()
    writer.close()
    return answer


async def vet_host(proxy: Proxy, host: str, port: int = 443) -> str:
    try:
        return " ".join(str(address) for address in await proxy.vet(host, port))
    except ProxyRefusal as refusal:
        return str(refusal.status)


@pytest.mark.parametrize(
    ("pattern", "host", "passes"),
    [
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org.", True),
        ("example.org", "a.example.org", False),
        ("example.org", "badexample.org", False),
        ("example.org", "example.org.evil.net", False),
        ("*.example.org", "a.example.org", True),
        ("*.example.org", "a.b.example.org", True),
        ("*.example.org", "example.org", False),
        ("*.example.org", "badexample.org", False),
        (".example.org", "example.org", True),
        (".example.org", "a.example.org", True),
        (".example.org", "aexample.org", False),
    ],
)
async def test_names_match_by_whole_labels(pattern: str, host: str, passes: bool) -> None:
    async def anywhere(_: str) -> Sequence[str]:
        return ["93.184.216.34"]

    proxy = Proxy([pattern], ALLOW_PUBLIC, resolve=anywhere)
    assert await vet_host(proxy, host) == ("93.184.216.34" if passes else "403")


async def test_a_network_matches_addresses_and_an_unlisted_name_is_not_resolved() -> None:
    asked: list[str] = []

    async def inside(name: str) -> Sequence[str]:
        asked.append(name)
        return ["10.1.2.3"]

    proxy = Proxy(["10.0.0.0/8"], ALLOW_LOCAL, resolve=inside)
    assert await vet_host(proxy, "10.9.9.9") == "10.9.9.9"
    assert await vet_host(proxy, "carries-a-secret.inside.net") == "403"
    assert asked == []


async def test_a_listed_name_with_a_private_address_is_refused() -> None:
    inside = (
        "127.0.0.1",
        "10.0.0.1",
        "169.254.169.254",
        "::1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "0.0.0.0",
        "fd00::1",
    )
    for address in inside:
        proxy = Proxy(["example.org"], ALLOW_PUBLIC, resolve=make_resolver(example_org=f"93.184.216.34 {address}"))
        assert await vet_host(proxy, "example.org") == "403", address


async def test_the_network_rules_apply_as_well() -> None:
    def decide(url: str) -> NetVerdict:
        return NetVerdict(url=url, reason="denied" if "bad" in url else "", message="no")

    proxy = Proxy(
        [".example.org"], decide, resolve=make_resolver(bad_example_org="1.1.1.1", good_example_org="1.1.1.1")
    )
    assert await vet_host(proxy, "bad.example.org") == "403"
    assert await vet_host(proxy, "good.example.org") == "1.1.1.1"


@pytest.mark.parametrize("port", [22, 25, 8080, 6379])
async def test_ports_must_be_listed(port: int) -> None:
    known = make_resolver(example_org="93.184.216.34")
    assert await vet_host(Proxy(["example.org"], ALLOW_LOCAL, resolve=known), "example.org", port) == "403"
    assert await vet_host(Proxy(["example.org:8080"], ALLOW_LOCAL, resolve=known), "example.org", 443) == "403"
    assert (
        await vet_host(Proxy(["example.org:8080"], ALLOW_LOCAL, resolve=known), "example.org", 8080) == "93.184.216.34"
    )


@pytest.mark.parametrize(
    "host",
    [
        "127.1",
        "0x7f000001",
        "2130706433",
        "0177.0.0.1",
        "127.0.0.1.",
        "a..b",
        "",
        "ex ample.org",
        "exämple.org",
        "a\0b",
        "x" * 300,
    ],
)
async def test_ambiguous_hosts_are_refused(host: str) -> None:
    assert await vet_host(Proxy(["*.org", "example.org"], ALLOW_PUBLIC), host) in {"400", "403"}


@pytest.mark.parametrize("text", ["", "*", "a b", "http://x", "ex/ample", "a..b", "host:99999", "10.0.0.1/8"])
def test_invalid_host_patterns_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_allowed_host(text)


@pytest.mark.every_loop
async def test_a_request_is_forwarded_with_the_host_that_was_checked(server: RecordingServer) -> None:
    async with Proxy([f"127.0.0.1:{server.port}"], ALLOW_LOCAL) as proxy:
        answer = await send_raw(
            proxy,
            f"POST http://127.0.0.1:{server.port}/a?b=c HTTP/1.1\r\nHost: elsewhere\r\nProxy-Authorization: x\r\n"
            "X-Own: kept\r\nConnection: keep-alive\r\nContent-Length: 4\r\n\r\n"
            "bodyGET http://next/ HTTP/1.1\r\n\r\n".encode(),
        )
    assert answer.endswith(b"hello")
    assert server.requests == [
        f"POST /a?b=c HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nX-Own: kept\r\nContent-Length: 4\r\n"
        "Connection: close\r\n\r\nbody".encode()
    ]


@pytest.mark.every_loop
async def test_a_tunnel_relays_in_both_directions(server: RecordingServer) -> None:
    async with Proxy([f"127.0.0.1:{server.port}"], ALLOW_LOCAL) as proxy:
        answer = await send_raw(
            proxy, f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\n\r\nGET / HTTP/1.1\r\n\r\n".encode()
        )
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\nHTTP/1.1 200 OK")
    assert server.requests == [b"GET / HTTP/1.1\r\n\r\n"]


async def test_a_name_is_resolved_once_and_that_address_is_used(server: RecordingServer) -> None:
    asked: list[str] = []

    async def resolve_and_change(name: str) -> Sequence[str]:
        asked.append(name)
        return ["127.0.0.1" if len(asked) == 1 else "127.0.0.2"]

    async with Proxy([f"name.test:{server.port}"], ALLOW_LOCAL, resolve=resolve_and_change) as proxy:
        answer = await send_raw(proxy, f"GET http://name.test:{server.port}/ HTTP/1.1\r\n\r\n".encode())
        assert answer.endswith(b"hello")
        assert asked == ["name.test"]
        again = await send_raw(proxy, f"GET http://name.test:{server.port}/ HTTP/1.1\r\n\r\n".encode())
        assert b" 403 " in again


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET http://x/ HTTP/2\r\n\r\n", b"400"),
        (b"CONNECT x HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT x:0 HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT x:99999 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET ftp://x/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://u:p@x/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://x:bad/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://x/ HTTP/1.1\r\nbroken\r\n\r\n", b"400"),
        (b"GET http://x/ HTTP/1.1\r\n a: b\r\n\r\n", b"400"),
        (b"GET http://other.test/ HTTP/1.1\r\n\r\n", b"502"),
        (b"CONNECT other.test:443 HTTP/1.1\r\n\r\n", b"502"),
        (b"GET http://9.9.9.9/ HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT 9.9.9.9:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"POST http://x/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"411"),
        (b"POST http://x/ HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"411"),
        (b"GET http://x/ HTTP/1.1\r\nX: " + b"y" * 100_000 + b"\r\n\r\n", b"431"),
        (b"GET http://down.test/ HTTP/1.1\r\n\r\n", b"502"),
    ],
)
async def test_invalid_requests_get_an_error_response(request_: bytes, status: bytes) -> None:
    async with Proxy([".test"], ALLOW_LOCAL, resolve=make_resolver(down_test="127.0.0.1"), timeout=20) as proxy:
        answer = await send_raw(proxy, request_)
    assert answer.split()[1] == status


async def test_refusals_are_reported_to_the_callback(server: RecordingServer) -> None:
    heard: list[tuple[str, str]] = []
    async with Proxy(["example.org"], ALLOW_PUBLIC, on_refused=lambda host, why: heard.append((host, why))) as proxy:
        await send_raw(proxy, b"CONNECT 9.9.9.9:443 HTTP/1.1\r\n\r\n")
    assert heard == [("9.9.9.9", "9.9.9.9:443 is not among the allowed hosts")]


async def test_denied_hosts_are_refused_and_admitted_ones_are_not() -> None:
    lists = HostLists(allow=[".example.org"], deny=["*.example.org:443", "*"], admit=["a.example.org"])
    async with Proxy(lists, ALLOW_PUBLIC, resolve=make_resolver(a_example_org="9.9.9.9")) as proxy:
        assert await vet_host(proxy, "a.example.org") == "9.9.9.9"
        assert await vet_host(proxy, "a.example.org", 8080) == "403"
        assert await vet_host(proxy, "b.example.org") == "403"
        with pytest.raises(ProxyRefusal, match=r"b\.example\.org:443 is among the denied hosts"):
            await proxy.vet("b.example.org", 443)


async def test_a_proxy_names_each_refused_host_once_and_only_the_first(tmp_path: Path) -> None:
    lists = HostLists(allow=["10.1.1.1", "name.test", "lost.test"], deny=["no.test"])
    resolve = make_resolver(name_test="192.168.1.1")
    async with Proxy(lists, ALLOW_PUBLIC, resolve=resolve, folder=str(tmp_path)) as proxy:
        for host in ("9.9.9.9", "9.9.9.9", "10.1.1.1", "no.test", "name.test", "lost.test"):
            await send_raw(proxy, f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode())
        assert [(one.host, bool(one.reason), one.listed, one.denied) for one in proxy.refused_hosts] == [
            ("9.9.9.9", False, False, False),
            ("10.1.1.1", True, True, False),
            ("no.test", False, False, True),
            ("name.test", True, True, False),
        ]
        for number in range(2 * MAX_REFUSED_HOSTS):
            await send_raw(proxy, f"CONNECT 9.9.9.{number}:443 HTTP/1.1\r\n\r\n".encode())
        assert len(proxy.refused_hosts) == MAX_REFUSED_HOSTS
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []


# --------------------------------------------------------------------------------------------------------- in sandboxes

REACH_PROGRAM = """
import os, socket, urllib.request
os.environ['NO_PROXY'] = os.environ['no_proxy'] = ''
opener = urllib.request.build_opener(urllib.request.ProxyHandler({{'http': os.environ['HTTP_PROXY']}}))
print(opener.open('http://127.0.0.1:{port}/').read().decode())
try: opener.open('http://127.0.0.1:{other}/'); print('REACHED')
except OSError as error: print(error.code)
for address in (('127.0.0.1', {port}), ('127.0.0.1', {other}), ('10.0.0.1', 80)):
    try: socket.create_connection(address, 5); print('REACHED', address)
    except OSError: print('no')
"""


@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_a_command_reaches_the_proxy_and_nothing_else(kind: Any, server: RecordingServer, tmp_path: Path) -> None:
    sandbox: Sandbox = kind()
    async with RecordingServer() as other, Proxy([f"127.0.0.1:{server.port}"], ALLOW_LOCAL) as proxy:
        (tmp_path / "try.py").write_text(REACH_PROGRAM.format(port=server.port, other=other.port))
        command = shell_command("exec /usr/bin/python3 try.py", tmp_path, proxy=proxy.address)
        ended = await run_to_end(await sandbox.start(command))
        assert (ended.stdout, ended.stderr) == ("hello\n403\nno\nno\nno\n", "")
        assert (len(server.requests), other.requests) == (1, [])


async def test_a_proxy_may_listen_on_a_tcp_port(server: RecordingServer, tmp_path: Path) -> None:
    # Any HTTP server can stand in for a proxy here.
    script = "exec 3<>/dev/tcp/127.0.0.1/3128; printf 'GET http://x/ HTTP/1.1\\r\\n\\r\\n' >&3; tail -c 5 <&3"
    command = shell_command(script, tmp_path, proxy=f"http://127.0.0.1:{server.port}")
    assert (await run_to_end(await Bubblewrap().start(command))).stdout == "hello"


async def test_a_proxy_is_refused_where_the_network_cannot_be_confined(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="namespace"):
        await Landlock(namespaces=False).start(shell_command("true", tmp_path, proxy="http://127.0.0.1:1"))
    with pytest.raises(SandboxError, match="without a sandbox"):
        await Unconfined().start(shell_command("true", tmp_path, proxy="unix:/x"))


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1:80", "https://x:1", "http://x", "unix:relative", "http://x:1/path", "http://x:y"]
)
def test_invalid_proxy_addresses_are_refused(address: str) -> None:
    with pytest.raises(SandboxError):
        parse_proxy_address(address)
