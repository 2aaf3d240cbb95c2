"""Data about models: list prices, context windows, output limits, and what each Claude model can do."""

import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from vaka.core.types.errors import ConfigError
from vaka.core.types.message import Usage

MILLION = 1_000_000
MAX_CACHED = 512
"""Lookups that are cached; a provider may report any name."""

_Money: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class Price(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """US dollars for a million tokens. Cached input costs as input, and reasoning as output, unless they are given."""

    input: _Money
    output: _Money
    cache_read: _Money | None = None
    """Input that was read from the provider's cache."""
    cache_write: _Money | None = None
    """Input that was written to the provider's cache."""
    reasoning: _Money | None = None
    long: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """The number of input tokens above which the factors below apply to the whole call."""
    long_input: _Money = 1.0
    long_output: _Money = 1.0

    def cost(self, usage: Usage) -> float:
        """Return the cost of a call in US dollars."""
        read = min(usage.cache_read, usage.input)
        write = min(usage.cache_write, usage.input - read)
        reasoning = min(usage.reasoning, usage.output) if self.reasoning is not None else 0
        input_cost = (
            (usage.input - read - write) * self.input
            + read * (self.input if self.cache_read is None else self.cache_read)
            + write * (self.input if self.cache_write is None else self.cache_write)
        )
        output_cost = (usage.output - reasoning) * self.output + reasoning * (self.reasoning or 0.0)
        input_factor, output_factor = self._factors(usage.input)
        return (input_cost * input_factor + output_cost * output_factor) / MILLION

    def output_token_cost(self, input: int) -> float:
        """Return the cost in US dollars of one output token after ``input`` tokens."""
        return max(self.output, self.reasoning or 0.0) * self._factors(input)[1] / MILLION

    def cache_miss_cost(self, usage: Usage) -> float:
        """Return what a token that a call did not read from the cache costs more in US dollars: sent, or written."""
        read = self.input if self.cache_read is None else self.cache_read
        sent = self.input if self.cache_write is None or not usage.cache_write else self.cache_write
        return max(sent - read, 0.0) * self._factors(usage.input)[0] / MILLION

    def _factors(self, input: int) -> tuple[float, float]:
        is_long = self.long is not None and input > self.long
        return (self.long_input, self.long_output) if is_long else (1.0, 1.0)


FREE = Price(input=0.0, output=0.0)


@cache
def list_prices() -> dict[str, dict[str, Price]]:
    """Return the prices by vendor and model."""
    lines = Path(__file__).with_name("prices.csv").read_text("utf-8").splitlines()
    columns, *rows = (line.split(",") for line in lines if not line.startswith("#"))
    prices: dict[str, dict[str, Price]] = {}
    for vendor, model, *values in rows:
        fields = {name: value for name, value in zip(columns[2:], values, strict=False) if value}
        prices.setdefault(vendor, {})[model] = msgspec.convert(fields, Price, strict=False)
    return prices


@cache
def _known_windows() -> list[tuple[str, str, int]]:
    """Return the vendor, the beginning of the id and the window of models, the longest id first."""
    lines = Path(__file__).with_name("windows.csv").read_text("utf-8").splitlines()
    _, *rows = (line.split(",") for line in lines if not line.startswith("#"))
    return sorted(((vendor, model, int(tokens)) for vendor, model, tokens in rows), key=lambda row: -len(row[1]))


def known_context_window(model: str) -> int | None:
    """Return the tokens of the context window of ``provider/model`` or of a bare id, ``None`` if it is unknown."""
    provider, id = model.split("/", 1) if "/" in model else ("", model)
    vendor, id = PROVIDER_VENDORS.get(provider, ""), id.rpartition("/")[2]
    known = (row for row in _known_windows() if id.startswith(row[1]) and vendor in ("", row[0]))
    return next((tokens for _, _, tokens in known), None)


PROVIDER_VENDORS = {
    "anthropic": "anthropic",
    "openai": "openai",
    "openai-chat": "openai",
    "azure": "openai",
    "google": "google",
    "gemini": "google",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "xai": "xai",
}
"""Providers that charge a vendor's list prices. Other providers of the same models have prices of their own."""

_VERSION_SUFFIX = re.compile(
    r"(?:[-@](?:latest|preview|exp|\d{3,8}|\d{4}-\d{2}-\d{2}|\d{2}-\d{2}(?:-\d{4})?|\d{2}-\d{4}|v\d+(?::\d+)?))+"
)
"""Suffixes of an id that mean the same model; ``-pro`` and ``-mini`` are other models."""


class PriceList:
    """Prices by the name of a model; ``overrides`` take precedence over list prices.

    A name is ``provider/model`` or the bare id; in ``overrides`` it may end in ``*``. A dated id has the price of its
    model.
    """

    def __init__(self, overrides: "Mapping[str, Price | Mapping[str, Any] | object] | None" = None) -> None:
        self._overrides = {name: _parse_price(name, price) for name, price in (overrides or {}).items()}
        self.find: Callable[[str], Price | None] = lru_cache(MAX_CACHED)(self._look_up)
        """Returns the price of a model, ``None`` if it is unknown."""

    def cost(self, model: str, usage: Usage) -> float | None:
        """Return the cost of a call in US dollars, ``None`` if the price is unknown."""
        price = self.find(model)
        return None if price is None else price.cost(usage)

    def _look_up(self, model: str) -> Price | None:
        provider, id = model.split("/", 1) if "/" in model else ("", model)
        for name in (model, id):
            override = _longest_match(self._overrides, name)
            if override is not None:
                return override
        if provider in PROVIDER_VENDORS:
            return _longest_match(list_prices()[PROVIDER_VENDORS[provider]], id.removeprefix("models/"))
        if provider not in ("", "models"):
            return None
        return next(
            (price for known in list_prices().values() if (price := _longest_match(known, id)) is not None), None
        )


def _longest_match(known: Mapping[str, Price], name: str) -> Price | None:
    """Return the price under the longest entry that matches a name."""
    matches = [entry for entry in known if _matches_model(entry, name)]
    return known[max(matches, key=len)] if matches else None


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
        expected = "expected US$ for a million tokens, input and output"
        raise ConfigError(f"the price of {name!r}: {error}; {expected}") from error


class AnthropicCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The features that a model accepts; it answers others with an error."""

    default_max_tokens: int = 8192
    """The length limit of an answer where the request has none; it leaves room in the context window."""
    thinking_mode: Literal["", "budget", "adaptive"] = "budget"
    """How thinking is asked for: not at all, with a budget in tokens, or with an effort."""
    thinks_by_default: bool = False
    thinking_switch: Literal["", "disabled", "between_tools"] = ""
    """The value that turns thinking off; a model that thinks by default and has none always thinks."""
    takes_sampling: bool = True
    """Accepts temperature, top_p and top_k."""
    takes_temperature_and_top_p: bool = True
    """Accepts temperature and top_p in one request."""
    can_force_tool: bool = True
    """Can be forced to call a tool while it does not think."""
    can_prefill: bool = True
    """Continues a conversation that ends with an assistant message."""
    has_output_format: bool = False
    """Accepts a JSON Schema for its answer."""
    has_native_tools: bool = False
    """Knows the client tools that the provider defines, such as the memory tool."""

    @property
    def always_thinks(self) -> bool:
        return self.thinks_by_default and not self.thinking_switch


_V3 = AnthropicCapabilities(default_max_tokens=4096, thinking_mode="")
_V35 = AnthropicCapabilities(default_max_tokens=8192, thinking_mode="")
_V37 = AnthropicCapabilities(default_max_tokens=32_000)
_V41 = AnthropicCapabilities(default_max_tokens=32_000, takes_temperature_and_top_p=False)
_V45 = replace(_V41, has_output_format=True)
_V46 = replace(_V45, default_max_tokens=64_000, thinking_mode="adaptive", can_prefill=False)
_V47 = replace(_V46, takes_sampling=False, takes_temperature_and_top_p=True)
_V5 = replace(_V47, thinks_by_default=True, thinking_switch="disabled")
_SONNET55 = replace(_V5, thinking_switch="between_tools", can_force_tool=False)
_ALWAYS_THINKING = replace(_V5, thinking_switch="", can_force_tool=False)

_CAPABILITIES: dict[str, dict[tuple[int, int], AnthropicCapabilities]] = {
    "opus": {
        (3, 0): _V3,
        (4, 0): _V37,
        (4, 1): _V41,
        (4, 5): _V45,
        (4, 6): _V46,
        (4, 7): _V47,
        (5, 0): _V5,
        (5, 5): _ALWAYS_THINKING,
    },
    "sonnet": {
        (3, 0): _V3,
        (3, 5): _V35,
        (3, 7): _V37,
        (4, 5): _V45,
        (4, 6): _V46,
        (5, 0): _V5,
        (5, 5): _SONNET55,
    },
    "haiku": {(3, 0): _V3, (3, 5): _V35, (4, 5): _V45, (5, 5): _V5},
    "fable": {(5, 0): _ALWAYS_THINKING},
    "mythos": {(0, 0): _ALWAYS_THINKING},
}
"""Capabilities by family, each with the version since which they hold."""

_FAMILY = r"(?P<family>opus|sonnet|haiku|fable|mythos)"
_VERSION = r"(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d)"
_MODEL_NAMES = (
    re.compile(rf"claude-{_FAMILY}-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-{_FAMILY}"),
    re.compile(rf"claude-{_FAMILY}(?P<major>)(?P<minor>)"),
)
_NEWEST: tuple[int, int] = (99, 0)
_NATIVE_TOOLS_SINCE: tuple[int, int] = (4, 0)


def capabilities_of(model: str) -> AnthropicCapabilities:
    """Return what is known of a model by its id, dated or not; the defaults for an unknown one."""
    for pattern in _MODEL_NAMES:
        if name := pattern.search(model):
            version = (int(name["major"]), int(name["minor"] or 0)) if name["major"] else _NEWEST
            known = [facts for since, facts in _CAPABILITIES[name["family"]].items() if since <= version]
            facts = known[-1] if known else AnthropicCapabilities()
            return replace(facts, has_native_tools=True) if version >= _NATIVE_TOOLS_SINCE else facts
    return AnthropicCapabilities()


LOCAL_MAX_TOKENS = 512
"""Tokens of an answer of the local model whose request has no limit: a model this small may not stop by itself."""

_OUTPUT_LIMITS: dict[str, int] = {
    "gpt-5-pro": 272_000,
    "gpt-5": 128_000,
    "gpt-5.1": 128_000,
    "gpt-5.2": 128_000,
    "gpt-4.1": 32_768,
    "gpt-4o-2024-05-13": 4096,
    "gpt-4o": 16_384,
    "o1-mini": 65_536,
    "o1-preview": 32_768,
    "o1": 100_000,
    "o3": 100_000,
    "o4-mini": 100_000,
    "gemini-2.5": 65_536,
    "gemini-3": 65_536,
    "gemini-3.1": 65_536,
}
"""The tokens of an answer at most, by the prefix of a model's id; the first match applies."""
_SPECIAL_VARIANT = re.compile(r"-(?:chat|image|tts|audio|native|live|realtime|transcribe|search|computer)(?:-|$)")
"""Variants with a smaller limit, which is not documented."""


def output_limit_of(wire: str, model: str) -> int | None:
    """Return the tokens of an answer whose request has no limit, at most; ``None`` if that is unknown."""
    if wire == "anthropic":  # each request has a limit
        return capabilities_of(model).default_max_tokens
    if wire == "local":
        return LOCAL_MAX_TOKENS
    id = model.rpartition("/")[2]
    if _SPECIAL_VARIANT.search(id):
        return None
    # gpt-5-mini is a variant of gpt-5, gpt-5.4 is not
    return next((limit for prefix, limit in _OUTPUT_LIMITS.items() if f"{id}-".startswith(f"{prefix}-")), None)
