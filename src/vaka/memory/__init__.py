"""What agents and programs keep and find again: threads, text, working and semantic memory.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.messages import MessageFilter as MessageFilter
    from vaka.core.ports.messages import MessageQuery as MessageQuery
    from vaka.core.ports.messages import MessageSearch as MessageSearch
    from vaka.memory.processors import Composite as Composite
    from vaka.memory.processors import Deduplication as Deduplication
    from vaka.memory.processors import MessageLimit as MessageLimit
    from vaka.memory.processors import MessageProcessing as MessageProcessing
    from vaka.memory.processors import RoleFilter as RoleFilter
    from vaka.memory.processors import ThreadOptions as ThreadOptions
    from vaka.memory.threads import ActionItem as ActionItem
    from vaka.memory.threads import NewMessage as NewMessage
    from vaka.memory.threads import Thread as Thread
    from vaka.memory.threads import ThreadContext as ThreadContext
    from vaka.memory.threads import ThreadPolicy as ThreadPolicy

_PROCESSORS, _THREADS, _MESSAGES = "vaka.memory.processors", "vaka.memory.threads", "vaka.core.ports.messages"

_MODULES = {
    "ActionItem": _THREADS, "Composite": _PROCESSORS, "Deduplication": _PROCESSORS, "ThreadOptions": _PROCESSORS,
    "MessageFilter": _MESSAGES, "MessageLimit": _PROCESSORS, "MessageProcessing": _PROCESSORS,
    "MessageQuery": _MESSAGES, "MessageSearch": _MESSAGES, "NewMessage": _THREADS, "RoleFilter": _PROCESSORS,
    "Thread": _THREADS, "ThreadContext": _THREADS, "ThreadPolicy": _THREADS,
}  # fmt: skip

__all__ = [
    "ActionItem",
    "Composite",
    "Deduplication",
    "MessageFilter",
    "MessageLimit",
    "MessageProcessing",
    "MessageQuery",
    "MessageSearch",
    "NewMessage",
    "RoleFilter",
    "Thread",
    "ThreadContext",
    "ThreadOptions",
    "ThreadPolicy",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.memory' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
