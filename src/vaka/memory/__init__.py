"""What agents and programs keep and find again: threads, text, working and semantic memory.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.messages import MessageFilter as MessageFilter
    from vaka.core.ports.messages import MessageQuery as MessageQuery
    from vaka.core.ports.messages import MessageSearch as MessageSearch
    from vaka.memory.consolidation import MemoryConsolidation as MemoryConsolidation
    from vaka.memory.facts import FactExtraction as FactExtraction
    from vaka.memory.processors import Composite as Composite
    from vaka.memory.processors import Deduplication as Deduplication
    from vaka.memory.processors import MessageLimit as MessageLimit
    from vaka.memory.processors import MessageProcessing as MessageProcessing
    from vaka.memory.processors import RoleFilter as RoleFilter
    from vaka.memory.processors import ThreadOptions as ThreadOptions
    from vaka.memory.recall import SemanticMemory as SemanticMemory
    from vaka.memory.text import TextMemory as TextMemory
    from vaka.memory.threads import ActionItem as ActionItem
    from vaka.memory.threads import NewMessage as NewMessage
    from vaka.memory.threads import Thread as Thread
    from vaka.memory.threads import ThreadContext as ThreadContext
    from vaka.memory.threads import ThreadPolicy as ThreadPolicy
    from vaka.memory.working import WorkingMemory as WorkingMemory

_MODULES = {
    "ActionItem": "vaka.memory.threads",
    "Composite": "vaka.memory.processors",
    "Deduplication": "vaka.memory.processors",
    "FactExtraction": "vaka.memory.facts",
    "MemoryConsolidation": "vaka.memory.consolidation",
    "MessageFilter": "vaka.core.ports.messages",
    "MessageLimit": "vaka.memory.processors",
    "MessageProcessing": "vaka.memory.processors",
    "MessageQuery": "vaka.core.ports.messages",
    "MessageSearch": "vaka.core.ports.messages",
    "NewMessage": "vaka.memory.threads",
    "RoleFilter": "vaka.memory.processors",
    "SemanticMemory": "vaka.memory.recall",
    "TextMemory": "vaka.memory.text",
    "Thread": "vaka.memory.threads",
    "ThreadContext": "vaka.memory.threads",
    "ThreadOptions": "vaka.memory.processors",
    "ThreadPolicy": "vaka.memory.threads",
    "WorkingMemory": "vaka.memory.working",
}

__all__ = [
    "ActionItem",
    "Composite",
    "Deduplication",
    "FactExtraction",
    "MemoryConsolidation",
    "MessageFilter",
    "MessageLimit",
    "MessageProcessing",
    "MessageQuery",
    "MessageSearch",
    "NewMessage",
    "RoleFilter",
    "SemanticMemory",
    "TextMemory",
    "Thread",
    "ThreadContext",
    "ThreadOptions",
    "ThreadPolicy",
    "WorkingMemory",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.memory' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
