"""What memories store of sessions and owners: it is copied with a fork, and erased with them."""

from collections.abc import Mapping, Sequence

from vaka.core.ports.feature_records import FeatureRecords, OpenErasableFiles
from vaka.core.ports.store import SessionInfo, Store
from vaka.memory.background import list_facts_sessions
from vaka.memory.conversation_recall import erase_messages
from vaka.memory.memory_scope import memory_scope
from vaka.memory.text import VALUES_PREFIX, owner_folder
from vaka.memory.working_record import copy_thread_memory, erase_resource_memory


class MemoryRecords(FeatureRecords):
    """The text, working and semantic memories of a store."""

    async def copy_session(self, store: Store, origin: str, new_session: str) -> None:
        await copy_thread_memory(store.values, origin, new_session)

    async def list_copies(self, store: Store, session: str) -> Sequence[SessionInfo]:
        return await list_facts_sessions(store, session)

    async def erase_session(self, store: Store, session: SessionInfo, *, dry_run: bool) -> Mapping[str, int]:
        count = await erase_messages(store, session.owner, session.id, dry_run=dry_run)
        return {"semantic": count} if count else {}

    async def erase_owner(
        self, store: Store, owner: str, open_files: OpenErasableFiles, *, dry_run: bool
    ) -> Mapping[str, int]:
        files = open_files(store.values, VALUES_PREFIX)
        return {
            "text": await files.erase(owner_folder(owner), dry_run=dry_run),
            "working": await erase_resource_memory(store.values, owner, dry_run=dry_run),
            "semantic": await store.vectors.erase(memory_scope("user", user=owner), dry_run=dry_run),
        }
