"""Lazy imports of the kinds of agents and tools that definitions make, each loaded with its first definition."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.agents.match.router import MatchAgent
    from vaka.agents.react import Agent, ToolLike
    from vaka.tools.kinds.composite import CompositeTool
    from vaka.tools.kinds.generator import GeneratorTool, TextProcessorTool
    from vaka.tools.kinds.http import HttpTool


def generator_tool() -> "type[GeneratorTool]":
    from vaka.tools.kinds.generator import GeneratorTool

    return GeneratorTool


def text_processor_tool() -> "type[TextProcessorTool]":
    from vaka.tools.kinds.generator import TextProcessorTool

    return TextProcessorTool


def match_agent(
    name: str, rules: "Sequence[Mapping[str, Any]]", routes: "Sequence[tuple[Sequence[str], Agent]]", **more: Any
) -> "MatchAgent":
    """Return a router of the documents of its rules, and of routes: names of rules and an agent."""
    from vaka.agents.match.router import MatchAgent, Route

    return MatchAgent(name, rules=rules, routes=[Route(*route) for route in routes], **more)


def composite_tool(name: str, steps: "Sequence[tuple[str, ToolLike, str]]", **options: Any) -> "CompositeTool":
    """Return a composite tool of the ids, tools and jq expressions of its steps."""
    from vaka.tools.kinds.composite import CompositeTool, ToolStep

    return CompositeTool(name, steps=[ToolStep(*step) for step in steps], **options)


def http_tool() -> "type[HttpTool]":
    from vaka.tools.kinds.http import HttpTool

    return HttpTool
