"""Servers that send too much, too slowly or invalid data."""

import asyncio
import gzip
import zlib
from collections.abc import Sequence

import pytest

from tests.net.http_server import (
    Handler,
    ReceivedRequest,
    connector_to,
    encode_response,
    make_resolver,
    never_respond,
    respond_with,
    serve,
)
from vaka.core.ports.net import NetRequest
from vaka.core.types.errors import NetworkError, NetworkTimeout, NetworkTooLarge
from vaka.net.connector import Connector
from vaka.net.rules import NetworkLimits

KIB = 1024


def compressed_response(body: bytes, coding: str) -> bytes:
    return encode_response(body, headers=[("Content-Encoding", coding)])


def deflate_without_header(body: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return squeeze.compress(body) + squeeze.flush()


def respond_endlessly(head: bytes, chunk: bytes) -> Handler:
    async def script(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(chunk)
            await writer.drain()

    return script


async def send_and_catch(
    script: Handler, request: NetRequest | None = None, limits: NetworkLimits = NetworkLimits()
) -> NetworkError:
    """Return the error of a request to a misbehaving server."""
    async with serve(script) as server, connector_to(server, limits=limits) as net:
        request = request or NetRequest(url="/")
        asked = NetRequest(url=server.url(), timeout=request.timeout, max_bytes=request.max_bytes)
        with pytest.raises(NetworkError) as caught:
            await net.send(asked)
        if server.connections:
            await server.client_closed.wait()
    return caught.value


# ------------------------------------------------------------------------------------------------------------ size


async def test_a_body_larger_than_allowed_is_an_error() -> None:
    async with serve(respond_with(encode_response(b"x" * 1000))) as server, connector_to(server) as net:
        assert len((await net.send(NetRequest(url=server.url(), max_bytes=1000))).body) == 1000
        with pytest.raises(NetworkTooLarge, match="999"):
            await net.send(NetRequest(url=server.url(), max_bytes=999))


async def test_the_size_limit_of_the_connector_applies_to_larger_requests() -> None:
    error = await send_and_catch(respond_with(encode_response(b"x" * 1000)), limits=NetworkLimits(max_bytes=999))
    assert (type(error), error.reason) == (NetworkTooLarge, "body")


@pytest.mark.parametrize(
    ("head", "chunk"),
    [
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"4\r\nabcd\r\n" * KIB),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", b"abcd" * KIB),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"abcd" * KIB),
    ],
)
async def test_an_endless_body_ends_at_the_limit(head: bytes, chunk: bytes) -> None:
    error = await send_and_catch(respond_endlessly(head, chunk), NetRequest(url="/", max_bytes=32 * KIB))
    assert (type(error), error.reason) == (NetworkTooLarge, "body")


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_decompression_bomb_ends_at_the_limit(coding: str) -> None:
    zeros = b"\0" * (64 * KIB * KIB)
    bomb = gzip.compress(zeros) if coding == "gzip" else zlib.compress(zeros)
    assert len(bomb) < 100 * KIB
    error = await send_and_catch(
        respond_with(compressed_response(bomb, coding)), NetRequest(url="/", max_bytes=KIB * KIB)
    )
    assert (type(error), error.reason) == (NetworkTooLarge, "body")
    assert "unpacks to 1114112 bytes" in str(error)


async def test_endless_compressed_data_without_output_ends_at_the_limit() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n"
    error = await send_and_catch(
        respond_endlessly(head, gzip.compress(b"", mtime=0) * 100), NetRequest(url="/", max_bytes=64 * KIB)
    )
    assert (type(error), error.reason) == (NetworkTooLarge, "body")


@pytest.mark.parametrize(
    ("head", "limits"),
    [
        (b"".join(b"X-%d: y\r\n" % n for n in range(200)), NetworkLimits()),
        (b"X: " + b"y" * 70_000 + b"\r\n", NetworkLimits()),
        (b"X: " + b"y" * 200_000 + b"\r\n", NetworkLimits(header_bytes=10**9)),
        (b"".join(b"X-%d: y\r\n" % n for n in range(50_000)), NetworkLimits(headers=10**9, header_bytes=10**9)),
    ],
)
async def test_too_many_headers_are_an_error(head: bytes, limits: NetworkLimits) -> None:
    error = await send_and_catch(
        respond_with(b"HTTP/1.1 200 OK\r\n" + head + b"Content-Length: 0\r\n\r\n"), limits=limits
    )
    assert (type(error), error.reason) == (NetworkTooLarge, "headers")


async def test_an_endless_head_is_an_error() -> None:
    error = await send_and_catch(respond_endlessly(b"HTTP/1.1 200 OK\r\n", b"X-Header: value\r\n" * 100))
    assert (type(error), error.reason) == (NetworkTooLarge, "headers")


# ------------------------------------------------------------------------------------------------------------ packing


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (gzip.compress(b"hello" * 100_000, mtime=0), "gzip"),
        (gzip.compress(b"hello" * 50_000, mtime=0) + gzip.compress(b"hello" * 50_000, mtime=0), "x-gzip"),
        (zlib.compress(b"hello" * 100_000), "deflate"),
        (deflate_without_header(b"hello" * 100_000), "Deflate"),
        (b"hello" * 100_000, "identity"),
        (b"hello" * 100_000, ""),
    ],
    ids=["gzip", "gzip in two members", "deflate", "deflate without its header", "identity", "nothing"],
)
async def test_a_compressed_body_is_decompressed(body: bytes, coding: str) -> None:
    async with serve(respond_with(compressed_response(body, coding))) as server, connector_to(server) as net:
        assert (await net.send(NetRequest(url=server.url()))).body == b"hello" * 100_000


async def test_a_compressed_body_may_arrive_byte_by_byte() -> None:
    body = gzip.compress(b"hello", mtime=0)
    chunks = b"".join(b"1\r\n" + bytes([byte]) + b"\r\n" for byte in body) + b"0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serve(respond_with(head + chunks)) as server, connector_to(server) as net:
        assert (await net.send(NetRequest(url=server.url()))).body == b"hello"


@pytest.mark.parametrize("size", [64 * KIB - 1, 64 * KIB, 64 * KIB + 1, 128 * KIB])
async def test_a_body_of_whole_chunks_is_decompressed_completely(size: int) -> None:
    async with (
        serve(respond_with(compressed_response(gzip.compress(b"\0" * size), "gzip"))) as server,
        connector_to(server) as net,
    ):
        assert len((await net.send(NetRequest(url=server.url()))).body) == size


@pytest.mark.parametrize(
    ("body", "coding", "reason"),
    [
        (b"hello", "br", "encoding"),
        (b"hello", "gzip, gzip", "encoding"),
        (b"hello", "gzip", "encoding"),
        (b"\xffhello", "deflate", "encoding"),
        (gzip.compress(b"hello", mtime=0) + b"more", "gzip", "encoding"),
        (zlib.compress(b"hello") + b"more", "deflate", "encoding"),
        (gzip.compress(b"hello", mtime=0)[:-4], "gzip", "cut"),
        (gzip.compress(b"hello", mtime=0)[:5], "gzip", "cut"),
        (zlib.compress(b"hello")[:-2], "deflate", "cut"),
    ],
)
async def test_an_invalid_compressed_body_is_an_error(body: bytes, coding: str, reason: str) -> None:
    async with serve(respond_with(compressed_response(body, coding))) as server, connector_to(server) as net:
        with pytest.raises(NetworkError) as caught:
            await net.send(NetRequest(url=server.url()))
    assert (type(caught.value), caught.value.reason) == (NetworkError, reason)


# ------------------------------------------------------------------------------------------------------------ time


async def test_a_silent_server_times_out() -> None:
    error = await send_and_catch(never_respond, limits=NetworkLimits(read=0.05))
    assert (type(error), error.reason) == (NetworkTimeout, "read")


async def test_a_server_that_stops_in_the_body_times_out() -> None:
    error = await send_and_catch(
        respond_with(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"), limits=NetworkLimits(read=0.05)
    )
    assert (type(error), error.reason) == (NetworkTimeout, "read")


async def test_the_timeout_of_a_request_applies() -> None:
    error = await send_and_catch(never_respond, NetRequest(url="/", timeout=0.05))
    assert (type(error), error.reason) == (NetworkTimeout, "total")


async def test_the_total_time_of_the_connector_applies_to_longer_requests() -> None:
    error = await send_and_catch(never_respond, NetRequest(url="/", timeout=1e9), NetworkLimits(total=0.05))
    assert (type(error), error.reason) == (NetworkTimeout, "total")


async def test_a_slow_body_times_out_in_total() -> None:
    async def drip(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
        while True:
            writer.write(b".")
            await writer.drain()
            await asyncio.sleep(0)

    error = await send_and_catch(drip, NetRequest(url="/", timeout=0.1, max_bytes=10**9))
    assert (type(error), error.reason) == (NetworkTimeout, "total")


async def test_a_slow_head_times_out_in_total() -> None:
    error = await send_and_catch(
        respond_endlessly(b"", b"HTTP/1.1 103 Early Hints\r\n\r\n" * 10), NetRequest(url="/", timeout=0.1)
    )
    assert (type(error), error.reason) == (NetworkTimeout, "total")


@pytest.mark.parametrize(
    ("limits", "reason"), [(NetworkLimits(connect=0.05), "dns"), (NetworkLimits(total=0.05), "total")]
)
async def test_a_slow_name_resolution_times_out(limits: NetworkLimits, reason: str) -> None:
    async def never(name: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return []

    async with Connector(limits=limits, resolver=never) as net:
        with pytest.raises(NetworkTimeout) as caught:
            await net.send(NetRequest(url="http://a.example/"))
    assert caught.value.reason == reason


# ------------------------------------------------------------------------------------------------------------ nonsense


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "protocol"),
        (b"HTTP/1.1 abc\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nBad Header: x\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "protocol"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "protocol"),
    ],
)
async def test_an_invalid_http_response_is_an_error(reply: bytes, reason: str) -> None:
    error = await send_and_catch(respond_with(reply))
    assert (type(error), error.reason) == (NetworkError, reason)


@pytest.mark.parametrize("reply", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_a_broken_connection_is_an_error_and_not_a_short_body(reply: bytes) -> None:
    async def cut(request: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        writer.write(reply)
        await writer.drain()
        writer.close()

    error = await send_and_catch(cut)
    assert error.reason in ("protocol", "cut")


async def test_the_connector_works_after_a_failure() -> None:
    async with (
        serve(respond_with(b"nonsense\r\n\r\n", encode_response(b"hi"))) as server,
        connector_to(server, resolver=make_resolver({})) as net,
    ):
        with pytest.raises(NetworkError):
            await net.send(NetRequest(url=server.url()))
        assert (await net.send(NetRequest(url=server.url()))).body == b"hi"
