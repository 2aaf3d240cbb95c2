"""Add costs to the usage of a model, and estimate a prompt before it is sent."""

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Estimate,
    Model,
    Prompt,
    ReasoningChunk,
    RetryChunk,
    StopChunk,
    TextChunk,
    UsageChunk,
)
from vaka.core.types.errors import ConfigError, ModelError
from vaka.core.types.message import Message, Usage
from vaka.core.types.tokens import encode_json, estimate_text_tokens, text_size
from vaka.models.catalog import PROVIDER_VENDORS, Price, PriceList, known_context_window
from vaka.models.prefixes import PrefixMemo
from vaka.models.tokens import CountedTools, TokenTotals, estimate_prompt_tokens
from vaka.models.tool_lists import ToolListMemo
from vaka.models.wrappers.model_wrapper import ModelWrapper

CACHE_SECONDS = 300.0
"""The lifetime of a provider's prompt cache, at least."""
MAX_CONVERSATIONS = 1024

_ConversationKey: TypeAlias = tuple[str, tuple[str, ...], str]

_CHUNK_CHARACTERS: dict[type, Callable[[Any], int]] = {
    TextChunk: lambda chunk: len(chunk.text),
    ReasoningChunk: lambda chunk: len(chunk.text),
    CallChunk: lambda chunk: len(chunk.name) + len(chunk.arguments),
}
"""The number of characters of a chunk."""


class PromptFingerprint(msgspec.Struct, frozen=True):
    """Hashes of a prompt, which tell whether it begins with the last call's prompt, and estimates of its tokens."""

    tools: int
    system: int
    messages: int
    """The hash of all messages."""
    count: int
    first: int | None
    """The hash of as many messages as the last call had; ``None`` if there was none, or there are fewer now."""
    tokens: int
    """The tokens of all messages."""
    new_tokens: int
    """The tokens of the messages that the last call did not have."""


class _MessageTotals(TokenTotals):
    """Hashes and tokens of the first messages of a conversation, for each number of messages."""

    def __init__(self) -> None:
        super().__init__()
        self.hashes = [0]

    def add(self, message: Message) -> None:
        super().add(message)
        self.hashes.append(hash((self.hashes[-1], encode_json(message))))

    def rollback(self, mark: int) -> None:
        super().rollback(mark)
        del self.hashes[mark:]


class LastCall(msgspec.Struct, frozen=True):
    """The last call of a conversation."""

    model: str
    tools: int
    system: int
    messages: int
    """The hash of all its messages."""
    count: int
    usage: Usage
    at: float

    def changed_part(self, model: str, fingerprint: PromptFingerprint) -> str:
        """Return the first part of the prompt that differs from that call's, ``""`` if the prompt extends it."""
        now = {
            "model": model,
            "tools": fingerprint.tools,
            "system": fingerprint.system,
            "messages": fingerprint.first,
        }
        return next((part for part, value in now.items() if getattr(self, part) != value), "")


class LastCalls:
    """The last call of each conversation; models that share one estimate a prompt by the call of another."""

    def __init__(self, kept: int = MAX_CONVERSATIONS) -> None:
        self._calls: OrderedDict[_ConversationKey, LastCall] = OrderedDict()
        self._max_conversations = kept

    def last(self, prompt: Prompt) -> LastCall | None:
        """Return the last call of a prompt's conversation; a prompt without a session has none."""
        return self._calls.get((prompt.session, prompt.path, prompt.agent)) if prompt.session else None

    def record(self, prompt: Prompt, call: LastCall) -> None:
        """Record a call; the least recently used conversation is dropped when there are too many."""
        if not prompt.session:
            return
        key = (prompt.session, prompt.path, prompt.agent)
        self._calls[key] = call
        self._calls.move_to_end(key)
        if len(self._calls) > self._max_conversations:
            self._calls.popitem(last=False)


class MeteredModel(ModelWrapper):
    """Adds costs to the usage of a model, and estimates the cost of a prompt before it is sent.

    ``model`` is the ``provider/model`` whose price applies, by default the name of the inner model; ``price`` replaces
    the listed price, ``bound`` is the output limit, if it is known. Usage that the inner model does not report is
    estimated, so that budgets hold.
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
        super().__init__(inner)
        self._price_list = prices
        self._own_price = price
        self._output_limit = bound
        self._model = model or inner.name
        self.context_window = self.context_window or known_context_window(self._model)
        self._ledger = ledger if ledger is not None else LastCalls()
        self._clock = clock
        self._counted = PrefixMemo(_MessageTotals)
        self._tools: ToolListMemo[CountedTools] = ToolListMemo()

    def price(self) -> Price:
        """Return the price of this model. Raises ``ConfigError`` with the setting to add if it is unknown."""
        price = self._find_price("")
        if price is None:
            raise ConfigError(missing_price_message(self._model))
        return price

    def estimate(self, prompt: Prompt) -> Estimate:
        """Estimate the cost of ``prompt`` from the last call, and from the characters of new messages."""
        last, cached = self._ledger.last(prompt), 0
        fingerprint = self._fingerprint(prompt, last) if prompt.session else None
        if last is not None and fingerprint is not None and not last.changed_part(self.name, fingerprint):
            tokens = last.usage.input + fingerprint.new_tokens
            if self._clock() - last.at < CACHE_SECONDS:
                cached = min(last.usage.cache_read + last.usage.cache_write, tokens)
        elif fingerprint is not None:
            tools = self._tools.get(prompt.tools, CountedTools).tokens
            tokens = fingerprint.tokens + estimate_text_tokens(text_size(prompt.system)) + tools
        else:
            tokens = estimate_prompt_tokens(prompt)
        usage, price = Usage(input=tokens, cache_read=cached), self._find_price("")
        if price is None:
            return Estimate(usage=usage, max_tokens=self._output_limit, unpriced=missing_price_message(self._model))
        return Estimate(
            usage=msgspec.structs.replace(usage, cost=price.cost(usage)),
            output_price=price.output_token_cost(tokens),
            max_tokens=self._output_limit,
        )

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the inner model's answer, with costs."""
        last = self._ledger.last(prompt)
        now = self._fingerprint(prompt, last) if prompt.session else None
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

    def _fingerprint(self, prompt: Prompt, last: LastCall | None) -> PromptFingerprint:
        kept = self._counted.take(prompt)
        hashes = kept.fold.hashes
        totals = kept.fold.totals
        count = len(prompt.messages)
        before = last.count if last is not None and last.count <= count else None
        tools = self._tools.get(prompt.tools, CountedTools)
        fingerprint = PromptFingerprint(
            tools=tools.hash,
            system=hash(prompt.system),
            messages=hashes[-1],
            count=count,
            first=None if before is None else hashes[before],
            tokens=totals[-1],
            new_tokens=totals[-1] - totals[before or 0],
        )
        self._counted.put(prompt, kept)
        return fingerprint

    def _remember(self, prompt: Prompt, fingerprint: PromptFingerprint, usage: Usage) -> None:
        self._ledger.record(
            prompt,
            LastCall(
                model=self.name,
                tools=fingerprint.tools,
                system=fingerprint.system,
                messages=fingerprint.messages,
                count=fingerprint.count,
                usage=usage,
                at=self._clock(),
            ),
        )

    def _estimate_usage(self, prompt: Prompt, characters: int) -> UsageChunk:
        """Return the estimated usage of an answer without any, or that was cut before it."""
        input = self.estimate(prompt).usage.input
        return self._add_cost(UsageChunk(Usage(input=input, output=estimate_text_tokens(characters))))

    def _add_cost(self, chunk: Any) -> UsageChunk:
        usage: Usage = chunk.usage
        price = self._find_price(chunk.model)
        if price is None:
            return UsageChunk(usage, chunk.model, counted_as=chunk.counted_as)
        if not usage.cost:
            usage = msgspec.structs.replace(usage, cost=price.cost(usage))
        return UsageChunk(usage, chunk.model, price.cache_miss_cost(usage), chunk.counted_as)

    def _find_price(self, reported: str) -> Price | None:
        """Return the price of the model that the provider reported, else of the called model."""
        if self._own_price is not None:
            return self._own_price
        provider = self._model.partition("/")[0] if "/" in self._model else ""
        names = [f"{provider}/{reported}" if provider else reported] if reported else []
        if reported and provider in PROVIDER_VENDORS:  # a fallback may have answered with another vendor's model
            names.append(reported)
        prices = (self._price_list.find(name) for name in [*names, self._model])
        return next((price for price in prices if price is not None), None)


def missing_price_message(model: str) -> str:
    """Return the error for a budget in money with a model whose price is unknown, and the setting that fixes it."""
    return (
        f"the price of {model!r} is not known, so no budget in money can be kept with it; write it into vaka.toml, in "
        f'US$ for a million tokens (0 when it is free): prices."{model}" = {{ input = 3.0, output = 15.0 }}'
    )
