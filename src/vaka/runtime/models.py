"""Names become models. One book for each runtime: what is made for it shares its connections and is closed with it."""

import os
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from vaka.core.ports.clock import Clock
from vaka.core.ports.model import Chunk, Closes, Embedder, Model, Prompt, StopChunk
from vaka.core.session.redact import Secrets
from vaka.core.types.errors import ConfigError, VakaError
from vaka.core.types.monitor import ModelSelected
from vaka.runtime import registry
from vaka.runtime.stats import Tally

if TYPE_CHECKING:
    from vaka.config.model_tables import ModelEntry, PriceEntry
    from vaka.runtime.maker import Maker

TIERS = ("low", "mid", "high")
ALIASES = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of models that people say when they mean a tier."""
SCRIPTED = "scripted:"


class Book(msgspec.Struct, frozen=True, kw_only=True):
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


class Models:
    """Finds models by name, makes each once, and closes those it made."""

    def __init__(self, book: Book, secrets: Secrets | None = None, clock: Clock | None = None) -> None:
        self.book = book
        self._secrets, self._clock = secrets if secrets is not None else Secrets(), clock
        self._made: dict[str, Model] = {}
        self._embedders: dict[str, Embedder] = {}
        self.embedded = Tally()
        """What embedders have used."""
        self._making: list[str] = []
        self._default: Model | None = None
        self._maker: Maker | None = None

    @property
    def maker(self) -> "Maker":
        """What makes models; most of it is loaded when the first is made."""
        if self._maker is None:
            made: Maker = registry.load(registry.MAKER)(
                self.book,
                self.find,
                self._secrets,
                self._clock,
                os.environ if self.book.environ is None else self.book.environ,
            )
            self._maker = made
        return self._maker

    def find(self, name: str) -> Model:
        """Return the model a name stands for.

        Raises ``ConfigError`` for a name that means nothing, and ``AuthenticationFailed`` when there is no key.
        """
        if name in self._made:
            return self._made[name]
        tier = tier_of(name)
        if (tier or name) in self._making:
            raise ConfigError(f"model {name!r} falls back on itself: {' → '.join((*self._making, name))}")
        self._making.append(tier or name)
        try:
            if tier:
                return self.choose(tier=tier)
            self._made[name] = self._scripted(name) or self.maker.make(name)
        finally:
            self._making.pop()
        return self._made[name]

    def given(self, model: "Model | str") -> Model:
        """Return a model that is given as such, or by its name."""
        return self.find(model) if isinstance(model, str) else model

    @property
    def default(self) -> Model | None:
        """The model of agents that name none, if there is one."""
        if self._default is None and self.book.default is not None:
            self._default = self.given(self.book.default)
        if self._default is None and self.book.factory is not None:
            self._default = self.book.factory()
        return self._default

    def choose(self, tier: str = "", subagent: str = "", instead: Model | None = None) -> Model:
        """Return the model for a tier or a type of subagent, and ``instead`` (or the default) where there is none."""
        wanted = {tier_of(tier), self.book.subagents.get(subagent.lower(), "")} & set(self.book.tiers)
        pool: dict[str, Model] = {
            name: self.given(model) if name in wanted else _Unasked(name) for name, model in self.book.tiers.items()
        }
        if not wanted and instead is None:
            named = self.book.default
            instead = None if isinstance(named, str) and tier_of(named) == tier_of(tier) else self.default
            if instead is None:
                has = ", ".join(pool) or "none"
                raise ConfigError(
                    f"there is no model for the tier {tier!r} (there are {has}), and no default; "
                    f'name one in the settings: tiers.{tier_of(tier) or "low"} = "PROVIDER/NAME"'
                )
        default = instead or pool[next(iter(wanted))]
        chosen: Model = registry.load(registry.POOL)(pool, default, self.book.subagents).choose(tier, subagent)
        return chosen

    def has_tier_for(self, subagent: str) -> bool:
        """Whether agents of that name have a tier of their own."""
        return subagent.lower() in self.book.subagents

    def asked(self, name: str) -> Model:
        """Return the model somebody asks for by name or tier in one request; its answers tell that they did."""
        if tier_of(name):
            return self.find(name)
        model = self.find(name)
        chosen: Model = registry.load(registry.CHOSEN)(model, ModelSelected(model=model.name, reason="asked for"))
        return chosen

    def embedder(self, name: str) -> Embedder:
        """Return the embedder a name stands for: ``hashing``, ``minilm``, or ``provider/model``."""
        if name not in self._embedders:
            self._embedders[name] = self.maker.embedder(name, self.embedded.add)
        return self._embedders[name]

    async def close(self) -> None:
        """Close everything that was made here; models that were handed over belong to whoever did."""
        maker, self._maker = self._maker, None
        ours: object = self._default if self.book.default is None else None
        self._default = None
        self._made.clear()
        self._embedders.clear()
        try:
            if isinstance(ours, Closes):
                await ours.close()
        finally:
            if maker is not None:
                await maker.close()

    def _scripted(self, name: str) -> Model | None:
        if name in self.book.models or not name.startswith(SCRIPTED):
            return None
        made: Model = registry.load(registry.SCRIPTED)(name.removeprefix(SCRIPTED))
        return made


class Refusing:
    """Stands where a model cannot be had, and says why when it is asked."""

    def __init__(self, name: str, error: VakaError) -> None:
        self.name, self._error = name, error

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Raise what was wrong."""
        for _ in prompt.messages:
            raise self._error
        yield StopChunk()


class _Unasked:
    """The place of a tier's model that is not needed now, and so not made."""

    def __init__(self, name: str) -> None:
        self.name = name

    def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Nobody asks it."""
        raise NotImplementedError(self.name)


def tier_of(name: str) -> str:
    """Return the tier a name means, ``""`` when it means none."""
    lower = name.lower()
    return ALIASES.get(lower, lower if lower in TIERS else "")
