"""The middleware that comes with vaka. Each class is loaded when it is first used."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.middleware.eviction import Eviction as Eviction
    from vaka.middleware.rate_limit import RateLimit as RateLimit
    from vaka.middleware.redaction import Redaction as Redaction
    from vaka.middleware.redaction import token_pattern as token_pattern
    from vaka.middleware.todo_list import TodoList as TodoList
    from vaka.middleware.tool_calls import Approval as Approval
    from vaka.middleware.tool_calls import CoolDown as CoolDown
    from vaka.middleware.tool_calls import CoolDownRule as CoolDownRule
    from vaka.middleware.tool_calls import PatchToolCalls as PatchToolCalls
    from vaka.middleware.tool_calls import Review as Review
    from vaka.middleware.tool_calls import ToolRetry as ToolRetry
    from vaka.middleware.trimming import Trimming as Trimming
    from vaka.middleware.turn_log import Logging as Logging

_MODULES = {
    "Approval": "tool_calls", "CoolDown": "tool_calls", "CoolDownRule": "tool_calls", "Eviction": "eviction",
    "Logging": "turn_log", "PatchToolCalls": "tool_calls", "RateLimit": "rate_limit", "Redaction": "redaction",
    "Review": "tool_calls", "TodoList": "todo_list", "ToolRetry": "tool_calls", "Trimming": "trimming",
    "token_pattern": "redaction",  # nosec B105: the name of a function and of its module
}  # fmt: skip

__all__ = [
    "Approval", "CoolDown", "CoolDownRule", "Eviction", "Logging", "PatchToolCalls", "RateLimit", "Redaction", "Review",
    "TodoList", "ToolRetry", "Trimming", "token_pattern",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.middleware' has no attribute {name!r}")
    return getattr(importlib.import_module(f"vaka.middleware.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)
