"""Rules that approvals remember: they belong to the owner of the session and the tenant, in every process."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

import vaka
from tests.server.conftest import PRINCIPALS, Serve, Served
from vaka.agents.react import Agent
from vaka.config.options import Workspace
from vaka.middleware import Ask
from vaka.server.kit.principal import Principal
from vaka.testing import call, say

API = "/api/v1"
Scripted = Callable[..., Agent]


def fetching(scripted: Scripted, turns: int = 6) -> Agent:
    """Return an agent whose call of WebFetch needs an approval; the address is refused when it runs."""
    fetch = call("WebFetch", url="http://127.0.0.1:9/", prompt="What is there?")
    answers = [answer for _ in range(turns) for answer in (fetch, say("Done."))]
    return scripted(*answers, tools=["WebFetch"])


async def run_turn(client: httpx2.AsyncClient, session: str) -> dict[str, Any]:
    body = {"input": "Go.", "agent": "assistant"}
    answer: dict[str, Any] = (await client.post(f"{API}/sessions/{session}/turns", json=body)).json()
    return answer


async def remember(client: httpx2.AsyncClient, turn: dict[str, Any], scope: str) -> httpx2.Response:
    [row] = turn["decisions"]
    body = {"decision": "approve", "remember": {"scope": scope}}
    return await client.post(f"{API}/approvals/{row['id']}/resolve", json=body)


async def client_of(stack: AsyncExitStack, served: Served, token: str) -> httpx2.AsyncClient:
    return await stack.enter_async_context(served.client(token))


@pytest.mark.parametrize("scope", ["project", "user"])
async def test_a_remembered_rule_counts_for_its_owner_and_tenant_alone_after_a_restart_too(
    serve: Serve, scripted: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str
) -> None:
    home, folder = tmp_path / "home", tmp_path / "server"
    for each in (home, folder):
        each.mkdir()
    monkeypatch.setenv("HOME", str(home))
    options: dict[str, Any] = {
        "store": f"sqlite:///{tmp_path}/vaka.db",
        "workspace": Workspace(cwd=str(folder)),
    }
    async with serve([fetching(scripted)], **options) as served, AsyncExitStack() as stack:
        bob, alice, dave = [await client_of(stack, served, name) for name in ("bob", "alice", "dave")]
        turn = await run_turn(bob, "first")
        assert turn["status"] == "waiting", turn
        assert (await remember(bob, turn, scope)).status_code == 200
        assert (await run_turn(bob, "second"))["text"] == "Done."  # another session of the same owner
        assert (await run_turn(alice, "first"))["status"] == "waiting"  # another tenant
        assert (await run_turn(dave, "own"))["status"] == "waiting"
        [rule] = (await bob.get(f"{API}/rules")).json()["data"]
        assert (rule["rule"], rule["scope"], rule["by"]) == ("WebFetch(domain:127.0.0.1)", scope, "bob")
        assert (await alice.get(f"{API}/rules?owner=bob")).json()["data"] == []
    assert [*home.rglob("*"), *folder.rglob("*")] == []  # no settings file was written
    async with serve([fetching(scripted)], **options) as served, AsyncExitStack() as stack:
        bob, alice = [await client_of(stack, served, name) for name in ("bob", "alice")]
        assert (await run_turn(bob, "third"))["text"] == "Done."
        assert (await run_turn(alice, "third"))["status"] == "waiting"
        assert (await bob.delete(f"{API}/rules/{rule['id']}")).status_code == 204
        assert (await bob.delete(f"{API}/rules/{rule['id']}")).status_code == 404
        assert (await run_turn(bob, "fourth"))["status"] == "waiting"


async def test_a_rule_counts_in_another_process_at_once(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    options: dict[str, Any] = {"store": f"sqlite:///{tmp_path}/vaka.db", "workspace": Workspace(cwd=str(tmp_path))}
    async with (
        serve([fetching(scripted)], **options) as one,
        serve([fetching(scripted)], **options) as two,
        one.client("bob") as here,
        two.client("bob") as there,
    ):
        assert (await run_turn(there, "there"))["status"] == "waiting"
        assert (await remember(here, await run_turn(here, "here"), "user")).status_code == 200
        assert (await run_turn(there, "next"))["text"] == "Done."


async def test_an_approver_remembers_rules_only_for_its_own_sessions(
    serve: Serve, scripted: Scripted, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    scopes = frozenset({"runs:read", "runs:write", "approvals:write"})
    monkeypatch.setitem(PRINCIPALS, "eve", Principal(id="eve", key="eve", scopes=scopes))
    async with serve([fetching(scripted)], workspace=Workspace(cwd=str(tmp_path))) as served, AsyncExitStack() as stack:
        eve, alice = [await client_of(stack, served, name) for name in ("eve", "alice")]
        foreign = await remember(eve, await run_turn(alice, "hers"), "project")
        assert (foreign.status_code, "needs the scope admin" in foreign.json()["detail"]) == (403, True)
        assert (await remember(eve, await run_turn(eve, "own"), "user")).status_code == 200
        assert (await run_turn(eve, "next"))["text"] == "Done."
        assert (await eve.get(f"{API}/rules?owner=alice")).status_code == 403
        assert (await alice.get(f"{API}/rules?owner=eve")).json()["data"][0]["rule"].startswith("WebFetch(")


async def test_a_rule_does_not_answer_a_middleware_that_asks(serve: Serve, scripted: Scripted, tmp_path: Path) -> None:
    async def ask(turn: Any, given: Any) -> Any:
        return Ask(reason="always") if turn.session == "asked" else given

    agent = fetching(scripted)
    agent.middleware = (vaka.Middleware.from_functions("careful", before_tool=ask),)
    async with serve([agent], workspace=Workspace(cwd=str(tmp_path))) as served, served.client("alice") as alice:
        assert (await remember(alice, await run_turn(alice, "first"), "user")).status_code == 200
        assert (await run_turn(alice, "second"))["text"] == "Done."
        assert (await run_turn(alice, "asked"))["status"] == "waiting"
