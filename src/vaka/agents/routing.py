"""``RoutingAgent``: an agent whose turns are answered by other agents. ``MatchAgent`` is one."""

from collections.abc import Mapping
from typing import Any

from vaka.agents.react import Agent
from vaka.core.types.ids import digest_of

ROUTER_DIGEST = digest_of("router")
"""The digest of the ``script.answered`` with which each turn of a router starts."""


class RoutingAgent(Agent):
    """A router: it lets one of ``agents`` answer each input."""

    __slots__ = ("agents",)

    agents: Mapping[str, Agent[Any, Any]]
    """The agents by their names."""


def routers_of(agent: "Agent[Any, Any]") -> set[str]:
    """Return the names of an agent and of the agents of its routes that are routers, for the encoders of ``views``."""
    if not isinstance(agent, RoutingAgent):
        return set()
    return {agent.name}.union(*(routers_of(routed) for routed in agent.agents.values()))
