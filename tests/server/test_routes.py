"""Every route of every door: without a token, with too few scopes, and with the objects of another caller."""

import re
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any

import httpx2
import pytest
from starlette.routing import BaseRoute, Route

import vaka
from tests.server.conftest import Serve, Served
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.runtime.remembered_rules import RememberedRule
from vaka.server.doors import doors_of
from vaka.server.kit.guard import GuardedApp
from vaka.testing import call, say

Scripted = Callable[..., Agent]

PUBLIC = {
    "/healthz",
    "/readyz",
    "/version",
    "/api/v1/healthz",
    "/api/v1/readyz",
    "/api/v1/version",
    "/",
    "/console",
    "/console/assets/{name:path}",
    "/console/licenses.txt",
    "/console/login",
    "/console/{page:path}",
}
"""What a caller without a token may ask for: probes, and the files and the login of the console."""
PLACES = {"agent", "tool", "model"}
"""Parameters of addresses that all callers share."""
BODIES: Mapping[str, Any] = {
    "turns": {"input": "Hi."},
    "runs": {"input": "Hi."},
    "steer": {"input": "Hi."},
    "rewind": {"to": "1.1"},
    "checkpoints": {"label": "mine"},
    "result": {"result": 1},
    "resolve": {"decision": "approve"},
}
"""Valid bodies, by the last part of the address; the others take an empty one."""


@vaka.tool
def deploy() -> str:
    """Deploy it."""
    return "deployed"


def routes_of(served: Served) -> list[BaseRoute]:
    return [route for make_door in doors_of(FEATURE_NAMES) for route in make_door(served.service).routes]


def guarded_routes(served: Served) -> list[tuple[str, Mapping[str, str]]]:
    """Return the path and the scopes by method of the routes that are not public, each once."""
    found: list[tuple[str, Mapping[str, str]]] = []
    for route in routes_of(served):
        if isinstance(route, Route) and route.path not in PUBLIC:
            assert isinstance(route.app, GuardedApp), f"{route.path} does not pass the guard"
            if "/threads" not in route.path and "/runs" not in route.path:  # other names of the same handlers
                found.append((route.path, route.app.scopes))
    return found


def fill(path: str, values: Mapping[str, str]) -> str:
    """Return the address of a route with the values of its parameters."""
    return re.sub(r"\{(\w+)(?::\w+)?\}", lambda match: values[match[1]], path)


class _AnyValue(dict[str, str]):
    def __missing__(self, name: str) -> str:
        return "some"


@pytest.fixture
async def served(serve: Serve, scripted: Scripted) -> AsyncGenerator[Served]:
    agent = scripted(say("A secret."), call("deploy"), say("Done."), say("More."), tools=[deploy])
    async with serve([agent], permissions=vaka.Permissions(confirm=["deploy"])) as served:
        yield served


async def test_every_route_needs_a_token(served: Served) -> None:
    routes = guarded_routes(served)
    assert len(routes) > 50
    async with served.client("") as client:
        for path, scopes in routes:
            for method in (*scopes, "PUT"):
                answer = await client.request(method, fill(path, _AnyValue()))
                assert (path, method, answer.status_code) == (path, method, 401 if method in scopes else 405)


async def test_every_route_needs_its_scope(served: Served) -> None:
    async with served.client("guest") as client:
        for path, scopes in guarded_routes(served):
            for method, scope in scopes.items():
                if scope:
                    answer = await client.request(method, fill(path, _AnyValue()))
                    assert (path, method, answer.status_code) == (path, method, 403)


async def test_the_objects_of_others_are_like_those_that_do_not_exist(served: Served) -> None:
    async with served.client() as alice:
        mine = await _create_objects(alice)
        await served.service.runtime.keep_rules_in_store().add("alice", RememberedRule(id=mine["rule"], rule="deploy"))
        before = await _describe(alice)
        missing = {name: f"no-{name}" for name in mine} | {name: mine[name] for name in PLACES}
        for token in ("bob", "dave"):
            async with served.client(token) as other:
                for path, scopes in guarded_routes(served):
                    names = set(re.findall(r"\{(\w+)", path))
                    assert names <= mine.keys(), f"{path}: create one in _create_objects"
                    for method in scopes if names - PLACES else ():
                        hidden = await _ask(other, method, path, mine)
                        assert hidden == await _ask(other, method, path, missing), f"{method} {path} as {token}"
                        assert 200 not in hidden, f"{method} {path} as {token}: {hidden}"
        assert await _describe(alice) == before


async def test_lists_have_no_objects_of_others(served: Served) -> None:
    async with served.client() as alice:
        mine = await _create_objects(alice)
        hidden = [mine[name] for name in ("session", "turn", "approval", "response")]
        for token in ("bob", "dave"):
            async with served.client(token) as other:
                for path, scopes in guarded_routes(served):
                    names = set(re.findall(r"\{(\w+)", path))
                    if "GET" in scopes and not names - PLACES and path != "/mcp":
                        said = {"q": "Hi"} if path.endswith("/search") else {}
                        answer = await other.get(fill(path, mine), params=said, headers={"A2A-Version": "1.0"})
                        assert answer.status_code in (200, 404), f"{path}: {answer.text}"
                        assert not [id for id in hidden if id in answer.text], f"{path} as {token}"
                stats = (await other.get("/api/v1/stats")).json()
                assert stats["sessions"] == 0


async def _create_objects(alice: httpx2.AsyncClient) -> dict[str, str]:
    """Return the values of parameters that name objects of Alice."""
    response = (await alice.post("/v1/responses", json={"model": "assistant", "input": "Hi."})).json()
    session = response["conversation"]["id"]
    turn = (await alice.post(f"/api/v1/sessions/{session}/turns", json={"input": "Go."})).json()
    assert turn["status"] == "waiting"
    await alice.post(f"/api/v1/sessions/{session}/checkpoints", json={"label": "kept"})
    [decision] = turn["decisions"]
    return {
        "agent": "assistant",
        "tool": "deploy",
        "model": "assistant",
        "session": session,
        "turn": turn["id"],
        "approval": decision["id"],
        "call": decision["call"]["id"],
        "label": "kept",
        "response": response["id"],
        "chat": session,
        "task": turn["id"],
        "config": "some",
        "rule": "rule_1",
    }


async def _ask(client: httpx2.AsyncClient, method: str, path: str, values: Mapping[str, str]) -> tuple[int, str]:
    """Return the status and the body of an answer, without the names of the objects."""
    address = fill(path, values)
    body = BODIES.get(path.rpartition("/")[2], {}) if method in ("POST", "PATCH") else None
    answer = await client.request(method, address, json=body, headers={"X-Request-Id": "same"})
    text = answer.text
    for name, value in values.items():
        text = text.replace(value, name)
    assert "secret" not in text
    return answer.status_code, text


async def _describe(alice: httpx2.AsyncClient) -> list[Any]:
    return [(await alice.get(f"/api/v1/{what}")).json() for what in ("sessions", "approvals", "rules")]
