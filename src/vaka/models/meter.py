"""What a model costs: after each call, before it, and when a cached prompt stops being one."""

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any, TypeAlias

import msgspec

from vaka.core.ports.model import (
    CallChunk,
    Chunk,
    Closes,
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
from vaka.core.types.monitor import CacheBusted
from vaka.core.types.usage import Usage
from vaka.models.prices import VENDORS, Price, Prices
from vaka.models.tokens import encoded, of_messages, of_prompt, of_text

WARM = 300.0
"""Seconds for which a provider keeps a cached prompt at least."""
KEPT = 1024
"""Conversations that are remembered."""

_Key: TypeAlias = tuple[str, tuple[str, ...], str]

_SIZES: dict[type, Callable[[Any], int]] = {
    TextChunk: lambda chunk: len(chunk.text),
    ReasoningChunk: lambda chunk: len(chunk.text),
    CallChunk: lambda chunk: len(chunk.name) + len(chunk.arguments),
}
"""How many characters a piece of an answer has."""


class Prints(msgspec.Struct, frozen=True):
    """A prompt in a few numbers: enough to tell whether another one begins with it."""

    tools: int
    system: int
    messages: tuple[int, ...]


class Call(msgspec.Struct, frozen=True):
    """What is remembered of the last call of a conversation."""

    model: str
    tools: int
    system: int
    messages: int
    """Of all its messages together."""
    count: int
    usage: Usage
    at: float

    def changed(self, model: str, now: Prints) -> str:
        """Return which part of the prompt does not begin as that call's did, ``""`` when all of it does."""
        if self.model != model:
            return "model"
        if self.tools != now.tools:
            return "tools"
        if self.system != now.system:
            return "system"
        return "" if self.messages == hash(now.messages[: self.count]) else "messages"


class Ledger:
    """The last call of each conversation; models that share one notice when a conversation changes between them."""

    def __init__(self, kept: int = KEPT) -> None:
        self._calls: OrderedDict[_Key, Call] = OrderedDict()
        self._kept = kept

    def last(self, prompt: Prompt) -> Call | None:
        """Return the last call of a prompt's conversation; without a session there is none."""
        return self._calls.get(_key(prompt)) if prompt.session else None

    def put(self, prompt: Prompt, call: Call) -> None:
        """Remember a call, and forget the conversation that was silent longest when there are too many."""
        if not prompt.session:
            return
        key = _key(prompt)
        self._calls[key] = call
        self._calls.move_to_end(key)
        if len(self._calls) > self._kept:
            self._calls.popitem(last=False)


class Metered:
    """Another model whose usage has its price, and which can tell the price of a prompt beforehand.

    ``model`` is the ``provider/model`` whose price counts, by default the name of the other; ``price`` is its price
    where no list has it, ``bound`` how long its answers can get, if that is known. What the other does not count is
    estimated, so that no budget is held by nobody. Says so when the beginning of a conversation that the provider had
    cached has changed.
    """

    def __init__(
        self,
        inner: Model,
        prices: Prices,
        *,
        model: str = "",
        price: Price | None = None,
        bound: int | None = None,
        ledger: Ledger | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner, self._prices, self._given, self._bound = inner, prices, price, bound
        self._model = model or inner.name
        self._ledger = ledger if ledger is not None else Ledger()
        self._clock = clock

    @property
    def name(self) -> str:
        """The name of the other model."""
        return self._inner.name

    async def close(self) -> None:
        """Close the other model."""
        if isinstance(self._inner, Closes):
            await self._inner.close()

    def price(self) -> Price:
        """Return the price of this model. Raises ``ConfigError`` that says what to write where when it is not known."""
        price = self._find("")
        if price is None:
            raise ConfigError(unpriced(self._model))
        return price

    def estimate(self, prompt: Prompt) -> Estimate:
        """Say what ``prompt`` would cost: as much as its last call, and four characters a token for what is new."""
        last, cached = self._ledger.last(prompt), 0
        if last is not None and not last.changed(self.name, prints(prompt)):
            tokens = last.usage.input + of_messages(prompt.messages[last.count :])
            if self._clock() - last.at < WARM:
                cached = min(last.usage.cache_read + last.usage.cache_write, tokens)
        else:
            tokens = of_prompt(prompt)
        usage, price = Usage(input=tokens, cache_read=cached), self._find("")
        if price is None:
            return Estimate(usage=usage, max_tokens=self._bound, unpriced=unpriced(self._model))
        return Estimate(
            usage=msgspec.structs.replace(usage, cost=price.cost(usage)), output_price=price.token(tokens),
            max_tokens=self._bound,
        )  # fmt: skip

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does."""
        now = prints(prompt) if prompt.session else None
        busted = self._busted(prompt, now)
        if busted is not None:
            yield NoticeChunk(busted)
        usage, written = Usage(), 0
        try:
            async with aclosing(self._inner.stream(prompt)) as chunks:
                async for chunk in chunks:
                    kind = chunk.__class__
                    if kind is UsageChunk:
                        chunk = self._priced(chunk)
                        usage = chunk.usage
                    elif kind in _SIZES:
                        written += _SIZES[kind](chunk)
                    elif (kind is StopChunk or (kind is RetryChunk and written)) and not usage.total:
                        counted = self._counted(prompt, written)
                        usage = counted.usage
                        yield counted
                    if kind is StopChunk and now is not None:
                        self._remember(prompt, now, usage)
                    elif kind is RetryChunk:
                        usage, written = Usage(), 0
                    yield chunk
        except ModelError:
            if written and not usage.total:
                yield self._counted(prompt, written)
            raise

    def _busted(self, prompt: Prompt, now: Prints | None) -> CacheBusted | None:
        last = self._ledger.last(prompt)
        if last is None or now is None:
            return None
        cached = last.usage.cache_read + last.usage.cache_write
        part = last.changed(self.name, now) if cached else ""
        return CacheBusted(part=part, tokens=cached) if part else None

    def _remember(self, prompt: Prompt, now: Prints, usage: Usage) -> None:
        call = Call(
            self.name, now.tools, now.system, hash(now.messages), len(now.messages), usage, self._clock()
        )  # fmt: skip
        self._ledger.put(prompt, call)

    def _counted(self, prompt: Prompt, written: int) -> UsageChunk:
        """Return what an answer cost that nobody counted, or that broke off before it was: about so much."""
        sent = self.estimate(prompt).usage.input
        return self._priced(UsageChunk(Usage(input=sent, output=of_text(written))))

    def _priced(self, chunk: Any) -> UsageChunk:
        usage: Usage = chunk.usage
        price = None if usage.cost else self._find(chunk.model)
        if price is None:
            return UsageChunk(usage, chunk.model)
        return UsageChunk(msgspec.structs.replace(usage, cost=price.cost(usage)), chunk.model)

    def _find(self, reported: str) -> Price | None:
        """Return the price of the model that answered, else of the one that was asked."""
        if self._given is not None:
            return self._given
        provider = self._model.partition("/")[0] if "/" in self._model else ""
        names = [f"{provider}/{reported}" if provider else reported] if reported else []
        if reported and provider in VENDORS:  # who answers in its place may be another vendor's
            names.append(reported)
        return next((price for name in [*names, self._model] if (price := self._prices.find(name)) is not None), None)


def prints(prompt: Prompt) -> Prints:
    """Return a prompt in a few numbers."""
    return Prints(_print(prompt.tools), hash(prompt.system), tuple([_print(message) for message in prompt.messages]))


def _print(value: Any) -> int:
    return hash(encoded(value))


def _key(prompt: Prompt) -> _Key:
    return prompt.session, prompt.path, prompt.agent


def unpriced(model: str) -> str:
    """Return why a budget in money cannot be kept with a model of which nobody knows the price, and what to do."""
    return (
        f"the price of {model!r} is not known, so no budget in money can be kept with it; write it into vaka.toml, in "
        f'US$ for a million tokens (0 when it is free): prices."{model}" = {{ input = 3.0, output = 15.0 }}'
    )
