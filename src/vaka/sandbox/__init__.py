"""Limits of the operating system for commands. Loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.sandbox import Command as Command
    from vaka.core.ports.sandbox import ResourceLimits as ResourceLimits
    from vaka.sandbox.proxy import Proxy as Proxy
    from vaka.sandbox.select import select_sandbox as select_sandbox
    from vaka.sandbox.sensitive import protected_paths as protected_paths

_MODULES = {
    "Command": "vaka.core.ports.sandbox",
    "Proxy": "vaka.sandbox.proxy",
    "ResourceLimits": "vaka.core.ports.sandbox",
    "protected_paths": "vaka.sandbox.sensitive",
    "select_sandbox": "vaka.sandbox.select",
}
__all__ = ["Command", "Proxy", "ResourceLimits", "protected_paths", "select_sandbox"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.sandbox' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
