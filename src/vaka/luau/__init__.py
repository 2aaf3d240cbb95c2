"""Scripts in Luau: tools, agents and libraries that run in a VM of their own; loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.luau.program import ScriptLimits as ScriptLimits
    from vaka.luau.tool import LuauTool as LuauTool

_MODULES = {
    "LuauTool": "vaka.luau.tool",
    "ScriptLimits": "vaka.luau.program",
}

__all__ = ["LuauTool", "ScriptLimits"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.luau' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
