"""Permission rules: whether a tool call runs, is asked about or is denied. Loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.types.tool import Layer as Layer
    from vaka.policy.policy import LayeredPolicy as LayeredPolicy

_MODULES = {
    "Layer": "vaka.core.types.tool",
    "LayeredPolicy": "vaka.policy.policy",
}
__all__ = ["Layer", "LayeredPolicy"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.policy' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
