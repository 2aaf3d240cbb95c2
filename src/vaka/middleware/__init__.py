"""The middleware that comes with vaka."""

from vaka.middleware.approval import Approval, Review
from vaka.middleware.eviction import Eviction
from vaka.middleware.patch_tool_calls import PatchToolCalls
from vaka.middleware.rate_limit import CoolDown, CoolDownRule, RateLimit, ToolRetry
from vaka.middleware.redaction import Redaction
from vaka.middleware.todo_list import TodoList
from vaka.middleware.turn_log import Logging

__all__ = ["Approval", "CoolDown", "CoolDownRule", "Eviction", "Logging", "PatchToolCalls", "RateLimit", "Redaction",
           "Review", "TodoList", "ToolRetry"]  # fmt: skip
