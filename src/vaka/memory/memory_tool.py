"""A tool of the memory: a spec, the parser of its arguments, and a function."""

from collections.abc import Awaitable, Callable
from typing import Any

from vaka.core.ports.agent import AgentServices
from vaka.core.ports.tool import ToolContext
from vaka.core.types.ids import JSON
from vaka.core.types.message import Text, ToolResult, replace_surrogates
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec

MemoryFunction = Callable[[ToolContext, dict[str, Any]], Awaitable["ToolResult | JSON"]]


class MemoryTool:
    """Implements ``Tool``."""

    def __init__(self, spec: ToolSpec, services: AgentServices, function: MemoryFunction) -> None:
        self._spec, self._function = spec, function
        self._parse = services.argument_parser(spec.parameters)

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        return self._parse(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> "ToolResult | JSON":
        return await self._function(context, arguments)


def text_result(context: ToolContext, text: str, *, failed: bool = False, value: JSON = None) -> ToolResult:
    """Return a result whose text the model reads as it is."""
    content = (Text(text=replace_surrogates(text)),)
    return ToolResult(call=context.call, content=content, value=value, failed=failed, reason="error" if failed else "")


def object_schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object that allows no other properties."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}
