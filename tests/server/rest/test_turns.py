"""Turns through the native API: started, streamed, waited for, steered, cancelled and found again."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import msgspec
import pytest

import vaka
from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.server.settings import ServerSettings
from vaka.testing import call, say

Scripted = Callable[..., Agent]
API = "/api/v1"


@vaka.tool
def deploy(place: str = "here") -> str:
    """Deploy it."""
    return f"deployed {place}"


class Gate:
    """A tool that waits until the test opens it."""

    def __init__(self) -> None:
        self.entered, self.opened = asyncio.Event(), asyncio.Event()
        self.count = 0
        """The number of calls so far."""

    def has_counted(self, calls: int) -> bool:
        return self.count == calls

    @property
    def tool(self) -> Any:
        @vaka.tool
        async def hold() -> str:
            """Wait for the gate."""
            self.count += 1
            self.entered.set()
            await self.opened.wait()
            return "open"

        return hold


def read_frames(text: str) -> list[dict[str, Any]]:
    """Return the data of the frames of an event stream, with the id of each under ``_id``."""
    frames: list[dict[str, Any]] = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line and not line.startswith(":"))
        if "data" in fields:
            frames.append(
                {**msgspec.json.decode(fields["data"]), "_id": fields.get("id", ""), "_name": fields["event"]}
            )
    return frames


async def start(client: httpx2.AsyncClient, session: str = "s", **body: Any) -> httpx2.Response:
    body = {"input": "Go.", "agent": "assistant", **body}
    return await client.post(f"{API}/sessions/{quote(session)}/turns", json=body)


async def test_a_turn_is_streamed_as_its_stored_events_to_the_end(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hello there."))]) as served, served.client() as client:
        answer = await start(client, stream=True)
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.text.startswith(": open\nretry: 1000\n\n")
        frames = read_frames(answer.text)
        types = [frame["type"] for frame in frames]
        assert types[-2:] == ["turn.completed", "stream.end"]
        assert "text.delta" in types
        assert all(frame["_id"] == frame.get("id", "") and frame["_name"] == frame["type"] for frame in frames)
        log = (await client.get(f"{API}/sessions/s/events")).json()
        assert [frame for frame in frames if frame["_id"]] == [
            {**event, "_id": event["id"], "_name": event["type"]} for event in log["data"]
        ]
        assert (log["data"][0]["type"], log["data"][0]["data"]["owner"]) == ("session.opened", "alice")
        key = answer.headers["content-location"].rpartition("/")[2]
        turn = (await client.get(f"{API}/sessions/s/turns/{key}")).json()
        assert (turn["status"], turn["text"], turn["key"], turn["stop"]) == ("completed", "Hello there.", key, "end")
        again = await client.get(f"{API}/threads/s/runs/{turn['id']}", headers={"Accept": "text/event-stream"})
        assert [frame["type"] for frame in read_frames(again.text)][-2:] == ["turn.completed", "stream.end"]
        rest = await client.get(
            f"{API}/sessions/s/turns/{turn['id']}",
            headers={"Accept": "text/event-stream", "Last-Event-ID": frames[-3]["_id"]},
        )
        assert [frame["type"] for frame in read_frames(rest.text)][-2:] == ["turn.completed", "stream.end"]


async def test_a_turn_is_waited_for_and_then_listed(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="there"), say("Done."), say("Again."), tools=[deploy])
    async with serve([agent]) as served, served.client() as client:
        first = await start(client)
        assert first.status_code == 200
        turn = first.json()
        assert turn["tool_calls"] == ["deploy"]
        assert (turn["steps"], turn["status"], turn["text"]) == (2, "completed", "Done.")
        assert turn["usage"]["total"] == turn["usage"]["input"] + turn["usage"]["output"]
        assert first.headers["location"].endswith(f"/turns/{turn['id']}")
        second = (await start(client)).json()
        listed = (await client.get(f"{API}/sessions/s/turns")).json()
        assert listed == {"data": [second, turn], "next_cursor": None, "has_more": False}
        page = (await client.get(f"{API}/sessions/s/turns", params={"limit": 1})).json()
        assert (page["data"], page["has_more"]) == ([second], True)
        rest = (await client.get(f"{API}/sessions/s/turns", params={"limit": 1, "cursor": page["next_cursor"]})).json()
        assert rest["data"] == [turn]
        assert (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json() == turn
        cancelled = await client.post(f"{API}/sessions/s/turns/{turn['id']}/cancel")
        assert (cancelled.status_code, cancelled.json()) == (202, turn)


async def test_a_failed_turn_says_why(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted()]) as served, served.client() as client:
        turn = (await start(client)).json()
        assert turn["status"] == "failed"
        assert turn["error"]["code"]
        assert turn["error"]["message"]


async def test_a_turn_that_needs_a_decision_returns_with_it(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="there"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        turn = (await start(client)).json()
        assert turn["status"] == "waiting"
        [decision] = turn["decisions"]
        assert decision["kind"] == "approval"
        assert decision["call"]["name"] == "deploy"
        assert decision["call"]["arguments"] == {"place": "there"}
        assert (await client.post(f"{API}/sessions/s/turns/current/wait", params={"timeout": 0.01})).json() == turn
        assert (await client.get(f"{API}/sessions/s")).json()["status"] == "waiting"
        stopped = await client.post(f"{API}/sessions/s/turns/current/cancel", json={"note": "Enough."})
        assert stopped.status_code == 202
        ended = (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()
        assert ended["status"] == "interrupted"
        assert ended["error"]["message"] == "Enough."


async def test_the_usage_of_a_turn_grows_while_it_runs_and_waits(serve: Serve, scripted: Scripted) -> None:
    gate, cost = Gate(), {"usage": {"input": 3, "output": 2}}
    steps = [call("hold") | cost, call("deploy", place="there") | cost, say("Done.") | cost]
    async with (
        serve(
            [scripted(*steps, tools=[gate.tool, deploy])], permissions=vaka.Permissions(confirm=["deploy"])
        ) as served,
        served.client() as client,
    ):
        started = (await start(client, background=True)).json()
        await gate.entered.wait()
        running = (await client.get(f"{API}/sessions/s/turns/current")).json()
        assert (running["status"], running["usage"]["total"]) == ("running", 5)
        assert (await client.get(f"{API}/sessions/s/turns")).json()["data"] == [running]
        gate.opened.set()
        waiting = (await client.post(f"{API}/sessions/s/turns/{started['key']}/wait")).json()
        assert (waiting["status"], waiting["usage"]["input"], waiting["usage"]["output"]) == ("waiting", 6, 4)
        await client.post(f"{API}/approvals/{waiting['decisions'][0]['id']}/resolve", json={"decision": "approve"})
        ended = (await client.post(f"{API}/sessions/s/turns/{started['key']}/wait")).json()
        assert (ended["status"], ended["usage"]["total"]) == ("completed", 15)


async def test_the_usage_of_a_running_turn_counts_what_it_took_back(serve: Serve, scripted: Scripted) -> None:
    gate, cost = Gate(), {"usage": {"input": 3, "output": 2}}
    back = call("DMail", message="Hold.", checkpoint_id=0)
    steps = [call("deploy", place="there") | cost, back | cost, call("hold") | cost, say("Done.") | cost]
    agent = scripted(*steps, tools=[gate.tool, deploy, "DMail"])
    async with serve([agent]) as served, served.client() as client:
        started = (await start(client, background=True)).json()
        await gate.entered.wait()
        for path in ("turns/current", f"turns/{started['key']}"):
            assert (await client.get(f"{API}/sessions/s/{path}")).json()["usage"]["total"] == 15
        [listed] = (await client.get(f"{API}/sessions/s/turns")).json()["data"]
        assert (listed["status"], listed["usage"]["total"]) == ("running", 15)
        gate.opened.set()
        ended = (await client.post(f"{API}/sessions/s/turns/{started['key']}/wait")).json()
        assert (ended["text"], ended["usage"]["total"]) == ("Done.", 20)


async def test_a_turn_that_waited_before_a_restart_is_cancelled_at_once(
    serve: Serve, scripted: Scripted, tmp_path: Path
) -> None:
    agent, store = scripted(call("deploy", place="there"), tools=[deploy]), f"sqlite:///{tmp_path}/vaka.db"
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        turn = (await start(client)).json()
    async with (
        serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        stopped = await client.post(f"{API}/sessions/s/turns/{turn['id']}/cancel", json={"note": "Enough."})
    assert (turn["status"], stopped.status_code, stopped.json()["status"]) == ("waiting", 202, "interrupted")


async def test_a_turn_in_the_background_is_steered_and_another_input_waits_for_it(
    serve: Serve, scripted: Scripted
) -> None:
    gate = Gate()
    agent = scripted(call("hold"), say("Steered."), say("Second."), tools=[gate.tool])
    async with serve([agent]) as served, served.client() as client:
        started = await start(client, background=True)
        assert started.status_code == 202
        await gate.entered.wait()
        turn = (await client.get(f"{API}/sessions/s/turns/current")).json()
        assert (turn["status"], turn["key"]) == ("running", started.json()["key"])
        queued = (await start(client, input="Next.", background=True)).json()
        assert (queued["id"], queued["status"]) == ("", "queued")
        withdrawn = (await start(client, input="Never.", background=True)).json()
        gone = (await client.post(f"{API}/sessions/s/turns/{withdrawn['key']}/cancel")).json()
        assert gone["status"] == "cancelled"
        listed = (await client.get(f"{API}/sessions/s/turns")).json()["data"]
        assert [each["key"] for each in listed] == [queued["key"], turn["key"]]
        rejected = await start(client, on_conflict="reject")
        assert (rejected.status_code, rejected.json()["code"]) == (409, "busy")
        steered = await client.post(f"{API}/sessions/s/turns/current/steer", json={"input": "Faster."})
        assert (steered.status_code, steered.json()["id"]) == (202, turn["id"])
        early = (await client.post(f"{API}/sessions/s/turns/current/wait", params={"timeout": 0})).json()
        assert early["status"] == "running"
        gate.opened.set()
        assert (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()["text"] == "Steered."
        second = (await client.post(f"{API}/sessions/s/turns/{queued['key']}/wait")).json()
        assert (second["status"], second["text"]) == ("completed", "Second.")


async def test_requests_for_a_turn_that_does_not_run_are_conflicts(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        assert (await start(client)).status_code == 200
        for action, body in (("cancel", {}), ("steer", {"input": "Faster."}), ("wait", None)):
            answer = await client.post(f"{API}/sessions/s/turns/current/{action}", json=body)
            assert (answer.status_code, answer.json()["code"]) == (409, "no_turn")
        missing = await client.get(f"{API}/sessions/s/turns/trn_missing")
        assert (missing.status_code, missing.json()["code"]) == (404, "not_found")


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_stops_its_turn_if_it_said_so(
    serve: Serve, scripted: Scripted, stream: bool
) -> None:
    gate = Gate()
    agent = scripted(call("hold"), say("Done."), tools=[gate.tool])
    async with serve([agent]) as served, served.client() as client, served.client() as leaving:
        request = asyncio.create_task(start(leaving, on_disconnect="cancel", stream=stream))
        await gate.entered.wait()
        turn = (await client.get(f"{API}/sessions/s/turns/current")).json()["id"]
        request.cancel()
        await asyncio.wait([request])
        assert (await client.post(f"{API}/sessions/s/turns/{turn}/wait")).json()["status"] == "interrupted"


async def test_a_turn_goes_on_when_its_client_leaves(serve: Serve, scripted: Scripted) -> None:
    gate = Gate()
    agent = scripted(call("hold"), say("Done."), tools=[gate.tool])
    async with serve([agent]) as served, served.client() as client, served.client() as leaving:
        request = asyncio.create_task(start(leaving, stream=True))
        await gate.entered.wait()
        turn = (await client.get(f"{API}/sessions/s/turns/current")).json()["id"]
        request.cancel()
        await asyncio.wait([request])
        gate.opened.set()
        assert (await client.post(f"{API}/sessions/s/turns/{turn}/wait")).json()["text"] == "Done."


async def test_a_model_that_the_server_does_not_have_is_the_callers_mistake(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        refused = await start(client, model="anthropc/x")
        assert (refused.status_code, refused.json()["code"]) == (422, "config")
        assert refused.json()["detail"] == "model 'anthropc/x' is not known; did you mean 'anthropic/x'?"


async def test_an_input_for_an_agent_without_a_usable_model_is_refused_and_not_queued(serve: Serve) -> None:
    async with serve([Agent("assistant", model="scripted:absent.jsonl")]) as served, served.client() as client:
        address, body = f"{API}/sessions/s/turns", {"input": "Go.", "agent": "assistant", "background": True}
        refused = await client.post(address, json=body, headers={"Idempotency-Key": "one"})
        assert (refused.status_code, refused.json()["code"]) == (500, "config")
        assert "absent.jsonl cannot be read" in refused.json()["detail"]
        assert (await client.get(f"{API}/sessions/s")).status_code == 404


@pytest.mark.parametrize("tool", [{"name": "deploy"}, {"name": "two words"}, {"name": "x", "parameters": {"type": 3}}])
async def test_a_tool_of_the_client_that_cannot_be_added_is_refused_before_a_session_exists(
    serve: Serve, scripted: Scripted, tool: dict[str, Any]
) -> None:
    async with serve([scripted(say("Hi."), tools=[deploy])]) as served, served.client() as client:
        assert (await start(client, client_tools=[tool])).status_code == 400
        assert (await client.get(f"{API}/sessions")).json()["data"] == []


async def test_a_session_is_created_only_for_a_named_agent(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        missing = await client.post(f"{API}/sessions/s/turns", json={"input": "Go."})
        assert missing.status_code == 404
        assert missing.json()["detail"] == "there is no session 's'; a request with an `agent` creates it"
        assert (await start(client, if_not_exists="reject")).status_code == 404
        assert (await start(client, agent="unknown")).status_code == 404
        assert (await client.get(f"{API}/sessions")).json()["data"] == []
        assert (await start(client)).status_code == 200


async def test_inputs_that_are_not_valid_name_the_field(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        blob = {"type": "image", "blob": "0" * 64}
        for body, field in (
            ({"input": "Go.", "colour": 1}, "colour"),
            ({"agent": "assistant"}, "input"),
            ({"input": [{"type": "stored", "blob": "0"}]}, "input[0].type"),
            ({"input": [blob], "agent": "assistant"}, "input[0].blob"),
            ({"input": "Go.", "on_conflict": "fight"}, "on_conflict"),
        ):
            answer = await client.post(f"{API}/sessions/s/turns", json=body)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, field)
        fighting = await start(client, on_conflict="fight")
        assert fighting.json()["detail"].endswith("; expected reject, enqueue, interrupt, rollback, steer")
        assert (await start(client, input="  ")).status_code == 400
        bad = await client.post(f"{API}/sessions/s/turns", content=b"{")
        assert (bad.status_code, bad.json()["code"]) == (400, "invalid_json")


async def test_a_turn_is_streamed_in_the_forms_of_other_libraries(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("One."), say("Two."), say("Three."))]) as served, served.client() as client:
        for format, name in (("lumos", "GenerationComplete"), ("genx", "chunk"), ("agentsdk", "message_stop")):
            answer = await client.post(
                f"{API}/sessions/s/turns?format={format}", json={"input": "Go.", "agent": "assistant", "stream": True}
            )
            names = [frame["_name"] for frame in read_frames(answer.text)]
            assert name in names
            assert names[-1] == "stream.end"
        bad = await client.post(f"{API}/sessions/s/turns?format=morse", json={"input": "Go."})
        assert (bad.status_code, bad.json()["errors"][0]["field"]) == (422, "format")


async def test_bodies_that_are_too_large_or_too_slow_are_refused(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(max_body_bytes=1000, body_timeout=1.0)
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        large = await start(client, input="x" * 2000)
        assert (large.status_code, large.json()["code"]) == (413, "body_too_large")

        async def chunks() -> AsyncGenerator[bytes]:
            for _ in range(3):
                yield b" " * 500

        unsized = await client.post(f"{API}/sessions/s/turns", content=chunks())
        assert (unsized.status_code, unsized.json()["code"]) == (413, "body_too_large")
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
        head = f"POST {API}/sessions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer alice\r\n"
        writer.write(f"{head}Content-Length: 10\r\n\r\n{{".encode())
        assert (await reader.readline()).split()[1] == b"408"
        writer.close()
        await writer.wait_closed()
        assert (await client.get(f"{API}/sessions")).json()["data"] == []


class City(msgspec.Struct):
    name: str


async def test_a_turn_of_an_agent_with_an_output_type_has_the_output(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say('{"name": "Hilo"}'), output=City)
    async with serve([agent]) as served, served.client() as client:
        turn = (await start(client, "Ströme?")).json()
        assert turn["output"] == {"name": "Hilo"}
        served.service.agents = {}
        listed = (await client.get(f"{API}/sessions/Ströme%3F/turns")).json()["data"]
        assert [each["id"] for each in listed] == [turn["id"]]
        assert "output" not in listed[0]
        served.service.agents = {"assistant": scripted(output=int)}
        assert "output" not in (await client.get(f"{API}/sessions/Ströme%3F/turns/{turn['id']}")).json()


async def test_a_client_that_leaves_takes_its_queued_input_back(serve: Serve, scripted: Scripted) -> None:
    gate = Gate()
    agent = scripted(call("hold"), say("Done."), say("Never."), tools=[gate.tool])
    async with serve([agent]) as served, served.client() as client, served.client() as leaving:
        first = (await start(client, background=True)).json()
        await gate.entered.wait()
        request = asyncio.create_task(start(leaving, input="Second.", on_disconnect="cancel"))
        while not (await client.get(f"{API}/sessions/s")).json()["inputs"]:
            continue
        request.cancel()
        await asyncio.wait([request])
        while (await client.get(f"{API}/sessions/s")).json()["inputs"]:
            continue
        gate.opened.set()
        assert (await client.post(f"{API}/sessions/s/turns/{first['key']}/wait")).json()["text"] == "Done."
        assert len((await client.get(f"{API}/sessions/s/turns")).json()["data"]) == 1
