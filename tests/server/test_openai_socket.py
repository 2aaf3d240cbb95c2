"""The WebSocket of the Responses API, with the client of OpenAI and with bad frames."""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import websockets
from openai import AsyncOpenAI
from websockets.asyncio.client import ClientConnection

import vaka
from tests.server.conftest import Serve, Served
from vaka.agents.react import Agent
from vaka.server.kit.principal import Principal
from vaka.server.limits import RateLimiter
from vaka.server.settings import ServerSettings
from vaka.testing import FakeClock, call, calls, say, stall

Scripted = Callable[..., Agent]
Json = dict[str, Any]

PICK = {"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}}


STEER_REPLIES = ("response.steer.accepted", "response.steer.failed")


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


@asynccontextmanager
async def connect(served: Served, **headers: str) -> AsyncGenerator[ClientConnection]:
    given = {"Authorization": "Bearer alice"} | headers
    address = f"{served.url.replace('http', 'ws')}/v1/responses"
    async with websockets.connect(address, additional_headers=given, open_timeout=20) as socket:
        yield socket


async def read_until(socket: ClientConnection, *kinds: str) -> list[Json]:
    events: list[Json] = []
    while not events or events[-1]["type"] not in kinds:
        events.append(json.loads(await socket.recv()))
    return events


async def test_the_client_of_openai_runs_responses_over_one_connection(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Deployed."), say("Again."), tools=[deploy])
    async with (
        serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        AsyncOpenAI(base_url=f"{served.url}/v1", api_key="alice") as client,
        client.responses.connect() as connection,
    ):

        async def run(**fields: Any) -> Any:
            await connection.response.create(model="assistant", **fields)
            while True:
                event = await connection.recv()
                if event.type == "response.completed":
                    return event.response

        first = await run(input="Go")
        [asked] = first.output
        assert asked.type == "mcp_approval_request"
        decision = {"type": "mcp_approval_response", "approval_request_id": asked.id, "approve": True}
        second = await run(input=[decision], previous_response_id=first.id)
        assert second.output_text == "Deployed."
        assert (await client.responses.retrieve(second.id)).output_text == "Deployed."
        third = await run(input="Again", previous_response_id=second.id)
        assert third.output_text == "Again."


async def test_an_input_steers_a_running_response(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    agent = scripted(call("hold"), say("Faster."), call("pick"), say("Picked."), tools=[hold])
    async with serve([agent]) as served, connect(served) as socket, served.client() as client:
        body = {"type": "response.create", "model": "assistant", "input": "Go", "stream_id": "a", "tools": [PICK]}
        await socket.send(json.dumps(body))
        [created] = await read_until(socket, "response.created")
        await started.wait()
        steer = {"type": "response.steer", "previous_response_id": created["response"]["id"]}
        for input in ("Faster", "Slower", "", [{"type": "function_call_output", "call_id": "x", "output": ""}]):
            await socket.send(json.dumps(steer | {"input": input}))
        replies = [(await read_until(socket, *STEER_REPLIES))[-1] for _ in range(4)]
        assert [reply["error"]["code"] if "error" in reply else "" for reply in replies] == [
            "",
            "too_many_pending_steers",
            "invalid_input",
            "invalid_input",
        ]
        assert replies[1]["steer"]["input"] == "Slower"
        go_on.set()
        steered = (await read_until(socket, "response.incomplete"))[-1]["response"]
        assert steered["incomplete_details"] == {"reason": "steered"}
        assert [item["output"] for item in steered["output"]] == ["held"]
        successor = await read_until(socket, "response.completed")
        assert {event["stream_id"] for event in successor} == {"a"}
        final = successor[-1]["response"]
        assert final["output"][-1]["content"][0]["text"] == "Faster."
        assert (final["previous_response_id"], final["conversation"]) == (steered["id"], steered["conversation"])
        for response in (steered, final):
            assert (await client.get(f"/v1/responses/{response['id']}")).json() == response
        items = (await client.get(f"/v1/responses/{final['id']}/input_items")).json()["data"]
        assert items[0]["content"] == [{"type": "input_text", "text": "Faster"}]
        await socket.send(json.dumps(steer | {"input": "Late"}))
        [refused] = await read_until(socket, "response.steer.failed")
        assert refused["error"]["code"] == "response_not_found"


async def test_a_steering_input_waits_while_the_response_needs_a_result(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    agent = scripted(calls(call("hold"), call("pick")), say("Blue."), tools=[hold])
    async with serve([agent]) as served, connect(served) as socket:
        body = {"type": "response.create", "model": "assistant", "tools": [PICK]}
        await socket.send(json.dumps(body | {"input": "Go"}))
        [created] = await read_until(socket, "response.created")
        await started.wait()
        steer = {"type": "response.steer", "previous_response_id": created["response"]["id"], "input": "Blue, please"}
        await socket.send(json.dumps(steer))
        accepted = (await read_until(socket, *STEER_REPLIES))[-1]
        go_on.set()
        pending = (await read_until(socket, "response.steer.pending"))[-1]
        assert pending["steer"] == accepted["steer"]
        [needed] = pending["required_input"]
        assert (needed["type"], needed["name"]) == ("function_call_output", "pick")
        answer = body | {"input": [needed | {"output": "blue"}], "previous_response_id": created["response"]["id"]}
        await socket.send(json.dumps(answer))
        last = (await read_until(socket, "response.completed"))[-1]["response"]
        assert last["output"][-1]["content"][0]["text"] == "Blue."


async def test_a_steering_input_waits_while_the_response_needs_a_decision(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    agent = scripted(calls(call("hold"), call("deploy")), say("Deployed."), tools=[hold, deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, connect(served) as socket:
        await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "Go"}))
        [created] = await read_until(socket, "response.created")
        await started.wait()
        steer = {"type": "response.steer", "previous_response_id": created["response"]["id"], "input": "At once"}
        await socket.send(json.dumps(steer))
        await read_until(socket, *STEER_REPLIES)
        go_on.set()
        pending = (await read_until(socket, "response.steer.pending"))[-1]
        [needed] = pending["required_input"]
        assert needed["type"] == "mcp_approval_response"
        answer = {"previous_response_id": created["response"]["id"], "input": [needed | {"approve": True}]}
        await socket.send(json.dumps({"type": "response.create", "model": "assistant", **answer}))
        last = (await read_until(socket, "response.completed"))[-1]["response"]
        assert last["output"][-1]["content"][0]["text"] == "Deployed."


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        ("{", "invalid_json"),
        ("[]", "invalid_body"),
        ('{"type": "response.stop"}', "invalid_input"),
        ('{"type": "response.create", "model": "unknown", "input": "Hi"}', "model_not_found"),
        ('{"type": "response.create", "model": "assistant"}', "invalid_input"),
        ('{"type": "response.steer"}', "invalid_input"),
    ],
)
async def test_a_bad_frame_gets_an_error_and_the_next_one_an_answer(
    serve: Serve, scripted: Scripted, frame: str, code: str
) -> None:
    async with serve([scripted(say("Hi."))]) as served, connect(served) as socket:
        await socket.send(frame)
        [error] = await read_until(socket, "error")
        assert error["error"]["code"] == code
        assert error["status"] in (400, 404, 422)
        await socket.send(json.dumps({"type": "response.create", "model": "assistant", "input": "Hi"}).encode())
        assert (await read_until(socket, "response.completed"))[-1]["response"]["status"] == "completed"


async def test_a_handshake_needs_a_known_host_origin_token_and_scope(serve: Serve, scripted: Scripted) -> None:
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    refused = [
        ("wrong", {}, 401),
        ("reader", {}, 403),
        ("alice", {"Origin": "https://evil.example"}, 403),
        ("alice", {"Host": "evil.example"}, 403),
    ]
    async with serve([scripted(say("Hi."))]) as served:
        for token, headers, status in refused:
            async with served.client(token) as client:
                answer = await client.get("/v1/responses", headers=upgrade | headers)
                assert answer.status_code == status
                assert bool(headers) or answer.json()["error"]["message"]


async def test_a_connection_has_a_limit_of_lanes_and_ends_with_the_server(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(max_streams=1)
    async with serve([scripted(say("Hi."))], settings=settings) as served, connect(served) as socket:
        for lane in range(17):
            body = {"type": "response.create", "model": "assistant", "input": "Hi", "stream_id": str(lane)}
            await socket.send(json.dumps(body))
        events = await read_until(socket, "error")
        assert (events[-1]["error"]["code"], events[-1]["stream_id"]) == ("too_many_lanes", "16")
        with pytest.raises(websockets.ConnectionClosed):
            async with connect(served) as other:
                await other.recv()
        served.service.drain()
        with pytest.raises(websockets.ConnectionClosed):
            await read_until(socket, "none of these")
        assert socket.close_code == 1012
        async with asyncio.timeout(60), connect(served) as late:
            await late.wait_closed()
        assert late.close_code == 1012


async def test_a_connection_ends_when_its_credential_does(serve: Serve, scripted: Scripted) -> None:
    async def is_valid(principal: Principal) -> bool:
        return principal.id != "alice"

    async with serve([scripted(say("Hi."))]) as served, connect(served) as socket:
        await socket.send("{")
        await read_until(socket, "error")
        await served.service.streams.end_expired(is_valid)
        await socket.wait_closed()
        assert socket.close_code == 1008


async def test_a_lane_has_a_limit_of_requests_that_wait(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(stall())]) as served, connect(served) as socket, served.client() as client:
        body = {"type": "response.create", "model": "assistant", "input": "Hi"}
        await socket.send(json.dumps(body))
        [created] = await read_until(socket, "response.created")
        for _ in range(65):
            await socket.send(json.dumps(body))
        error = (await read_until(socket, "error"))[-1]
        assert (error["status"], error["error"]["code"]) == (429, "too_many_requests")
        await socket.close()
        await client.post(f"/v1/responses/{created['response']['id']}/cancel")


async def test_every_frame_counts_as_a_request(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."), say("Ho."))]) as served:
        served.service.guard.limiter = RateLimiter(FakeClock(), requests_per_minute=5, burst=5)
        async with connect(served) as socket:
            for _ in range(5):
                await socket.send('{"type": "response.create", "model": "none"}')
            errors = [json.loads(await socket.recv()) for _ in range(5)]
            assert sorted(error["status"] for error in errors) == [400, 400, 400, 400, 429]
