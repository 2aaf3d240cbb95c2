"""Resolve model names, tiers and embedders to models; each is created once and closed with the runtime."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Closeable, Embedder, Model, Prompt, StopChunk
from vaka.core.session.redaction import Secrets
from vaka.core.types.errors import ConfigError, VakaError
from vaka.core.types.monitor import ModelSelected
from vaka.runtime import lazy
from vaka.runtime.stats import EmbedderUsage

if TYPE_CHECKING:
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.runtime.model_factory import ModelFactory

TIERS = ("low", "mid", "high")
TIER_ALIASES = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of models that people say when they mean a tier."""
SCRIPTED_PREFIX = "scripted:"


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What names mean here, besides what they mean everywhere."""

    models: "Mapping[str, ModelEntry]" = {}
    files: tuple[str, ...] = ()
    """Files and folders that define models in the GenX format."""
    tiers: "Mapping[str, Model | str]" = {}
    subagents: Mapping[str, str] = {}
    prices: "Mapping[str, PriceEntry]" = {}
    retries: int | None = None
    default: "Model | str | None" = None
    factory: Callable[[], Model] | None = None
    """Makes the default, when it is first needed and none is named."""
    environ: Mapping[str, str] | None = None
    """Where keys and addresses come from; without it the environment of the process."""
    progress: Callable[[str], None] | None = None


class ModelRegistry:
    """Finds models by name, makes each once, and closes those it made."""

    def __init__(self, config: ModelConfig, secrets: Secrets | None = None, clock: Clock | None = None) -> None:
        self.config = config
        self._secrets, self._clock = secrets if secrets is not None else Secrets(), clock
        self._models: dict[str, Model] = {}
        self._embedders: dict[str, Embedder] = {}
        self.embedder_usage = EmbedderUsage()
        """What embedders have used."""
        self._resolving: list[str] = []
        self._default: Model | None = None
        self._factory: ModelFactory | None = None

    @property
    def factory(self) -> "ModelFactory":
        """What makes models; most of it is loaded when the first is made."""
        if self._factory is None:
            made: ModelFactory = lazy.model_factory()(
                self.config,
                self.find,
                self._secrets,
                self._clock,
                os.environ if self.config.environ is None else self.config.environ,
            )
            self._factory = made
        return self._factory

    def find(self, name: str) -> Model:
        """Return the model a name stands for.

        Raises ``ConfigError`` for a name that means nothing, and ``AuthenticationFailed`` when there is no key.
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
            self._models[name] = self._load_scripted(name) or self.factory.make(name)
        finally:
            self._resolving.pop()
        return self._models[name]

    def resolve(self, model: "Model | str") -> Model:
        """Return a model that is given as such, or by its name."""
        return self.find(model) if isinstance(model, str) else model

    @property
    def default(self) -> Model | None:
        """The model of agents that name none, if there is one."""
        if self._default is None and self.config.default is not None:
            self._default = self.resolve(self.config.default)
        if self._default is None and self.config.factory is not None:
            self._default = self.config.factory()
        return self._default

    def choose(self, tier: str = "", subagent: str = "", fallback: Model | None = None) -> Model:
        """Return the model for a tier or a type of subagent, and ``instead`` (or the default) where there is none."""
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
        chosen: Model = lazy.model_pool()(pool, default, self.config.subagents).choose(tier, subagent)
        return chosen

    def has_tier_for(self, subagent: str) -> bool:
        """Whether agents of that name have a tier of their own."""
        return subagent.lower() in self.config.subagents

    def find_requested(self, name: str) -> Model:
        """Return the model somebody asks for by name or tier in one request; its answers tell that they did."""
        if tier_of(name):
            return self.find(name)
        model = self.find(name)
        chosen: Model = lazy.selected_model()(model, ModelSelected(model=model.name, reason="asked for"))
        return chosen

    def embedder(self, name: str) -> Embedder:
        """Return the embedder a name stands for: ``hashing``, ``minilm``, or ``provider/model``."""
        if name not in self._embedders:
            self._embedders[name] = self.factory.make_embedder(name, self.embedder_usage.add)
        return self._embedders[name]

    async def close(self) -> None:
        """Close everything that was made here; models that were handed over belong to whoever did."""
        maker, self._factory = self._factory, None
        ours: object = self._default if self.config.default is None else None
        self._default = None
        self._models.clear()
        self._embedders.clear()
        try:
            if isinstance(ours, Closeable):
                await ours.close()
        finally:
            if maker is not None:
                await maker.close()

    def _load_scripted(self, name: str) -> Model | None:
        if name in self.config.models or not name.startswith(SCRIPTED_PREFIX):
            return None
        made: Model = lazy.scripted_model()(name.removeprefix(SCRIPTED_PREFIX))
        return made


class UnavailableModel:
    """Stands where a model cannot be had, and says why when it is asked."""

    def __init__(self, name: str, error: VakaError) -> None:
        self.name, self._error = name, error

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Raise what was wrong."""
        for _ in prompt.messages:
            raise self._error
        yield StopChunk()


class _UnusedModel:
    """The place of a tier's model that is not needed now, and so not made."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Nobody asks it."""
        raise NotImplementedError(self.name)


def tier_of(name: str) -> str:
    """Return the tier a name means, ``""`` when it means none."""
    lower = name.lower()
    return TIER_ALIASES.get(lower, lower if lower in TIERS else "")
