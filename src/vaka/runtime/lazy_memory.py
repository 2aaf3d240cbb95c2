"""Lazy imports of threads, and of the parts that memories need."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.files import Files
    from vaka.core.ports.values import KeyValueStore
    from vaka.files.kv import KeyValueFiles
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.runtime import Runtime
    from vaka.runtime.threads import Threads
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


def threads(runtime: "Runtime", drivers: "SessionDrivers") -> "Threads":
    from vaka.runtime.threads import Threads as Loaded

    return Loaded(runtime, drivers)
