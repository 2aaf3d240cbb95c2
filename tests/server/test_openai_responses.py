"""The Responses API over a real socket: stored responses, resuming, decisions, branches and deletion."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.conftest import PRINCIPALS, Serve, Served
from vaka.agents.react import Agent
from vaka.core.ports.store import SessionQuery
from vaka.core.ports.values import session_values_prefix
from vaka.core.types.ids import parse_session_id
from vaka.runtime.options import Environment
from vaka.testing import FakeClock, call, calls, fail, say, stall

Scripted = Callable[..., Agent]
Json = dict[str, Any]


@vaka.tool
def deploy(place: str = "") -> str:
    """Deploy it."""
    return f"deployed {place}"


PICK = {"type": "function", "name": "pick", "parameters": {"type": "object", "properties": {}}}


async def create(client: httpx2.AsyncClient, input: Any, *, status: int = 200, **fields: Any) -> Json:
    answer = await client.post("/v1/responses", json={"model": "assistant", "input": input, **fields})
    assert answer.status_code == status, answer.text
    found: Json = answer.json()
    return found


def events_of(text: str) -> list[Json]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


def text_of(response: Json) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def join_deltas(events: list[Json]) -> list[Json]:
    """Return the events with adjacent deltas as one: what is stored is sent in one piece."""
    joined: list[Json] = []
    for event in events:
        if joined and event["type"].endswith(".delta") and joined[-1]["type"] == event["type"]:
            event = {**event, "delta": joined.pop()["delta"] + event["delta"]}
        joined.append(event)
    return joined


async def sessions_of(served: Served) -> list[str]:
    return [info.id for info in (await served.service.runtime.store.sessions.list(SessionQuery())).sessions]


async def test_a_stored_response_is_found_again_and_goes_on(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(say("Hello."), say("Again."), say("Third."))
    async with serve([agent]) as served, served.client() as client:
        first = await create(client, "Hi", metadata={"k": "v"})
        assert (first["status"], text_of(first), first["metadata"]) == ("completed", "Hello.", {"k": "v"})
        assert (await client.get(f"/v1/responses/{first['id']}")).json() == first
        second = await create(client, "And?", previous_response_id=first["id"])
        assert (text_of(second), second["previous_response_id"]) == ("Again.", first["id"])
        assert second["conversation"] == first["conversation"]
        third = await create(client, "More", conversation=first["conversation"]["id"])
        assert text_of(third) == "Third."
        branch = await create(client, "Or?", previous_response_id=first["id"])
        assert text_of(branch) == "Again."  # a copy of the session has read one line of the script
        assert branch["conversation"] != first["conversation"]
        assert len(await sessions_of(served)) == 2
        items = (await client.get(f"/v1/responses/{second['id']}/input_items")).json()
        assert [item["content"] for item in items["data"]] == [[{"type": "input_text", "text": "And?"}]]
        assert items["first_id"] == items["last_id"]
        for token in ("bob", "carol"):
            async with served.client(token) as other:
                for path in ("", "/input_items"):
                    answer = await other.get(f"/v1/responses/{first['id']}{path}")
                    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
                assert (await other.post(f"/v1/responses/{first['id']}/cancel")).status_code == 404
                assert (await other.delete(f"/v1/responses/{first['id']}")).status_code == 404
                body = {"model": "assistant", "input": "Hi", "previous_response_id": first["id"]}
                answer = await other.post("/v1/responses", json=body)
                assert answer.json()["error"]["code"] == "previous_response_not_found"
                assert answer.json()["error"]["param"] == "previous_response_id"
        deleted = await client.delete(f"/v1/responses/{first['id']}")
        assert deleted.json() == {"id": first["id"], "object": "response", "deleted": True}
        assert (await client.get(f"/v1/responses/{first['id']}")).status_code == 404
        assert (await client.post(f"/v1/responses/{second['id']}/cancel")).json() == second


async def test_a_stream_is_resumed_after_any_event(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy", place="here"), say("All done."), tools=[deploy])
    async with serve([agent]) as served, served.client() as client:
        body = {"model": "assistant", "input": "Go", "stream": True}
        answer = await client.post("/v1/responses", json=body)
        events = events_of(answer.text)
        assert answer.text.startswith("event: response.created\n")
        final = events[-1]["response"]
        assert [item["type"] for item in final["output"]] == ["mcp_call", "message"]
        assert final["output"][0]["output"] == "deployed here"
        numbers = [event["sequence_number"] for event in events]
        assert numbers == sorted(numbers)
        address = f"/v1/responses/{final['id']}?stream=true"
        whole = events_of((await client.get(address)).text)
        assert whole[-1] == events[-1]
        for at in (0, 3, len(events) - 2, len(events) - 1):
            rest = events_of((await client.get(f"{address}&starting_after={numbers[at]}")).text)
            assert join_deltas(rest) == join_deltas(events[at + 1 :])
        for wrong in (numbers[-1] + 1, "soon"):
            answer = await client.get(f"{address}&starting_after={wrong}")
            assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


async def test_a_background_response_runs_without_its_client_and_can_be_cancelled(
    serve: Serve, scripted: Scripted
) -> None:
    async with serve([scripted(stall())]) as served, served.client() as client:
        first = await create(client, "Go", background=True)
        assert first["status"] in ("queued", "in_progress")
        queued = await create(client, "Then", background=True, previous_response_id=first["id"])
        assert queued["status"] == "queued"
        assert (await client.get(f"/v1/responses/{queued['id']}")).json() == queued
        async with client.stream("GET", f"/v1/responses/{first['id']}?stream=true") as stream:
            lines = stream.aiter_lines()
            assert await anext(lines) == "event: response.created"
            withdrawn = (await client.post(f"/v1/responses/{queued['id']}/cancel")).json()
            assert (withdrawn["id"], withdrawn["status"]) == (queued["id"], "cancelled")
            cancelled = (await client.post(f"/v1/responses/{first['id']}/cancel")).json()
            assert (cancelled["id"], cancelled["status"]) == (first["id"], "cancelled")
            text = "\n".join([line async for line in lines])
        assert events_of(text)[-1]["response"] == cancelled
        assert (await client.get(f"/v1/responses/{first['id']}")).json() == cancelled


async def test_approvals_are_decided_by_items(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(
        calls(call("deploy", place="a"), call("deploy", place="b")),
        call("deploy", place="c"),
        say("Done."),
        tools=[deploy],
    )
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        first = await create(client, "Go")
        asked = [item for item in first["output"] if item["type"] == "mcp_approval_request"]
        assert [item["arguments"] for item in asked] == ['{"place":"a"}', '{"place":"b"}']
        early = await create(client, "Well?", previous_response_id=first["id"], status=400)
        assert early["error"]["code"] == "decision_needed"
        yes, no = ({"type": "mcp_approval_response", "approval_request_id": item["id"]} for item in asked)
        answers = [{**yes, "approve": True}, {**no, "approve": False, "reason": "not there"}]
        second = await create(client, answers, previous_response_id=first["id"])
        outcome = [(item["type"], item.get("output")) for item in second["output"]]
        assert outcome[0] == ("mcp_call", "deployed a")
        assert outcome[-1] == ("mcp_approval_request", None)
        assert second["id"] != first["id"]
        assert (await client.get(f"/v1/responses/{first['id']}")).json() == first
        assert (await client.get(f"/v1/responses/{second['id']}")).json() == second
        items = (await client.get(f"/v1/responses/{second['id']}/input_items")).json()["data"]
        assert [(item["type"], item["approve"], item["reason"]) for item in items] == [
            ("mcp_approval_response", True, None),
            ("mcp_approval_response", False, "not there"),
        ]
        request = second["output"][-1]
        last = [{"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}]
        third = await create(client, [first["output"][0], *last])  # without previous_response_id, as agents send it
        assert text_of(third) == "Done."
        again = await create(client, last, previous_response_id=second["id"], status=400)
        assert again["error"]["code"] == "nothing_waits"


async def test_functions_of_the_client_run_between_responses(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("pick"), say("Red."), call("pick"), say("Blue."))
    async with serve([agent]) as served, served.client() as client:
        first = await create(client, "Pick", tools=[PICK])
        [made] = first["output"]
        assert (made["type"], made["name"], made["arguments"]) == ("function_call", "pick", "{}")
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "red"}
        said = {"role": "user", "content": "Quick!"}
        second = await create(client, [result, said], previous_response_id=first["id"], tools=[PICK])
        assert text_of(second) == "Red."
        opened = await served.service.open_session(PRINCIPALS["alice"], first["conversation"]["id"])
        assert [type(message).__name__ for message in await opened.messages()] == [
            "UserMessage",
            "AssistantMessage",
            "ToolMessage",
            "UserMessage",
            "AssistantMessage",
        ]


async def test_a_client_may_send_all_items_instead_of_naming_a_response(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("pick"), say("Red."), call("pick"), say("Blue."))
    async with serve([agent]) as served, served.client() as client:
        items: list[Json] = []
        for number, colour in enumerate(("red", "blue")):
            items.append({"role": "user", "content": f"Pick {number}"})
            asked = await create(client, items, tools=[PICK])
            [made] = asked["output"]
            items += [made, {"type": "function_call_output", "call_id": made["call_id"], "output": colour}]
            answered = await create(client, items, tools=[PICK])
            assert text_of(answered) == f"{colour.capitalize()}."
            items += answered["output"]
        assert len(await sessions_of(served)) == 1


async def test_a_response_that_is_not_stored_leaves_nothing(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("pick"), say("Red."), say("More."))
    async with serve([agent]) as served, served.client() as client:
        kept = await create(client, "Pick", tools=[PICK])
        output = {"type": "function_call_output", "call_id": kept["output"][0]["call_id"], "output": "red"}
        kept = await create(client, [output], previous_response_id=kept["id"], tools=[PICK])
        forked = await create(client, "More", previous_response_id=kept["id"], store=False)
        assert text_of(forked) == "More."
        first = await create(client, "Pick", tools=[PICK], store=False)
        assert (await client.get(f"/v1/responses/{first['id']}")).status_code == 404
        made = first["output"][0]
        result = {"type": "function_call_output", "call_id": made["call_id"], "output": "red"}
        messages = [{"role": "user", "content": "Pick"}, made, result]
        second = await create(client, messages, tools=[PICK], store=False)
        assert text_of(second) == "Red."
        assert second["conversation"] == first["conversation"]
        while len(await sessions_of(served)) > 1:  # the session is deleted after the answer was sent
            await client.get("/v1/models")
        assert await sessions_of(served) == [kept["conversation"]["id"]]
        assert (await create(client, "Pick", tools=[PICK], store=False))["output"]  # it waits when the server stops
        refused = await create(client, "Hi", store=False, background=True, status=400)
        assert "background" in refused["error"]["message"]


async def test_a_request_with_an_idempotency_key_is_one_response(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Once."), say("Twice."))]) as served, served.client() as client:
        headers = {"Idempotency-Key": "k"}
        body = {"model": "assistant", "input": "Hi"}
        first, second = [(await client.post("/v1/responses", json=body, headers=headers)).json() for _ in range(2)]
        assert first == second
        assert text_of(first) == "Once."
        assert len(await sessions_of(served)) == 1


async def test_a_turn_that_fails_is_a_failed_response(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(fail(400, "no such thing"))]) as served, served.client() as client:
        refused = await create(client, "Hi", status=400)
        assert "no such thing" in refused["error"]["message"]
        later = await create(client, "Hi", background=True)
        await client.get(f"/v1/responses/{later['id']}", params={"stream": "true"})
        failed = (await client.get(f"/v1/responses/{later['id']}")).json()
        assert failed["status"] == "failed"
        assert "no such thing" in failed["error"]["message"]


async def test_a_queued_stream_ends_when_its_input_is_withdrawn(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(stall())]) as served, served.client() as client:
        first = await create(client, "Go", background=True)
        session = first["conversation"]["id"]
        queued = await create(client, "Then", background=True, previous_response_id=first["id"])
        body = {"model": "assistant", "input": "Last", "stream": True, "previous_response_id": queued["id"]}
        async with client.stream("POST", "/v1/responses", json=body) as stream:
            assert stream.headers["x-vaka-session"] == session
            keys = await served.service.runtime.store.values.keys(session_values_prefix(session))
            [last] = {key.rpartition("/")[2] for key in keys} - {first["id"], queued["id"]}
            assert (await client.post(f"/v1/responses/{last}/cancel")).json()["status"] == "cancelled"
            [event] = events_of("\n".join([line async for line in stream.aiter_lines()]))
        assert (event["type"], event["response"]["status"]) == ("response.incomplete", "cancelled")
        await client.post(f"/v1/responses/{queued['id']}/cancel")
        await client.post(f"/v1/responses/{first['id']}/cancel")


async def test_ephemeral_sessions_of_earlier_processes_are_deleted(serve: Serve, scripted: Scripted) -> None:
    clock = FakeClock()
    async with serve([scripted(say("Hi."))], environment=Environment(clock=clock)) as served, served.client() as client:
        left = await served.service.create_session(PRINCIPALS["alice"], id="left", tags=["ephemeral"])
        await served.service.create_session(PRINCIPALS["alice"], id="kept")
        clock.advance(7200)
        await served.service.create_session(PRINCIPALS["alice"], id="new", tags=["ephemeral"])
        assert text_of(await create(client, "Hi", store=False)) == "Hi."
        while len(await sessions_of(served)) > 2:  # they are deleted after the answer was sent
            await client.get("/v1/models")
        assert sorted(await sessions_of(served)) == ["kept", "new"]
        assert left.id == "left"


async def test_the_input_of_a_response_has_its_pictures_and_files(serve: Serve, scripted: Scripted) -> None:
    parts: list[Json] = [
        {"type": "input_text", "text": "Look"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AAAA"},
        {"type": "input_image", "detail": "auto", "image_url": "https://x.example/a.png"},
        {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,AAAA"},
        {"type": "input_file", "filename": "", "file_url": "https://x.example/a.pdf"},
        {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    ]
    async with serve([scripted(say("Nice."))]) as served, served.client() as client:
        response = await create(client, [{"role": "user", "content": parts}])
        [item] = (await client.get(f"/v1/responses/{response['id']}/input_items")).json()["data"]
        assert item["content"] == parts


async def test_an_unknown_or_broken_id_is_not_found(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        known = (await create(client, "Hi"))["id"]
        await served.service.runtime.store.sessions.delete(parse_session_id((await sessions_of(served))[0]))
        for id in (known, "resp_x", "resp_" + "a" * 24 + "!!!!", "resp_" + "a" * 24 + "_w", "x" * 5000):
            answer = await client.get(f"/v1/responses/{id}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"model": "unknown", "input": "Hi"}, 404, "model_not_found"),
        ({"model": "assistant", "input": ""}, 400, "invalid_input"),
        ({"model": "assistant", "input": [{"type": "computer_call"}]}, 400, "invalid_input"),
        ({"model": "assistant", "input": "Hi", "tools": [{"type": "web_search"}]}, 400, "invalid_input"),
        (
            {"model": "assistant", "input": "Hi", "tools": [{**PICK, "parameters": {"type": "array"}}]},
            400,
            "invalid_input",
        ),
        ({"model": "assistant", "input": "Hi", "previous_response_id": "resp_x"}, 400, "previous_response_not_found"),
        ({"model": "assistant", "input": "Hi", "conversation": " "}, 400, "invalid_input"),
    ],
)
async def test_bad_requests_get_errors(serve: Serve, scripted: Scripted, fields: Json, status: int, code: str) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        answer = await client.post("/v1/responses", json=fields)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert await sessions_of(served) == []


async def test_a_stream_that_was_cut_goes_on_live_at_the_next_event(serve: Serve, scripted: Scripted) -> None:
    started, go_on = asyncio.Event(), asyncio.Event()

    @vaka.tool
    async def hold() -> str:
        """Wait for the test."""
        started.set()
        await go_on.wait()
        return "held"

    agent = scripted(
        {"text": "One moment.", "tool_calls": [{"name": "hold", "arguments": {}}]}, say("Held."), tools=[hold]
    )
    async with serve([agent]) as served, served.client() as client:
        body = {"model": "assistant", "input": "Go", "stream": True, "background": True}
        events: list[Json] = []
        async with client.stream("POST", "/v1/responses", json=body) as stream:
            async for line in stream.aiter_lines():
                events += events_of(line)
                if events and events[-1]["type"].endswith(".delta"):
                    break
        await started.wait()
        id, after = events[0]["response"]["id"], events[-1]["sequence_number"]
        running = (await client.get(f"/v1/responses/{id}")).json()
        assert running["status"] == "in_progress"
        address = f"/v1/responses/{id}?stream=true"
        async with client.stream("GET", f"{address}&starting_after={after}") as stream:
            async for line in stream.aiter_lines():
                events += events_of(line)
                if events[-1]["type"] == "response.mcp_call.in_progress":
                    go_on.set()
        assert events[-1]["response"]["output"][-1]["content"][0]["text"] == "Held."
        assert join_deltas(events) == join_deltas(events_of((await client.get(address)).text))
