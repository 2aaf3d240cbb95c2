"""Redirects: each one is checked like a first request, and another origin gets no secrets."""

import pytest

from tests.net.http_server import (
    RunningServer,
    connector_to,
    encode_response,
    make_resolver,
    respond_by_path,
    respond_with,
    serve,
)
from vaka.core.ports.net import NetRequest
from vaka.core.types.errors import NetworkError, NetworkRefused
from vaka.net.connector import Connector
from vaka.net.rules import NetworkLimits, NetworkRules, RuleChecker
from vaka.net.url import parse_url

SECRETS = (
    *(("Authorization", "Bearer x"), ("Cookie", "a=1"), ("X-Api-Key", "k"), ("X-Auth-Token", "t")),
    *(("x-amz-security-token", "s"), ("Accept", "text/plain")),
)


def redirect_response(place: str, status: int = 302, body: bytes = b"") -> bytes:
    return encode_response(body, f"{status} Go On", [("Location", place)])


def requests_of(server: RunningServer) -> list[str]:
    return [f"{request.method} {request.target}" for request in server.requests]


@pytest.mark.parametrize(
    ("location", "path"),
    [
        ("/b", "/b"),
        ("b", "/a/b"),
        ("../b?c", "/b?c"),
        ("?q", "/a/?q"),
        ("#part", "/a/"),
        ("/b#part", "/b"),
        ("/ä", "/%C3%A4"),
    ],
)
async def test_a_relative_redirect_is_resolved_against_its_source(location: str, path: str) -> None:
    async with (
        serve(respond_with(redirect_response(location, body=b"moved"), encode_response(b"here"))) as server,
        connector_to(server) as net,
    ):
        response = await net.send(NetRequest(url=server.url("/a/")))
    assert (response.status, response.body, response.url) == (200, b"here", server.url(path))
    assert requests_of(server) == ["GET /a/", f"GET {path}"]
    assert server.connections == 1


@pytest.mark.parametrize(
    ("status", "method", "then", "keeps_body"),
    [
        (301, "POST", "GET", False),
        (302, "POST", "GET", False),
        (303, "POST", "GET", False),
        (303, "PUT", "GET", False),
        (303, "HEAD", "HEAD", False),
        (301, "PUT", "PUT", True),
        (307, "POST", "POST", True),
        (308, "PATCH", "PATCH", True),
    ],
)
async def test_the_method_after_a_redirect_is_that_of_browsers(
    status: int, method: str, then: str, keeps_body: bool
) -> None:
    body = b"" if method == "HEAD" else b"body"
    headers = (("Content-Type", "text/plain"), ("X-Kept", "1"))
    async with (
        serve(respond_with(redirect_response("/b", status), encode_response())) as server,
        connector_to(server) as net,
    ):
        await net.send(NetRequest(method=method, url=server.url("/a"), body=body, headers=headers))
    last = server.requests[-1]
    assert (last.method, last.body) == (then, b"body" if keeps_body else b"")
    assert last.header("X-Kept") == "1"
    assert (last.header("Content-Type") is not None) == (keeps_body or method == "HEAD")


async def test_secret_headers_are_not_sent_to_another_origin() -> None:
    async with serve(respond_with(encode_response())) as other:
        pages = {"/a": redirect_response("/b"), "/b": redirect_response(other.url("/c"))}
        async with serve(respond_by_path(pages)) as server, connector_to(server, other) as net:
            await net.send(NetRequest(url=server.url("/a"), headers=SECRETS))
    assert [all(request.header(name) == value for name, value in SECRETS) for request in server.requests] == [True] * 2
    assert [other.requests[0].header(name) for name, _ in SECRETS] == [None] * 5 + ["text/plain"]


async def test_another_name_of_the_same_server_is_another_origin() -> None:
    async with serve(respond_with(encode_response())) as other:
        table = {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}
        there, back = other.url("/1", host="b.example"), other.url("/2", host="a.example")
        pages = {"/a": redirect_response(there), "/1": redirect_response(back)}
        async with (
            serve(respond_by_path(pages)) as server,
            connector_to(server, other, resolver=make_resolver(table)) as net,
        ):
            await net.send(NetRequest(url=server.url("/a", host="a.example"), headers=SECRETS))
    assert other.requests[0].header("host") == f"b.example:{other.port}"
    assert other.requests[0].header("authorization") is None


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("http://10.0.0.1/", "private"),
        ("http://169.254.169.254/latest/", "metadata"),
        ("http://[::ffff:127.0.0.1]/", "loopback"),
        ("//localhost/", "loopback"),
        ("http://2130706433/", "host"),
        ("http://user:pw@example.com/", "userinfo"),
        ("file:///etc/passwd", "scheme"),
        ("javascript:alert(1)", "url"),
        ("http://example.com\\@10.0.0.1/", "url"),
        ("http://a b/", "url"),
        ("http://[::1/", "url"),
        ("http://inside.example/", "private"),
    ],
)
async def test_a_redirect_to_a_forbidden_target_is_refused(location: str, reason: str) -> None:
    resolver = make_resolver({"inside.example": ["192.168.0.1"]})
    async with (
        serve(respond_with(redirect_response(location))) as server,
        connector_to(server, resolver=resolver) as net,
    ):
        with pytest.raises(NetworkRefused) as caught:
            await net.send(NetRequest(url=server.url()))
    assert (caught.value.reason, len(server.requests)) == (reason, 1)


async def test_a_redirect_to_another_port_of_a_trusted_address_is_refused() -> None:
    async with (
        serve(respond_with(encode_response(b"secret"))) as inner,
        serve(respond_with(redirect_response(inner.url()))) as server,
        connector_to(server) as net,
    ):
        with pytest.raises(NetworkRefused, match="this machine"):
            await net.send(NetRequest(url=server.url()))
    assert inner.connections == 0


async def test_the_number_of_redirects_is_limited() -> None:
    async with serve(respond_with(redirect_response("/again"))) as server, connector_to(server) as net:
        with pytest.raises(NetworkRefused) as caught:
            await net.send(NetRequest(url=server.url(), redirects=3))
        assert (caught.value.reason, len(server.requests)) == ("redirects", 4)
    async with (
        serve(respond_with(redirect_response("/again"))) as server,
        connector_to(server, limits=NetworkLimits(redirects=1)) as net,
    ):
        with pytest.raises(NetworkRefused):
            await net.send(NetRequest(url=server.url(), redirects=3))
        assert len(server.requests) == 2


async def test_without_redirects_the_redirect_itself_is_returned() -> None:
    async with (
        serve(respond_with(redirect_response("http://10.0.0.1/", body=b"moved"))) as server,
        connector_to(server) as net,
    ):
        response = await net.send(NetRequest(url=server.url(), redirects=0))
    assert (response.status, response.header("Location"), response.body) == (302, "http://10.0.0.1/", b"moved")


async def test_a_redirect_without_location_is_returned_as_a_response() -> None:
    replies = (encode_response(b"a", "302 Found"), encode_response(b"b", "300 Many", [("Location", "/x")]))
    for reply in replies:
        async with serve(respond_with(reply)) as server, connector_to(server) as net:
            assert (await net.send(NetRequest(url=server.url()))).body in (b"a", b"b")
        assert len(server.requests) == 1


async def test_a_redirect_with_two_locations_is_an_error() -> None:
    reply = encode_response(b"", "302 Found", [("Location", "/a"), ("Location", "/b")])
    async with serve(respond_with(reply)) as server, connector_to(server) as net:
        with pytest.raises(NetworkError) as caught:
            await net.send(NetRequest(url=server.url()))
    assert (caught.value.reason, len(server.requests)) == ("protocol", 1)


async def test_the_long_body_of_a_redirect_is_not_read() -> None:
    endless = b"HTTP/1.1 302 Found\r\nLocation: /b\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
    async with serve(respond_with(endless, encode_response(b"here"))) as server, connector_to(server) as net:
        assert (await net.send(NetRequest(url=server.url()))).body == b"here"
    assert server.connections == 2


def test_a_redirect_from_https_to_http_is_refused_unless_allowed() -> None:
    source, target = parse_url("https://example.com/"), parse_url("http://example.com/")
    with pytest.raises(NetworkRefused) as caught:
        RuleChecker(NetworkRules()).check_redirect(source, target)
    assert caught.value.reason == "downgrade"
    RuleChecker(NetworkRules(allow_downgrade=True)).check_redirect(source, target)
    RuleChecker(NetworkRules()).check_redirect(target, source)


async def test_host_rules_apply_to_redirects() -> None:
    async with serve(respond_with(redirect_response("http://b.example/"))) as server:
        rules = NetworkRules(trusted=(server.authority,), allow_hosts=("a.example",))
        async with Connector(rules, resolver=make_resolver({})) as net:
            with pytest.raises(NetworkRefused) as caught:
                await net.send(NetRequest(url=server.url()))
    assert caught.value.reason == "not_allowed"
