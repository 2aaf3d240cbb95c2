"""Behaviour around a turn that comes with vaka: each file is one middleware, to be given to an agent."""

from vaka.middleware.approve import Approval, Review
from vaka.middleware.cooldown import CoolDown, Rest
from vaka.middleware.evict import Eviction
from vaka.middleware.log import Logging
from vaka.middleware.patch import PatchToolCalls
from vaka.middleware.rate_limit import RateLimit
from vaka.middleware.redact import Redaction
from vaka.middleware.retry import Retry
from vaka.middleware.todo import TodoList

__all__ = [
    "Approval",
    "CoolDown",
    "Eviction",
    "Logging",
    "PatchToolCalls",
    "RateLimit",
    "Redaction",
    "Rest",
    "Retry",
    "Review",
    "TodoList",
]
