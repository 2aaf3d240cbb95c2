"""A proxy is used when it was configured, and never because of the environment."""

import asyncio
import base64

import pytest

from tests.net.http_server import ReceivedRequest, connector_to, encode_response, make_resolver, respond_with, serve
from vaka.core.ports.net import NetRequest
from vaka.core.types.errors import ConfigError, NetworkRefused, NetworkUnreachable
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules


async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        serve(respond_with(encode_response(b"proxied"))) as proxy,
        serve(respond_with(encode_response(b"direct"))) as server,
    ):
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url())
        async with connector_to(server) as net:
            assert (await net.send(NetRequest(url=server.url()))).body == b"direct"
    assert proxy.connections == 0


async def test_a_configured_proxy_resolves_names_itself() -> None:
    asked: list[str] = []
    async with serve(respond_with(encode_response(b"proxied"))) as proxy:
        address = f"http://me:pass%20word@127.0.0.1:{proxy.port}"  # not a secret
        async with Connector(proxy=address, resolver=make_resolver({}, asked)) as net:
            assert (await net.send(NetRequest(url="http://a.example/b"))).body == b"proxied"
    assert (proxy.requests[0].target, proxy.requests[0].header("host")) == ("http://a.example:80/b", "a.example")
    credentials = base64.b64encode(b"me:pass word").decode()
    assert proxy.requests[0].header("Proxy-Authorization") == f"Basic {credentials}"
    assert asked == []


@pytest.mark.every_loop
async def test_https_requests_use_a_tunnel_through_the_proxy() -> None:
    async def refuse(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(encode_response(b"", "403 Forbidden"))

    async with serve(refuse) as proxy, Connector(proxy=proxy.url("")) as net:
        with pytest.raises(NetworkUnreachable) as caught:
            await net.send(NetRequest(url="https://a.example/"))
    assert caught.value.reason == "proxy"
    assert [(request.method, request.target) for request in proxy.requests] == [("CONNECT", "a.example:443")]


async def test_an_ipv6_address_is_refused_with_a_proxy() -> None:
    async with serve(respond_with(encode_response(b"proxied"))) as proxy, Connector(proxy=proxy.url("")) as net:
        with pytest.raises(NetworkRefused, match="IPv6"):
            await net.send(NetRequest(url="http://[2606:4700::1111]/"))
    assert proxy.connections == 0


@pytest.mark.parametrize("url", ["http://10.0.0.1/", "http://localhost/", "http://metadata.google.internal/"])
async def test_the_url_is_checked_before_the_proxy_is_used(url: str) -> None:
    async with serve(respond_with(encode_response(b"proxied"))) as proxy, Connector(proxy=proxy.url()) as net:
        with pytest.raises(NetworkRefused):
            await net.send(NetRequest(url=url))
    assert proxy.connections == 0


async def test_host_rules_apply_with_a_proxy() -> None:
    rules = NetworkRules(allow_hosts=("a.example",))
    async with serve(respond_with(encode_response(b"proxied"))) as proxy, Connector(rules, proxy=proxy.url()) as net:
        with pytest.raises(NetworkRefused):
            await net.send(NetRequest(url="http://b.example/"))
    assert proxy.connections == 0


@pytest.mark.parametrize(
    "proxy", ["", "proxy:3128", "socks5://proxy:1080", "http://", "http://proxy:99999", "http://["]
)
def test_an_invalid_proxy_address_is_an_error_at_once(proxy: str) -> None:
    with pytest.raises(ConfigError, match="proxy"):
        Connector(proxy=proxy)
