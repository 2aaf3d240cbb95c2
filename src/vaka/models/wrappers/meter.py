"""Add costs to the usage of a model, estimate a prompt before it is sent, and report a changed cached prefix."""

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Closeable,
    Estimate,
    Model,
    NoticeChunk,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ModelError
from vaka.core.types.message import Usage
from vaka.core.types.monitor import CacheBusted
from vaka.models.catalog.prices import PROVIDER_VENDORS, Price, PriceList
from vaka.models.tokens import encode_json, estimate_message_tokens, estimate_prompt_tokens, estimate_text_tokens

CACHE_SECONDS = 300.0
"""Seconds for which a provider keeps a cached prompt at least."""
MAX_CONVERSATIONS = 1024
"""Conversations that are remembered."""

_ConversationKey: TypeAlias = tuple[str, tuple[str, ...], str]

_CHUNK_CHARACTERS: dict[type, Callable[[Any], int]] = {
    TextChunk: lambda chunk: len(chunk.text),
    ReasoningChunk: lambda chunk: len(chunk.text),
    CallChunk: lambda chunk: len(chunk.name) + len(chunk.arguments),
}
"""How many characters a piece of an answer has."""


class PromptFingerprint(msgspec.Struct, frozen=True):
    """A prompt in a few numbers: enough to tell whether another one begins with it."""

    tools: int
    system: int
    messages: tuple[int, ...]


class LastCall(msgspec.Struct, frozen=True):
    """What is remembered of the last call of a conversation."""

    model: str
    tools: int
    system: int
    messages: int
    """Of all its messages together."""
    count: int
    usage: Usage
    at: float

    def changed_part(self, model: str, fingerprint: PromptFingerprint) -> str:
        """Return which part of the prompt does not begin as that call's did, ``""`` when all of it does."""
        if self.model != model:
            return "model"
        if self.tools != fingerprint.tools:
            return "tools"
        if self.system != fingerprint.system:
            return "system"
        return "" if self.messages == hash(fingerprint.messages[: self.count]) else "messages"


class LastCalls:
    """The last call of each conversation; models that share one notice when a conversation changes between them."""

    def __init__(self, kept: int = MAX_CONVERSATIONS) -> None:
        self._calls: OrderedDict[_ConversationKey, LastCall] = OrderedDict()
        self._max_conversations = kept

    def last(self, prompt: Prompt) -> LastCall | None:
        """Return the last call of a prompt's conversation; without a session there is none."""
        return self._calls.get(_conversation_key(prompt)) if prompt.session else None

    def record(self, prompt: Prompt, call: LastCall) -> None:
        """Remember a call, and forget the conversation that was silent longest when there are too many."""
        if not prompt.session:
            return
        key = _conversation_key(prompt)
        self._calls[key] = call
        self._calls.move_to_end(key)
        if len(self._calls) > self._max_conversations:
            self._calls.popitem(last=False)


class MeteredModel:
    """Another model whose usage has its price, and which can tell the price of a prompt beforehand.

    ``model`` is the ``provider/model`` whose price counts, by default the name of the other; ``price`` is its price
    where no list has it, ``bound`` how long its answers can get, if that is known. What the other does not count is
    estimated, so that no budget is held by nobody. Says so when the beginning of a conversation that the provider had
    cached has changed.
    """

    def __init__(
        self,
        inner: Model,
        prices: PriceList,
        *,
        model: str = "",
        price: Price | None = None,
        bound: int | None = None,
        ledger: LastCalls | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._price_list, self._own_price, self._output_limit = inner, prices, price, bound
        self._model = model or inner.name
        self._ledger = ledger if ledger is not None else LastCalls()
        self._clock = clock

    @property
    def name(self) -> str:
        """The name of the other model."""
        return self._inner.name

    async def close(self) -> None:
        """Close the other model."""
        if isinstance(self._inner, Closeable):
            await self._inner.close()

    def price(self) -> Price:
        """Return the price of this model. Raises ``ConfigError`` that says what to write where when it is not known."""
        price = self._find_price("")
        if price is None:
            raise ConfigError(missing_price_message(self._model))
        return price

    def estimate(self, prompt: Prompt) -> Estimate:
        """Say what ``prompt`` would cost: as much as its last call, and four characters a token for what is new."""
        last, cached = self._ledger.last(prompt), 0
        if last is not None and not last.changed_part(self.name, fingerprint_prompt(prompt)):
            tokens = last.usage.input + estimate_message_tokens(prompt.messages[last.count :])
            if self._clock() - last.at < CACHE_SECONDS:
                cached = min(last.usage.cache_read + last.usage.cache_write, tokens)
        else:
            tokens = estimate_prompt_tokens(prompt)
        usage, price = Usage(input=tokens, cache_read=cached), self._find_price("")
        if price is None:
            return Estimate(usage=usage, max_tokens=self._output_limit, unpriced=missing_price_message(self._model))
        return Estimate(
            usage=msgspec.structs.replace(usage, cost=price.cost(usage)), output_price=price.output_token_cost(tokens),
            max_tokens=self._output_limit,
        )  # fmt: skip

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does."""
        now = fingerprint_prompt(prompt) if prompt.session else None
        busted = self._detect_cache_bust(prompt, now)
        if busted is not None:
            yield NoticeChunk(busted)
        usage, written = Usage(), 0
        try:
            async with aclosing(self._inner.stream(prompt)) as chunks:
                async for chunk in chunks:
                    kind = chunk.__class__
                    if kind is UsageChunk:
                        chunk = self._add_cost(chunk)
                        usage = chunk.usage
                    elif kind in _CHUNK_CHARACTERS:
                        written += _CHUNK_CHARACTERS[kind](chunk)
                    elif (kind is StopChunk or (kind is RetryChunk and written)) and not usage.total:
                        counted = self._estimate_usage(prompt, written)
                        usage = counted.usage
                        yield counted
                    if kind is StopChunk and now is not None:
                        self._remember(prompt, now, usage)
                    elif kind is RetryChunk:
                        usage, written = Usage(), 0
                    yield chunk
        except ModelError:
            if written and not usage.total:
                yield self._estimate_usage(prompt, written)
            raise

    def _detect_cache_bust(self, prompt: Prompt, fingerprint: PromptFingerprint | None) -> CacheBusted | None:
        last = self._ledger.last(prompt)
        if last is None or fingerprint is None:
            return None
        cached = last.usage.cache_read + last.usage.cache_write
        part = last.changed_part(self.name, fingerprint) if cached else ""
        return CacheBusted(part=part, tokens=cached) if part else None

    def _remember(self, prompt: Prompt, fingerprint: PromptFingerprint, usage: Usage) -> None:
        call = LastCall(
            self.name,
            fingerprint.tools,
            fingerprint.system,
            hash(fingerprint.messages),
            len(fingerprint.messages),
            usage,
            self._clock(),
        )
        self._ledger.record(prompt, call)

    def _estimate_usage(self, prompt: Prompt, characters: int) -> UsageChunk:
        """Return what an answer cost that nobody counted, or that broke off before it was: about so much."""
        sent = self.estimate(prompt).usage.input
        return self._add_cost(UsageChunk(Usage(input=sent, output=estimate_text_tokens(characters))))

    def _add_cost(self, chunk: Any) -> UsageChunk:
        usage: Usage = chunk.usage
        price = None if usage.cost else self._find_price(chunk.model)
        if price is None:
            return UsageChunk(usage, chunk.model)
        return UsageChunk(msgspec.structs.replace(usage, cost=price.cost(usage)), chunk.model)

    def _find_price(self, reported: str) -> Price | None:
        """Return the price of the model that answered, else of the one that was asked."""
        if self._own_price is not None:
            return self._own_price
        provider = self._model.partition("/")[0] if "/" in self._model else ""
        names = [f"{provider}/{reported}" if provider else reported] if reported else []
        if reported and provider in PROVIDER_VENDORS:  # who answers in its place may be another vendor's
            names.append(reported)
        return next(
            (price for name in [*names, self._model] if (price := self._price_list.find(name)) is not None), None
        )


def fingerprint_prompt(prompt: Prompt) -> PromptFingerprint:
    """Return a prompt in a few numbers."""
    return PromptFingerprint(
        _fingerprint(prompt.tools), hash(prompt.system), tuple([_fingerprint(message) for message in prompt.messages])
    )


def _fingerprint(value: Any) -> int:
    return hash(encode_json(value))


def _conversation_key(prompt: Prompt) -> _ConversationKey:
    return prompt.session, prompt.path, prompt.agent


def missing_price_message(model: str) -> str:
    """Return why a budget in money cannot be kept with a model of which nobody knows the price, and what to do."""
    return (
        f"the price of {model!r} is not known, so no budget in money can be kept with it; write it into vaka.toml, in "
        f'US$ for a million tokens (0 when it is free): prices."{model}" = {{ input = 3.0, output = 15.0 }}'
    )
