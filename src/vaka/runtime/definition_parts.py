"""What definitions get from other folders: built-in tools, scripts, tools of MCP servers. Imported on first use."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vaka.agents.react import Agent, ToolLike
from vaka.policy.tool_targets import builtin_name_of
from vaka.runtime.model_registry import SCRIPTED_PREFIX
from vaka.runtime.project_agents import ToolFilter
from vaka.runtime.task_tool import matches_tool
from vaka.tools.builtin import select_tools

if TYPE_CHECKING:
    from vaka.genx.definitions.catalog import AgentCatalog


class ServerToolFilter(ToolFilter):
    """Offers an agent only the tools of MCP servers that it names; its children have filters of their own."""

    inherited = ()

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(lambda spec: spec.layer != "mcp" or matches_tool(spec.name, names))


class RuntimeParts:
    """Implements ``DefinitionParts``."""

    def select_builtin_tools(self, names: Iterable[str] | None) -> Sequence[str]:
        return select_tools(names)

    def builtin_name_of(self, name: str) -> str:
        return builtin_name_of(name)

    def make_script_agent(
        self, name: str, script: str | Path, *, libs: Sequence[Path], trusted: bool, layer: str, **more: Any
    ) -> Agent:
        from vaka.runtime.scripts import LuauAgent

        return LuauAgent(name, script, libs=libs, trusted=trusted, layer=layer, **more)

    def make_script_tool(
        self,
        script: str | Path,
        *,
        name: str,
        description: str,
        params: dict[str, Any] | None,
        libs: Sequence[Path],
        trusted: bool,
        layer: str,
    ) -> ToolLike:
        from vaka.luau.tool import LuauTool

        return LuauTool(
            script, name=name, description=description, params=params, libs=libs, trusted=trusted, layer=layer
        )

    def keep_server_tools(self, names: Sequence[str]) -> ServerToolFilter:
        return ServerToolFilter(names)

    def reads_file(self, model: str) -> bool:
        return model.startswith(SCRIPTED_PREFIX)


def load_agents(
    folder: "str | Path",
    *,
    trusted: bool = True,
    tools: Sequence[ToolLike] = (),
    variables: Mapping[str, str] | None = None,
) -> "AgentCatalog":
    """Return the agents that the files in ``agents/`` of a folder define, by name; each is built on first use.

    Args:
        folder: The folder with ``agents``, ``tools``, ``rules``, ``contexts`` and ``models``.
        trusted: Whether its scripts run in this process, and its definitions may read ``variables``; otherwise scripts
            run in a worker process, and a definition that reads a variable is an error.
        tools: Tools of your program that definitions name as built-in tools.
        variables: The environment variables that definitions may read; default: none.

    Raises ``ConfigError`` if the folder does not exist.
    """
    from vaka.feature import require_feature

    require_feature("genx", "vaka.load_agents")
    from vaka.genx.definitions.catalog import open_catalog

    return open_catalog(folder, RuntimeParts(), trusted=trusted, tools=tools, variables=variables)
