"""The settings tables about models: entries, tiers, subagents, prices; and checks of base URLs."""

import re
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from vaka.core.types.errors import ConfigError

EXPECTED_BASE_URL = (
    "expected an address such as https://api.example.com/v1, without a query ('?…') or a fragment ('#…')"
)


def is_base_url(url: str) -> bool:
    """Whether a text can be dialed, and a path be put behind it."""
    try:
        parts = urlsplit(url)
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return right and "?" not in url and "#" not in url


def hide_userinfo(url: str) -> str:
    """Return an address as it may be shown: without who asks there, and their password."""
    return re.sub(r"//[^/]*@", "//***@", url)


def is_loopback_url(url: str) -> bool:
    """Whether an address is this machine's own."""
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


Wire: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]

TIERS = ("low", "mid", "high")

RESERVED = frozenset({*TIERS, "haiku", "sonnet", "opus", "local", "scripted", "default"})
"""Names that mean something already."""

MAX_FALLBACK_CHAIN = 16
"""Models that may fall back on each other in a row."""

REDACTED = "***"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)

_SENSITIVE_FIELDS = ("base_url", "wire", "key_env", "headers", "price")
"""Fields that decide where a key goes, which one it is, or what a budget is worth."""

_SENSITIVE_OPTIONS = ("headers", "extra")

_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

_Money: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class InvalidTable(ValueError):
    """What a table must not say; ``at`` leads to the place in it."""

    def __init__(self, message: str, *at: str) -> None:
        super().__init__(f"{'.'.join(at)}: {message}" if at else message)
        self.at = at


class _StrictTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What people write."""


class PriceEntry(_StrictTable, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: _Money
    output: _Money
    cache_read: _Money | None = None
    """Of input that the provider had cached; as ``input`` when it is not given."""
    cache_write: _Money | None = None
    """Of input that the provider put into its cache; as ``input`` when it is not given."""
    reasoning: _Money | None = None
    long: _Positive | None = None
    """More tokens of input than this make the whole call dearer, by the factors below."""
    long_input: _Money = 1.0
    long_output: _Money = 1.0


class ModelEntry(_StrictTable, frozen=True, kw_only=True):
    """A model under a name of one's own. Its key is never shown."""

    model: str
    """The provider's own name for it; without ``provider`` and ``base_url`` a whole ``provider/model``."""
    provider: str = ""
    base_url: str = ""
    wire: Wire | None = None
    """How the server at ``base_url`` is spoken to; a known ``provider`` says it by itself."""
    key_env: str = ""
    """The variable that holds the key."""
    key: str = ""
    """The key itself; only in the user's own file."""
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    fallback: tuple[str, ...] = ()
    """Names of models to ask when this one cannot answer, in order."""
    retries: Annotated[int, msgspec.Meta(ge=0)] | None = None
    requests_per_minute: _Positive | None = None
    tokens_per_minute: _Positive | None = None
    concurrent: _Positive | None = None
    """Requests at the same time."""
    text_calls: bool = False
    """The model has no function calling: its tools are told and called in plain text."""
    price: PriceEntry | None = None

    def __repr__(self) -> str:
        return f"ModelEntry({', '.join(f'{name}={value!r}' for name, value in redact_entry(self).items())})"


def check_models(value: object) -> dict[str, ModelEntry]:
    """Return ``[models.NAME]`` checked. Raises ``Wrong``."""
    found: dict[str, ModelEntry] = {}
    for name, entry in _require_table(value).items():
        if not _NAME.fullmatch(name):
            raise InvalidTable("a name is letters, digits, '.', '_' and '-', at most 64 of them", name)
        if name.lower() in RESERVED:
            raise InvalidTable("that name means something already; choose another", name)
        found[name] = _check_entry(name, entry)
    _reject_fallback_cycles(found)
    return found


def check_tiers(value: object) -> dict[str, str]:
    """Return ``[tiers]`` checked: which model is ``low``, ``mid`` and ``high``. Raises ``Wrong``."""
    return {_require_tier(tier, TIERS): _require_name(name, tier) for tier, name in _require_table(value).items()}


def check_subagents(value: object) -> dict[str, str]:
    """Return ``[subagents]`` checked: the tier of agents that others start, by name in lower case. Raises ``Wrong``."""
    return {
        kind.lower(): _require_tier(_require_name(tier, kind), TIERS, kind)
        for kind, tier in _require_table(value).items()
    }


def check_prices(value: object) -> dict[str, PriceEntry]:
    """Return ``[prices."MODEL"]`` checked. Raises ``Wrong``."""
    return {name: _convert_entry(entry, PriceEntry, name) for name, entry in _require_table(value).items()}


TABLE_CHECKS: dict[str, Callable[[object], Mapping[str, Any]]] = {
    "models": check_models, "tiers": check_tiers, "subagents": check_subagents, "prices": check_prices,
}  # fmt: skip
"""Each table, and what reads it."""


def check_table(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table given in a program, as what people write or as values. Raises ``ConfigError``."""
    plain = {part: msgspec.to_builtins(entry) for part, entry in value.items()}
    try:
        return dict(TABLE_CHECKS[name](plain))
    except InvalidTable as error:
        raise ConfigError(f"{name}{'.' if error.at else ': '}{error}") from error


def untrusted_reason(name: str, entry: object, known: Iterable[str]) -> str:
    """Return why a folder nobody trusts may not say this, ``""`` when it may; ``known`` are the user's own names."""
    if not isinstance(entry, ModelEntry):
        return "prices decide what a budget is worth" if isinstance(entry, PriceEntry) else ""
    if name in known:
        return "the user's own file has a model of that name"
    said = [field for field in _SENSITIVE_FIELDS if getattr(entry, field)]
    said += [f"options.{option}" for option in _SENSITIVE_OPTIONS if option in entry.options]
    return f"{', '.join(said)} could send keys or conversations elsewhere" if said else ""


def redact_entry(entry: object) -> Any:
    """Return a part of a table as it may be shown: without keys."""
    plain: Any = msgspec.to_builtins(entry)
    if not isinstance(entry, ModelEntry):
        return plain
    if entry.key:
        plain["key"] = REDACTED
    for where in ("headers", "options"):
        if where in plain:
            plain[where] = _redact_secrets(plain[where])
    if entry.base_url:
        plain["base_url"] = _redact_password(entry.base_url)
    return plain


def is_secret_name(name: str) -> bool:
    """Whether a header or field of that name holds something like a key."""
    return bool(_SECRET_NAMES.search(name))


def secrets_of(entry: ModelEntry) -> list[str]:
    """Return what an entry sends along besides its key that must not be written down."""
    return [text for given in (entry.headers, entry.options) for text in _collect_secrets(given)]


def _collect_secrets(value: Any) -> list[str]:
    found: list[str] = []
    for name, inner in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        found += [inner] if isinstance(inner, str) and is_secret_name(name) else _collect_secrets(inner)
    return found


def _redact_secrets(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    table = cast("dict[str, Any]", value)
    return {
        name: REDACTED if isinstance(inner, str) and is_secret_name(name) else _redact_secrets(inner)
        for name, inner in table.items()
    }


def _check_entry(name: str, value: object) -> ModelEntry:
    entry = _convert_entry(value, ModelEntry, name)
    if not entry.model:
        raise InvalidTable("expected the provider's name of the model, not ''", name, "model")
    if entry.wire and entry.provider:
        raise InvalidTable("a provider says its wire by itself; leave one of them out", name, "wire")
    if entry.base_url:
        if not is_base_url(entry.base_url):
            raise InvalidTable(EXPECTED_BASE_URL, name, "base_url")
        if not entry.wire and not entry.provider:
            raise InvalidTable("base_url needs wire (chat, responses, anthropic or gemini) or provider", name)
    elif entry.wire:
        raise InvalidTable("wire is for a server of your own; it needs base_url", name, "wire")
    elif not entry.provider and "/" not in entry.model:
        raise InvalidTable(f"expected provider, or a model such as 'openai/{entry.model}'", name, "model")
    if entry.key and entry.key_env:
        raise InvalidTable("key and key_env are two keys; keep one", name, "key")
    if entry.key_env and not _VARIABLE.fullmatch(entry.key_env):
        raise InvalidTable(
            "expected the name of a variable", name, "key_env"
        )  # it may be the key itself: it is not shown
    return entry


def _reject_fallback_cycles(found: Mapping[str, ModelEntry]) -> None:
    """Refuse models that fall back on each other without end; each is looked at once, however many lead to it."""
    lengths: dict[str, int] = {}

    def walk(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise InvalidTable(f"falls back in a circle: {' → '.join((*above, name))}", above[0], "fallback")
        if name in found and name not in lengths:
            beyond = (
                [walk(other, (*above, name)) for other in found[name].fallback]
                if len(above) < MAX_FALLBACK_CHAIN
                else [MAX_FALLBACK_CHAIN]
            )
            lengths[name] = 1 + max(beyond, default=0)
        if lengths.get(name, 0) > MAX_FALLBACK_CHAIN:
            raise InvalidTable(
                f"falls back through more than {MAX_FALLBACK_CHAIN} models, one after the other", name, "fallback"
            )
        return lengths.get(name, 0)

    for name in found:
        walk(name, ())


_T = TypeVar("_T", bound=msgspec.Struct)


def _convert_entry(value: object, kind: type[_T], name: str) -> _T:
    for field in _require_table(value, name):
        if field not in kind.__struct_fields__:
            near = get_close_matches(field, kind.__struct_fields__, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(kind.__struct_fields__)}"
            raise InvalidTable(f"unknown key {field!r}; {hint}", name)
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        at = [part for part in re.split(r"[.\[\]`]+", place) if part]
        missing = re.search(r"required field `(\w+)`", words)
        words = f"{missing[1]} is missing" if missing else words[:1].lower() + words[1:]
        raise InvalidTable(words, name, *at) from None  # what it was made of may hold a key


def _require_table(value: object, *at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTable(f"expected a table, not {type(value).__name__}", *at)
    return cast("dict[str, Any]", value)


def _require_name(value: object, *at: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidTable(f"expected a name, not {value!r}", *at)
    return value


def _require_tier(word: str, known: tuple[str, ...], *at: str) -> str:
    if word not in known:
        near = get_close_matches(word, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise InvalidTable(f"unknown tier {word!r}; {hint}", *at)
    return word


def _redact_password(url: str) -> str:
    password = urlsplit(url).password
    return url.replace(f":{password}@", f":{REDACTED}@", 1) if password else url
