"""Definitions of generators: a model and the parameters of its requests. And of contexts: a prompt under a name."""

from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from vaka.config.definitions.references import Slot


class GeneratorDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A model and the parameters of its requests."""

    name: Annotated[str, Meta(description="The name of the definition; needed only in a file of its own.")] = ""
    model: Annotated[str, Meta(description="The name of the model, such as `openai/gpt-5-mini`.")] = ""
    temperature: Annotated[float | None, Meta(description="How random the answers are.")] = None
    max_tokens: Annotated[int | None, Meta(description="The longest answer, in tokens.")] = None
    top_p: Annotated[float | None, Meta(description="The probability mass that tokens are sampled from.")] = None
    top_k: Annotated[int | None, Meta(description="The number of tokens that are sampled from.")] = None
    frequency_penalty: Annotated[float | None, Meta(description="How much frequent tokens are avoided.")] = None
    presence_penalty: Annotated[float | None, Meta(description="How much repeated tokens are avoided.")] = None
    n: Annotated[int | None, Meta(description="The number of answers; only 1 is supported.")] = None
    seed: Annotated[int | None, Meta(description="The seed of sampling, for models that have one.")] = None
    stop: Annotated[tuple[str, ...], Meta(description="Texts that end an answer.")] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The parameters that are set, by their names."""
        found = {name: getattr(self, name) for name in PARAMETERS}
        options = {name: value for name, value in found.items() if value is not None}
        return options | ({"stop": list(self.stop)} if self.stop else {})


INTEGER_PARAMETERS = ("max_tokens", "top_k", "seed", "n")
NUMBER_PARAMETERS = ("temperature", "top_p", "frequency_penalty", "presence_penalty")
PARAMETERS = ("max_tokens", "top_k", "seed", *NUMBER_PARAMETERS)
"""The parameters that go to the model with each request."""

GeneratorSlot: TypeAlias = Slot[GeneratorDefinition]


class ContextDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt that agents refer to in their context layers."""

    name: Annotated[str, Meta(description="The name of the definition.")] = ""
    prompt: Annotated[str, Meta(description="The text.")] = ""
