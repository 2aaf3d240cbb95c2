"""Requests at the same time that want the same thing: one of them gets it."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any

import vaka
from tests.server.conftest import Serve
from vaka.agents.react import Agent
from vaka.testing import call, say

Scripted = Callable[..., Agent]
COUNT = 8


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


async def test_one_of_several_callers_creates_a_session(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client("dave") as dave, served.client("carol") as carol:
        answers = await asyncio.gather(
            *(client.post("/api/v1/sessions", json={"id": "same"}) for client in (dave, carol) for _ in range(COUNT))
        )
        assert Counter(answer.status_code for answer in answers) == {201: 1, 409: 2 * COUNT - 1}
        [created] = [answer.json() for answer in answers if answer.status_code == 201]
        seen = [(await client.get("/api/v1/sessions/same")).status_code for client in (dave, carol)]
        assert seen == ([200, 404] if created["owner"] == "dave" else [404, 200])


async def test_a_named_session_belongs_to_the_caller_whose_request_came_first(serve: Serve, scripted: Scripted) -> None:
    chat = {"model": "assistant:same", "messages": [{"role": "user", "content": "Hi."}]}
    run: dict[str, Any] = {"threadId": "other", "runId": "r", "tools": [], "context": [], "state": {}}
    run |= {"messages": [{"id": "m", "role": "user", "content": "Hi."}], "forwardedProps": {}}
    async with serve([scripted(say("Hi."))]) as served, served.client("dave") as dave, served.client("carol") as carol:
        for path, body in (("/v1/chat/completions", chat), ("/agui/assistant", run)):
            answers = await asyncio.gather(*(client.post(path, json=body) for client in (dave, carol)))
            assert sorted(answer.status_code for answer in answers) == [200, 404]


async def test_a_request_that_is_sent_twice_at_once_starts_one_turn(serve: Serve, scripted: Scripted) -> None:
    chat = {"model": "assistant", "messages": [{"role": "user", "content": "Hi."}]}
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        for path, body in (("/v1/chat/completions", chat), ("/v1/responses", {"model": "assistant", "input": "Hi."})):
            headers = {"Idempotency-Key": path}
            answers = await asyncio.gather(*(client.post(path, json=body, headers=headers) for _ in range(COUNT)))
            later = await client.post(path, json=body, headers=headers)
            assert {answer.status_code for answer in answers} <= {200, 409}
            assert {answer.json()["id"] for answer in answers if answer.status_code == 200} == {later.json()["id"]}
        assert len((await client.get("/api/v1/sessions")).json()["data"]) == 2


async def test_the_first_of_several_decisions_counts(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        turn = (await client.post("/api/v1/sessions/s/turns", json={"input": "Go.", "agent": "assistant"})).json()
        path = f"/api/v1/approvals/{turn['decisions'][0]['id']}/resolve"
        bodies = [{"decision": kind, "message": ""} for kind in ("approve", "reject") * COUNT]
        answers = await asyncio.gather(*(client.post(path, json=body) for body in bodies))
        assert Counter(answer.status_code for answer in answers) == {200: COUNT, 409: COUNT}
        cancelled = await asyncio.gather(
            *(client.post(f"/api/v1/sessions/s/turns/{turn['id']}/cancel") for _ in range(COUNT))
        )
        assert {answer.status_code for answer in cancelled} == {202}
        ended = (await client.post(f"/api/v1/sessions/s/turns/{turn['id']}/wait")).json()
        assert ended["status"] in ("completed", "interrupted", "cancelled")
        ends = (await client.get("/api/v1/sessions/s/events", params={"limit": 1000})).json()["data"]
        assert sum(event["type"] == "approval.resolved" for event in ends) == 1
        assert sum(event["type"] in ("turn.completed", "turn.interrupted", "turn.cancelled") for event in ends) == 1
