"""Shapes of agents, made of the loop."""

from vaka.agents.react import Agent, AgentTool

__all__ = ["Agent", "AgentTool"]
