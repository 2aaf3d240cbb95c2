"""A model with a prompt cache, as providers have one: it reads the longest beginning of a prompt that it has seen."""

import hashlib
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import msgspec

from vaka.core.ports.model import Chunk, Model, Prompt, UsageChunk
from vaka.core.types.message import Usage
from vaka.testing.clock import FakeClock

LIFETIME = 300.0


class PromptCache:
    """The beginnings of prompts that were sent, each until ``LIFETIME`` after its last use."""

    def __init__(self, clock: FakeClock | None = None) -> None:
        self._clock, self._seen = clock or FakeClock(), dict[str, float]()

    def count(self, blocks: list[bytes]) -> Usage:
        """Return the usage of a prompt: each character is a token."""
        digest, now = hashlib.sha256(), self._clock.monotonic()
        read = written = 0
        for block in blocks:
            digest.update(block)
            key = digest.hexdigest()
            if not written and now - self._seen.get(key, -LIFETIME) < LIFETIME:
                read += len(block)
            else:
                written += len(block)
            self._seen[key] = now
        return Usage(input=read + written, output=1, cache_read=read, cache_write=written)


class CachingModel:
    """Replaces the usage of another model's answers by that of the cache."""

    def __init__(self, inner: Any, cache: PromptCache | None = None, name: str = "") -> None:
        self._inner: Model = inner
        self.cache, self.name = cache or PromptCache(), name or inner.name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the answer of the inner model."""
        encode = msgspec.json.encode
        blocks = [self.name.encode() + encode(prompt.tools), prompt.system.encode(), *map(encode, prompt.messages)]
        usage = self.cache.count(blocks)
        async with aclosing(self._inner.stream(prompt)) as chunks:
            async for chunk in chunks:
                yield UsageChunk(usage, self.name) if isinstance(chunk, UsageChunk) else chunk
