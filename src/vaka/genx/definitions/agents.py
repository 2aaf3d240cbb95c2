"""Definitions of agents, and of tools that run one."""

from typing import Annotated, Any, ClassVar, TypeAlias

import msgspec
from msgspec import Meta

from vaka.genx.definitions.context_layers import ContextLayer
from vaka.genx.definitions.generators import GeneratorDefinition, GeneratorSlot
from vaka.genx.definitions.references import Slot
from vaka.genx.definitions.tools import ScriptDefinition, ToolDefinition, ToolSlot

RuleDocument: TypeAlias = dict[str, Any]
"""A rule as it was written, with its name; the match engine knows what is in it."""
RuleSlot: TypeAlias = Slot[RuleDocument]


class AgentDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The fields of every kind of agent."""

    type: ClassVar[str] = ""

    name: Annotated[str, Meta(description="The name of the agent.")]
    description: Annotated[str, Meta(description="What the agent does, for an agent that has it as a tool.")] = ""
    prompt: Annotated[str, Meta(description="The system prompt.")] = ""
    context_layers: Annotated[
        tuple[ContextLayer, ...],
        Meta(description="The pieces of the system prompt; with them `prompt` counts only through `$this: .prompt`."),
    ] = ()
    generator: Annotated[GeneratorSlot, Meta(description="The model and its parameters.")] = Slot[GeneratorDefinition]()


AgentSlot: TypeAlias = Slot[AgentDefinition]


class ReactDefinition(AgentDefinition, frozen=True, kw_only=True):
    """An agent that calls tools in a loop."""

    type: ClassVar[str] = "react"

    tools: Annotated[tuple[ToolSlot, ...], Meta(description="The tools; `quit: true` marks those that end it.")] = ()


class RouteDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """The agent for some rules of a router."""

    rules: Annotated[tuple[str, ...], Meta(description="Names of rules of the same agent.")]
    agent: Annotated[AgentSlot, Meta(description="The agent that gets the input.")]


class MatchDefinition(AgentDefinition, frozen=True, kw_only=True):
    """A router: it matches the input with rules and hands it to the agent of the rule."""

    type: ClassVar[str] = "match"

    rules: Annotated[tuple[RuleSlot, ...], Meta(description="The rules, in the order of the prompt.")] = ()
    route: Annotated[tuple[RouteDefinition, ...], Meta(description="The agents for the rules.")] = ()
    default: Annotated[AgentSlot, Meta(description="The agent for input that no rule matches.")] = Slot[
        AgentDefinition
    ]()


class LuaAgentDefinition(AgentDefinition, frozen=True, kw_only=True):
    """A Luau script that runs the conversation."""

    type: ClassVar[str] = "lua"

    tools: Annotated[tuple[ToolSlot, ...], Meta(description="The tools that the script can call.")] = ()
    script: ScriptDefinition


class AgentToolDefinition(ToolDefinition, frozen=True, kw_only=True):
    """An agent as a tool."""

    type: ClassVar[str] = "agent"

    agent: Annotated[AgentSlot, Meta(description="The agent that runs.")]
