"""Resolve model names, tiers and embedders to models; each is created once and closed with the runtime."""

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vaka.core.ports.env import Clock
from vaka.core.ports.model import Chunk, Closeable, Embedder, Model, Prompt, StopChunk
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import ConfigError, VakaError
from vaka.core.types.message import NO_USAGE, Usage
from vaka.core.types.monitor import ModelSelected
from vaka.core.types.progress import GIVEN_CALLS

if TYPE_CHECKING:
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.runtime.model_factory import ModelFactory

TIERS = ("low", "mid", "high")
TIER_ALIASES = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Model names that are accepted as names of tiers."""
SCRIPTED_PREFIX = "scripted:"


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configured models, tiers and prices of one registry."""

    models: "Mapping[str, ModelEntry]" = {}
    files: tuple[str, ...] = ()
    """Files and folders that define models in the GenX format."""
    tiers: "Mapping[str, Model | str]" = {}
    subagents: Mapping[str, str] = {}
    prices: "Mapping[str, PriceEntry]" = {}
    retries: int | None = None
    default: "Model | str | None" = None
    factory: Callable[[], Model] | None = None
    """Creates the default model on first use, unless ``default`` is set."""
    environ: Mapping[str, str] | None = None
    """The variables that hold keys and base URLs; default: the environment of the process, then stored keys."""
    progress: Callable[[str], None] | None = None


class ModelRegistry:
    """Finds models by name, creates each once, and closes the models it created."""

    def __init__(self, config: ModelConfig, secrets: Secrets | None = None, clock: Clock | None = None) -> None:
        self.config = config
        self._secrets, self._clock = secrets if secrets is not None else Secrets(), clock
        self._models: dict[str, Model] = {}
        self._embedders: dict[str, Embedder] = {}
        self.embedder_usage: dict[str, tuple[int, Usage]] = {}
        """The number of calls of each embedder outside of sessions since the process started, and their usage."""
        self._resolving: list[str] = []
        self._default: Model | None = None
        self._factory: ModelFactory | None = None

    @property
    def factory(self) -> "ModelFactory":
        """The factory of models, imported on first use."""
        if self._factory is None:
            from vaka.runtime.model_factory import ModelFactory

            environ = self.config.environ
            if environ is None:
                from vaka.runtime.stored_keys import key_environment

                environ = key_environment()
            self._factory = ModelFactory(self.config, self.find, self._secrets, self._clock, environ)
        return self._factory

    def find(self, name: str) -> Model:
        """Return the model of a name or tier.

        Raises ``ConfigError`` for an unknown name, and ``AuthenticationFailed`` when there is no key.
        """
        if name in self._models:
            return self._models[name]
        tier = tier_of(name)
        if (tier or name) in self._resolving:
            raise ConfigError(f"model {name!r} falls back on itself: {' → '.join((*self._resolving, name))}")
        self._resolving.append(tier or name)
        try:
            if tier:
                return self.choose(tier=tier)
            self._models[name] = self._load_without_provider(name) or self.factory.make(name)
        finally:
            self._resolving.pop()
        return self._models[name]

    def resolve(self, model: "Model | str") -> Model:
        """Return a model unchanged, or the model of a name."""
        return self.find(model) if isinstance(model, str) else model

    @property
    def default(self) -> Model | None:
        """The model of agents that set none, if there is one."""
        if self._default is None and self.config.default is not None:
            self._default = self.resolve(self.config.default)
        if self._default is None and self.config.factory is not None:
            self._default = self.config.factory()
        return self._default

    def choose(self, tier: str = "", subagent: str = "", fallback: Model | None = None) -> Model:
        """Return the model of a tier or of a subagent; without one, ``fallback`` or else the default."""
        wanted = {tier_of(tier), self.config.subagents.get(subagent.lower(), "")} & set(self.config.tiers)
        pool: dict[str, Model] = {
            name: self.resolve(model) if name in wanted else _UnusedModel(name)
            for name, model in self.config.tiers.items()
        }
        if not wanted and fallback is None:
            named = self.config.default
            fallback = None if isinstance(named, str) and tier_of(named) == tier_of(tier) else self.default
            if fallback is None:
                has = ", ".join(pool) or "none"
                raise ConfigError(
                    f"there is no model for the tier {tier!r} (there are {has}), and no default; "
                    f'name one in the settings: tiers.{tier_of(tier) or "low"} = "PROVIDER/NAME"'
                )
        default = fallback or pool[next(iter(wanted))]
        from vaka.models.wrappers.pool import ModelPool

        chosen: Model = ModelPool(pool, default, self.config.subagents).choose(tier, subagent)
        return chosen

    def has_tier_for(self, subagent: str) -> bool:
        """Return whether the settings give a tier to subagents of that name."""
        return subagent.lower() in self.config.subagents

    def find_requested(self, name: str) -> Model:
        """Return the model that one request names; its answers record the selection as ``ModelSelected``."""
        if tier_of(name):
            return self.find(name)
        model = self.find(name)
        from vaka.models.wrappers.pool import SelectedModel

        chosen: Model = SelectedModel(model, ModelSelected(model=model.name, reason="asked for"))
        return chosen

    def embedder(self, name: str) -> Embedder:
        """Return the embedder of a name: ``hashing``, ``minilm``, or ``provider/model``."""
        if name not in self._embedders:
            self._embedders[name] = self.factory.make_embedder(name, self._record_embedding)
        return self._embedders[name]

    def _record_embedding(self, model: str, usage: Usage) -> None:
        """Record one call of an embedder in the log of the current turn, or here outside of a turn."""
        from vaka.core.loop.other_usage import record_usage

        if not record_usage(model, usage):
            count, total = self.embedder_usage.get(model, (0, NO_USAGE))
            self.embedder_usage[model] = count + 1, total + usage

    async def close(self) -> None:
        """Close the models that the registry created; a model object passed in stays open."""
        factory, self._factory = self._factory, None
        default: object = self._default if self.config.default is None else None
        self._default = None
        self._models.clear()
        self._embedders.clear()
        try:
            if isinstance(default, Closeable):
                await default.close()
        finally:
            if factory is not None:
                await factory.close()

    def _load_without_provider(self, name: str) -> Model | None:
        if name == GIVEN_CALLS:
            from vaka.models.given_calls import GivenCalls

            return GivenCalls()
        if name in self.config.models or not name.startswith(SCRIPTED_PREFIX):
            return None
        from vaka.models.scripted import Scripted

        return Scripted(name.removeprefix(SCRIPTED_PREFIX))


class UnavailableModel:
    """A placeholder for a model that could not be created; each call raises the error."""

    def __init__(self, name: str, error: VakaError) -> None:
        self.name, self._error = name, error

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        for _ in prompt.messages:
            raise self._error
        yield StopChunk()


class _UnusedModel:
    """A placeholder for the model of a tier that was not selected, and is therefore not created."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        raise NotImplementedError(self.name)


def tier_of(name: str) -> str:
    """Return the tier of a name or alias, ``""`` for any other name."""
    lower = name.lower()
    return TIER_ALIASES.get(lower, lower if lower in TIERS else "")
