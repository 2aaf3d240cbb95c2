"""Providers: the wire format, base URL and key variables of each. This module opens no connection."""

import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

import msgspec

from vaka.config.model_tables import EXPECTED_BASE_URL, hide_userinfo, is_base_url, is_loopback_url
from vaka.core.types.errors import AuthenticationFailed, ConfigError
from vaka.core.types.keywords import find_near_names
from vaka.models.openai_chat.vendors import PROFILES, find_vendor
from vaka.runtime.stored_keys import find_key

Wire: TypeAlias = Literal["chat", "responses", "anthropic", "gemini"]

_OPENAI_MODEL = re.compile(r"gpt-[3-9]|chatgpt-|o[1-9](-|$)")
"""Names of the models that only OpenAI serves; its open models, ``gpt-oss``, run on any server."""
_VERSION_SEGMENT = re.compile(r"v\d+[a-z0-9]*")
_ENDPOINT_SUFFIX = re.compile(
    r"(?<=[^/:])(/chat/completions|/responses|/embeddings|(?<=/v1)/messages|(?<=/v1beta)/models)/*$"
)
"""An endpoint path at the end of a base URL; the adapters add it themselves."""


class Provider(msgspec.Struct, frozen=True, kw_only=True):
    """A provider of models: its wire format, base URL and key variables."""

    name: str
    wire: Wire
    base_url: str
    base_env: str
    """The variable that overrides the base URL."""
    key_env: tuple[str, ...]
    """The variables that may hold the key, in order of precedence."""
    bearer_env: str = ""
    """The variable of a key that is sent as a bearer token, unlike the keys of ``key_env``."""
    version: str = ""
    """The version segment that the base URL must have; default: the path of ``base_url``, if a URL has none."""
    query_env: Mapping[str, str] = {}
    local: bool = False
    """Whether it is a local server, which needs no key and costs nothing."""
    profile: Any = None

    @property
    def variables(self) -> tuple[str, ...]:
        """All variables that may hold a key."""
        return (*self.key_env, self.bearer_env) if self.bearer_env else self.key_env


class ProviderAccount(msgspec.Struct, frozen=True, kw_only=True):
    """The base URL and key for the calls of a model. ``repr`` hides the key."""

    base_url: str
    key: str = ""
    bearer: bool = False
    query: Mapping[str, str] = {}
    variable: str = ""
    """The variable from which the key was read."""

    def __repr__(self) -> str:
        return f"Account(base_url={hide_userinfo(self.base_url)!r}, key={'…' if self.key else ''!r})"


_BUILTIN_PROVIDERS = (
    Provider(
        name="openai",
        wire="responses",
        base_url="https://api.openai.com/v1",
        base_env="OPENAI_BASE_URL",
        key_env=("OPENAI_API_KEY",),
    ),
    Provider(
        name="anthropic",
        wire="anthropic",
        base_url="https://api.anthropic.com/v1",
        base_env="ANTHROPIC_BASE_URL",
        key_env=("ANTHROPIC_API_KEY",),
        bearer_env="ANTHROPIC_AUTH_TOKEN",
        version="v1",
    ),
    Provider(
        name="gemini",
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com/v1beta",
        base_env="GEMINI_BASE_URL",
        key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        version="v1beta",
    ),
)
_PROVIDERS_BY_NAME = {provider.name: provider for provider in _BUILTIN_PROVIDERS}
_ALIASES = {"google": "gemini", "claude": "anthropic"}
_MODEL_PREFIXES = {
    "gpt": "openai",
    "chatgpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
    "claude": "anthropic",
    "gemini": "gemini",
    "gemma": "gemini",
    "deepseek": "deepseek",
    "mistral": "mistral",
    "grok": "xai",
    "command": "cohere",
    "glm": "zhipu",
    "kimi": "moonshot",
    "qwen": "qwen",
}
"""Providers by the prefix of their model names, for suggestions."""


def find(name: str) -> Provider | None:
    """Return the provider of a name or alias, if it is known."""
    known = _PROVIDERS_BY_NAME.get(_ALIASES.get(name, name))
    if known is not None:
        return known
    profile = find_vendor(name)
    return provider_from_profile(profile) if profile is not None else None


def provider_from_profile(profile: Any) -> Provider:
    """Return the provider that a vendor profile describes."""
    return Provider(
        name=profile.name,
        wire="chat",
        base_url=profile.base_url,
        base_env=profile.base_env,
        key_env=profile.key_env,
        query_env=profile.query_env,
        local=profile.local,
        profile=profile,
    )


def all_providers() -> tuple[Provider, ...]:
    return (*_BUILTIN_PROVIDERS, *(provider_from_profile(profile) for profile in PROFILES.values()))


def resolve_account(
    provider: Provider, environ: Mapping[str, str], *, base_url: str = "", key: str = "", key_env: str = ""
) -> ProviderAccount:
    """Return the base URL and key of a provider.

    Raises ``AuthenticationFailed`` with the name of the variable when there is no key, and ``ConfigError`` when there
    is no base URL. A server on this machine needs no key. Stored keys behind ``environ`` count, see ``find_key``.
    """
    configured = base_url or (environ.get(provider.base_env, "").strip() if provider.base_env else "")
    address = normalize_base_url(provider, configured or provider.base_url)
    if not address:
        raise ConfigError(f"{provider.name} has a base URL per customer; set {provider.base_env}")
    if not is_base_url(address):
        where = "base_url" if base_url else provider.base_env
        raise ConfigError(f"{where} is not a base URL; {EXPECTED_BASE_URL}")
    variables = (key_env,) if key_env else provider.variables
    source = find_key(environ, variables)
    variable = source.variable if source is not None else ""
    secret = key or (source.read_key() if source is not None else "")
    if not secret and variables and not provider.local and not is_loopback_url(address):
        login = "" if key_env else f", or store it with `vaka login {provider.name}`"
        raise AuthenticationFailed(f"there is no key for {provider.name}; set {' or '.join(variables)}{login}")
    if not (secret.isascii() and secret.isprintable()):
        where = "in the settings" if key else f"in {variable}"
        raise AuthenticationFailed(
            f"the key for {provider.name} {where} holds a character that no key has (a line break?); copy it again"
        )
    query = {name: environ[variable] for name, variable in provider.query_env.items() if environ.get(variable)}
    bearer = bool(provider.bearer_env) and variable == provider.bearer_env and not key
    return ProviderAccount(base_url=address, key=secret, bearer=bearer, query=query, variable="" if key else variable)


def normalize_base_url(provider: Provider, url: str) -> str:
    """Return a base URL with its version segment and without the path of an endpoint."""
    url = _ENDPOINT_SUFFIX.sub("", url.rstrip("/"))
    parts = [part for part in urlsplit(url).path.split("/") if part]
    if provider.version:
        return (
            url if not url or any(_VERSION_SEGMENT.fullmatch(part) for part in parts) else f"{url}/{provider.version}"
        )
    return url if parts or not url else f"{url}{urlsplit(provider.base_url).path.rstrip('/')}"


def is_openai(url: str, model: str) -> bool:
    """Return whether OpenAI serves the model, directly or behind a gateway; compatible servers support less."""
    host = urlsplit(url).hostname or ""
    return host == "openai.com" or host.endswith(".openai.com") or bool(_OPENAI_MODEL.match(model.rpartition("/")[2]))


def unknown_model_error(name: str, own: Mapping[str, object]) -> ConfigError:
    """Return the error for an unknown model name, with the closest known name; ``own`` has the configured ones."""
    head, slash, rest = name.partition("/")
    providers = [provider.name for provider in all_providers()]
    family = next((_MODEL_PREFIXES[word] for word in _MODEL_PREFIXES if name.lower().startswith(word)), "")
    near = find_near_names(name, [*own, "local", "low", "mid", "high"], n=1, cutoff=0.7)
    if slash and rest:
        near = near or [f"{word}/{rest}" for word in find_near_names(head.lower(), providers, n=1)]
    elif not near and family and not slash:
        near = [f"{family}/{name}"]
    if slash and head in providers and not rest:
        hint = f"name one of its models, as {head}/NAME"
    elif near:
        hint = f"did you mean {near[0]!r}?"
    else:
        names = ", ".join([*(f"{word}/…" for word in providers[:4]), "a vendor such as deepseek/…"])
        hint = f"expected {names}, local, scripted:FILE, or a name of your settings; see `vaka models list`"
    return ConfigError(f"model {name!r} is not known; {hint}")
