"""Requests that attack the server: each is answered within its limits, and costs little."""

import asyncio
import json
import logging
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from tests.server.conftest import PRINCIPALS, Serve, Served
from tests.server.rest.test_turns import Gate
from tests.server.ws.conftest import connect_client
from tests.server.ws.test_slow_clients import wait_until
from vaka.agents.react import Agent
from vaka.server.kit.bodies import check_json
from vaka.server.kit.problems import Problem
from vaka.server.settings import ServerSettings
from vaka.testing import call, say
from vaka.tools.client_tool import ClientTool

Scripted = Callable[..., Agent]
MIB = 1024 * 1024
UPGRADE = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: agent.v1+json\r\n"
)


async def answer_to(served: Served, *pieces: bytes) -> bytes:
    """Send bytes to a server and return all that it sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    for piece in pieces:
        writer.write(piece)
        await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


# ------------------------------------------------------------------------------------------------------------- bodies


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":"' + b'\\"' * (2 * MIB) + b"[" * 200,
        b"[" * 90 + b'"' + b'\\"' * (2 * MIB),
        b'{"image":"' + b"A" * (5 * MIB) + b'","tools":[' + b'{"name":"t","parameters":{"a":{}}},' * 60 + b"1]}",
        b"[" + b"[1]," * MIB + b"1]",
        b"[" + b'"\\\\",' * MIB + b"[]," * 200 + b"1]",
        '{"text":"{}"}'.replace("{}", "ü" * MIB).encode(),
    ],
)
def test_the_check_of_a_body_needs_a_small_part_of_its_size(body: bytes) -> None:
    tracemalloc.start()
    try:
        check_json(body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 5 * MIB


@pytest.mark.parametrize(
    ("body", "is_deep"),
    [
        (b"[" * 100 + b"]" * 100, False),
        (b"[" * 101 + b"]" * 101, True),
        (b'{"a":' * 101 + b"1" + b"}" * 101, True),
        (b'["' + b"[" * 500 + b'"]', False),
        (b'["\\"' + b"[" * 500 + b'"]', False),
        (b'["\\\\",' + b"[" * 100 + b"]" * 101, True),
        (b"[" * 60 + b'"' + b"x" * 200_000 + b'",' + b"[" * 60, True),
        (b"[]," * 50_000 + b"[" * 101, True),
    ],
)
def test_depth_is_counted_outside_of_strings(body: bytes, is_deep: bool) -> None:
    with pytest.raises(Problem, match="inside one another") if is_deep else nullcontext():
        check_json(body)


@pytest.mark.parametrize("place", [0, 65_535, 65_536, 200_000])
def test_the_byte_that_is_not_utf8_is_named(place: int) -> None:
    text = "é" * 200_000
    encoded = (b"x" * (place % 2) + text.encode())[:place]
    with pytest.raises(Problem, match=f"byte {place} is not UTF-8"):
        check_json(encoded + b"\xff" + text.encode())


async def test_a_frame_before_authentication_is_small(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        async with connect_client(served, "") as stranger:
            await stranger.socket.send('{"id":1,"method":"ping","params":{"x":"' + '\\"' * 40_000)
            assert (await stranger.closed())[0] == 1009
        async with connect_client(served) as alice:
            await alice.socket.send('{"id":"' + '\\"' * 40_000)
            assert (await alice.closed())[0] == 4400


# --------------------------------------------------------------------------------------------------- headers, trailers


async def test_trailers_are_no_headers(serve: Serve, scripted: Scripted) -> None:
    chunks = b"0\r\nAuthorization: Bearer alice\r\nHost: localhost\r\nX-Api-Key: alice\r\n\r\n"
    async with serve([scripted(say("Hi."))]) as served:
        for method in (b"GET", b"POST"):
            head = method + b" /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
            answer = await answer_to(served, head + b"Connection: close\r\n\r\n", chunks)
            assert answer.startswith(b"HTTP/1.1 401 ")
        hidden = b"GET /healthz HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        assert (await answer_to(served, hidden, chunks)).startswith(b"HTTP/1.1 421 ")


@pytest.mark.parametrize("trailer", [b"X-A: " + b"b" * 100 + b"\r\n", b"b" * 1000])
async def test_trailers_are_limited(trailer: bytes, serve: Serve, scripted: Scripted) -> None:
    head = b"POST /api/v1/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n"
    async with serve([scripted(say("Hi."))]) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n")
        reading = asyncio.create_task(reader.read())
        sent = 0
        while not reading.done() and sent < 50 * MIB:
            writer.write(trailer * 64)
            sent += len(trailer) * 64
            await asyncio.wait([reading], timeout=0)
        assert (await reading).startswith(b"HTTP/1.1 431 ")
        assert sent < 50 * MIB
        writer.close()
        async with served.client() as client:
            assert (await client.get("/api/v1/sessions")).json()["data"] == []


async def test_headers_are_limited_however_they_arrive(serve: Serve, scripted: Scripted) -> None:
    start, header = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n", "X-A: b\r\n"
    requests = [
        f"{start}X-A: {'a' * 100_000}\r\n\r\n",
        f"{start}{header * 9000}\r\n",
        start.replace("healthz", f"healthz?{'a' * 100_000}") + "\r\n",
        f"{start}\r\n{start}X-A: {'a' * 100_000}\r\n\r\n",
    ]
    async with serve([scripted(say("Hi."))]) as served:
        for request in map(str.encode, requests):
            for reads in (1, 3, 40):
                size = len(request) // reads + 1
                answer = await answer_to(served, *(request[at : at + size] for at in range(0, len(request), size)))
                is_second = request.count(b"GET ") == 2  # it may be cut off together with the first one
                refused = answer.count(b"HTTP/1.1 200 ") < 2 if is_second else answer.startswith(b"HTTP/1.1 431 ")
                assert refused, (request[:80], reads)
        small = f"{start}X-A: {'a' * 60_000}\r\nConnection: close\r\n\r\n"
        assert (await answer_to(served, small.encode())).startswith(b"HTTP/1.1 200 ")


async def test_requests_that_are_sent_without_waiting_are_limited(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        answer = await answer_to(served, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)
        assert answer.count(b"HTTP/1.1 200 ") < 100


async def test_the_host_of_an_absolute_address_counts(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        for target, host, status in (
            ("http://evil.example/healthz", "localhost", 421),
            ("http://evil.example:80/healthz", "localhost", 421),
            ("http://localhost@evil.example/healthz", "localhost", 421),
            ("http://localhost/healthz", "evil.example", 200),
            ("http://[::1]:8321/healthz", "localhost", 200),
            ("//evil.example/healthz", "localhost", 404),
        ):
            request = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            assert (await answer_to(served, request.encode())).split()[1] == str(status).encode(), target


# ---------------------------------------------------------------------------------------------------------- WebSockets


async def test_every_handshake_gets_an_answer(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        for path in ("/api/v1/ws", "/v1/responses", "/no/such/socket"):
            for query, headers, status in (
                ("?" + "a" * 9000, "", 414),
                ("", "X-A: b\r\n" * 200, 431),
                ("", f"X-A: {'b' * 9000}\r\n", 431),
                ("", "X A: b\r\n", 400),
                ("", "Sec-WebSocket-Key: short\r\n", 400),
            ):
                head = f"GET {path}{query} HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}{headers}\r\n"
                assert (await answer_to(served, head.encode())).split()[1] == str(status).encode(), (path, status)


async def test_bad_utf8_in_a_frame_closes_the_connection_without_a_traceback(
    serve: Serve, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve([scripted(say("Hi."))]) as served, connect_client(served) as alice:
        with caplog.at_level(logging.WARNING):
            await alice.socket.send(b'{"id":"\xff"}', text=True)
            assert (await alice.closed())[0] == 1007
        assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


async def test_answers_to_pings_do_not_wait_in_memory(serve: Serve, scripted: Scripted) -> None:
    pings = (b"\x89\xfd" + bytes(4) + b"x" * 125) * 500
    async with serve([scripted(say("Hi."))], settings=ServerSettings(socket_auth_seconds=60)) as served:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"GET /api/v1/ws HTTP/1.1\r\nHost: localhost\r\n{UPGRADE}\r\n".encode())
        await reader.readuntil(b"\r\n\r\n")
        tracemalloc.start()
        for _ in range(200):  # together more than the buffers of the sockets
            writer.write(pings)
            await writer.drain()
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        writer.transport.abort()
        assert used < 2 * MIB


async def test_a_frame_that_is_not_valid_has_a_status(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, connect_client(served) as alice:
        error = await alice.refused("subscribe", session=1)
        assert (error["code"], error["data"]) == ("invalid_params", {"status": 422})
        error = await alice.refused("no.such.method")
        assert (error["code"], error["data"]) == ("unknown_method", {"status": 400})


# --------------------------------------------------------------------------------------------------------- blobs, ids


async def test_no_door_reads_a_blob_of_another_owner(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("look"), say("Hi."), tools=[ClientTool("look")])
    async with serve([agent]) as served, served.client("dave") as dave:
        owned = await served.service.create_session(PRINCIPALS["alice"])
        digest = await served.service.runtime.store.blobs.put(b"secret", session=owned.id)
        part = {"type": "document", "blob": digest, "media_type": "text/plain", "name": "a.txt"}
        stored = {"type": "stored", "blob": digest, "size": 6}
        turn = (await dave.post("/api/v1/sessions/d/turns", json={"input": "Go.", "agent": "assistant"})).json()
        decision = (await dave.get(f"/api/v1/approvals/{turn['decisions'][0]['id']}")).json()
        result = {"call": decision["call"]["id"], "content": [stored]}
        requests: list[tuple[str, dict[str, Any]]] = [
            ("turns", {"input": [part]}),
            ("turns/current/steer", {"input": [part]}),
            ("messages", {"messages": [{"role": "user", "content": [part]}]}),
            ("messages", {"messages": [{"role": "user", "content": [stored]}]}),
            (f"../../approvals/{decision['id']}/resolve", {"decision": "answer", "answer": result}),
        ]
        for path, body in requests:
            answer = await dave.post(f"/api/v1/sessions/d/{path}", json=body)
            assert answer.status_code in (400, 422), (path, answer.text)
            assert "blob" in answer.json()["detail"]
        async with connect_client(served, "dave") as socket:
            for method in ("turn.start", "turn.steer"):
                error = await socket.refused(method, session="d", input=[part])
                assert (error["code"], error["data"]["status"]) == ("invalid_body", 422)
            error = await socket.refused("approval.resolve", id=decision["id"], decision="answer", answer=result)
            assert error["data"]["status"] == 422
        assert digest not in (await dave.get("/api/v1/sessions/d/export")).text


async def test_every_door_refuses_the_same_session_ids(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client, connect_client(served) as socket:
        await served.service.create_session(PRINCIPALS["alice"], id="known")
        for id in ("../x", "a/b", "search", "*", "current", "..", "x" * 201, "a\x00b", "a\nb", " a"):
            for path, body in requests_with_session(id):
                answer = await client.post(path, json=body, headers={"A2A-Version": "1.0"})
                assert answer.status_code in (400, 422), (path, answer.text)
            for method, params in (
                ("turn.start", {"session": id, "agent": "assistant", "input": "Hi."}),
                ("session.fork", {"session": "known", "id": id}),
            ):
                error = await socket.refused(method, **params)
                assert error["data"]["status"] in (400, 422), (method, error)
        found = (await client.get("/api/v1/sessions")).json()["data"]
        assert [session["id"] for session in found] == ["known"]


def requests_with_session(id: str) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return a request of each protocol that would create a session."""
    message = {"id": "m", "role": "user", "content": "Hi."}
    run: dict[str, Any] = {"threadId": id, "runId": "r", "messages": [message], "tools": [], "context": []}
    chat = {"id": id, "messages": [{"id": "m", "role": "user", "parts": [{"type": "text", "text": "Hi."}]}]}
    sent = {"role": "ROLE_USER", "messageId": "m", "contextId": id, "parts": [{"text": "Hi."}]}
    return (
        ("/api/v1/sessions", {"id": id}),
        ("/api/v1/sessions/known/fork", {"id": id}),
        ("/agui/assistant", {**run, "state": {}, "forwardedProps": {}}),
        ("/ai-sdk/assistant", chat),
        ("/a2a/assistant/v1/message:send", {"message": sent}),
        ("/v1/chat/completions", {"model": f"assistant:{id}", "messages": [{"role": "user", "content": "Hi."}]}),
        ("/v1/messages", {"model": f"assistant:{id}", "max_tokens": 9, "messages": [message]}),
        ("/v1/responses", {"model": f"assistant:{id}", "input": "Hi."}),
    )


async def test_every_door_refuses_the_same_keys(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client, connect_client(served) as socket:
        await served.service.create_session(PRINCIPALS["alice"], id="s")
        for key in ("a/b", "*", "current", "x" * 5000, "a\x00b"):
            for path, body in requests_with_key(key):
                answer = await client.post(path, json=body, headers={"A2A-Version": "1.0"})
                assert answer.status_code in (400, 422), (path, answer.text)
            for method in ("turn.start", "turn.steer"):
                error = await socket.refused(method, session="s", input="Hi.", key=key)
                assert (error["code"], error["data"]["status"]) == ("invalid_id", 422)
            if "\x00" not in key:
                headers = {"Idempotency-Key": key}
                answer = await client.post("/api/v1/sessions/s/turns", json={"input": "Hi."}, headers=headers)
                assert (answer.status_code, answer.json()["code"]) == (400, "invalid_key")
        assert (await client.get("/api/v1/sessions/s/turns")).json()["data"] == []


def requests_with_key(key: str) -> Sequence[tuple[str, dict[str, Any]]]:
    """Return a request of each protocol whose messages have ids."""
    message = {"id": key, "role": "user", "content": "Hi."}
    run: dict[str, Any] = {
        "threadId": "s",
        "runId": "r",
        "messages": [message],
        "tools": [],
        "context": [],
        "state": {},
    }
    chat = {"id": "s", "messages": [{"id": key, "role": "user", "parts": [{"type": "text", "text": "Hi."}]}]}
    sent = {"role": "ROLE_USER", "messageId": key, "contextId": "s", "parts": [{"text": "Hi."}]}
    return (
        ("/agui/assistant", {**run, "state": {}, "forwardedProps": {}}),
        ("/ai-sdk/assistant", chat),
        ("/a2a/assistant/v1/message:send", {"message": sent}),
    )


async def test_a_stored_session_with_another_id_stays_readable(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        agent = served.service.find_agent()
        for id in ("current", "a/b"):
            await (await served.service.runtime.open(agent, id=id)).update(owner="alice")
        assert (await client.get("/api/v1/sessions/current")).json()["id"] == "current"
        async with connect_client(served) as socket:
            assert (await socket.request("state.get", session="a/b"))["session"]["id"] == "a/b"


# ------------------------------------------------------------------------------------------------- clients that leave


def request_bytes(path: str, body: dict[str, Any], *, headers: str = "") -> bytes:
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\nA2A-Version: 1.0\r\n{headers}"
    return f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data


async def test_requests_that_wait_end_when_their_clients_leave(
    serve: Serve, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    gate = Gate()
    turn = {"input": "Go.", "agent": "assistant"}
    said = [{"role": "user", "content": "Go."}]
    sent = {"role": "ROLE_USER", "messageId": "m", "parts": [{"text": "Go."}]}
    first = [request_bytes(f"/api/v1/sessions/s{number}/turns", turn) for number in range(5)]
    others = [
        *(request_bytes("/api/v1/sessions/s0/turns/current/wait", {}) for _ in range(5)),
        request_bytes("/api/v1/tools/hold/execute", {}),
        request_bytes("/v1/chat/completions", {"model": "assistant", "messages": said}),
        request_bytes("/v1/messages", {"model": "assistant", "max_tokens": 9, "messages": said}),
        request_bytes("/v1/responses", {"model": "assistant", "input": "Go."}),
        request_bytes("/a2a/assistant/v1/message:send", {"message": sent}),
    ]
    agents = [scripted(*[step for _ in range(20) for step in (call("hold"), say("Done."))], tools=[gate.tool])]
    async with serve(agents, settings=ServerSettings(drain_seconds=60)) as served, served.client() as client:
        writers: list[asyncio.StreamWriter] = []
        for requests, calls in ((first, 5), (others, 10)):
            for request in requests:
                _, writer = await asyncio.open_connection("127.0.0.1", served.port)
                writer.write(request)
                writers.append(writer)
            await wait_until(partial(gate.has_counted, calls))
        assert served.waiting == len(writers)
        for writer in writers:
            writer.close()
        await wait_until(lambda: not served.waiting)
        status = [(await client.get(f"/api/v1/sessions/s{number}")).json()["status"] for number in range(5)]
        assert status == ["running"] * 5  # the turns go on
        gate.opened.set()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


DOORS = (
    "/api/v1/sessions/s/turns",
    "/v1/chat/completions",
    "/v1/messages",
    "/v1/responses",
    "/agui/assistant",
    "/ai-sdk/assistant",
    "/a2a/assistant",
    "/mcp",
)


@pytest.mark.parametrize("path", DOORS)
async def test_a_client_that_leaves_within_its_body_is_no_error_of_the_server(
    path: str, serve: Serve, scripted: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\nA2A-Version: 1.0\r\n"
    head += "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
    async with serve([scripted(say("Hi."))]) as served:
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(f"{head}\r\n{{".encode())
        await wait_until(lambda: served.waiting == 1)
        writer.close()
        await wait_until(lambda: not served.waiting)
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


async def test_a_turn_whose_client_leaves_is_stopped_if_the_client_has_asked_for_it(
    serve: Serve, scripted: Scripted
) -> None:
    gate = Gate()
    async with serve([scripted(call("hold"), say("Done."), tools=[gate.tool])]) as served, served.client() as client:
        turn = {"input": "Go.", "agent": "assistant", "on_disconnect": "cancel"}
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(request_bytes("/api/v1/sessions/s/turns", turn))
        await gate.entered.wait()
        writer.close()
        while (await client.get("/api/v1/sessions/s")).json()["status"] == "running":
            continue
        [ended] = (await client.get("/api/v1/sessions/s/turns")).json()["data"]
        assert ended["status"] == "interrupted"


# --------------------------------------------------------------------------------------------------------------- small


async def test_the_key_of_an_input_is_no_decision(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        turn = {"input": "Go.", "agent": "assistant"}
        await client.post("/api/v1/sessions/s/turns", json=turn, headers={"Idempotency-Key": "mine"})
        answer = await client.post("/api/v1/approvals/mine/resolve", json={"decision": "approve"})
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_a_parameter_that_is_not_valid_is_refused_before_anything_is_read(
    serve: Serve, scripted: Scripted
) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        await client.post("/api/v1/sessions/s/turns", json={"input": "Go.", "agent": "assistant"})
        for path in ("s/turns/current", "s/events", "none/events", "none/turns/x"):
            answer = await client.get(f"/api/v1/sessions/{path}", params={"format": "nope"})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "format")
        for path in ("s", "none", "s/t"):
            assert (await client.get(f"/api/v1/traces/{path}", params={"format": "nope"})).status_code == 422
