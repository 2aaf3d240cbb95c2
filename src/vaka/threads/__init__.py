"""Sessions as threads of messages: their state and limits, and what a turn sees of them.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.messages import MessageFilter as MessageFilter
    from vaka.core.ports.messages import MessageQuery as MessageQuery
    from vaka.core.ports.messages import MessageSearch as MessageSearch
    from vaka.threads.processors import Composite as Composite
    from vaka.threads.processors import Deduplication as Deduplication
    from vaka.threads.processors import MessageLimit as MessageLimit
    from vaka.threads.processors import MessageProcessing as MessageProcessing
    from vaka.threads.processors import RoleFilter as RoleFilter
    from vaka.threads.processors import ThreadOptions as ThreadOptions
    from vaka.threads.thread import ActionItem as ActionItem
    from vaka.threads.thread import NewMessage as NewMessage
    from vaka.threads.thread import Thread as Thread
    from vaka.threads.thread import ThreadContext as ThreadContext
    from vaka.threads.thread import ThreadPolicy as ThreadPolicy

_MODULES = {
    "ActionItem": "vaka.threads.thread",
    "Composite": "vaka.threads.processors",
    "Deduplication": "vaka.threads.processors",
    "MessageFilter": "vaka.core.ports.messages",
    "MessageLimit": "vaka.threads.processors",
    "MessageProcessing": "vaka.threads.processors",
    "MessageQuery": "vaka.core.ports.messages",
    "MessageSearch": "vaka.core.ports.messages",
    "NewMessage": "vaka.threads.thread",
    "RoleFilter": "vaka.threads.processors",
    "Thread": "vaka.threads.thread",
    "ThreadContext": "vaka.threads.thread",
    "ThreadOptions": "vaka.threads.processors",
    "ThreadPolicy": "vaka.threads.thread",
}

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
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.threads' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
