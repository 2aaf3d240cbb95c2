"""List prices of models in US dollars per million tokens, and how many tokens an answer may have. Looked up on the day in AS_OF."""

import csv
import re
from collections.abc import Mapping
from importlib import resources
from typing import Annotated, Any, TypeAlias

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage
from vaka.models.catalog.anthropic import capabilities_of
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


def _read_prices() -> dict[str, dict[str, Price]]:
    lines = resources.files(__package__).joinpath("prices.csv").read_text("utf-8").splitlines()
    prices: dict[str, dict[str, Price]] = {}
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        vendor, model = row.pop("vendor"), row.pop("model")
        prices.setdefault(vendor, {})[model] = msgspec.convert(
            {name: value for name, value in row.items() if value}, Price, strict=False
        )
    return prices


LIST_PRICES = _read_prices()
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
        return capabilities_of(model).default_max_tokens
    if wire == "local":
        return DEFAULT_MAX_TOKENS
    id = model.rpartition("/")[2]
    if _SPECIAL_VARIANT.search(id):
        return None
    return next((most for begins, most in _OUTPUT_LIMITS.items() if _is_variant_of(id, begins)), None)


def _is_variant_of(id: str, prefix: str) -> bool:
    """Whether an id is that model or one of its kind: ``gpt-5-mini`` is of ``gpt-5``, ``gpt-5.4`` is not."""
    return id == prefix or id.startswith(f"{prefix}-")
