"""The settings tables about models: entries, tiers, subagents, prices, compaction; and checks of base URLs."""

import re
from collections.abc import Callable, Iterable, Mapping
from ipaddress import ip_address
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from vaka.config.documents import suggest
from vaka.core.types.context import Compaction
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.progress import GIVEN_CALLS

EXPECTED_BASE_URL = (
    "expected an address such as https://api.example.com/v1, without a query ('?…') or a fragment ('#…')"
)
REDACTED = "***"


def is_base_url(url: str) -> bool:
    """Whether a text is an http(s) URL to which a path can be appended."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return valid and "?" not in url and "#" not in url


def hide_userinfo(url: str) -> str:
    """Return a URL with user name and password replaced by ``***``."""
    return re.sub(r"//[^/]*@", "//***@", url)


def hide_password(url: str) -> str:
    """Return a URL with its password replaced by ``***``."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", f":{REDACTED}@", 1) if password else url


def is_loopback_url(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


Wire: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]

TIERS = ("low", "mid", "high")

RESERVED = frozenset({*TIERS, "haiku", "sonnet", "opus", "local", "scripted", "default", GIVEN_CALLS})
"""Names of tiers, aliases and built-in models; a model of the settings cannot have them."""

MAX_FALLBACK_CHAIN = 16
"""The longest chain of fallbacks."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_SECRET_NAMES = re.compile(r"auth|key|token|secret|cookie", re.IGNORECASE)

_SENSITIVE_FIELDS = ("base_url", "wire", "key_env", "headers", "price")
"""Fields that decide where a key is sent, which key it is, or how spending is counted."""

_SENSITIVE_OPTIONS = ("headers", "extra")

_Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

_Money: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class InvalidTable(ValueError):
    """A table that is not valid; ``at`` is the path to the fault in it.

    ``part`` is the path to a key that is wrong by itself: without it the rest of its entry can be checked.
    """

    def __init__(self, message: str, *at: str, part: tuple[str, ...] = ()) -> None:
        super().__init__(f"{'.'.join(at)}: {message}" if at else message)
        self.at, self.part = at, part


class _StrictTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A table of a settings file: an unknown key is an error."""


class PriceEntry(_StrictTable, frozen=True, kw_only=True):
    """US dollars for a million tokens."""

    input: _Money
    output: _Money
    cache_read: _Money | None = None
    """Of input that the provider read from its cache; ``input`` by default."""
    cache_write: _Money | None = None
    """Of input that the provider wrote to its cache; ``input`` by default."""
    reasoning: _Money | None = None
    long: _Positive | None = None
    """Above this many tokens of input the whole call costs more, by the factors below."""
    long_input: _Money = 1.0
    long_output: _Money = 1.0


class ModelEntry(_StrictTable, frozen=True, kw_only=True):
    """A model under a name that the user chooses. Its ``repr`` hides the key."""

    model: str
    """The provider's name of the model; ``provider/model`` when ``provider`` and ``base_url`` are absent."""
    provider: str = ""
    base_url: str = ""
    wire: Wire | None = None
    """The wire API of the server at ``base_url``; a known ``provider`` implies it."""
    key_env: str = ""
    """The environment variable that holds the key."""
    key: str = ""
    """The key itself; only in the user's own file."""
    headers: dict[str, str] = {}
    options: dict[str, Any] = {}
    fallback: tuple[str, ...] = ()
    """Names of the models to try, in order, when this one is unavailable."""
    retries: Annotated[int, msgspec.Meta(ge=0)] | None = None
    requests_per_minute: _Positive | None = None
    tokens_per_minute: _Positive | None = None
    concurrent: _Positive | None = None
    """The number of requests in flight at most."""
    text_calls: bool = False
    """The model has no function calling: tools are described and called in plain text."""
    context_window: _Positive | None = None
    """The tokens that the model can read in one call; default: as is known of it, else 200,000."""
    price: PriceEntry | None = None

    def __repr__(self) -> str:
        return f"ModelEntry({', '.join(f'{name}={value!r}' for name, value in redact_entry(self).items())})"


def check_models(value: object) -> dict[str, ModelEntry]:
    """Return ``[models.NAME]`` checked. Raises ``InvalidTable``."""
    entries: dict[str, ModelEntry] = {}
    for name, entry in _require_table(value).items():
        if not _NAME.fullmatch(name):
            raise InvalidTable("a name is letters, digits, '.', '_' and '-', at most 64 of them", name)
        if name.lower() in RESERVED:
            raise InvalidTable("the name is reserved; choose another", name)
        entries[name] = _check_entry(name, entry)
    _reject_fallback_cycles(entries)
    return entries


def check_tiers(value: object) -> dict[str, str]:
    """Return ``[tiers]`` checked: which model is ``low``, ``mid`` and ``high``. Raises ``InvalidTable``."""
    return {_require_tier(tier): _require_name(name, tier) for tier, name in _require_table(value).items()}


def check_subagents(value: object) -> dict[str, str]:
    """Return ``[subagents]`` checked: the tier of each subagent, by its name in lower case. Raises ``InvalidTable``."""
    table = _require_table(value).items()
    return {kind.lower(): _require_tier(_require_name(tier, kind), kind) for kind, tier in table}


def check_prices(value: object) -> dict[str, PriceEntry]:
    """Return ``[prices."MODEL"]`` checked. Raises ``InvalidTable``."""
    return {name: _convert_entry(entry, PriceEntry, name) for name, entry in _require_table(value).items()}


def check_compaction(value: object) -> dict[str, Any]:
    """Return ``[compaction]`` checked: the fields of ``Compaction`` that it sets. Raises ``InvalidTable``."""
    try:
        _convert_entry(value, Compaction)
    except InvalidInput as error:
        raise InvalidTable(str(error)) from error
    return _require_table(value)


TABLE_CHECKS: dict[str, Callable[[object], Mapping[str, Any]]] = {
    "models": check_models,
    "tiers": check_tiers,
    "subagents": check_subagents,
    "prices": check_prices,
    "compaction": check_compaction,
}
"""Each table, and the function that checks it."""


def check_table(name: str, value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table that a program passes, as plain data or as entries. Raises ``ConfigError``."""
    plain = {part: msgspec.to_builtins(entry) for part, entry in value.items()}
    try:
        return dict(TABLE_CHECKS[name](plain))
    except InvalidTable as error:
        raise ConfigError(f"{name}{'.' if error.at else ': '}{error}") from error


def untrusted_reason(name: str, entry: object, known: Iterable[str]) -> str:
    """Return why an untrusted folder may not set this entry, ``""`` when it may; ``known`` are the user's own names."""
    if not isinstance(entry, ModelEntry):
        return "prices decide what a budget is worth" if isinstance(entry, PriceEntry) else ""
    if name in known:
        return "the user's own file has a model of that name"
    fields = [field for field in _SENSITIVE_FIELDS if getattr(entry, field)]
    fields += [f"options.{option}" for option in _SENSITIVE_OPTIONS if option in entry.options]
    return f"{', '.join(fields)} could send keys or conversations elsewhere" if fields else ""


def redact_entry(entry: object) -> Any:
    """Return an entry of a table as plain data with its secrets replaced by ``***``."""
    plain: Any = msgspec.to_builtins(entry)
    if isinstance(entry, ModelEntry):
        plain |= {name: _redact_secrets(plain[name]) for name in ("headers", "options") if name in plain}
        plain |= {"key": REDACTED} if entry.key else {}
        plain |= {"base_url": hide_password(entry.base_url)} if entry.base_url else {}
    return plain


def is_secret_name(name: str) -> bool:
    return bool(_SECRET_NAMES.search(name))


def secrets_of(entry: ModelEntry) -> list[str]:
    """Return the secrets in the headers and options of an entry, which must not be logged."""
    return [text for table in (entry.headers, entry.options) for text in _collect_secrets(table)]


def _collect_secrets(value: Any) -> list[str]:
    secrets: list[str] = []
    for name, inner in cast("dict[str, Any]", value).items() if isinstance(value, dict) else ():
        secrets += [inner] if isinstance(inner, str) and is_secret_name(name) else _collect_secrets(inner)
    return secrets


def _redact_secrets(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        name: REDACTED if isinstance(inner, str) and is_secret_name(name) else _redact_secrets(inner)
        for name, inner in cast("dict[str, Any]", value).items()
    }


def _check_entry(name: str, value: object) -> ModelEntry:
    entry = _convert_entry(value, ModelEntry, name)
    if not entry.model:
        raise InvalidTable("expected the provider's name of the model, not ''", name, "model")
    if entry.wire and entry.provider:
        raise InvalidTable("a provider implies its wire; leave one of them out", name, "wire")
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
        raise InvalidTable("key and key_env name two keys; leave one of them out", name, "key")
    if entry.key_env and not _VARIABLE.fullmatch(entry.key_env):
        # The value is not shown: it may be the key itself.
        raise InvalidTable("expected the name of a variable", name, "key_env")
    return entry


def _reject_fallback_cycles(entries: Mapping[str, ModelEntry]) -> None:
    """Refuse cycles and long chains of fallbacks; each model is visited once, however many lead to it."""
    lengths: dict[str, int] = {}

    def walk(name: str, above: tuple[str, ...]) -> int:
        if name in above:
            raise InvalidTable(f"falls back in a circle: {' → '.join((*above, name))}", above[0], "fallback")
        if name in entries and name not in lengths:
            deep = len(above) >= MAX_FALLBACK_CHAIN
            beyond = [MAX_FALLBACK_CHAIN] if deep else [walk(other, (*above, name)) for other in entries[name].fallback]
            lengths[name] = 1 + max(beyond, default=0)
        if lengths.get(name, 0) > MAX_FALLBACK_CHAIN:
            raise InvalidTable(f"falls back through more than {MAX_FALLBACK_CHAIN} models in a row", name, "fallback")
        return lengths.get(name, 0)

    for name in entries:
        walk(name, ())


_T = TypeVar("_T", bound=msgspec.Struct)


def _convert_entry(value: object, kind: type[_T], *name: str) -> _T:
    for field in _require_table(value, *name):
        if field not in kind.__struct_fields__:
            message = f"unknown key {field!r}; {suggest(field, kind.__struct_fields__)}"
            raise InvalidTable(message, *name, part=(*name, field))
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        words, _, place = str(error).partition(" - at `$")
        at = [part for part in re.split(r"[.\[\]`]+", place) if part]
        missing = re.search(r"required field `(\w+)`", words)
        words = f"{missing[1]} is missing" if missing else words[:1].lower() + words[1:]
        part = () if missing else (*name, *at)
        raise InvalidTable(words, *name, *at, part=part) from None  # the original error may quote a key


def _require_table(value: object, *at: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidTable(f"expected a table, not {type(value).__name__}", *at)
    return cast("dict[str, Any]", value)


def _require_name(value: object, *at: str) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidTable(f"expected a name, not {value!r}", *at)
    return value


def _require_tier(word: str, *at: str) -> str:
    if word not in TIERS:
        raise InvalidTable(f"unknown tier {word!r}; {suggest(word, TIERS)}", *at)
    return word
