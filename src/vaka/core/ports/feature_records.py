"""What a feature stores of sessions and owners beside their logs: it is copied with a fork, and erased with them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from vaka.core.ports.store import SessionInfo, Store
from vaka.core.ports.values import KeyValueStore


class ErasableFiles(Protocol):
    """A tree of files whose folders can be deleted, also when files in it are damaged."""

    async def erase(self, folder: str, *, dry_run: bool = False) -> int:
        """Delete a folder with all its files, or only count them; return how many."""
        ...


OpenErasableFiles: TypeAlias = Callable[[KeyValueStore, str], ErasableFiles]
"""Opens the files that are stored in values whose keys begin with a prefix."""


class FeatureRecords(Protocol):
    """The records of one feature. Each erasure can be repeated: a second call completes an erasure that was cut off."""

    async def copy_session(self, store: Store, origin: str, new_session: str) -> None:
        """Give a new session the records of the session that it is forked from."""
        ...

    async def list_copies(self, store: Store, session: str) -> Sequence[SessionInfo]:
        """Return other sessions with copies of what was said in a session; they are erased and deleted with it."""
        ...

    async def erase_session(self, store: Store, session: SessionInfo, *, dry_run: bool) -> Mapping[str, int]:
        """Delete the records of a session, or only count them; return how many of each kind, without zeros."""
        ...

    async def erase_owner(
        self, store: Store, owner: str, open_files: OpenErasableFiles, *, dry_run: bool
    ) -> Mapping[str, int]:
        """Delete the records of an owner, or only count them; return how many of each kind, zeros included."""
        ...
