"""Create models: a provider adapter with key and base URL, wrapped with retry, rate limits and metering."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.config.model_files import ModelDefinition, read_model_files
from vaka.config.model_tables import ModelEntry, PriceEntry, secrets_of
from vaka.core.loop.other_usage import wait_until_affordable
from vaka.core.ports.env import Clock
from vaka.core.ports.model import Chunk, Closeable, CostEstimator, Embedder, Estimate, Model, Prompt
from vaka.core.session.redaction import MIN_SECRET_LENGTH, Secrets
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ConfigError
from vaka.core.types.message import Usage
from vaka.models.catalog import FREE, Price, PriceList, output_limit_of
from vaka.models.openai_chat.vendors import COMPATIBLE
from vaka.models.options import read_options
from vaka.models.wrappers.meter import LastCalls, MeteredModel, missing_price_message
from vaka.models.wrappers.model_wrapper import TextOnly
from vaka.models.wrappers.resilience import FallbackModel, RateLimitedModel, RetryingModel
from vaka.runtime import providers
from vaka.runtime.model_registry import ModelConfig, UnavailableModel
from vaka.runtime.providers import Provider

if TYPE_CHECKING:
    from vaka.models.transport.pool import TransportFactory

CHAT_PROVIDER = "openai-chat"
LOCAL_MODEL = "local"
_LOCAL_PROVIDER = Provider(name=LOCAL_MODEL, wire="chat", base_url="", base_env="", key_env=(), local=True)


class ModelFactory:
    """Creates models by name with shared connections and prices; ``find`` resolves the names of fallbacks."""

    def __init__(
        self,
        config: ModelConfig,
        find: Callable[[str], Model],
        secrets: Secrets,
        clock: Clock | None,
        environ: Mapping[str, str],
    ) -> None:
        self.config = config
        self._find = find
        self._secrets = secrets
        self._clock = clock
        self._environ = environ
        self._created: list[Model] = []
        self._http: Any = None
        self._direct_transport: Any = None
        self._ledger = LastCalls()
        self._file_definitions: dict[str, ModelDefinition] | None = None
        self.notes: tuple[str, ...] = ()
        """Warnings about ignored fields of model files, once the files were read."""

    def load_definitions(self) -> Mapping[str, ModelDefinition]:
        """Return the models that model files define, by name."""
        if self._file_definitions is None:
            files = self.config.files
            definitions, self.notes = read_model_files(files, self._environ) if files else ((), ())
            self._file_definitions = {definition.name: definition for definition in definitions}
        return self._file_definitions

    @property
    def http(self) -> Any:
        """The connection pool that all models share."""
        if self._http is None:
            from vaka.models.transport.pool import ConnectionPool

            self._http = ConnectionPool(direct=self._direct_transport)
        return self._http

    def use_aiohttp(self) -> None:
        """Let aiohttp, where it is installed, carry connections that are opened from now on and use no proxy.

        A server calls this at its start. A stream costs it half to three quarters of the CPU time. Importing aiohttp
        takes 0.15 s.
        """
        self._direct_transport = _find_aiohttp_transport()

    async def close(self) -> None:
        created, self._created = self._created, []
        http, self._http = self._http, None
        try:
            for model in created:
                if isinstance(model, Closeable):
                    await model.close()
        finally:
            if http is not None:
                await http.close()

    def make(self, name: str) -> Model:
        """Create a model. Raises ``ConfigError`` and ``AuthenticationFailed``."""
        if name in self.config.models:
            return self._make_configured(name, self.config.models[name])
        if name in self.load_definitions():
            return self._make_defined(self.load_definitions()[name])
        if name == LOCAL_MODEL:
            from vaka.models.local.model import LocalModel

            local = LocalModel(http=self.http, progress=self.config.progress)
            return self._wrap(local, ModelEntry(model=LOCAL_MODEL), _LOCAL_PROVIDER)
        head, _, model = name.partition("/")
        provider = providers.find(head) if model else None
        if provider is None:
            raise self._unknown_error(name)
        return self._wrap(self._make_adapter(provider, model, name), ModelEntry(model=model), provider)

    def resolve_entry(self, name: str, entry: ModelEntry) -> tuple[Provider, str, dict[str, Any]]:
        """Return the provider, model name and options of a configured model. Raises ``ConfigError``."""
        options = self._check_options(entry.options, f"models.{name}.options")
        head, _, model = ("", "", entry.model) if entry.provider or entry.base_url else entry.model.partition("/")
        return self._provider_of(name, entry, entry.provider or head), model, options

    def make_embedder(self, name: str, record: Callable[[str, Usage], None]) -> Embedder:
        """Create an embedder; ``record`` is called with the name and usage of each of its calls.

        Raises ``ConfigError`` and ``AuthenticationFailed``.
        """
        kind, _, size = name.partition(":")
        if kind == "hashing" and (size.isdecimal() or not size):
            from vaka.models.embedders import HashingEmbedder

            return HashingEmbedder(**({"size": int(size)} if size else {}))
        if name == "minilm":
            from vaka.models.embedders import MiniLMEmbedder

            return MiniLMEmbedder()
        head, _, model = name.partition("/")
        provider = providers.find(head) if model else None
        if provider is None or provider.wire not in ("chat", "responses"):
            raise ConfigError(
                f"embedder {name!r} is not known; there are hashing, minilm, and provider/model for providers with "
                "/embeddings, such as openai/text-embedding-3-small"
            )
        _, account = self._make_account(provider, name, ModelEntry(model=model))

        def cost_of(usage: Usage) -> float | None:
            cost: float | None = 0.0 if provider.local else self._prices.cost(name, usage)
            return cost

        def record_cost(usage: Usage) -> None:
            record(name, msgspec.structs.replace(usage, cost=cost_of(usage) or 0.0))

        async def check_budget(usage: Usage) -> None:
            cost = cost_of(usage)
            why = missing_price_message(name) if cost is None else ""
            await wait_until_affordable(msgspec.structs.replace(usage, cost=cost or 0.0), why)

        from vaka.models.openai_embeddings import OpenAIEmbedder

        remote = OpenAIEmbedder(model, account, http=self.http, name=name, clock=self._clock, record=record_cost)
        remote.allow = check_budget
        return remote

    def _make_configured(self, name: str, entry: ModelEntry) -> Model:
        provider, model, options = self.resolve_entry(name, entry)
        wrapped = self._wrap(self._make_adapter(provider, model, f"{provider.name}/{model}", entry), entry, provider)
        preset = PresetModel(wrapped, options) if options else wrapped
        if not entry.fallback:
            return preset
        return FallbackModel([preset, *[self._find_fallback(other) for other in entry.fallback]])

    def _provider_of(self, name: str, entry: ModelEntry, head: str) -> Provider:
        if not head:
            return _custom_provider(name, entry.wire or "chat", entry.base_url)
        provider = providers.find(head)
        if provider is None:
            full_name = f"{entry.provider}/{entry.model}" if entry.provider else entry.model
            raise ConfigError(f"models.{name}: {self._unknown_error(full_name)}")
        return provider

    def _find_fallback(self, name: str) -> Model:
        """Return a fallback model; a model without a key becomes an ``UnavailableModel`` instead of an error."""
        try:
            return self._find(name)
        except AuthenticationFailed as error:
            return UnavailableModel(name, error)

    def _make_defined(self, definition: ModelDefinition) -> Model:
        """Create the model of a model file, with the capabilities that the file states."""
        provider_names = {"chat": CHAT_PROVIDER, "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
        provider = providers.find(provider_names[definition.wire])
        assert provider is not None  # noqa: S101  # each of the four is known
        if definition.base_url:
            provider = _custom_provider(definition.name, definition.wire, definition.base_url)
        facts = definition.facts
        if provider.profile is not None:
            provider = msgspec.structs.replace(provider, profile=_apply_facts(provider.profile, facts))
        entry = ModelEntry(
            model=definition.model,
            base_url=definition.base_url,
            key=definition.key,
            text_calls=facts.get("support_tool_calls") is False,
        )
        adapter = self._make_adapter(provider, definition.model, definition.name, entry)
        if facts.get("support_text_only") and provider.profile is None:
            adapter = TextOnly(adapter)
        wrapped = self._wrap(adapter, entry, provider)
        options = self._check_options(definition.options, definition.origin)
        structured = self._check_options(facts.get("invoke_params", {}), f"{definition.origin}.invoke_params")
        return PresetModel(wrapped, options, structured) if options or structured else wrapped

    def _make_adapter(self, provider: Provider, model: str, name: str, entry: ModelEntry | None = None) -> Model:
        entry = entry or ModelEntry(model=model)
        resolved, account = self._make_account(provider, name, entry)
        facts: dict[str, Any] = {}
        if provider.profile is not None:
            compatible = provider.name == CHAT_PROVIDER and not providers.is_openai(resolved.base_url, model)
            facts["profile"] = COMPATIBLE if compatible else provider.profile
        if resolved.bearer:
            facts["bearer"] = True
        adapter: Model = wire_adapter(provider.wire)(model, account, http=self.http, name=name, **facts)
        if "profile" not in facts or not facts["profile"].tagged_calls:
            return adapter
        from vaka.models.text_calls.model import TaggedCalls

        return TaggedCalls(adapter)

    def _make_account(self, provider: Provider, name: str, entry: ModelEntry) -> tuple[providers.ProviderAccount, Any]:
        """Return the resolved account, and the same as adapters take it. Its key is redacted from now on."""
        try:
            resolved = providers.resolve_account(
                provider, self._environ, base_url=entry.base_url, key=entry.key, key_env=entry.key_env
            )
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{name}: {error}") from None
        for secret in (resolved.key, unquote(urlsplit(resolved.base_url).password or ""), *secrets_of(entry)):
            for value in (secret, secret.rpartition(" ")[2]):  # also the token after the word Bearer
                if len(value) >= MIN_SECRET_LENGTH:  # a shorter key is a placeholder for a local server
                    self._secrets.add(value)
        from vaka.models.transport.client import Account

        account = Account(base_url=resolved.base_url, key=resolved.key, headers=entry.headers, query=resolved.query)
        return resolved, account

    def _wrap(self, adapter: Model, entry: ModelEntry, provider: Provider) -> Model:
        """Wrap an adapter with text calls, rate limits, retries and metering, as the entry configures them."""
        model = adapter
        if entry.text_calls:
            from vaka.models.text_calls.model import TextCalls

            model = TextCalls(adapter)
        bounds = (entry.concurrent, entry.requests_per_minute, entry.tokens_per_minute)
        if any(bound is not None for bound in bounds):
            model = RateLimitedModel(
                model,
                concurrent=entry.concurrent,
                requests_per_minute=entry.requests_per_minute,
                tokens_per_minute=entry.tokens_per_minute,
                clock=self._clock,
            )
        retries = entry.retries if entry.retries is not None else self.config.retries
        attempts: dict[str, Any] = {} if retries is None else {"attempts": retries + 1}
        model = RetryingModel(model, clock=self._clock, **attempts)
        price = entry.price or (FREE if provider.local else None)
        bound = output_limit_of(LOCAL_MODEL if provider is _LOCAL_PROVIDER else provider.wire, entry.model)
        metered = self._add_meter(model, price, f"{provider.name}/{entry.model}", bound)
        metered.context_window = entry.context_window or metered.context_window
        return self._track(metered)

    def _add_meter(self, model: Model, price: PriceEntry | Price | None, named: str, bound: int | None) -> MeteredModel:
        if isinstance(price, PriceEntry):
            price = Price(**_price_fields(price))
        return MeteredModel(model, self._prices, model=named, price=price, bound=bound, ledger=self._ledger)

    @cached_property
    def _prices(self) -> PriceList:
        return PriceList(self.config.prices)

    def _check_options(self, options: Mapping[str, Any], place: str) -> dict[str, Any]:
        try:
            read_options(options)
        except BadRequest as error:
            raise ConfigError(f"{place}: {error}") from error
        return dict(options)

    def _unknown_error(self, name: str) -> ConfigError:
        error = providers.unknown_model_error(name, {**self.config.models, **self.load_definitions()})
        return ConfigError(f"{error} ({'; '.join(self.notes)})") if self.notes else error

    def _track(self, model: Model) -> Model:
        self._created.append(model)
        return model


class PresetModel:
    """A model with default options; the options of a prompt take precedence."""

    def __init__(
        self, inner: Model, options: Mapping[str, Any], structured_options: Mapping[str, Any] | None = None
    ) -> None:
        """Set the options of every prompt, and further options for prompts with an output schema."""
        self.options = options
        self._structured_options = structured_options or {}
        self._inner = inner
        self.context_window: int | None = getattr(inner, "context_window", None)
        if isinstance(inner, CostEstimator):
            self.estimate = partial(self._estimate, inner)

    @property
    def name(self) -> str:
        return self._inner.name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        async with aclosing(self._inner.stream(self._with_defaults(prompt))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _estimate(self, inner: CostEstimator, prompt: Prompt) -> Estimate:
        filled = self._with_defaults(prompt)
        estimate, max_tokens = inner.estimate(filled), filled.options.get("max_tokens")
        return msgspec.structs.replace(estimate, max_tokens=max_tokens) if isinstance(max_tokens, int) else estimate

    def _with_defaults(self, prompt: Prompt) -> Prompt:
        structured = self._structured_options if prompt.options.get("output") else {}
        return msgspec.structs.replace(prompt, options={**self.options, **structured, **prompt.options})


def _custom_provider(name: str, wire: Any, base_url: str) -> Provider:
    """Return the provider of a server that settings or a model file define by its base URL."""
    profile = COMPATIBLE if wire == "chat" else None
    version = {"anthropic": "v1", "gemini": "v1beta"}.get(wire, "")
    return Provider(name=name, wire=wire, base_url=base_url, base_env="", key_env=(), version=version, profile=profile)


def _apply_facts(profile: Any, facts: Mapping[str, Any]) -> Any:
    """Return a vendor profile with the capabilities that a model file states."""
    changes: dict[str, Any] = {}
    if "use_system_role" in facts:
        changes["system_role"] = "system" if facts["use_system_role"] else "developer"
    if "support_json_output" in facts:
        changes["output"] = "json_schema" if facts["support_json_output"] else "tool"
    if facts.get("support_text_only"):
        changes.update(images=False, audio=False, documents=False)
    return msgspec.structs.replace(profile, **changes)


def _price_fields(price: PriceEntry) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(price).items() if value is not None}


def wire_adapter(wire: str) -> Any:
    """Return the class that speaks a provider's wire; their constructors differ in keyword arguments."""
    if wire == "chat":
        from vaka.models.openai_chat.model import OpenAIChat

        return OpenAIChat
    if wire == "responses":
        from vaka.models.openai_responses.model import OpenAIResponses

        return OpenAIResponses
    if wire == "anthropic":
        from vaka.models.anthropic.model import Anthropic

        return Anthropic
    from vaka.models.gemini.model import Gemini

    return Gemini


def _find_aiohttp_transport() -> "TransportFactory | None":
    """Return the transport for direct connections of a server, ``None`` if aiohttp is not installed."""
    if find_spec("aiohttp") is None:
        return None
    from vaka.models.transport.aiohttp_transport import AiohttpTransport

    return AiohttpTransport
