"""Makes models: an adapter with its key and address, and around it what makes it dependable and tells its price."""

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from vaka.config.model_files import ModelDefinition, read_model_files
from vaka.config.model_tables import ModelEntry, PriceEntry, secrets
from vaka.core.loop.paying import payable
from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Closes, Embedder, Estimate, Estimates, Model, Prompt
from vaka.core.session.redact import Secrets
from vaka.core.types.errors import AuthenticationFailed, BadRequest, ConfigError
from vaka.core.types.usage import Usage
from vaka.runtime import providers, registry
from vaka.runtime.models import Book, Refusing
from vaka.runtime.providers import Provider

CHAT = "openai-chat"
LOCAL = "local"
BOUNDS = "vaka.models.bounds:find"
"""What knows how long answers can get."""
TEXT_ONLY = "vaka.models.past:TextOnly"
UNPRICED = "vaka.models.meter:unpriced"
_LOCAL = Provider(name=LOCAL, wire="chat", base_url="", base_env="", key_env=(), local=True)


class Maker:
    """Makes models by name and keeps what they share; ``find`` finds others by name."""

    def __init__(
        self, book: Book, find: Callable[[str], Model], secrets: Secrets, clock: Clock | None,
        environ: Mapping[str, str],
    ) -> None:  # fmt: skip
        self.book, self._find, self._secrets, self._clock, self._environ = book, find, secrets, clock, environ
        self._own: list[Model] = []
        self._http: Any = None
        self._prices: Any = None
        self._ledger: Any = None
        self._files: dict[str, ModelDefinition] | None = None
        self.notes: tuple[str, ...] = ()
        """What model files say in vain; known once they were read."""

    def definitions(self) -> Mapping[str, ModelDefinition]:
        """Return what model files define."""
        if self._files is None:
            found, self.notes = read_model_files(self.book.files, self._environ) if self.book.files else ((), ())
            self._files = {definition.name: definition for definition in found}
        return self._files

    @property
    def http(self) -> Any:
        """The connections that all models share."""
        if self._http is None:
            self._http = registry.load(registry.HTTP)()
        return self._http

    async def close(self) -> None:
        """Close everything that was made."""
        own, self._own = self._own, []
        http, self._http = self._http, None
        try:
            for model in own:
                if isinstance(model, Closes):
                    await model.close()
        finally:
            if http is not None:
                await http.close()

    def make(self, name: str) -> Model:
        """Return a new model. Raises ``ConfigError`` and ``AuthenticationFailed``."""
        if name in self.book.models:
            return self._configured(name, self.book.models[name])
        if name in self.definitions():
            return self._defined(self.definitions()[name])
        if name == LOCAL:
            made = registry.load(registry.LOCAL)(http=self.http, progress=self.book.progress)
            return self._wrapped(made, ModelEntry(model=LOCAL), _LOCAL)
        head, _, model = name.partition("/")
        provider = providers.find(head) if model else None
        if provider is None:
            raise self._unknown(name)
        return self._wrapped(self._adapter(provider, model, name), ModelEntry(model=model), provider)

    def check(self, name: str, entry: ModelEntry) -> tuple[Provider, str, dict[str, Any]]:
        """Return who serves a model of one's own, under which name and with which options. Raises ``ConfigError``."""
        options = self._options(entry.options, f"models.{name}.options")
        head, _, model = ("", "", entry.model) if entry.provider or entry.base_url else entry.model.partition("/")
        return self._provider(name, entry, entry.provider or head), model, options

    def embedder(self, name: str, record: Callable[[str, Usage], None]) -> Embedder:
        """Return a new embedder; ``record`` is told what its calls use. Raises ``ConfigError`` and the like."""
        made: Embedder
        kind, _, size = name.partition(":")
        if kind == "hashing" and (size.isdecimal() or not size):
            made = registry.load(registry.HASHING)(**({"size": int(size)} if size else {}))
            return made
        if name == "minilm":
            made = registry.load(registry.MINILM)()
            return made
        head, _, model = name.partition("/")
        provider = providers.find(head) if model else None
        if provider is None or provider.wire not in ("chat", "responses"):
            raise ConfigError(
                f"embedder {name!r} is not known; there are hashing, minilm, and provider/model for providers with "
                "/embeddings, such as openai/text-embedding-3-small"
            )
        _, account = self._account(provider, name, ModelEntry(model=model))

        def priced(usage: Usage) -> float | None:
            cost: float | None = 0.0 if provider.local else self._price_list().cost(name, usage)
            return cost

        def spent(usage: Usage) -> None:
            record(name, msgspec.structs.replace(usage, cost=priced(usage) or 0.0))

        async def allow(usage: Usage) -> None:
            cost = priced(usage)
            why = registry.load(UNPRICED)(name) if cost is None else ""
            await payable(msgspec.structs.replace(usage, cost=cost or 0.0), why)

        remote = registry.load(registry.EMBEDDINGS)(
            model, account, http=self.http, name=name, clock=self._clock, record=spent
        )
        remote.allow = allow
        made = remote
        return made

    def _configured(self, name: str, entry: ModelEntry) -> Model:
        provider, model, options = self.check(name, entry)
        made = self._wrapped(self._adapter(provider, model, f"{provider.name}/{model}", entry), entry, provider)
        made = Preset(made, options) if options else made
        if entry.fallback:
            others = [self._other(other) for other in entry.fallback]
            made = registry.load(registry.FALLBACK)([made, *others])
        return made

    def _provider(self, name: str, entry: ModelEntry, head: str) -> Provider:
        if not head:
            return _server(name, entry.wire or "chat", entry.base_url)
        provider = providers.find(head)
        if provider is None:
            said = f"{entry.provider}/{entry.model}" if entry.provider else entry.model
            raise ConfigError(f"models.{name}: {self._unknown(said)}")
        return provider

    def _other(self, name: str) -> Model:
        """Return a model to fall back on; one without a key is no use, but no reason not to begin either."""
        try:
            return self._find(name)
        except AuthenticationFailed as error:
            return Refusing(name, error)

    def _defined(self, definition: ModelDefinition) -> Model:
        """Return the model of a model file, with what the file says it can do."""
        usual = {"chat": CHAT, "responses": "openai", "anthropic": "anthropic", "gemini": "gemini"}
        provider = providers.find(usual[definition.wire])
        assert provider is not None  # noqa: S101  # each of the four is known
        if definition.base_url:
            provider = _server(definition.name, definition.wire, definition.base_url)
        facts = definition.facts
        if provider.profile is not None:
            provider = msgspec.structs.replace(provider, profile=_as_told(provider.profile, facts))
        entry = ModelEntry(
            model=definition.model, base_url=definition.base_url, key=definition.key,
            text_calls=facts.get("support_tool_calls") is False,
        )  # fmt: skip
        adapter = self._adapter(provider, definition.model, definition.name, entry)
        if facts.get("support_text_only") and provider.profile is None:
            adapter = registry.load(TEXT_ONLY)(adapter)
        made = self._wrapped(adapter, entry, provider)
        options = self._options(definition.options, definition.origin)
        shaped = self._options(facts.get("invoke_params", {}), f"{definition.origin}.invoke_params")
        return Preset(made, options, shaped) if options or shaped else made

    def _adapter(self, provider: Provider, model: str, name: str, entry: ModelEntry | None = None) -> Model:
        entry = entry or ModelEntry(model=model)
        found, account = self._account(provider, name, entry)
        facts: dict[str, Any] = {}
        if provider.profile is not None:
            elsewhere = provider.name == CHAT and not providers.is_openai(found.base_url, model)
            facts["profile"] = registry.load(registry.COMPATIBLE) if elsewhere else provider.profile
        if found.bearer:
            facts["bearer"] = True
        made: Model = registry.load(registry.WIRES[provider.wire])(model, account, http=self.http, name=name, **facts)
        return made

    def _account(self, provider: Provider, name: str, entry: ModelEntry) -> tuple[providers.Account, Any]:
        """Return where and as whom to ask, as it was found and as adapters take it; its key is a secret from now on."""
        try:
            found = providers.account(
                provider, self._environ, base_url=entry.base_url, key=entry.key, key_env=entry.key_env
            )
        except AuthenticationFailed as error:
            raise AuthenticationFailed(f"{name}: {error}") from None
        for secret in (found.key, unquote(urlsplit(found.base_url).password or ""), *secrets(entry)):
            self._secrets.add(secret)
            self._secrets.add(secret.rpartition(" ")[2])  # of a token, what comes after Bearer
        account = registry.load(registry.ACCOUNT)(
            base_url=found.base_url, key=found.key, headers=entry.headers, query=found.query
        )
        return found, account

    def _wrapped(self, adapter: Model, entry: ModelEntry, provider: Provider) -> Model:
        """Put around a provider's model what makes it dependable and tells what it costs."""
        model = registry.load(registry.TEXT_CALLS)(adapter) if entry.text_calls else adapter
        bounds = (entry.concurrent, entry.requests_per_minute, entry.tokens_per_minute)
        if any(bound is not None for bound in bounds):
            model = registry.load(registry.LIMITED)(
                model, concurrent=entry.concurrent, requests_per_minute=entry.requests_per_minute,
                tokens_per_minute=entry.tokens_per_minute, clock=self._clock,
            )  # fmt: skip
        retries = entry.retries if entry.retries is not None else self.book.retries
        attempts = {} if retries is None else {"attempts": retries + 1}
        model = registry.load(registry.RETRY)(model, clock=self._clock, **attempts)
        price = entry.price or (registry.load(registry.FREE) if provider.local else None)
        bound = registry.load(BOUNDS)(LOCAL if provider is _LOCAL else provider.wire, entry.model)
        return self._keep(self._metered(model, price, f"{provider.name}/{entry.model}", bound))

    def _metered(self, model: Model, price: object, named: str, bound: int | None) -> Model:
        if self._ledger is None:
            self._ledger = registry.load(registry.LEDGER)()
        if isinstance(price, PriceEntry):
            price = registry.load(registry.PRICE)(**_given(price))
        made: Model = registry.load(registry.METERED)(
            model, self._price_list(), model=named, price=price, bound=bound, ledger=self._ledger
        )
        return made

    def _price_list(self) -> Any:
        if self._prices is None:
            self._prices = registry.load(registry.PRICES)(self.book.prices)
        return self._prices

    def _options(self, options: Mapping[str, Any], place: str) -> dict[str, Any]:
        try:
            registry.load(registry.OPTIONS)(options)
        except BadRequest as error:
            raise ConfigError(f"{place}: {error}") from error
        return dict(options)

    def _unknown(self, name: str) -> ConfigError:
        error = providers.unknown(name, {**self.book.models, **self.definitions()})
        return ConfigError(f"{error} ({'; '.join(self.notes)})") if self.notes else error

    def _keep(self, model: Model) -> Model:
        self._own.append(model)
        return model


class Preset:
    """A model with options of its own; those of a prompt count more."""

    def __init__(self, inner: Model, options: Mapping[str, Any], shaped: Mapping[str, Any] | None = None) -> None:
        """Take the options for every answer, and those for answers that are to have a shape."""
        self.options, self._shaped, self._inner = options, shaped or {}, inner
        if isinstance(inner, Estimates):
            self.estimate = partial(self._estimate, inner)

    @property
    def name(self) -> str:
        """The name of the other model."""
        return self._inner.name

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does."""
        async with aclosing(self._inner.stream(self._filled(prompt))) as chunks:
            async for chunk in chunks:
                yield chunk

    def _estimate(self, inner: Estimates, prompt: Prompt) -> Estimate:
        filled = self._filled(prompt)
        estimate, own = inner.estimate(filled), filled.options.get("max_tokens")
        return msgspec.structs.replace(estimate, max_tokens=own) if isinstance(own, int) else estimate

    def _filled(self, prompt: Prompt) -> Prompt:
        shaped = self._shaped if prompt.options.get("output") else {}
        return msgspec.structs.replace(prompt, options={**self.options, **shaped, **prompt.options})


def _server(name: str, wire: Any, base_url: str) -> Provider:
    """Return the provider that a server of one's own is."""
    profile = registry.load(registry.COMPATIBLE) if wire == "chat" else None
    version = {"anthropic": "v1", "gemini": "v1beta"}.get(wire, "")
    return Provider(name=name, wire=wire, base_url=base_url, base_env="", key_env=(), version=version, profile=profile)


def _as_told(profile: Any, facts: Mapping[str, Any]) -> Any:
    """Return a vendor's facts with those a model file has."""
    changes: dict[str, Any] = {}
    if "use_system_role" in facts:
        changes["system_role"] = "system" if facts["use_system_role"] else "developer"
    if "support_json_output" in facts:
        changes["output"] = "json_schema" if facts["support_json_output"] else "tool"
    if facts.get("support_text_only"):
        changes.update(images=False, audio=False, documents=False)
    return msgspec.structs.replace(profile, **changes)


def _given(price: PriceEntry) -> dict[str, float]:
    return {name: value for name, value in msgspec.structs.asdict(price).items() if value is not None}
