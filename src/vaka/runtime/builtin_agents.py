"""The tool ``Task`` with the built-in child agents, for agents without a project; imported on first use."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from vaka.core.loop.context import Turn
from vaka.core.loop.middleware import Middleware
from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.ports.turn_protocols import ToolSource
from vaka.core.types.ids import JSON
from vaka.core.types.message import Part, ToolResult
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec

if TYPE_CHECKING:
    from vaka.runtime.agent_builder import AgentBuilder
    from vaka.runtime.model_registry import ModelRegistry

TASK_SPEC_FILE = Path(__file__).with_name("task_spec.json")
"""The spec of ``Task`` with the built-in child agents; ``python -m scripts.schema`` writes it."""


class DeferredTask:
    """The tool ``Task``, made by its first call."""

    def __init__(self, builder: "AgentBuilder", models: "ModelRegistry") -> None:
        self._builder, self._models = builder, models
        self.spec = msgspec.json.decode(TASK_SPEC_FILE.read_bytes(), type=ToolSpec)

    @cached_property
    def _tool(self) -> Tool:
        from vaka.runtime.task_tool import builtin_task_tool

        return builtin_task_tool(self._builder, self._models)

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._tool.parse(raw)

    async def call(
        self, context: ToolContext, arguments: dict[str, Any]
    ) -> "ToolResult | Part | Sequence[Part] | JSON":
        return await self._tool.call(context, arguments)


class BuiltinAgents(Middleware, ToolSource):
    """Gives every agent of a runtime the tool ``Task``."""

    admits_steering = True

    def __init__(self, builder: "AgentBuilder", models: "ModelRegistry") -> None:
        self._builder, self._models = builder, models

    @property
    def name(self) -> str:
        return "child agents"

    @cached_property
    def _tools(self) -> tuple[Tool, ...]:
        return (DeferredTask(self._builder, self._models),)

    async def tools_for_step(self, turn: Turn) -> Sequence[Tool]:
        return self._tools
