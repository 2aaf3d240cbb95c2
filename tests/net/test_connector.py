"""Requests over real sockets: what is sent, what is returned and which addresses are connected to."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence

import pytest

from tests.net.http_server import (
    ReceivedRequest,
    connector_to,
    encode_response,
    make_resolver,
    never_respond,
    respond_by_path,
    respond_with,
    serve,
)
from vaka.core.ports.net import NetRequest, NetResponse, Network
from vaka.core.types.errors import Closed, ConfigError, InvalidInput, NetworkError, NetworkRefused, NetworkUnreachable
from vaka.net.connector import Connector
from vaka.net.rules import NetworkLimits, NetworkRules


@pytest.mark.every_loop
async def test_a_request_is_sent_and_its_response_returned() -> None:
    reply = encode_response(
        b"hi", "201 Created", [("Content-Type", "text/plain"), ("Set-Cookie", "a=1"), ("set-cookie", "b=2")]
    )
    async with serve(respond_with(reply)) as server, connector_to(server) as net:
        request = NetRequest(
            method="POST", url=server.url("/a?b=ä#c"), headers=(("X-One", "1"), ("X-One", "é")), body=b"body"
        )
        response = await net.send(request)
    assert response == NetResponse(
        status=201,
        headers=(
            *(("content-type", "text/plain"), ("set-cookie", "a=1"), ("set-cookie", "b=2")),
            ("content-length", "2"),
        ),
        url=server.url("/a?b=%C3%A4"),
        body=b"hi",
    )
    assert server.requests == [
        ReceivedRequest(
            "POST",
            "/a?b=%C3%A4",
            [
                *(("Host", f"127.0.0.1:{server.port}"), ("X-One", "1"), ("X-One", "é"), ("Accept", "*/*")),
                *(("Accept-Encoding", "gzip, deflate"), ("User-Agent", "vaka"), ("Content-Length", "4")),
            ],
            b"body",
        )
    ]


async def test_a_connector_implements_the_network_port() -> None:
    async with Connector() as net:
        network: Network = net
        assert network.decide("https://example.com/").allowed


async def test_an_error_status_is_a_response() -> None:
    async with serve(respond_with(encode_response(b"gone", "500 Oops"))) as server, connector_to(server) as net:
        response = await net.send(NetRequest(url=server.url()))
    assert (response.status, response.body) == (500, b"gone")


async def test_the_response_to_head_has_no_body() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\nContent-Encoding: br\r\n\r\n"
    async with serve(respond_with(head)) as server, connector_to(server) as net:
        response = await net.send(NetRequest(method="HEAD", url=server.url(), max_bytes=10))
    assert (response.status, response.body) == (200, b"")


async def test_connections_are_reused_without_resolving_the_name_again() -> None:
    asked: list[str] = []
    async with (
        serve(respond_with(encode_response(b"hi"))) as server,
        connector_to(server, resolver=make_resolver({"a.example": ["127.0.0.1"]}, asked)) as net,
    ):
        for _ in range(3):
            await net.send(NetRequest(url=server.url(host="a.example")))
    assert (server.connections, asked) == (1, ["a.example"])
    assert server.requests[0].header("host") == f"a.example:{server.port}"


async def test_concurrent_requests_get_their_own_responses() -> None:
    async def echo(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_response(request.target.encode()))

    async with serve(echo) as server, connector_to(server, limits=NetworkLimits(connections=3)) as net:
        answers = await asyncio.gather(*(net.send(NetRequest(url=server.url(f"/{n}"))) for n in range(20)))
    assert [response.body for response in answers] == [f"/{n}".encode() for n in range(20)]
    assert server.connections <= 3


async def test_a_body_can_be_read_as_it_arrives() -> None:
    go_on = asyncio.Event()

    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        await go_on.wait()
        writer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with serve(script) as server, connector_to(server) as net:
        async with net.stream(NetRequest(url=server.url())) as stream:
            assert stream.head.status == 200
            chunks = stream.chunks()
            assert await anext(chunks) == b"one"
            go_on.set()
            assert [chunk async for chunk in chunks] == [b"two"]
        await net.send(NetRequest(url=server.url()))
    assert server.connections == 1


async def test_leaving_a_stream_early_closes_its_connection() -> None:
    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")

    async with serve(script) as server, connector_to(server) as net:
        async with net.stream(NetRequest(url=server.url())) as stream:
            chunks = stream.chunks()
            assert await anext(chunks) == b"one"
            await chunks.aclose()
        await server.client_closed.wait()


async def test_cancelling_a_request_closes_its_connection() -> None:
    arrived = asyncio.Event()

    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    async with serve(script) as server, connector_to(server) as net:
        task = asyncio.create_task(net.send(NetRequest(url=server.url())))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_closed.wait()


@pytest.mark.every_loop
async def test_cancelling_while_the_body_arrives_closes_the_connection() -> None:
    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n12345")

    async with serve(script) as server, connector_to(server) as net:
        got = asyncio.Event()

        async def read() -> None:
            async with net.stream(NetRequest(url=server.url())) as stream:
                async for _ in stream.chunks():
                    got.set()

        task = asyncio.create_task(read())
        await got.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.client_closed.wait()


async def test_a_closed_connector_closes_connections_and_refuses_requests() -> None:
    async with serve(respond_with(encode_response(b"hi"))) as server:
        net = connector_to(server)
        await net.send(NetRequest(url=server.url()))
        await net.close()
        await server.client_closed.wait()
        with pytest.raises(Closed):
            await net.send(NetRequest(url=server.url()))


async def test_closing_fails_running_requests() -> None:
    arrived = asyncio.Event()

    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    async with serve(script) as server:
        net = connector_to(server)
        task = asyncio.create_task(net.send(NetRequest(url=server.url())))
        await arrived.wait()
        await net.close()
        with pytest.raises(NetworkError):
            await task


# ------------------------------------------------------------------------------------------------------------ addresses


@pytest.mark.parametrize(
    ("addresses", "reason"),
    [
        (["127.0.0.1"], "loopback"),
        (["10.0.0.1"], "private"),
        (["93.184.216.34", "10.0.0.1"], "private"),
        (["10.0.0.1", "93.184.216.34"], "private"),
        (["2606:4700::1111", "::1"], "loopback"),
        (["::ffff:169.254.169.254"], "metadata"),
        (["64:ff9b::a00:1"], "private"),
        (["fe80::1%lo"], "link_local"),
    ],
)
async def test_a_name_with_one_address_that_is_not_public_is_refused(addresses: list[str], reason: str) -> None:
    async with Connector(resolver=make_resolver({"a.example": addresses})) as net:
        with pytest.raises(NetworkRefused) as caught:
            await net.send(NetRequest(url="http://a.example/"))
    assert caught.value.reason == reason
    assert "a.example" in str(caught.value)


async def test_a_name_whose_address_changes_is_resolved_once() -> None:
    async with serve(respond_with(encode_response(b"hi"))) as server:
        answers = [["127.0.0.1"], ["10.0.0.1"]]
        asked: list[str] = []

        async def resolve_and_rebind(name: str) -> Sequence[str]:
            asked.append(name)
            return answers.pop(0)

        async with connector_to(server, resolver=resolve_and_rebind) as net:
            assert (await net.send(NetRequest(url=server.url(host="a.example")))).body == b"hi"
    assert asked == ["a.example"]


async def test_a_new_connection_is_checked_again() -> None:
    hang_up = encode_response(b"hi", headers=[("Connection", "close")])
    async with serve(respond_with(hang_up)) as server:
        answers = [["127.0.0.1"], ["10.0.0.1"]]

        async def resolve_and_rebind(name: str) -> Sequence[str]:
            return answers.pop(0)

        async with connector_to(server, resolver=resolve_and_rebind) as net:
            await net.send(NetRequest(url=server.url(host="a.example")))
            with pytest.raises(NetworkRefused, match=r"10\.0\.0\.1"):
                await net.send(NetRequest(url=server.url(host="a.example")))


async def test_a_denied_network_applies_to_resolved_addresses() -> None:
    async with serve(respond_with(encode_response(b"hi"))) as server:
        rules = NetworkRules(allow_loopback=True, deny_hosts=("127.0.0.0/8",))
        async with Connector(rules, resolver=make_resolver({"a.example": ["127.0.0.1"]})) as net:
            with pytest.raises(NetworkRefused, match="denied"):
                await net.send(NetRequest(url=server.url(host="a.example")))
    assert server.connections == 0


async def test_the_addresses_of_a_name_are_tried_in_order() -> None:
    async with serve(respond_with(encode_response(b"hi"))) as server:
        rules = NetworkRules(trusted=("127.0.0.0/8",))
        async with Connector(rules, resolver=make_resolver({"a.example": ["127.0.0.2", "127.0.0.1"]})) as net:
            assert (await net.send(NetRequest(url=server.url(host="a.example")))).body == b"hi"


async def test_a_refused_connection_is_reported() -> None:
    async with serve(never_respond) as server:
        pass
    async with connector_to(server) as net:
        with pytest.raises(NetworkUnreachable) as caught:
            await net.send(NetRequest(url=server.url()))
    assert caught.value.reason == "connect"


@pytest.mark.parametrize("addresses", [None, [], ["not an address"], [f"8.8.{n}.8" for n in range(100)]])
async def test_a_name_without_a_valid_address_is_reported(addresses: list[str] | None) -> None:
    table: dict[str, Sequence[str]] = {} if addresses is None else {"a.example": addresses}
    async with Connector(resolver=make_resolver(table)) as net:
        with pytest.raises(NetworkUnreachable) as caught:
            await net.send(NetRequest(url="http://a.example/"))
    assert caught.value.reason == "dns"


async def test_names_are_resolved_by_the_system_by_default() -> None:
    async with (
        serve(respond_with(encode_response(b"hi"))) as server,
        Connector(NetworkRules(trusted=(f"localhost:{server.port}",))) as net,
    ):
        assert (await net.send(NetRequest(url=server.url(host="localhost")))).body == b"hi"


async def test_a_refused_url_causes_no_network_access() -> None:
    async with serve(respond_with(encode_response(b"hi"))) as server, Connector() as net:
        with pytest.raises(NetworkRefused) as caught:
            await net.send(NetRequest(url=server.url()))
    assert (caught.value.reason, server.connections) == ("loopback", 0)


# ------------------------------------------------------------------------------------------------------------ requests


@pytest.mark.parametrize(
    "request_",
    [
        NetRequest(url="http://a.example/", method="get"),
        NetRequest(url="http://a.example/", method="GET / HTTP/1.1\r\n"),
        NetRequest(url="http://a.example/", method="CONNECT"),
        NetRequest(url="http://a.example/", method="TRACE"),
        NetRequest(url="http://a.example/", headers=(("", "x"),)),
        NetRequest(url="http://a.example/", headers=(("a b", "x"),)),
        NetRequest(url="http://a.example/", headers=(("A", "x\r\nB: y"),)),
        NetRequest(url="http://a.example/", headers=(("A", "\0"),)),
        NetRequest(url="http://a.example/", headers=(("A", "語"),)),
        NetRequest(url="http://a.example/", headers=(("Host", "b.example"),)),
        NetRequest(url="http://a.example/", headers=(("content-length", "5"),)),
        NetRequest(url="http://a.example/", headers=(("Transfer-Encoding", "chunked"),)),
        NetRequest(url="http://a.example/", headers=(("Proxy-Authorization", "x"),)),
        NetRequest(url="http://a.example/", timeout=0),
        NetRequest(url="http://a.example/", timeout=float("nan")),
        NetRequest(url="http://a.example/", max_bytes=-1),
        NetRequest(url="http://a.example/", redirects=-1),
    ],
    ids=str,
)
async def test_an_invalid_request_is_not_sent(request_: NetRequest) -> None:
    asked: list[str] = []
    async with Connector(resolver=make_resolver({}, asked)) as net:
        with pytest.raises(InvalidInput):
            await net.send(request_)
    assert asked == []


@pytest.mark.parametrize("limits", [{"connect": 0}, {"read": -1}, {"total": float("nan")}, {"redirects": -1}])
def test_invalid_limits_are_an_error(limits: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(limits))):
        NetworkLimits(**limits)  # type: ignore[arg-type]  # as configuration may have them


def test_importing_the_connector_does_not_load_the_http_library() -> None:
    program = "import sys, vaka.net.connector; print([n for n in ('httpx2', 'httpcore2', 'anyio') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_the_test_server_answers_unknown_routes() -> None:
    async with serve(respond_by_path({})) as server, connector_to(server) as net:
        assert (await net.send(NetRequest(url=server.url("/x")))).status == 404
