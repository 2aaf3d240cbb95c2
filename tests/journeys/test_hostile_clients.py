"""Clients that attack the installed server: with raw bytes, and with requests made from its OpenAPI document."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.journeys.answers import PATIENCE
from tests.journeys.installed import Home, Server
from tests.journeys.provider import MODELS, Provider

MIB = 1024 * 1024
MAX_GROWTH = 150 * MIB
"""The memory that all raw connections together may cost the server."""
HOST = b"Host: localhost\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HOST
POST = b"POST /api/v1/sessions HTTP/1.1\r\n" + HOST
CLOSING = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
UPGRADE = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: agent.v1+json\r\n"
)
OPEN_SOCKET = b"GET /api/v1/ws HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n"


def frame(data: bytes, opcode: int = 1, *, fin: bool = True) -> bytes:
    """Return a WebSocket frame of a client, with a mask of zeros."""
    size = len(data)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65_536:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([0x80 | 127]) + size.to_bytes(8, "big")
    return bytes([(0x80 if fin else 0) | opcode]) + length + bytes(4) + data


@dataclass(frozen=True)
class Attack:
    """A beginning, and bytes that are sent ``times`` times after it; then how the answer begins."""

    name: str
    beginning: bytes
    repeated: bytes = b""
    times: int = 1
    answers: Sequence[bytes] = (b"HTTP/1.1 4",)
    may_reset: bool = False
    """Whether the server may close the connection before the client has read the answer."""


QUICK = (
    Attack("a header of 100 KB", GET + b"X-A: " + b"a" * 100_000 + b"\r\n\r\n", answers=(b"HTTP/1.1 431",)),
    Attack("a trailer with a key", CLOSING + b"0\r\nAuthorization: Bearer x\r\n\r\n", answers=(b"HTTP/1.1 401",)),
    Attack("trailers of 2 MB", CHUNKED + b"0\r\n", b"X-A: " + b"b" * 990 + b"\r\n", 2000, may_reset=True),
    Attack("a trailer of 2 MB", CHUNKED + b"0\r\nX-A: ", b"b" * 1000, 2000, may_reset=True),
    Attack("a chunk extension of 2 MB", CHUNKED + b"1;", b"b" * 1000, 2000, may_reset=True),
    Attack(
        "another host",
        b"GET http://evil.example/ HTTP/1.1\r\n" + HOST + b"\r\n",
        answers=(b"HTTP/1.1 421",),
        may_reset=True,
    ),
    Attack(
        "a handshake with a long query",
        b"GET /api/v1/ws?" + b"a" * 9000 + b" HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n",
        answers=(b"HTTP/1.1 414",),
    ),
    Attack(
        "a handshake with 200 headers",
        b"GET /api/v1/ws HTTP/1.1\r\n" + HOST + UPGRADE + b"X-A: b\r\n" * 200 + b"\r\n",
        answers=(b"HTTP/1.1 431",),
    ),
    Attack(
        "a frame with an unclosed string",
        OPEN_SOCKET,
        frame(b'{"id":"' + b'\\"' * 32_000),
        answers=(b"HTTP/1.1 101",),
        may_reset=True,
    ),
    Attack("a frame of 2 MB", OPEN_SOCKET, frame(b"x" * 2 * MIB), answers=(b"HTTP/1.1 101",), may_reset=True),
    Attack("a frame that is not UTF-8", OPEN_SOCKET, frame(b"\xff"), answers=(b"HTTP/1.1 101",), may_reset=True),
    Attack("a length that is no number", POST + b"Content-Length: -1\r\n\r\n"),
    Attack("two lengths", POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    Attack("a body of 10 GB", POST + b"Content-Length: 10000000000\r\nConnection: close\r\n\r\n", may_reset=True),
    Attack(
        "bytes that are not HTTP",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
        answers=(b"HTTP/1.1 400",),
    ),
    Attack("many requests at once", (GET + b"\r\n") * 5000, answers=(b"",), may_reset=True),
)
SLOW = (
    Attack("trailers of 50 MB", CHUNKED + b"0\r\n", b"X-A: " + b"b" * 990 + b"\r\n", 50_000, may_reset=True),
    Attack("a trailer of 50 MB", CHUNKED + b"0\r\nX-A: ", b"b" * 10_000, 5000, may_reset=True),
    Attack("an unread body of 50 MB", POST + b"Content-Length: 9000000\r\n\r\n", b"b" * 10_000, 5000, may_reset=True),
    Attack("chunks of one byte", CHUNKED, b"1\r\nx\r\n" * 1000, 500, may_reset=True),
    Attack("headers that do not end", GET + b"X-A: b", answers=(b"",)),
    Attack("nothing", b"", answers=(b"",)),
    Attack("many pings", OPEN_SOCKET, frame(b"x" * 125, 9) * 500, 300, answers=(b"HTTP/1.1 101",), may_reset=True),
    Attack(
        "many empty parts",
        OPEN_SOCKET + frame(b"", fin=False),
        frame(b"", 0, fin=False) * 500,
        300,
        answers=(b"HTTP/1.1 101",),
        may_reset=True,
    ),
    Attack("many small frames", OPEN_SOCKET, frame(b"[]") * 500, 300, answers=(b"HTTP/1.1 101",), may_reset=True),
    Attack("a handshake without a token", OPEN_SOCKET, answers=(b"HTTP/1.1 101",)),
)


@pytest.fixture
def served(tmp_path: Path, programs: Path) -> Iterator[tuple[Home, Server]]:
    """A server whose model is never asked for a meaningful answer."""
    folder = tmp_path / "work"
    folder.mkdir()
    with Provider() as provider:
        environment = {**provider.environment, "VAKA_SERVER": '{"requests_per_minute": 0, "burst": 1000}'}
        home = Home(tmp_path / "home", programs, environment)
        with Server(home, folder, "--no-ui", "--model", MODELS["chat"]) as server:
            yield home, server


def memory_of(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    pages = int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def send(server: Server, attack: Attack) -> bytes | None:
    """Send the bytes of an attack; return the whole answer, ``None`` for a connection that was reset."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE) as client:
        answer = b""
        try:
            client.sendall(attack.beginning)
            if attack.beginning.startswith(OPEN_SOCKET):
                answer = client.recv(65_536)
            for _ in range(attack.times if attack.repeated else 0):
                client.sendall(attack.repeated)
            while piece := client.recv(65_536):
                answer += piece
                if attack.may_reset:  # the server waits some seconds for the client
                    break
        except (ConnectionResetError, BrokenPipeError):
            return None
        return answer


def attack_all(server: Server, attacks: Sequence[Attack]) -> None:
    """Fail unless each attack is answered or closed, other clients are answered meanwhile, and memory is bounded."""
    send(server, QUICK[0])  # what is loaded on first use
    before = memory_of(server.process.pid)
    for attack in attacks:
        answer = send(server, attack)
        is_expected = attack.may_reset if answer is None else answer.startswith(tuple(attack.answers))
        assert is_expected, (attack.name, answer)
        assert server.request("GET", "/healthz").status == 200, attack.name
    assert memory_of(server.process.pid) - before < MAX_GROWTH


def test_a_stranger_with_raw_sockets_gets_answers_and_no_memory(served: tuple[Home, Server]) -> None:
    _, server = served
    attack_all(server, QUICK)


@pytest.mark.exhaustive
def test_a_stranger_with_much_time_gets_answers_and_no_memory(served: tuple[Home, Server]) -> None:
    _, server = served
    attack_all(server, [*QUICK, *SLOW])


@pytest.mark.exhaustive
def test_strangers_that_hold_many_connections_do_not_shut_others_out(served: tuple[Home, Server]) -> None:
    home, server = served
    key = home.create_key(Path(home.folder).parent / "work", "--scope", "runs:read")
    before = memory_of(server.process.pid)
    held: list[socket.socket] = []
    for number in range(400):
        client = socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE)
        client.sendall((OPEN_SOCKET, GET + b"X-A: b", CHUNKED + b"1\r\nx")[number % 3])
        held.append(client)
    assert server.with_key(key).request("GET", "/api/v1/sessions").status == 200
    assert memory_of(server.process.pid) - before < MAX_GROWTH
    for client in held:
        client.close()


KEYS = {
    "an administrator": ("--scope", "admin"),
    "a reader": ("--scope", "runs:read"),
    "an owner": ("--scope", "runs:read", "--scope", "runs:write", "--scope", "approvals:write", "--own-sessions-only"),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("caller", KEYS)
def test_requests_made_from_the_document_cause_no_error_of_the_server(
    caller: str, served: tuple[Home, Server], tmp_path: Path
) -> None:
    home, server = served
    key = home.create_key(tmp_path / "work", *KEYS[caller])
    checks = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
    done = subprocess.run(
        [
            Path(sys.executable).parent / "st",
            "run",
            f"{server.url}/openapi.json",
            "-H",
            f"Authorization: Bearer {key}",
            "--checks",
            checks,
            "--max-examples",
            "10",
            "--phases",
            "coverage,fuzzing",
            "--seed",
            "1",
            "--no-shrink",
            "--continue-on-failure",
            "--generation-database",
            "none",
            "--no-color",
            "--request-timeout",
            str(PATIENCE),
            "--exclude-path-regex",
            "/wait$",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
    assert server.request("GET", "/healthz").status == 200
