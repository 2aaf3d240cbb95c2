"""The order of the calls of one step that use the same files."""

import asyncio

from vaka.core.types.tool import FileUse


class FileOrder:
    """Holds a call until the earlier calls of its step that use the same files have their results.

    A call is known by its place among the calls of the step. One without a ``FileUse`` is never held and holds none.
    """

    def __init__(self) -> None:
        self._uses: dict[int, FileUse] = {}
        """The files that the calls without a result use."""
        self._ends: dict[int, asyncio.Event] = {}

    def add(self, place: int, use: FileUse | None) -> None:
        """Set which files a call uses; again when a person has changed its arguments."""
        if use is not None:
            self._uses[place] = use
            self._ends.setdefault(place, asyncio.Event())

    def end(self, place: int, *, has_result: bool) -> None:
        """Note that a call has ended; without a result it still holds the later ones: the turn ends or is suspended."""
        if place in self._ends:
            self._ends[place].set()
            if has_result:
                del self._uses[place]

    def is_held(self, place: int) -> bool:
        """Return whether an earlier call that uses the same files has no result."""
        return self._holder_of(place) is not None

    async def wait_for_holder(self, place: int) -> bool:
        """Wait until the call that holds this one has ended, and return whether it has a result."""
        holder = self._holder_of(place)
        if holder is None:
            return True
        await self._ends[holder].wait()
        return holder not in self._uses

    def _holder_of(self, place: int) -> int | None:
        """Return the last earlier call that uses the same files and has no result."""
        use = self._uses.get(place)
        if use is None:
            return None
        for earlier in range(place - 1, -1, -1):
            other = self._uses.get(earlier)
            if other is not None and other.conflicts_with(use):
                return earlier
        return None
