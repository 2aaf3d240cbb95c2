"""The event loop of a command and its store, which are opened once however often the command needs them."""

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar

from vaka.cli.kit.bootstrap import create_default_store_folder
from vaka.cli.kit.event_loop import CommandLoop
from vaka.config.settings import Settings
from vaka.core.ports.store import Store
from vaka.runtime.open_store import open_store

T = TypeVar("T")


class CommandStore:
    """Runs the work of a command in one event loop, on one store. Use it with ``with``, which closes both."""

    def __init__(self) -> None:
        self._loop = CommandLoop()
        self._store: Store | None = None
        self._place = ("", "")
        """The URL and the durability of the open store."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._loop:
            if self._store is not None:
                self._loop.run(self._store.close())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end, and return its result."""
        return self._loop.run(work)

    def run_with_store(self, settings: Settings, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Open the store of the settings and run ``work`` with it."""
        return self._loop.run(self._open_and_run(settings, work))

    async def _open_and_run(self, settings: Settings, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        create_default_store_folder(settings)
        self._place = settings["store"], settings["durability"]
        self._store = open_store(settings["store"], durability=settings["durability"])
        return await work(self._store)

    def store_of(self, settings: Settings) -> Store | None:
        """Return the open store if the settings have the same one; otherwise their store is still to be opened."""
        return self._store if (settings["store"], settings["durability"]) == self._place else None
