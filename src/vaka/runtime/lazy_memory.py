"""Lazy imports of the parts that memories need."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.files import Files
    from vaka.core.ports.values import KeyValueStore
    from vaka.files.kv import KeyValueFiles
    from vaka.tools.builtin.search.grep import GrepResult


def value_files() -> "type[KeyValueFiles]":
    from vaka.files.kv import KeyValueFiles

    return KeyValueFiles


def file_search() -> "Callable[[Files, dict[str, Any]], Awaitable[GrepResult]]":
    from vaka.tools.builtin.search.grep import run_grep

    return run_grep


def copy_thread_memory() -> "Callable[[KeyValueStore, str, str], Awaitable[None]]":
    from vaka.memory.working_record import copy_thread_memory

    return copy_thread_memory
