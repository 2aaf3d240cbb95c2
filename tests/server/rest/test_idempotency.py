"""Requests with an Idempotency-Key: repeated, cut off, changed, at once, and after a restart."""

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx2

from tests.server.conftest import Serve, Served
from tests.server.rest.test_turns import API, Gate, deploy, read_frames
from vaka.agents.react import Agent
from vaka.config.options import Permissions
from vaka.runtime.options import Environment
from vaka.server.rest.idempotency import PREFIX
from vaka.testing import FakeClock, call, say

Scripted = Callable[..., Agent]
TURN = {"input": "Go.", "agent": "assistant"}


async def post(
    client: httpx2.AsyncClient, path: str, body: dict[str, Any], key: str = "k1", **headers: str
) -> httpx2.Response:
    return await client.post(f"{API}{path}", json=body, headers={"Idempotency-Key": key, **headers})


async def post_and_leave(served: Served, path: str, body: bytes, key: str) -> None:
    """Send a request and close the connection without reading the response."""
    _, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = (
        f"POST {API}{path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nAuthorization: Bearer alice\r\n"
        f"Idempotency-Key: {key}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()
    await writer.wait_closed()


async def forget_responses(served: Served) -> None:
    """Leave the records as a server does that is killed after its work, before it has stored the response."""
    values = served.service.runtime.store.values
    for key in await values.keys():
        if key.startswith(PREFIX):
            record = await values.get(key)
            await values.put(key, {name: record[name] for name in ("hash", "at", "nonce")})
        elif PREFIX in key:
            await values.put(key, None)


async def test_a_repeated_request_gets_the_first_response(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."))]) as served, served.client() as client:
        first = await post(client, "/sessions/s/turns", TURN)
        assert "idempotent-replayed" not in first.headers
        assert first.json()["key"] == "k1"
        again = await post(client, "/sessions/s/turns", TURN)
        assert (again.status_code, again.content, again.headers["idempotent-replayed"]) == (200, first.content, "true")
        assert again.headers["location"] == first.headers["location"]
        alias = await post(client, "/threads/s/runs", TURN)
        assert alias.content == first.content
        other = await post(client, "/sessions/s/turns", {**TURN, "input": "Stop."})
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        assert len((await client.get(f"{API}/sessions/s/turns")).json()["data"]) == 1
        for key in ("x" * 201, "a\tb"):
            bad = await post(client, "/sessions/s/turns", TURN, key)
            assert (bad.status_code, bad.json()["code"]) == (400, "invalid_key")
        streamed = await post(client, "/sessions/s/turns", {**TURN, "stream": True}, "k2")
        replayed = await post(client, "/sessions/s/turns", {**TURN, "stream": True}, "k2")
        assert replayed.headers["idempotent-replayed"] == "true"
        stored = [frame for frame in read_frames(streamed.text) if frame["_id"]]
        assert [frame for frame in read_frames(replayed.text) if frame["_id"]] == stored


async def test_sessions_forks_and_decisions_are_made_once(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=Permissions(confirm=["deploy"])) as served, served.client() as client:
        [decision] = (await post(client, "/sessions/s/turns", TURN)).json()["decisions"]
        requests: list[tuple[str, dict[str, Any]]] = [
            ("/sessions", {"title": "New"}),
            ("/sessions", {"id": "named"}),
            ("/sessions/s/fork", {}),
            ("/sessions/s/fork", {"id": "copy"}),
            (f"/approvals/{decision['id']}/resolve", {"decision": "approve"}),
        ]
        first = [await post(client, path, body, f"r{number}") for number, (path, body) in enumerate(requests)]
        assert [answer.status_code for answer in first] == [201, 201, 201, 201, 200]
        await client.post(f"{API}/sessions/s/turns/{decision['turn']}/wait")
        for crashed in (False, True):
            if crashed:
                await forget_responses(served)
            for number, (path, body) in enumerate(requests):
                again = await post(client, path, body, f"r{number}")
                assert again.status_code == first[number].status_code
                assert again.headers["idempotent-replayed"] == "true"
                assert again.json()["id"] == first[number].json()["id"]
        assert len((await client.get(f"{API}/sessions")).json()["data"]) == 5
        taken = await post(client, "/sessions", {"id": "named"}, "another")
        assert (taken.status_code, taken.json()["code"]) == (409, "exists")


async def test_a_connection_that_is_cut_before_the_reply_loses_nothing(serve: Serve, scripted: Scripted) -> None:
    gate = Gate()
    async with serve([scripted(call("hold"), say("Done."), tools=[gate.tool])]) as served, served.client() as client:
        body = b'{"input":"Go.","agent":"assistant"}'
        await post_and_leave(served, "/sessions/s/turns", body, "cut")
        await gate.entered.wait()
        send = partial(client.post, f"{API}/sessions/s/turns", content=body, headers={"Idempotency-Key": "cut"})
        repeated = [asyncio.create_task(send()) for _ in range(2)]
        done, _ = await asyncio.wait(repeated, return_when=asyncio.FIRST_COMPLETED)
        refused = done.pop().result()  # the other one waits for the turn in place of the client that has left
        assert (refused.status_code, refused.json()["code"]) == (409, "in_progress")
        assert refused.headers["retry-after"] == "1"
        gate.opened.set()
        await asyncio.wait(repeated)
        while (answer := await send()).status_code == 409:
            continue
        assert answer.json()["text"] == "Done."
        assert len((await client.get(f"{API}/sessions/s/turns")).json()["data"]) == 1


async def test_a_key_counts_after_a_restart(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with (
        serve([agent], store=store, permissions=Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        waiting = (await post(client, "/sessions/s/turns", TURN)).json()
        assert waiting["status"] == "waiting"
    async with (
        serve([agent], store=store, permissions=Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        again = await post(client, "/sessions/s/turns", TURN)
        assert (again.json(), again.headers["idempotent-replayed"]) == (waiting, "true")
        await forget_responses(served)
        [decision] = waiting["decisions"]
        await post(client, f"/approvals/{decision['id']}/resolve", {"decision": "approve"})
        await client.post(f"{API}/sessions/s/turns/{waiting['id']}/wait")
        done = (await post(client, "/sessions/s/turns", TURN)).json()
        assert (done["id"], done["text"]) == (waiting["id"], "Done.")


async def test_a_refused_request_does_not_use_up_its_key(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."))]) as served, served.client() as client:
        assert (await post(client, "/sessions/s/turns", {"input": "Go."})).status_code == 404
        assert (await post(client, "/sessions/s/turns", {"input": 5})).status_code == 422
        assert (await post(client, "/sessions/s/turns", TURN)).status_code == 200


async def test_keys_of_other_callers_and_addresses_are_other_keys(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."))]) as served, served.client() as alice, served.client("bob") as bob:
        first = await post(alice, "/sessions", {"title": "A"})
        second = await post(bob, "/sessions", {"title": "B"})
        assert (first.json()["title"], second.json()["title"]) == ("A", "B")
        copy = await post(alice, f"/sessions/{first.json()['id']}/fork", {"title": "C"})
        assert (copy.status_code, copy.json()["title"]) == (201, "C")


async def test_records_are_kept_for_a_day_and_then_removed(serve: Serve, scripted: Scripted) -> None:
    clock = FakeClock()
    async with serve([scripted()], environment=Environment(clock=clock)) as served, served.client() as client:
        values, day = served.service.runtime.store.values, 86_400.0
        assert (await post(client, "/sessions", {"title": "A"})).status_code == 201
        clock.jump(day / 2)
        other = await post(client, "/sessions", {"title": "B"})
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
        clock.jump(day)
        assert (await post(client, "/sessions", {"title": "B"}, "k2")).status_code == 201
        clock.jump(2 * day)
        assert (await post(client, "/sessions", {"title": "C"}, "k3")).status_code == 201
        assert len(await values.keys(PREFIX)) == 1


async def test_the_response_of_an_erased_session_is_erased(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("My secret."))]) as served, served.client() as client:
        first = await post(client, "/sessions/s/turns", TURN)
        assert first.json()["text"] == "My secret."
        await served.service.runtime.erase("s")
        values = served.service.runtime.store.values
        assert "secret" not in str([await values.get(key) for key in await values.keys()])
        again = await post(client, "/sessions/s/turns", TURN)
        assert (again.status_code, b"secret" in again.content) == (410, False)


async def test_a_refused_repetition_leaves_the_record_of_the_first_request(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."))]) as served, served.client() as client:
        await post(client, "/sessions/s/turns", TURN)
        await forget_responses(served)
        served.service.draining = True
        assert (await post(client, "/sessions/s/turns", TURN)).status_code == 503
        served.service.draining = False
        await client.delete(f"{API}/sessions/s")
        served.service.agents = {}
        assert (await post(client, "/sessions/s/turns", TURN)).status_code == 404
        other = await post(client, "/sessions/s/turns", {**TURN, "input": "Stop."})
        assert (other.status_code, other.json()["code"]) == (422, "key_reused")
