"""Garbage collection of a store in memory."""

from vaka.core.ports.store import GcResult, Retention
from vaka.stores.memory import SharedMemory


def remove_garbage(shared: SharedMemory, namespace: str, retention: Retention) -> GcResult:
    """Remove what ``retention`` names, or with ``dry_run`` only count it."""
    removed = {
        key: sum(len(event.stored) for event in log.events)
        for key, log in shared.logs.items()
        if key[0] == namespace and key not in shared.claims and log.is_removable(retention.idle_before)
    }
    # Of a session that has put blobs and was never written, only their age protects them.
    kept = {key: log.index.blobs for key, log in shared.logs.items() if key not in removed}
    referenced = {digest for key, named in kept.items() for digest in named | shared.held.get(key, set())}
    loose = {
        key: len(data)
        for key, (data, created) in shared.blobs.items()
        if key[0] == namespace and key[1] not in referenced and created < retention.blobs_before
    }
    expired = [key for key, time in shared.expiries.items() if key[0] == namespace and time < retention.expired_before]
    size = sum(removed.values()) + sum(loose.values()) + sum(len(shared.values[key]) for key in expired)
    if not retention.dry_run:
        for key in expired:
            shared.put_value(key, None)
        shared.logs = {key: log for key, log in shared.logs.items() if key not in removed}
        shared.blobs = {key: blob for key, blob in shared.blobs.items() if key not in loose}
        shared.delete_session_values(removed)
        shared.held = {key: {d for d in held if (key[0], d) in shared.blobs} for key, held in shared.held.items()}
    sessions = tuple(sorted(session for _, session in removed))
    return GcResult(sessions=sessions, blobs=len(loose), values=len(expired), bytes=size)
