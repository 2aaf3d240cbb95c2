"""The contract of kinds of agents, for scripts, for routers and for routers of routers."""

from typing import Any

import pytest

import vaka
from vaka.genx import MatchAgent, Route
from vaka.genx.match.offline import OfflineMatcher
from vaka.genx.match.rules import parse_rule
from vaka.testing.agents import AgentKindContract, MakeAgent

COUNTS = """ function on_input(ctx, input)
    if string.sub(input.text, 1, 4) == "work" then ctx.invoke("work", {}) end
    ctx.agent.state.count = (ctx.agent.state.count or 0) + 1
    ctx.emit({ text = `{ctx.agent.state.count} {input.text}`, eof = true })
end"""
RULES: list[dict[str, Any]] = [{"name": "work", "patterns": ["never written"]}]


def make_script(tool: Any) -> vaka.Agent:
    return vaka.LuauAgent("counter", COUNTS, tools=[tool])


def make_router(tool: Any) -> vaka.Agent:
    return _route_to(make_script(tool), "front")


def make_nested_router(tool: Any) -> vaka.Agent:
    return _route_to(make_router(tool), "house")


def _route_to(agent: vaka.Agent, name: str) -> vaka.Agent:
    matcher = OfflineMatcher([parse_rule(rule) for rule in RULES])
    routes = [Route(["work"], agent)]
    return MatchAgent(name, rules=RULES, routes=routes, default=agent, matcher=matcher)


class TestLuauAgent(AgentKindContract):
    @pytest.fixture
    def make_agent(self) -> MakeAgent:
        return make_script


class TestMatchAgent(AgentKindContract):
    @pytest.fixture
    def make_agent(self) -> MakeAgent:
        return make_router


class TestNestedMatchAgent(AgentKindContract):
    @pytest.fixture
    def make_agent(self) -> MakeAgent:
        return make_nested_router
