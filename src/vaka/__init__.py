"""vaka: an agent runtime that never forgets or repeats what it did.

Nothing happens on import; every name is loaded when it is first used. Beside it stand ``vaka.errors``,
``vaka.content``, ``vaka.events``, ``vaka.models`` and ``vaka.testing``.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.agents.react import Agent as Agent
    from vaka.agents.subagents import SubAgent as SubAgent
    from vaka.agents.subagents import SubAgents as SubAgents
    from vaka.config.options import Commands as Commands
    from vaka.config.options import Models as Models
    from vaka.config.options import NetworkAccess as NetworkAccess
    from vaka.config.options import Permissions as Permissions
    from vaka.config.options import Scripts as Scripts
    from vaka.config.options import Storage as Storage
    from vaka.config.options import Workspace as Workspace
    from vaka.core.loop.context import Turn as Turn
    from vaka.core.loop.middleware import Middleware as Middleware
    from vaka.core.ports.tool import ToolContext as ToolContext
    from vaka.core.types.context import Compaction as Compaction
    from vaka.core.types.ending import Response as Response
    from vaka.core.types.errors import Suspended as Suspended
    from vaka.core.types.errors import TurnError as TurnError
    from vaka.core.types.errors import VakaError as VakaError
    from vaka.core.types.event import Event as Event
    from vaka.core.types.limits import Limits as Limits
    from vaka.core.types.message import Image as Image
    from vaka.core.types.message import Text as Text
    from vaka.core.types.message import ToolCall as ToolCall
    from vaka.core.types.message import ToolResult as ToolResult
    from vaka.luau.tool import LuauTool as LuauTool
    from vaka.project.content import ProjectSource as ProjectSource
    from vaka.runtime.definition_parts import load_agents as load_agents
    from vaka.runtime.one_shot import run as run
    from vaka.runtime.one_shot import run_sync as run_sync
    from vaka.runtime.options import Environment as Environment
    from vaka.runtime.options import Project as Project
    from vaka.runtime.options import ToolSelection as ToolSelection
    from vaka.runtime.runtime import Runtime as Runtime
    from vaka.runtime.scripts import LuauAgent as LuauAgent
    from vaka.runtime.session import Session as Session
    from vaka.runtime.turn_stream import TurnStream as TurnStream
    from vaka.tools.function import tool as tool

_NAMES = {
    "Agent": "vaka.agents.react",
    "Commands": "vaka.config.options",
    "Compaction": "vaka.core.types.context",
    "Environment": "vaka.runtime.options",
    "Event": "vaka.core.types.event",
    "Image": "vaka.core.types.message",
    "Limits": "vaka.core.types.limits",
    "LuauAgent": "vaka.runtime.scripts",
    "LuauTool": "vaka.luau.tool",
    "Middleware": "vaka.core.loop.middleware",
    "Models": "vaka.config.options",
    "NetworkAccess": "vaka.config.options",
    "Permissions": "vaka.config.options",
    "Project": "vaka.runtime.options",
    "ProjectSource": "vaka.project.content",
    "Response": "vaka.core.types.ending",
    "Runtime": "vaka.runtime.runtime",
    "Scripts": "vaka.config.options",
    "Session": "vaka.runtime.session",
    "Storage": "vaka.config.options",
    "SubAgent": "vaka.agents.subagents",
    "SubAgents": "vaka.agents.subagents",
    "Suspended": "vaka.core.types.errors",
    "Text": "vaka.core.types.message",
    "ToolCall": "vaka.core.types.message",
    "ToolContext": "vaka.core.ports.tool",
    "ToolResult": "vaka.core.types.message",
    "ToolSelection": "vaka.runtime.options",
    "Turn": "vaka.core.loop.context",
    "TurnError": "vaka.core.types.errors",
    "TurnStream": "vaka.runtime.turn_stream",
    "VakaError": "vaka.core.types.errors",
    "Workspace": "vaka.config.options",
    "load_agents": "vaka.runtime.definition_parts",
    "run": "vaka.runtime.one_shot",
    "run_sync": "vaka.runtime.one_shot",
    "tool": "vaka.tools.function",
}

__version__ = "0.1.0"
__all__ = [
    "Agent",
    "Commands",
    "Compaction",
    "Environment",
    "Event",
    "Image",
    "Limits",
    "LuauAgent",
    "LuauTool",
    "Middleware",
    "Models",
    "NetworkAccess",
    "Permissions",
    "Project",
    "ProjectSource",
    "Response",
    "Runtime",
    "Scripts",
    "Session",
    "Storage",
    "SubAgent",
    "SubAgents",
    "Suspended",
    "Text",
    "ToolCall",
    "ToolContext",
    "ToolResult",
    "ToolSelection",
    "Turn",
    "TurnError",
    "TurnStream",
    "VakaError",
    "Workspace",
    "__version__",
    "load_agents",
    "run",
    "run_sync",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _NAMES.get(name)
    if module is None:
        raise AttributeError(f"module 'vaka' has no attribute {name!r}")
    try:
        value = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        from vaka.feature import missing_folder_of, require_feature  # noqa: PLC0415  # only this error needs it

        if folder := missing_folder_of(error):
            require_feature(folder, f"vaka.{name}")
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
