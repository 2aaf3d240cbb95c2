"""Lazy imports of threads, and of the parts that memories need."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vaka.core.ports.env import Clock
    from vaka.core.ports.files import Files
    from vaka.core.ports.model import Embedder
    from vaka.core.ports.store import SessionInfo, Store
    from vaka.core.ports.values import KeyValueStore
    from vaka.core.session.redaction import Secrets
    from vaka.files.kv import KeyValueFiles
    from vaka.runtime.drivers import SessionDrivers
    from vaka.runtime.memories import Memories
    from vaka.runtime.runtime import Runtime
    from vaka.runtime.threads import Threads
    from vaka.tools.builtin.search.grep import GrepResult


def value_files() -> "type[KeyValueFiles]":
    from vaka.files.kv import KeyValueFiles

    return KeyValueFiles


async def search_files(files: "Files", given: dict[str, Any], *, seconds: float) -> "GrepResult":
    from vaka.tools.builtin.search.grep import run_grep

    return await run_grep(files, given, seconds=seconds)


async def list_facts_sessions(store: "Store", session: str) -> "Sequence[SessionInfo]":
    from vaka.memory.background import list_facts_sessions

    return await list_facts_sessions(store, session)


async def erase_messages(store: "Store", owner: str, session: str) -> int:
    from vaka.memory.conversation_recall import erase_messages

    return await erase_messages(store, owner, session)


def copy_thread_memory() -> "Callable[[KeyValueStore, str, str], Awaitable[None]]":
    from vaka.memory.working_record import copy_thread_memory

    return copy_thread_memory


def memories(
    store: "Store", clock: "Clock", secrets: "Secrets", find_embedder: "Callable[[str], Embedder]"
) -> "Memories":
    from vaka.runtime.memories import Memories as Loaded

    return Loaded(store, clock, secrets, find_embedder)


def threads(runtime: "Runtime", drivers: "SessionDrivers") -> "Threads":
    from vaka.runtime.threads import Threads as Loaded

    return Loaded(runtime, drivers)
