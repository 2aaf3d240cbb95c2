"""Agents, tools and settings through the native API."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import vaka
from tests.server.conftest import PRINCIPALS, Serve
from tests.server.rest.test_turns import API, deploy, start
from vaka.agents.react import Agent
from vaka.config.server_tables import FEATURE_NAMES
from vaka.runtime.definition_parts import load_agents
from vaka.server.settings import ServerSettings
from vaka.testing import say

Scripted = Callable[..., Agent]


@vaka.tool
def fail() -> str:
    """Always fail."""
    raise ValueError("broken")


async def test_agents_are_listed_with_their_tools(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(say("Hi."), tools=[deploy], description="Deploys."), scripted(name="other"), scripted(name="z")]
    async with serve(agents) as served, served.client() as client:
        first = (await client.get(f"{API}/agents", params={"limit": 2})).json()
        assert [agent["name"] for agent in first["data"]] == ["assistant", "other"]
        rest = (await client.get(f"{API}/agents", params={"cursor": first["next_cursor"]})).json()
        assert ([agent["name"] for agent in rest["data"]], rest["has_more"]) == (["z"], False)
        agent = (await client.get(f"{API}/agents/assistant")).json()
        assert agent == first["data"][0]
        assert (agent["kind"], agent["description"], agent["source"]) == ("agent", "Deploys.", "code")
        [tool] = agent["tools"]
        assert (tool["name"], tool["effect"], tool["agents"]) == ("deploy", "once", ["assistant"])
        assert tool["parameters"]["properties"]["place"]["type"] == "string"
        assert (await client.get(f"{API}/agents/missing")).status_code == 404
        assert (await client.get(f"{API}/me")).json() == {
            "id": "alice",
            "namespace": "",
            "scopes": sorted(PRINCIPALS["alice"].scopes, key=_order_of),
        }


def _order_of(scope: str) -> int:
    return ["runs:read", "runs:write", "approvals:write", "tools:execute", "admin", "debug", "operator"].index(scope)


async def test_definitions_are_read_again_and_a_wrong_one_says_why(serve: Serve, tmp_path: Path) -> None:
    folder = tmp_path / "agents"
    folder.mkdir()
    text = "name: {0}\ntype: react\nprompt: Be brief.\ngenerator: {{model: scripted}}\n"
    (folder / "one.yaml").write_text(text.format("one"))
    catalog = load_agents(tmp_path)
    async with serve([]) as served, served.client() as client:
        served.service.agents = catalog
        listed = (await client.get(f"{API}/agents")).json()["data"]
        assert [agent["name"] for agent in listed] == ["one"]
        (folder / "two.yaml").write_text(text.format("two"))
        assert (await client.post(f"{API}/agents/reload")).json()["data"] == ["one", "two"]
        async with served.client("carol") as carol:
            assert (await carol.post(f"{API}/agents/reload")).status_code == 403


async def test_tools_are_listed_and_called_under_the_rules(serve: Serve, scripted: Scripted) -> None:
    agents = [scripted(say("Hi."), tools=[deploy, fail]), scripted(name="other", tools=[deploy])]
    async with serve(agents) as served, served.client() as client:
        listed = (await client.get(f"{API}/tools")).json()["data"]
        assert [(tool["name"], tool["agents"]) for tool in listed] == [
            ("deploy", ["assistant", "other"]),
            ("fail", ["assistant"]),
        ]
        page = (await client.get(f"{API}/tools?limit=1")).json()
        assert (page["next_cursor"], page["has_more"]) == ("deploy", True)
        assert (await client.get(f"{API}/tools?agent=other")).json()["data"][0]["agents"] == ["other"]
        assert (await client.get(f"{API}/tools/fail")).json() == listed[1]
        for path in ("/tools/fly", "/tools/fail?agent=other", "/tools?agent=missing"):
            assert (await client.get(f"{API}{path}")).status_code == 404
        done = (await client.post(f"{API}/tools/deploy/execute", json={"arguments": {"place": "there"}})).json()
        assert (done["status"], done["failed"], done["value"]) == ("completed", False, None)
        assert done["content"] == [{"type": "text", "text": "deployed there"}]
        session = (await client.get(f"{API}/sessions/{done['session']}")).json()
        assert (session["owner"], session["tags"]) == ("alice", ["tool-call"])
        broken = (await client.post(f"{API}/tools/fail/execute")).json()
        assert (broken["status"], broken["failed"]) == ("failed", True)
        wrong = (await client.post(f"{API}/tools/deploy/execute", json={"arguments": {"place": 5, "x": 1}})).json()
        assert (wrong["status"], wrong["reason"]) == ("failed", "invalid_arguments")
        for path in ("/tools/fly/execute", "/tools/fail/execute"):
            answer = await client.post(f"{API}{path}", json={"agent": "other"})
            assert answer.status_code == 404
        async with served.client("carol") as carol:
            assert (await carol.post(f"{API}/tools/deploy/execute")).status_code == 403
            calls: dict[str, Any] = {"calls": [{"name": "deploy"}]}
            trick = await start(carol, "mine", model="given-calls", options=calls)
            assert (trick.status_code, trick.json()["code"]) == (403, "forbidden")


async def test_a_call_that_needs_an_approval_waits_for_it(serve: Serve, scripted: Scripted) -> None:
    async with (
        serve([scripted(tools=[deploy])], permissions=vaka.Permissions(confirm=["deploy"])) as served,
        served.client() as client,
    ):
        waiting = (await client.post(f"{API}/tools/deploy/execute")).json()
        assert (waiting["status"], waiting["call"]) == ("waiting", waiting["decision"]["call"]["id"])
        path = f"{API}/approvals/{waiting['decision']['id']}/resolve"
        assert (await client.post(path, json={"decision": "reject", "message": "no"})).status_code == 200
        turn = f"{API}/sessions/{waiting['session']}/turns/{waiting['turn']}"
        ended = (await client.post(f"{turn}/wait")).json()
        assert (ended["status"], ended["denied"]) == ("completed", [waiting["call"]])


async def test_settings_are_for_operators_and_only_if_the_feature_is_on(serve: Serve, scripted: Scripted) -> None:
    async with serve([scripted(say("Hi."))]) as served, served.client() as client:
        row = {"key": "store", "value": "memory:", "origin": "default", "layer": "default"}
        served.service.describe_settings = lambda: [row]
        assert (await client.get(f"{API}/debug/config")).json()["data"] == [row]
        assert (await client.get(f"{API}/debug/connections")).json()["open"] == 0
        async with served.client("carol") as carol:
            assert (await carol.get(f"{API}/debug/config")).status_code == 403
    features = frozenset(FEATURE_NAMES) - {"debug_api"}
    async with serve([scripted()], settings=ServerSettings(features=features)) as served, served.client() as client:
        assert (await client.get(f"{API}/debug/config")).status_code == 404
