"""Definitions of agents: ``Agent``, and ``AgentTool`` for an agent that another one calls."""

from vaka.agents.react import Agent, AgentTool

__all__ = ["Agent", "AgentTool"]
