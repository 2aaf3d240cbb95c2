"""What agents and programs keep and find again: text, working and semantic memory.

The names below are loaded when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.memory.consolidation import MemoryConsolidation as MemoryConsolidation
    from vaka.memory.facts import FactExtraction as FactExtraction
    from vaka.memory.recall import SemanticMemory as SemanticMemory
    from vaka.memory.text import TextMemory as TextMemory
    from vaka.memory.working import WorkingMemory as WorkingMemory

_MODULES = {
    "FactExtraction": "vaka.memory.facts",
    "MemoryConsolidation": "vaka.memory.consolidation",
    "SemanticMemory": "vaka.memory.recall",
    "TextMemory": "vaka.memory.text",
    "WorkingMemory": "vaka.memory.working",
}

__all__ = [
    "FactExtraction",
    "MemoryConsolidation",
    "SemanticMemory",
    "TextMemory",
    "WorkingMemory",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.memory' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return list(__all__)
