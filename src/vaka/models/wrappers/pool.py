"""Models by tier (low, mid, high), and which tier serves which subagent."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from difflib import get_close_matches

from vaka.core.ports.model import Chunk, Model, NoticeChunk, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.monitor import ModelSelected
from vaka.models.wrappers.model_wrapper import ModelWrapper, close_models

TIERS = ("low", "mid", "high")
ALIASES = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of models that people say when they mean a tier."""

_log = logging.getLogger(__name__)


class ModelPool:
    """Models by tier, the one that serves when none is asked for, and the tiers of types of subagents.

    Which model serves a run: that of the tier it asks for, else that of its type of subagent, else the default. A tier
    that the pool does not have is passed over with a warning.
    """

    def __init__(self, models: Mapping[str, Model], default: Model, subagents: Mapping[str, str] | None = None) -> None:
        self._models = {_check_tier(name, "a model of the pool"): model for name, model in models.items()}
        if len(self._models) < len(models):
            raise ConfigError(f"a pool has one model for each tier, got {', '.join(models)}")
        self._default = default
        self._subagents = {
            kind.lower(): _check_tier(tier, f"the tier of subagent {kind!r}")
            for kind, tier in (subagents or {}).items()
        }

    @property
    def default(self) -> Model:
        """The model that serves when no tier is asked for."""
        return self._default

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that have a model, from low to high."""
        return tuple(tier for tier in TIERS if tier in self._models)

    def choose(self, tier: str = "", subagent: str = "") -> Model:
        """Return the model for a tier or a type of subagent; what was chosen is told first in each of its answers."""
        missing: list[str] = []
        for wanted, reason in ((tier, "asked for"), (self._subagent_tier(subagent), f"subagent {subagent!r}")):
            found = tier_of(wanted)
            if found in self._models:
                model = self._models[found]
                return SelectedModel(
                    model, ModelSelected(model=model.name, tier=found, reason=_selection_reason(reason, missing))
                )
            if wanted:
                missing.append(f"tier {wanted!r} ({reason}) is not in the pool, which has {self._describe_tiers()}")
                _log.warning("%s", missing[-1])
        if not missing:
            return self._default
        return SelectedModel(
            self._default, ModelSelected(model=self._default.name, reason=_selection_reason("default", missing))
        )

    async def close(self) -> None:
        """Close all models."""
        await close_models(*self._models.values(), self._default)

    def _subagent_tier(self, subagent: str) -> str:
        return self._subagents.get(subagent.lower(), "")

    def _describe_tiers(self) -> str:
        return ", ".join(self.tiers) or "no tiers"


class SelectedModel(ModelWrapper):
    """A model that tells, before each answer, why it is the one."""

    def __init__(self, inner: Model, selected: ModelSelected) -> None:
        super().__init__(inner)
        self._selected = NoticeChunk(selected)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Answer as the other model does."""
        yield self._selected
        async with aclosing(self._inner.stream(prompt)) as chunks:
            async for chunk in chunks:
                yield chunk


def tier_of(name: str) -> str:
    """Return the tier that ``name`` means, such as ``mid`` for ``Sonnet``; a name that means none is returned as is."""
    lower = name.lower()
    return ALIASES.get(lower, lower if lower in TIERS else name)


def _check_tier(name: str, what: str) -> str:
    tier = tier_of(name)
    if tier not in TIERS:
        near = get_close_matches(name.lower(), [*TIERS, *ALIASES], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the tiers are {', '.join(TIERS)}"
        raise ConfigError(f"{what} cannot be called {name!r}; {hint}")
    return tier


def _selection_reason(reason: str, missing: list[str]) -> str:
    return "; ".join([reason, *missing])
