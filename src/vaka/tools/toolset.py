"""Sets of tools by name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from vaka.core.ports.tool import Tool, ToolContext
from vaka.core.types.errors import InvalidInput
from vaka.core.types.tool import InvalidArguments, ParsedArguments, ToolSpec
from vaka.core.types.traits import find_traits
from vaka.tools.function import FunctionTool, ToolReturn, as_tool, sanitize_name
from vaka.tools.validate import suggest_name


class RenamedTool:
    """A tool under another name."""

    def __init__(self, tool: Tool, name: str) -> None:
        self.tool = tool
        self.original_name = name
        self.name = sanitize_name(name)
        self._spec: ToolSpec | None = None
        self.traits = find_traits(tool, "")

    def __repr__(self) -> str:
        return f"RenamedTool({self.name!r}, {self.tool!r})"

    @property
    def spec(self) -> ToolSpec:
        """The tool's spec with the new name."""
        if self._spec is None:
            self._spec = msgspec.structs.replace(self.tool.spec, name=self.name)
        return self._spec

    def parse(self, raw: "str | dict[str, Any]") -> ParsedArguments | InvalidArguments:
        """Parse arguments as the tool does."""
        return self.tool.parse(raw)

    async def call(self, context: ToolContext, arguments: dict[str, Any]) -> ToolReturn:
        """Call the tool."""
        return await self.tool.call(context, arguments)


class Toolset(Mapping[str, Tool]):
    """Tools by name, in order. Two tools with one name raise ``InvalidInput``. Every method returns a new set."""

    def __init__(self, tools: "Iterable[Tool | Callable[..., Any]]" = ()) -> None:
        self._tools: dict[str, Tool] = {}
        self.original_names: dict[str, str] = {}
        """The name each tool was given, before characters that providers reject were replaced."""
        for item in tools:
            tool = as_tool(item)
            name, original = _names_of(tool)
            if name in self._tools:
                raise InvalidInput(f"two tools are named {name!r} ({self.original_names[name]!r} and {original!r})")
            self._tools[name] = tool
            self.original_names[name] = original

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tools)

    def __len__(self) -> int:
        return len(self._tools)

    def __repr__(self) -> str:
        return f"Toolset({', '.join(self._tools)})"

    def __add__(self, other: "Toolset | Iterable[Tool | Callable[..., Any]]") -> "Toolset":
        return Toolset([*self.values(), *(other.values() if isinstance(other, Toolset) else other)])

    def filter(self, wanted: "Callable[[Tool], bool] | Iterable[str]") -> "Toolset":
        """Return the tools that a predicate accepts or these names name; ``InvalidInput`` for an unknown name."""
        if callable(wanted):
            return Toolset(tool for tool in self.values() if wanted(tool))
        names = set(wanted)
        self._check_known(names)
        return Toolset(tool for name, tool in self.items() if name in names)

    def prefix(self, prefix: str) -> "Toolset":
        """Return the tools with ``prefix`` before every name."""
        return Toolset(RenamedTool(tool, prefix + name) for name, tool in self.items())

    def rename(self, names: Mapping[str, str]) -> "Toolset":
        """Return the tools renamed by ``{old: new}``; an unknown name raises ``InvalidInput``."""
        self._check_known(names)
        return Toolset(RenamedTool(tool, names[name]) if name in names else tool for name, tool in self.items())

    def _check_known(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._tools:
                raise InvalidInput(f"there is no tool {name!r}{suggest_name(name, self._tools)}")


def _names_of(tool: Tool) -> tuple[str, str]:
    if isinstance(tool, FunctionTool | RenamedTool):
        return tool.name, tool.original_name
    return tool.spec.name, tool.spec.name
