"""Approvals, questions and client calls through the native API."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import vaka
from tests.server.conftest import Serve
from tests.server.rest.test_events import SSE, LiveFrames
from tests.server.rest.test_turns import API, Gate, deploy, start
from vaka.agents.react import Agent
from vaka.testing import call, say

Scripted = Callable[..., Agent]


@vaka.tool
async def choose(context: vaka.ToolContext) -> str:
    """Ask a person which colour."""
    return str(await context.ask("Which colour?", options=("red", "blue")))


def deploying(scripted: Scripted, turns: int = 1) -> Agent:
    answers = [answer for _ in range(turns) for answer in (call("deploy", place="there"), say("Done."))]
    return scripted(*answers, tools=[deploy])


async def test_an_approval_is_found_and_decided_and_the_turn_goes_on(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([deploying(scripted)], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        turn = (await start(client)).json()
        listed = (await client.get(f"{API}/approvals")).json()
        [row] = listed["data"]
        assert listed["has_more"] is False
        assert turn["decisions"] == [row]
        assert (row["kind"], row["session"], row["agent"], row["turn"]) == ("approval", "s", "assistant", turn["id"])
        assert row["decisions"] == ["approve", "edit", "reject"]
        assert (await client.get(f"{API}/approvals/count")).json() == {"count": 1}
        assert (await client.get(f"{API}/approvals/{row['id']}")).json() == row
        for query, count in (("tool=deploy", 1), ("tool=other", 0), ("agent=other", 0), ("session=s", 1)):
            assert (await client.get(f"{API}/approvals/count?{query}")).json() == {"count": count}
        path = f"{API}/approvals/{row['id']}/resolve"
        bodies: list[dict[str, Any]] = [
            {"decision": "answer", "answer": 1},
            {"decision": "edit"},
            {"decision": "approve", "edited_args": {}},
            {"decision": "maybe"},
        ]
        for body in bodies:
            assert (await client.post(path, json=body)).status_code == 422
        edit = {"decision": "edit", "edited_args": {"place": "nowhere"}}
        done = (await client.post(path, json=edit)).json()
        assert done["id"] == row["id"]
        assert done["event"]["type"] == "approval.resolved"
        assert done["event"]["data"]["by"] == "alice"
        assert (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()["text"] == "Done."
        events = (await client.get(f"{API}/sessions/s/events?types=tool.completed")).json()["data"]
        assert "deployed nowhere" in str(events)
        assert (await client.post(path, json=edit)).json() == done
        other = await client.post(path, json={"decision": "reject"})
        assert (other.status_code, other.json()["code"]) == (409, "already_decided")
        assert (await client.get(f"{API}/approvals/{row['id']}")).status_code == 404
        assert (await client.post(f"{API}/approvals/apr_none/resolve", json={"decision": "reject"})).status_code == 404


async def test_waiting_for_a_turn_goes_on_after_a_decision_of_its_past(serve: Serve, scripted: Scripted) -> None:
    gate = Gate()
    agent = scripted(call("deploy"), call("hold"), say("Done."), tools=[deploy, gate.tool])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served, served.client() as client:
        turn = (await start(client)).json()
        path = f"{API}/approvals/{turn['decisions'][0]['id']}/resolve"
        await client.post(path, json={"decision": "approve"})
        await gate.entered.wait()
        waiting = asyncio.create_task(client.post(f"{API}/sessions/s/turns/{turn['id']}/wait"))
        assert (await client.get(f"{API}/sessions/s/turns/current")).json()["status"] == "running"
        gate.opened.set()
        assert (await waiting).json()["text"] == "Done."


async def test_of_two_decisions_at_once_one_counts(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([deploying(scripted)], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        [row] = (await start(client)).json()["decisions"]
        path = f"{API}/approvals/{row['id']}/resolve"
        answers = await asyncio.gather(
            *(client.post(path, json={"decision": each, "message": "no"}) for each in ("approve", "reject"))
        )
        assert sorted(answer.status_code for answer in answers) == [200, 409]


async def test_an_approval_for_the_session_is_remembered(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([deploying(scripted, 2)], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        turn = (await start(client)).json()
        [row] = turn["decisions"]
        path = f"{API}/approvals/{row['id']}/resolve"
        wrong = await client.post(path, json={"decision": "approve", "remember": {"scope": "session", "rule": "fly"}})
        assert wrong.status_code == 400
        body: dict[str, Any] = {"decision": "approve", "remember": {"scope": "session"}}
        answer = await client.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert (await start(client)).json()["text"] == "Done."


async def test_a_question_is_answered(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("choose"), say("Blue it is."), tools=[choose])
    async with serve([agent]) as served, served.client() as client:
        turn = (await start(client)).json()
        [row] = (await client.get(f"{API}/approvals")).json()["data"]
        assert (row["kind"], row["question"], row["options"]) == ("question", "Which colour?", ["red", "blue"])
        assert row["agent"] == "assistant"
        path = f"{API}/approvals/{row['id']}/resolve"
        assert (await client.post(path, json={"decision": "approve"})).status_code == 422
        assert (await client.post(path, json={"decision": "answer"})).status_code == 422
        done = await client.post(path, json={"decision": "answer", "answer": "blue"})
        assert done.json()["event"]["data"]["answer"] == "blue"
        assert (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()["text"] == "Blue it is."
        other = await client.post(path, json={"decision": "answer", "answer": "red"})
        assert (other.status_code, other.json()["code"]) == (409, "already_decided")


async def test_the_client_runs_its_own_tool(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(call("locate", exact=True), say("Found."))]) as served, served.client() as client:
        tool = {"name": "locate", "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}}}
        turn = (await start(client, client_tools=[tool])).json()
        assert turn["status"] == "waiting"
        assert (await client.get(f"{API}/approvals")).json()["data"] == []  # no person decides it
        assert (await client.get(f"{API}/approvals/count")).json() == {"count": 0}
        [row] = (await client.get(f"{API}/approvals?kind=result")).json()["data"]
        assert (row["kind"], row["call"]["name"], row["call"]["arguments"]) == ("result", "locate", {"exact": True})
        assert turn["decisions"] == [row]  # with the id of the call, which its result names
        path = f"{API}/sessions/s/calls/{row['call']['id']}/result"
        done = await client.post(path, json={"result": {"lat": 1}})
        assert done.json()["event"]["type"] == "question.answered"
        assert (await client.post(f"{API}/sessions/s/turns/{turn['id']}/wait")).json()["text"] == "Found."
        assert (await client.post(path, json={"result": {"lat": 1}})).status_code == 200
        assert (await client.post(path, json={"result": {"lat": 2}})).status_code == 400
        assert (await client.post(f"{API}/sessions/s/calls/call_99/result", json={"result": 1})).status_code == 404


async def test_approvals_of_others_do_not_exist(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([deploying(scripted)], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        [row] = (await start(client)).json()["decisions"]
        path = f"{API}/approvals/{row['id']}"
        async with served.client("bob") as bob, served.client("carol") as carol, served.client("reader") as reader:
            for other in (bob, carol):
                assert (await other.get(f"{API}/approvals")).json()["data"] == []
                assert (await other.get(f"{API}/approvals/count")).json() == {"count": 0}
                assert (await other.get(path)).status_code == 404
            assert (await bob.post(f"{path}/resolve", json={"decision": "approve"})).status_code == 404
            assert (await carol.post(f"{path}/resolve", json={"decision": "approve"})).status_code == 403
            assert (await reader.post(f"{path}/resolve", json={"decision": "approve"})).status_code == 403
            await client.post(f"{path}/resolve", json={"decision": "approve"})
            assert (await bob.post(f"{path}/resolve", json={"decision": "approve"})).status_code == 404


async def test_decisions_are_listed_in_pages(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([deploying(scripted, 3)], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        asked = [(await start(client, name)).json()["decisions"][0]["id"] for name in ("a", "b", "c")]
        first = (await client.get(f"{API}/approvals?limit=2")).json()
        assert first["has_more"] is True
        query = {"limit": 2, "cursor": first["next_cursor"]}
        second = (await client.get(f"{API}/approvals", params=query)).json()
        assert [row["id"] for page in (first, second) for row in page["data"]] == asked
        assert (second["has_more"], second["next_cursor"]) == (False, None)


async def test_a_feed_reports_each_change_of_open_decisions(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/vaka.db"
    async with (
        serve([deploying(scripted)], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
        served.client("bob") as bob,
        client.stream("GET", f"{API}/approvals", headers=SSE) as response,
    ):
        frames = LiveFrames(response)
        first = await frames.next()
        assert (first["_name"], first["count"], first["ids"]) == ("approvals.changed", 0, [])
        [row] = (await start(client)).json()["decisions"]
        assert (await frames.next())["ids"] == [row["id"]]
        async with bob.stream("GET", f"{API}/approvals", headers=SSE) as other:
            assert (await LiveFrames(other).next())["count"] == 0
        await client.post(f"{API}/approvals/{row['id']}/resolve", json={"decision": "approve"})
        assert (await frames.next())["count"] == 0
