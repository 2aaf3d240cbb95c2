"""Models by tier (low, mid, high), and which tier serves which subagent."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from vaka.core.ports.model import Chunk, Model, NoticeChunk, Prompt
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names
from vaka.core.types.monitor import ModelSelected
from vaka.models.wrappers.model_wrapper import ModelWrapper, close_models

TIERS = ("low", "mid", "high")
ALIASES = {"haiku": "low", "sonnet": "mid", "opus": "high"}
"""Names of model families that stand for a tier."""

_log = logging.getLogger(__name__)


class ModelPool:
    """Models by tier, a default model, and the tiers of types of subagents.

    A run is served by the model of the tier it asks for, else of the tier of its type of subagent, else by the default
    model. A tier that the pool does not have is skipped with a warning.
    """

    def __init__(self, models: Mapping[str, Model], default: Model, subagents: Mapping[str, str] | None = None) -> None:
        self._models = {_check_tier(name, "a model of the pool"): model for name, model in models.items()}
        if len(self._models) < len(models):
            raise ConfigError(f"a pool has one model for each tier, got {', '.join(models)}")
        self.default = default
        """The model of runs that ask for no tier."""
        self._subagents = {
            kind.lower(): _check_tier(tier, f"the tier of subagent {kind!r}")
            for kind, tier in (subagents or {}).items()
        }

    @property
    def tiers(self) -> tuple[str, ...]:
        """The tiers that have a model, from low to high."""
        return tuple(tier for tier in TIERS if tier in self._models)

    def choose(self, tier: str = "", subagent: str = "") -> Model:
        """Return the model for a tier or a type of subagent; each of its answers begins with a notice of the choice."""
        missing: list[str] = []
        by_subagent = self._subagents.get(subagent.lower(), "")
        for wanted, reason in ((tier, "asked for"), (by_subagent, f"subagent {subagent!r}")):
            known = tier_of(wanted)
            if known in self._models:
                model = self._models[known]
                reason = "; ".join([reason, *missing])
                return SelectedModel(model, ModelSelected(model=model.name, tier=known, reason=reason))
            if wanted:
                tiers = ", ".join(self.tiers) or "no tiers"
                missing.append(f"tier {wanted!r} ({reason}) is not in the pool, which has {tiers}")
                _log.warning("%s", missing[-1])
        if not missing:
            return self.default
        reason = "; ".join(["default", *missing])
        return SelectedModel(self.default, ModelSelected(model=self.default.name, reason=reason))

    async def close(self) -> None:
        """Close all models."""
        await close_models(*self._models.values(), self.default)


class SelectedModel(ModelWrapper):
    """A model whose answers begin with a notice of why it was selected."""

    def __init__(self, inner: Model, selected: ModelSelected) -> None:
        super().__init__(inner)
        self._selected = NoticeChunk(selected)

    async def stream(self, prompt: Prompt) -> AsyncGenerator[Chunk]:
        """Stream the notice and the inner model's answer."""
        yield self._selected
        async with aclosing(self._inner.stream(prompt)) as chunks:
            async for chunk in chunks:
                yield chunk


def tier_of(name: str) -> str:
    """Return the tier for a name, such as ``mid`` for ``Sonnet``; any other name is returned unchanged."""
    lower = name.lower()
    return ALIASES.get(lower, lower if lower in TIERS else name)


def _check_tier(name: str, what: str) -> str:
    tier = tier_of(name)
    if tier not in TIERS:
        near = find_near_names(name.lower(), [*TIERS, *ALIASES], n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"the tiers are {', '.join(TIERS)}"
        raise ConfigError(f"{what} cannot be called {name!r}; {hint}")
    return tier
