"""TLS: the certificate is checked for the name, although the connection is made to an address."""

import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.net.http_server import encode_response, make_resolver, respond_with, serve
from vaka.core.ports.net import NetRequest
from vaka.core.types.errors import NetworkRefused, NetworkUnreachable
from vaka.net.connector import Connector
from vaka.net.rules import NetworkRules

HOSTS = {"a.example": ["127.0.0.1"], "b.example": ["127.0.0.1"]}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate for a.example and 127.0.0.1, with its key in the same file."""
    openssl = shutil.which("openssl")
    assert openssl, "openssl is missing; install the package openssl"
    folder = tmp_path_factory.mktemp("certificate")
    command = [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=a.example", "-addext", "subjectAltName=DNS:a.example,IP:127.0.0.1"]
    command += ["-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")]
    subprocess.run(command, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_text((folder / "key.pem").read_text("utf-8") + (folder / "certificate.pem").read_text("utf-8"), "utf-8")
    return both


@pytest.fixture
def server_context(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    return context


@pytest.fixture
def trust(certificate: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate))


async def test_the_certificate_is_checked_for_the_name(server_context: ssl.SSLContext, trust: ssl.SSLContext) -> None:
    asked_for: list[str | None] = []

    def note(connection: object, name: str | None, context: object) -> None:
        asked_for.append(name)

    server_context.sni_callback = note
    async with serve(respond_with(encode_response(b"hi")), server_context) as server:
        rules = NetworkRules(trusted=(server.authority,))
        async with Connector(rules, resolver=make_resolver(HOSTS), ssl_context=trust) as net:
            response = await net.send(NetRequest(url=server.url(host="a.example", scheme="https")))
            assert response.body == b"hi"
            with pytest.raises(NetworkUnreachable) as caught:
                await net.send(NetRequest(url=server.url(host="b.example", scheme="https")))
            assert caught.value.reason == "tls"
            assert (await net.send(NetRequest(url=server.url(scheme="https")))).body == b"hi"
    assert asked_for == ["a.example", "b.example", None]
    assert server.requests[0].header("host") == f"a.example:{server.port}"


async def test_an_untrusted_certificate_is_refused(server_context: ssl.SSLContext) -> None:
    async with serve(respond_with(encode_response(b"hi")), server_context) as server:
        rules = NetworkRules(trusted=(server.authority,))
        async with Connector(rules, resolver=make_resolver(HOSTS)) as net:
            with pytest.raises(NetworkUnreachable) as caught:
                await net.send(NetRequest(url=server.url(host="a.example", scheme="https")))
    assert (caught.value.reason, server.requests) == ("tls", [])


async def test_a_redirect_from_https_to_http_is_refused(server_context: ssl.SSLContext, trust: ssl.SSLContext) -> None:
    async with serve(respond_with(encode_response(b"plain"))) as plain:
        moved = encode_response(b"", "302 Found", [("Location", plain.url())])
        async with serve(respond_with(moved), server_context) as server:
            rules = NetworkRules(trusted=(server.authority, plain.authority))
            async with Connector(rules, resolver=make_resolver(HOSTS), ssl_context=trust) as net:
                with pytest.raises(NetworkRefused) as caught:
                    await net.send(NetRequest(url=server.url(host="a.example", scheme="https")))
    assert (caught.value.reason, plain.connections) == ("downgrade", 0)
