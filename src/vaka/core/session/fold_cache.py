"""The part of the fold that knows what the caches of providers hold of each conversation."""

from vaka.core.session.state import AgentProgress, CachedPrompt, SessionState, agent_key
from vaka.core.types.event import Event
from vaka.core.types.ids import AgentPath
from vaka.core.types.monitor import UsageRecorded


def note_model_call(state: SessionState, event: Event, body: UsageRecorded, lane: AgentProgress) -> None:
    """Note what the prompt of a step left in the cache; calls of tools have prompts of their own."""
    if body.number or body.call is not None:
        return
    tokens = body.usage.cache_read + body.usage.cache_write
    key = agent_key(event.path)
    if tokens:
        state.caches[key] = CachedPrompt(
            model=body.model, tokens=tokens, ts=event.ts, system=lane.system, tools=lane.menu
        )
    elif lane.phase == "answered" and body.usage.output:  # not a failed call, and not an embedding
        state.caches.pop(key, None)


def note_compaction(state: SessionState, path: AgentPath) -> None:
    """Note that the next prompt of a conversation has other messages."""
    cached = state.caches.get(agent_key(path))
    if cached is not None:
        cached.compacted = True


def drop_caches(state: SessionState, key: str, below: tuple[str, ...]) -> None:
    """Forget the conversations of a child and of its own children."""
    state.caches = {
        other: cached for other, cached in state.caches.items() if other != key and not other.startswith(below)
    }
