"""List prices of models in US dollars per million tokens, and how many tokens an answer may have. Looked up on the day in AS_OF."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeAlias

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage
from vaka.models.catalog import vendors
from vaka.models.local.protocol import DEFAULT_MAX_TOKENS

AS_OF = "2026-11-15"
"""The day the table was looked up."""

MILLION = 1_000_000

MAX_CACHED = 512
"""Answers kept at hand; a provider may report any name."""

_Money: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars for a million tokens. What has no price of its own costs as input, or as output."""

    input: _Money
    output: _Money
    cache_read: _Money | None = None
    """Input that came from the provider's cache."""
    cache_write: _Money | None = None
    """Input that was put into it."""
    reasoning: _Money | None = None
    long: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """More tokens of input than this make the whole call dearer, by the factors below."""
    long_input: _Money = 1.0
    long_output: _Money = 1.0

    def cost(self, usage: Usage) -> float:
        """Return what a call with this usage costs, in US dollars."""
        read = min(usage.cache_read, usage.input)
        write = min(usage.cache_write, usage.input - read)
        thought = min(usage.reasoning, usage.output) if self.reasoning is not None else 0
        taken = (
            (usage.input - read - write) * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + write * (self.input if self.cache_write is None else self.cache_write)
        )
        given = (usage.output - thought) * self.output + thought * (self.reasoning or 0.0)
        more_in, more_out = self._factors(usage.input)
        return (taken * more_in + given * more_out) / MILLION

    def output_token_cost(self, input: int) -> float:
        """Return what one token of an answer costs after ``input`` tokens, in US dollars."""
        return max(self.output, self.reasoning or 0.0) * self._factors(input)[1] / MILLION

    def _factors(self, input: int) -> tuple[float, float]:
        is_long = self.long is not None and input > self.long
        return (self.long_input, self.long_output) if is_long else (1.0, 1.0)


FREE = Price(input=0.0, output=0.0)


def _price(input: float, output: float, cache_read: float | None = None, cache_write: float | None = None) -> Price:
    return Price(input=input, output=output, cache_read=cache_read, cache_write=cache_write)


def _with_long_context(long: int, price: Price, long_input: float = 2.0, long_output: float = 1.5) -> Price:
    return msgspec.structs.replace(price, long=long, long_input=long_input, long_output=long_output)


_SONNET4, _OPUS4 = _price(3, 15, 0.3, 3.75), _price(15, 75, 1.5, 18.75)

_SONNET5, _OPUS45 = _price(2, 10, 0.2, 2.5), _price(5, 25, 0.5, 6.25)

_FABLE5, _FABLE51 = _price(10, 50, 1, 12.5), _price(10, 50, 0.25, 12.5)

_GPT5, _GPT52 = _price(1.25, 10, 0.125), _price(1.75, 14, 0.175)

_FLASH3 = _price(0.75, 3.75, 0.075)  # twice that from 2027 on

LIST_PRICES: dict[str, dict[str, Price]] = {
    "anthropic": {  # cache_write is that of the five-minute cache; the one-hour cache costs 1.6 times as much
        "claude-fable-5": _FABLE5,
        "claude-mythos-5": _FABLE5,
        "claude-fable-5-1": _FABLE51,
        "claude-mythos-5-1": _FABLE51,
        "claude-opus-5-5": _price(4, 20, 0.2, 5),
        "claude-opus-5": _OPUS45,
        "claude-opus-4-8": _OPUS45,
        "claude-opus-4-7": _OPUS45,
        "claude-opus-4-6": _OPUS45,
        "claude-opus-4-5": _OPUS45,
        "claude-opus-4-1": _OPUS4,
        "claude-opus-4": _OPUS4,
        "claude-opus-4-0": _OPUS4,
        "claude-sonnet-5-5": _SONNET5,
        "claude-sonnet-5": _SONNET5,
        "claude-sonnet-4-6": _SONNET4,
        "claude-sonnet-4-5": _SONNET4,
        "claude-sonnet-4": _SONNET4,
        "claude-sonnet-4-0": _SONNET4,
        "claude-3-7-sonnet": _SONNET4,
        "claude-haiku-5-5": _with_long_context(100_000, _price(0.1, 0.5, 0.01, 0.125), 5.0, 5.0),
        "claude-haiku-4-5": _price(1, 5, 0.1, 1.25),
        "claude-3-5-haiku": _price(0.8, 4, 0.08, 1),
    },
    "openai": {
        "gpt-6.1-sol": _with_long_context(272_000, _price(2, 10, 0.1, 2.5)),
        "gpt-6.1-terra": _with_long_context(272_000, _price(1, 5, 0.05, 1.25)),
        "gpt-6-sol": _with_long_context(272_000, _price(2, 10, 0.2, 2.5)),
        "gpt-6-luna": _with_long_context(272_000, _price(0.1, 0.5, 0.01, 0.125)),
        "gpt-5.6-sol": _with_long_context(272_000, _price(5, 30, 0.5, 6.25)),
        "gpt-5.6-terra": _with_long_context(272_000, _price(2, 12, 0.2, 2.5)),
        "gpt-5.6-luna": _with_long_context(200_000, _price(0.2, 1.2, 0.02, 0.25)),
        "gpt-5.5": _with_long_context(272_000, _price(5, 30, 0.5)),
        "gpt-5.5-pro": _with_long_context(272_000, _price(30, 180)),
        "gpt-5.4": _with_long_context(272_000, _price(2.5, 15, 0.25)),
        "gpt-5.4-pro": _with_long_context(272_000, _price(30, 180)),
        "gpt-5.4-mini": _price(0.75, 4.5, 0.075),
        "gpt-5.4-nano": _price(0.2, 1.25, 0.02),
        "gpt-5.3-codex": _GPT52,
        "gpt-5.2": _GPT52,
        "gpt-5.2-codex": _GPT52,
        "gpt-5.1": _GPT5,
        "gpt-5.1-codex": _GPT5,
        "gpt-5": _GPT5,
        "gpt-5-codex": _GPT5,
        "gpt-5-mini": _price(0.25, 2, 0.025),
        "gpt-5-nano": _price(0.05, 0.4, 0.005),
        "gpt-5-pro": _price(15, 120),
        "gpt-4.1": _price(2, 8, 0.5),
        "gpt-4.1-mini": _price(0.4, 1.6, 0.1),
        "gpt-4.1-nano": _price(0.1, 0.4, 0.025),
        "gpt-4o": _price(2.5, 10, 1.25),
        "gpt-4o-mini": _price(0.15, 0.6, 0.075),
        "gpt-4o-2024-05-13": _price(5, 15),
        "text-embedding-3-small": _price(0.02, 0),
        "text-embedding-3-large": _price(0.13, 0),
        "text-embedding-ada": _price(0.1, 0),
        "o1": _price(15, 60, 7.5),
        "o3": _price(2, 8, 0.5),
        "o3-mini": _price(1.1, 4.4, 0.55),
        "o4-mini": _price(1.1, 4.4, 0.275),
    },
    "google": {
        "gemini-3.8-flash": _FLASH3,
        "gemini-3.7-flash": _FLASH3,
        "gemini-3.6-flash": _FLASH3,
        "gemini-3.5-flash": _price(1.5, 9, 0.15),
        "gemini-3.5-flash-lite": _price(0.3, 2.5, 0.03),
        "gemini-3.1-pro": _with_long_context(200_000, _price(2, 12, 0.2)),
        "gemini-3-pro": _with_long_context(200_000, _price(2, 12, 0.2)),
        "gemini-3.1-flash-lite": _price(0.25, 1.5, 0.025),
        "gemini-3-flash": _price(0.5, 3, 0.05),
        "gemini-2.5-pro": _with_long_context(200_000, _price(1.25, 10, 0.125)),
        "gemini-2.5-flash": _price(0.3, 2.5, 0.03),
        "gemini-2.5-flash-lite": _price(0.1, 0.4, 0.01),
    },
    "deepseek": {  # by day in China; half of it at other hours
        "deepseek-flash": _price(0.3, 1.2, 0.006),
        "deepseek-v4-flash": _price(0.3, 1.2, 0.006),
        "deepseek-v4-pro": _price(1.32, 3.96, 0.044),
    },
    "mistral": {
        "mistral-medium-3-5": _price(1.5, 7.5),
        "mistral-medium-2604": _price(1.5, 7.5),
        "mistral-large-2512": _price(0.5, 1.5),
        "mistral-small-2603": _price(0.15, 0.6),
        "devstral-2512": _price(0.4, 2),
        "codestral": _price(0.3, 0.9),
    },
    "xai": {
        "grok-4.6": _with_long_context(200_000, _price(2, 6, 0.5), 2.0, 2.0),
        "grok-4.5": _with_long_context(200_000, _price(2, 6, 0.5), 2.0, 2.0),
        "grok-4.3": _with_long_context(200_000, _price(1.25, 2.5, 0.2), 2.0, 2.0),
    },
}
"""Prices by vendor and model."""

PROVIDER_VENDORS = {
    "anthropic": "anthropic", "openai": "openai", "openai-chat": "openai", "azure": "openai", "google": "google",
    "gemini": "google", "deepseek": "deepseek", "mistral": "mistral", "xai": "xai",
}  # fmt: skip
"""Providers whose prices are those of a vendor. Somebody else who serves the same model has prices of their own."""

_VERSION_SUFFIX = re.compile(
    r"(?:[-@](?:latest|preview|exp|\d{3,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}(?:-\d{4})?|\d{2}-\d{4}|v\d+(?::\d+)?))+"
)
"""What may follow the id of a model and is still the same one; ``-pro`` and ``-mini`` are others."""


class PriceList:
    """Prices by the name of a model: one's own over those of the table.

    A name is ``provider/model`` or the bare id; one's own may end in ``*``. A dated id has the price of its model.
    """

    def __init__(self, overrides: "Mapping[str, Price | Mapping[str, Any] | object] | None" = None) -> None:
        self._overrides = {name: _parse_price(name, price) for name, price in (overrides or {}).items()}
        self._cache: dict[str, Price | None] = {}

    def find(self, model: str) -> Price | None:
        """Return the price of a model, ``None`` when it is not known."""
        if model not in self._cache:
            if len(self._cache) >= MAX_CACHED:
                self._cache.clear()
            self._cache[model] = self._look_up(model)
        return self._cache[model]

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return what a call costs in US dollars, ``None`` when the price is not known."""
        price = self.find(model)
        return None if price is None else price.cost(usage)

    def _look_up(self, model: str) -> Price | None:
        provider, slash, id = model.partition("/")
        if not slash:
            provider, id = "", model
        for name in (model, id):
            own = _longest_match(self._overrides, name)
            if own is not None:
                return own
        if provider in PROVIDER_VENDORS:
            return _longest_match(LIST_PRICES[PROVIDER_VENDORS[provider]], id.removeprefix("models/"))
        if provider not in ("", "models"):
            return None
        return next((price for known in LIST_PRICES.values() if (price := _longest_match(known, id)) is not None), None)


def _longest_match(known: Mapping[str, Price], name: str) -> Price | None:
    """Return the price under the longest name that means this one."""
    fits = [entry for entry in known if _matches_model(entry, name)]
    return known[max(fits, key=len)] if fits else None


def _matches_model(entry: str, name: str) -> bool:
    if entry.endswith("*"):
        return name.startswith(entry[:-1])
    return name.startswith(entry) and (len(name) == len(entry) or bool(_VERSION_SUFFIX.fullmatch(name, len(entry))))


def _parse_price(name: str, price: object) -> Price:
    if isinstance(price, Price):
        return price
    try:
        return msgspec.convert(price, Price, from_attributes=True)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the price of {name!r}: {error}; expected US$ for a million tokens, input and output") from (
            error
        )


_OUTPUT_LIMITS: dict[str, int] = {
    "gpt-5-pro": 272_000, "gpt-5": 128_000, "gpt-5.1": 128_000, "gpt-5.2": 128_000,
    "gpt-4.1": 32_768, "gpt-4o-2024-05-13": 4096, "gpt-4o": 16_384, "o1-mini": 65_536, "o1-preview": 32_768,
    "o1": 100_000, "o3": 100_000, "o4-mini": 100_000, "gemini-2.5": 65_536,
    "gemini-3": 65_536, "gemini-3.1": 65_536,
}  # fmt: skip
"""By how ids begin, of vendors whose models are called so wherever they are served; the first that fits counts."""

_SPECIAL_VARIANT = re.compile(r"-(?:chat|image|tts|audio|native|live|realtime|transcribe|search|computer)(?:-|$)")
"""Kinds of a model that write less than it does; how much is not known well enough."""


def output_limit_of(wire: str, model: str) -> int | None:
    """Return how long an answer can get when nobody bounds it, ``None`` when that is not known."""
    if wire == "anthropic":  # where every request has a bound
        return vendors.capabilities_of(model).default_max_tokens
    if wire == "local":
        return DEFAULT_MAX_TOKENS
    id = model.rpartition("/")[2]
    if _SPECIAL_VARIANT.search(id):
        return None
    return next((most for begins, most in _OUTPUT_LIMITS.items() if _is_variant_of(id, begins)), None)


def _is_variant_of(id: str, prefix: str) -> bool:
    """Whether an id is that model or one of its kind: ``gpt-5-mini`` is of ``gpt-5``, ``gpt-5.4`` is not."""
    return id == prefix or id.startswith(f"{prefix}-")
