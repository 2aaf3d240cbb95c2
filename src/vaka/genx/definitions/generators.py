"""Definitions of generators: a model and the parameters of its requests. And of contexts: a prompt under a name."""

from math import inf
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from vaka.genx.definitions.fields import DefinitionFields
from vaka.genx.definitions.references import Slot

ReasoningEffort: TypeAlias = Literal["none", "minimal", "low", "medium", "high", "max"]


class GeneratorDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A model and the parameters of its requests."""

    name: Annotated[str, Meta(description="The name of the definition; needed only in a file of its own.")] = ""
    model: Annotated[
        str, Meta(description="The name of the model, such as `local`; in a router `offline` needs none.")
    ] = ""
    temperature: Annotated[float | None, Meta(description="How random the answers are.")] = None
    max_tokens: Annotated[int | None, Meta(description="The longest answer, in tokens.")] = None
    top_p: Annotated[float | None, Meta(description="The probability mass that tokens are sampled from.")] = None
    top_k: Annotated[int | None, Meta(description="The number of tokens that are sampled from.")] = None
    frequency_penalty: Annotated[float | None, Meta(description="How much frequent tokens are avoided.")] = None
    presence_penalty: Annotated[float | None, Meta(description="How much repeated tokens are avoided.")] = None
    seed: Annotated[int | None, Meta(description="The seed of sampling, for models that have one.")] = None
    stop: Annotated[tuple[str, ...], Meta(description="Texts that end an answer.")] = ()
    reasoning: Annotated[ReasoningEffort | int | None, Meta(description="How much to think; a number is tokens.")] = (
        None
    )
    extra: Annotated[dict[str, Any], Meta(description="Fields of one provider, added to requests unchanged.")] = {}

    @property
    def options(self) -> dict[str, Any]:
        """The parameters that are set, by their names: the options of the model."""
        found = {name: getattr(self, name) for name in PARAMETERS}
        options = {name: value for name, value in found.items() if value is not None}
        lists = {"stop": list(self.stop), "extra": self.extra}
        return options | {name: value for name, value in lists.items() if value}


NUMBER_RANGES: dict[str, tuple[float, float]] = {
    "temperature": (0, inf),
    "top_p": (0, 1),
    "frequency_penalty": (-inf, inf),
    "presence_penalty": (-inf, inf),
}
"""Parameters that are numbers, each with its least and greatest value."""
PARAMETERS = ("max_tokens", "top_k", "seed", "reasoning", *NUMBER_RANGES)
"""The parameters that go to the model with each request."""

GeneratorSlot: TypeAlias = Slot[GeneratorDefinition]


class ContextDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that agents refer to in their context layers."""

    name: Annotated[str, Meta(description="The name of the definition.")] = ""
    prompt: Annotated[str, Meta(description="The text.")]


def parse_context(fields: DefinitionFields) -> ContextDefinition:
    context = ContextDefinition(name=fields.text("name"), prompt=fields.text("prompt"))
    if fields.values.get("prompt") is None:
        fields.fail(f"context {context.name}: prompt is required")
    fields.report_unknown_keys()
    return context


def parse_generator(fields: DefinitionFields) -> GeneratorDefinition:
    """Return a generator that an agent defines inline."""
    stop = (fields.text("stop"),) if isinstance(fields.get("stop"), str) else fields.texts("stop")
    numbers: dict[str, Any] = {name: _parse_number(fields, name) for name in NUMBER_RANGES}
    generator = GeneratorDefinition(
        name=fields.text("name"),
        model=fields.text("model"),
        **numbers,
        stop=stop,
        seed=fields.integer("seed"),
        max_tokens=fields.integer("max_tokens", least=0) or None,
        top_k=fields.integer("top_k", least=0) or None,
        reasoning=_parse_reasoning(fields),
        extra=fields.table("extra") or {},
    )
    if fields.integer("n", least=0) not in (None, 0, 1):
        fields.fail("n: only one answer is supported; leave it out", "n")
    fields.report_unknown_keys()
    return generator


def parse_named_generator(fields: DefinitionFields) -> GeneratorDefinition:
    """Return a generator of a file."""
    name = fields.text("name")
    fields.required_text("model", f"generator {name}: model is required")
    return parse_generator(fields)


def _parse_number(fields: DefinitionFields, name: str) -> float | None:
    value = fields.number(name)
    least, most = NUMBER_RANGES[name]
    if value is not None and not least <= value <= most:
        words = f"a number from {least} to {most}" if most < inf else f"a number from {least} on"
        fields.fail(f"{name}: expected {words}, got {value}", name)
    return value


def _parse_reasoning(fields: DefinitionFields) -> ReasoningEffort | int | None:
    if isinstance(fields.get("reasoning"), int | float):
        return fields.integer("reasoning", least=1)
    if fields.get("reasoning") is None:
        return None
    effort: ReasoningEffort = fields.choice("reasoning", ReasoningEffort, "reasoning", "medium")
    return effort
