"""Find out that a provider's prompt cache was not used, why, and what that cost."""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from vaka.core.loop.blobs import names_blobs
from vaka.core.loop.context import Turn
from vaka.core.loop.prompt import Conversation
from vaka.core.ports.log import Log
from vaka.core.ports.model import Prompt
from vaka.core.ports.values import BlobStore
from vaka.core.types.errors import NotFound
from vaka.core.types.ids import Digest, EventScope
from vaka.core.types.message import Message
from vaka.core.types.monitor import BustCause, CacheBusted, UsageRecorded
from vaka.core.types.progress import MessageCompleted
from vaka.core.types.state import CachedPrompt

TOLERATED_LOSS = 0.05
"""The part of a cached prompt that may be missing without a report: providers cache in blocks of tokens."""
LONGEST_LIFETIME = 3600
"""Seconds after which a prompt is no longer cached, whatever has changed."""


class CacheBustReport:
    """Defers ``cache.busted`` if a model call did not read what the call before it had cached.

    The state has the call before, so this costs nothing that grows with the conversation.
    """

    async def observe(
        self, turn: Turn, sent: Prompt, answer: MessageCompleted, used: UsageRecorded, miss_price: float
    ) -> None:
        """Compare an answer with the call before it; a provider that has no cache reports none."""
        if turn.state.caches or used.usage.cache_read or used.usage.cache_write:
            await _report_cache_bust(turn.log, turn.scope, sent, answer, used, miss_price)


async def _report_cache_bust(
    log: Log, scope: EventScope, sent: Prompt, answer: MessageCompleted, used: UsageRecorded, miss_price: float
) -> None:
    caches = log.state.caches
    conversation = log.window.view(scope.path, partial(Conversation, scope.path))
    before, conversation.sent = conversation.sent, sent.messages
    cached = caches.get("/".join(scope.path))
    lost = min(cached.tokens, used.usage.input) - used.usage.cache_read if cached is not None else 0
    if cached is None or lost <= cached.tokens * TOLERATED_LOSS:
        return
    progress = log.state.agent_progress(scope.path)
    now = CachedPrompt(
        model=used.model,
        tokens=lost,
        ts="",
        system=answer.system or progress.system,
        tools=answer.tools or progress.menu,
    )
    idle = int(log.clock.time() - datetime.fromisoformat(cached.ts).timestamp())
    cause = _changed_part(cached, now)
    if not cause and not cached.compacted and not _extends(sent.messages, before, conversation):
        cause = "messages"
    part = "messages" if cached.compacted and not cause else cause
    if idle >= LONGEST_LIFETIME or not part:
        cause = "expired"
    elif not cause:
        cause = "compaction"
    names = await _changed_names(log.store.blobs, cached, now) if part in ("model", "tools") else {}
    busted = CacheBusted(
        part=part,
        tokens=lost,
        cause=cause,
        cost=lost * miss_price,
        idle=max(idle, 0),
        agent=used.agent,
        model=used.model,
        **names,
    )
    log.defer(scope, busted)


def _changed_part(before: CachedPrompt, now: CachedPrompt) -> BustCause:
    """Return the first changed part, of the parts that have digests."""
    if before.model != now.model:
        return "model"
    if before.tools != now.tools:
        return "tools"
    return "system" if before.system != now.system else ""


def _extends(sent: tuple[Message, ...], before: tuple[Message, ...] | None, conversation: Conversation) -> bool:
    """Return whether a prompt begins with the messages of the prompt before.

    After a restart those are not known; they were the first messages of the conversation, unless a middleware or a
    limit of messages has changed this prompt too.
    """
    if before is not None:
        return sent[: len(before)] == before
    messages = conversation.messages()
    return len(sent) == len(messages) and all(
        one is other or names_blobs(other) for one, other in zip(sent, messages, strict=True)
    )


async def _changed_names(blobs: BlobStore, before: CachedPrompt, now: CachedPrompt) -> dict[str, tuple[str, ...]]:
    if before.model != now.model:
        return {"added": (now.model,), "removed": (before.model,)}
    old, new = await _tools_by_name(blobs, before.tools), await _tools_by_name(blobs, now.tools)
    if old is None or new is None:
        return {}
    return {
        "added": tuple(name for name in new if name not in old),
        "removed": tuple(name for name in old if name not in new),
        "changed": tuple(name for name, tool in new.items() if name in old and old[name] != tool),
    }


async def _tools_by_name(blobs: BlobStore, digest: Digest | None) -> Mapping[str, Any] | None:
    """Return the tools of a stored menu, ``None`` if there is no blob of it, or it cannot be read."""
    try:
        tools = msgspec.json.decode(await blobs.get(digest or Digest("")), type=list[dict[str, Any]])
    except (NotFound, msgspec.MsgspecError):
        return None
    return {str(tool.get("name")): tool for tool in tools}
