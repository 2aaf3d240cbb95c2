"""Tools that a model can call: tools made from Python functions, and sets of tools; loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.types.traits import ToolTraits as ToolTraits
    from vaka.tools.client_tool import ClientTool as ClientTool
    from vaka.tools.function import FunctionTool as FunctionTool
    from vaka.tools.function import as_tool as as_tool
    from vaka.tools.function import tool as tool
    from vaka.tools.schema.openai_strict import strict_schema as strict_schema
    from vaka.tools.toolset import Toolset as Toolset

_MODULES = {
    "ClientTool": "vaka.tools.client_tool",
    "FunctionTool": "vaka.tools.function",
    "ToolTraits": "vaka.core.types.traits",
    "Toolset": "vaka.tools.toolset",
    "as_tool": "vaka.tools.function",
    "strict_schema": "vaka.tools.schema.openai_strict",
    "tool": "vaka.tools.function",
}

__all__ = ["ClientTool", "FunctionTool", "ToolTraits", "Toolset", "as_tool", "strict_schema", "tool"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.tools' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
