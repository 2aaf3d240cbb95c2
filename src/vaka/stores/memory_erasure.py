"""Erasing sessions of a store in memory."""

from collections.abc import Sequence

from msgspec.structs import replace

from vaka.core.ports.erasure import EraseResult
from vaka.core.types.ids import SessionId
from vaka.stores.common import current_time
from vaka.stores.erased_events import count_erased_bytes, erase_event, seal_erased
from vaka.stores.memory import MemoryKey, MemoryLog, SharedMemory


def erase_sessions(shared: SharedMemory, namespace: str, sessions: Sequence[SessionId], by: str) -> EraseResult:
    """Erase sessions of a namespace, but not those with a writer."""
    result = EraseResult()
    for session in dict.fromkeys(sessions):
        key, log = (namespace, session), shared.logs.get((namespace, session))
        if log is None or key in shared.claims:
            problem = "has a writer; end its turn first" if log else "does not exist"
            failed, busy = {**result.failed, session: f"session {session!r} {problem}"}, (session,) if log else ()
            result = replace(result, failed=failed, busy=(*result.busy, *busy))
        elif not log.info.erased:
            result = _erase_log(shared, key, log, by, result)
    return result


def _erase_log(shared: SharedMemory, key: MemoryKey, log: MemoryLog, by: str, result: EraseResult) -> EraseResult:
    info = log.info
    named = [(other, found.index.blobs) for other, found in shared.logs.items()]
    others = {
        digest
        for other, digests in (*named, *shared.held.items())
        if other[0] == key[0] and other != key
        for digest in digests
    }
    own = log.index.blobs | shared.held.get(key, set())
    loose = [(key[0], digest) for digest in own - others if (key[0], digest) in shared.blobs]
    stubs = [erase_event(event) for event in log.events]
    size = count_erased_bytes(log.events, stubs) + sum(len(shared.blobs.pop(blob)[0]) for blob in loose)
    count = sum(bool(event.erased) for event in stubs)
    ended = MemoryLog(log.id, log.term)
    ended.events = [*stubs, seal_erased(info, events=count, blobs=len(loose), by=by, ts=current_time())]
    shared.logs[key] = ended
    shared.delete_session_values({key})
    shared.wake(key, ended.head)
    return EraseResult(
        sessions=(*result.sessions, log.id),
        events=result.events + count,
        blobs=result.blobs + len(loose),
        bytes=result.bytes + size,
        failed=result.failed,
        busy=result.busy,
    )
