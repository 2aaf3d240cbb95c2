"""Trees of files: on disk, in memory, in a key-value store, or several as one. Loaded on first use."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.files.composite import CompositeFiles as CompositeFiles
    from vaka.files.disk import DiskFiles as DiskFiles
    from vaka.files.kv import KeyValueFiles as KeyValueFiles
    from vaka.files.memory import MemoryFiles as MemoryFiles
    from vaka.files.snapshots import FileSnapshots as FileSnapshots
    from vaka.files.workspace import WorkspaceFiles as WorkspaceFiles

_MODULES = {
    "CompositeFiles": "vaka.files.composite",
    "DiskFiles": "vaka.files.disk",
    "FileSnapshots": "vaka.files.snapshots",
    "KeyValueFiles": "vaka.files.kv",
    "MemoryFiles": "vaka.files.memory",
    "WorkspaceFiles": "vaka.files.workspace",
}
__all__ = ["CompositeFiles", "DiskFiles", "FileSnapshots", "KeyValueFiles", "MemoryFiles", "WorkspaceFiles"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'vaka.files' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
