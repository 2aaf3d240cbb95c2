"""The middleware that comes with vaka, the protocols of middleware, and the values that it returns.

``before_agent`` returns ``Answer`` or ``Reject`` to end a turn. ``before_tool`` and an ``Approver`` return ``Allow``,
``Ask`` or ``Deny`` to decide a call.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.turn_protocols import Approver as Approver
    from vaka.core.ports.turn_protocols import ContextPolicy as ContextPolicy
    from vaka.core.ports.turn_protocols import Continuation as Continuation
    from vaka.core.ports.turn_protocols import ToolSource as ToolSource
    from vaka.core.types.ending import Answer as Answer
    from vaka.core.types.ending import Reject as Reject
    from vaka.core.types.tool import Allow as Allow
    from vaka.core.types.tool import Ask as Ask
    from vaka.core.types.tool import Deny as Deny
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
    "Approver": "vaka.core.ports.turn_protocols",
    "ContextPolicy": "vaka.core.ports.turn_protocols",
    "Continuation": "vaka.core.ports.turn_protocols",
    "ToolSource": "vaka.core.ports.turn_protocols",
    "Allow": "vaka.core.types.tool",
    "Answer": "vaka.core.types.ending",
    "Approval": "vaka.middleware.tool_calls",
    "Ask": "vaka.core.types.tool",
    "CoolDown": "vaka.middleware.tool_calls",
    "CoolDownRule": "vaka.middleware.tool_calls",
    "Deny": "vaka.core.types.tool",
    "Eviction": "vaka.middleware.eviction",
    "Logging": "vaka.middleware.turn_log",
    "PatchToolCalls": "vaka.middleware.tool_calls",
    "RateLimit": "vaka.middleware.rate_limit",
    "Redaction": "vaka.middleware.redaction",
    "Reject": "vaka.core.types.ending",
    "Review": "vaka.middleware.tool_calls",
    "TodoList": "vaka.middleware.todo_list",
    "ToolRetry": "vaka.middleware.tool_calls",
    "Trimming": "vaka.middleware.trimming",
    "token_pattern": "vaka.middleware.redaction",  # nosec B105: the name of a function and of its module
}

__all__ = [
    "Allow",
    "Answer",
    "Approval",
    "Approver",
    "Ask",
    "ContextPolicy",
    "Continuation",
    "CoolDown",
    "CoolDownRule",
    "Deny",
    "Eviction",
    "Logging",
    "PatchToolCalls",
    "RateLimit",
    "Redaction",
    "Reject",
    "Review",
    "TodoList",
    "ToolRetry",
    "ToolSource",
    "Trimming",
    "token_pattern",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.middleware' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
