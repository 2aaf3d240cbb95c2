"""What every request meets: hosts, origins, credentials, limits of bodies, and the form of errors."""

from collections.abc import Callable
from pathlib import Path

import pytest

import vaka
from tests.server.conftest import PRINCIPALS, KnownTokens, NoLimits, Serve
from vaka.agents.react import Agent
from vaka.core.types.errors import Suspended
from vaka.core.types.ids import Cursor
from vaka.runtime.runtime import Runtime
from vaka.server.kit.guard import Guard
from vaka.server.kit.principal import Principal
from vaka.server.kit.problems import Problem
from vaka.server.kit.service import AgentService, PromptInput
from vaka.server.settings import ServerSettings
from vaka.testing import call, say

Scripted = Callable[..., Agent]


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


async def test_probes_need_no_credentials(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client("") as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        assert (await client.get("/api/v1/readyz")).json() == {"status": "ready"}
        assert (await client.get("/version")).json()["name"] == "vaka"
        served.service.draining = True
        assert (await client.get("/readyz")).status_code == 503


async def test_an_unknown_address_is_a_problem_with_the_id_of_the_request(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        answer = await client.get("/nothing", headers={"X-Request-Id": "mine-1"})
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"
        assert answer.json()["request_id"] == "mine-1"
        assert answer.json()["code"] == "not_found"
        for path, meant in (
            ("/chat/completions", "/v1/chat/completions"),
            ("/v1/v1/messages", "/v1/messages"),
            ("/sessions", "/api/v1/sessions"),
            ("/api/v1/sessions/", "/api/v1/sessions"),
        ):
            detail = (await client.get(path)).json()["detail"]
            assert detail == f"there is nothing at {path!r}; did you mean {meant!r}?"


async def test_a_foreign_host_or_origin_is_refused(serve: Serve, scripted: Scripted) -> None:
    settings = ServerSettings(origins=("https://app.example",))
    async with serve([scripted(say("Hi."))], settings=settings) as served, served.client() as client:
        assert (await client.get("/healthz", headers={"Host": "evil.example"})).status_code == 421
        assert (await client.get("/healthz", headers={"Origin": "https://evil.example"})).status_code == 403
        assert (await client.get("/healthz", headers={"Origin": "null"})).status_code == 403
        assert (await client.get("/healthz", headers={"Origin": served.url})).status_code == 200
        assert (await client.get("/healthz", headers={"Origin": "https://app.example"})).status_code == 200


async def test_a_turn_waits_for_a_decision_and_goes_on_after_it(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served:
        service, alice = served.service, PRINCIPALS["alice"]
        session = await service.create_session(alice, title="A session")
        async with await service.start_turn(alice, session, PromptInput(prompt="Go."), until_waiting=True) as events:
            seen = [event.type async for event in events]
            assert events.waiting
            assert not events.ended
            assert seen[-1] == "approval.requested"
            [row] = await service.runtime.decisions()
        attached = await service.attach_turn(alice, session, turn=events.turn, until_waiting=True)
        async with attached:
            first = [event async for event in attached]
            assert first[-1].type == "approval.requested"
            await service.resolve(alice, row.id, approve=True)
            rest = [event async for event in attached]
        assert "approval.resolved" in [event.type for event in rest]
        assert rest[-1].type == "turn.completed"
        assert attached.summarize().text == "Done."
        assert (await service.find_session(alice, session.id)).owner == "alice"
        again = await service.attach_turn(alice, session, turn=events.turn, after=Cursor(0, first[-1].seq))
        async with again:
            assert [event async for event in again] == [event for event in rest if event.seq]


async def test_a_turn_goes_on_after_a_restart_and_a_decision(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    store, alice = f"sqlite:///{tmp_path}/vaka.db", PRINCIPALS["alice"]
    async with serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        session = await served.service.create_session(alice)
        async with await served.service.start_turn(
            alice, session, PromptInput(prompt="Go."), until_waiting=True
        ) as events:
            assert [event async for event in events][-1].type == "approval.requested"
    async with serve([agent], store=store, permissions=vaka.Permissions(confirm=["deploy"])) as served:
        [row] = await served.service.runtime.decisions()
        await served.service.resolve(alice, row.id, approve=True)
        session = await served.service.open_session(alice, session.id)
        async with await served.service.attach_turn(alice, session, turn=events.turn) as attached:
            assert [event async for event in attached][-1].type == "turn.completed"


async def test_sessions_of_other_tenants_and_owners_do_not_exist(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served:
        session = await served.service.create_session(PRINCIPALS["alice"], id="mine")
        assert (await served.service.open_session(PRINCIPALS["alice"], "mine")).id == session.id
        for other in ("bob", "carol"):
            with pytest.raises(Problem, match="there is no session 'mine'"):
                await served.service.open_session(PRINCIPALS[other], "mine")
        assert (await served.service.create_session(PRINCIPALS["bob"], id="mine")).id == "mine"


async def test_a_credential_may_run_some_turns_at_once(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    settings = ServerSettings(concurrent_turns=1, sweep_seconds=0)
    async with (
        serve([agent], settings=settings, permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        body = {"input": "Go.", "agent": "assistant"}
        turn = (await client.post("/api/v1/sessions/first/turns", json=body)).json()
        refused = await client.post("/api/v1/sessions/second/turns", json=body)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_turns")
        [decision] = turn["decisions"]
        path = f"/api/v1/approvals/{decision['id']}/resolve"
        assert (await client.post(path, json={"decision": "approve"})).status_code == 200
        await client.post(f"/api/v1/sessions/first/turns/{turn['id']}/wait")
        await served.service.sweep()
        assert (await client.post("/api/v1/sessions/second/turns", json=body)).json()["status"] == "waiting"


async def test_a_rule_for_everyone_needs_an_administrator(serve: Serve, scripted: Scripted) -> None:
    agent = scripted(call("deploy"), say("Done."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served:
        service, alice = served.service, PRINCIPALS["alice"]
        approver = Principal(id="eve", key="eve", scopes=frozenset({"runs:read", "approvals:write"}))
        session = await service.create_session(alice)
        async with await service.start_turn(alice, session, PromptInput(prompt="Go."), until_waiting=True) as events:
            assert [event async for event in events][-1].type == "approval.requested"
            [row] = await service.runtime.decisions()
            for scope in ("project", "user"):
                with pytest.raises(Problem, match="needs the scope admin"):
                    await service.resolve(approver, row.id, approve=True, scope=scope)
            event = await service.resolve(approver, row.id, approve=True)
            assert event.type == "approval.resolved"


async def test_the_events_of_a_suspended_turn_end_and_cannot_be_read_further(scripted: Scripted) -> None:
    agent, alice = scripted(call("deploy"), say("Done."), tools=[deploy]), PRINCIPALS["alice"]
    async with Runtime(permissions=vaka.Permissions(ask="suspend", confirm=["deploy"])) as runtime:
        service = AgentService(runtime, {"assistant": agent}, Guard(ServerSettings(), KnownTokens(), NoLimits()))
        session = await service.create_session(alice)
        async with await service.start_turn(alice, session, PromptInput(prompt="Go.")) as events:
            assert [event async for event in events][-1].type == "approval.requested"
            assert events.waiting
            with pytest.raises(Suspended):
                await events.next_batch()


async def test_a_request_chooses_among_known_models_and_no_files(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        await client.post("/api/v1/sessions", json={"id": "s"})

        async def status_of(model: str) -> tuple[int, str]:
            answer = await client.post("/api/v1/sessions/s/turns", json={"input": "Hi.", "model": model})
            return answer.status_code, answer.json()["code"]

        assert await status_of("scripted:/etc/hostname") == (403, "forbidden")
        assert await status_of("nothing") == (422, "config")
        assert (await client.post("/api/v1/sessions/s/turns", json={"input": "Hi."})).json()["text"] == "Hi."
