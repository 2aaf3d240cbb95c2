"""One connector for all outgoing requests: it checks and pins addresses, and limits sizes. Loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.net import NetRequest as NetRequest
    from vaka.net.connector import Connector as Connector
    from vaka.net.rules import NetworkLimits as NetworkLimits
    from vaka.net.rules import NetworkRules as NetworkRules
    from vaka.net.rules import RuleChecker as RuleChecker

_MODULES = {
    "Connector": "vaka.net.connector",
    "NetRequest": "vaka.core.ports.net",
    "NetworkLimits": "vaka.net.rules",
    "NetworkRules": "vaka.net.rules",
    "RuleChecker": "vaka.net.rules",
}
__all__ = ["Connector", "NetRequest", "NetworkLimits", "NetworkRules", "RuleChecker"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.net' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
