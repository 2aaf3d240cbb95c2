"""Context layers: the pieces that the system prompt of an agent or a generator tool is made of."""

from typing import TypeAlias

import msgspec

from vaka.config.definitions.references import Reference

DEFAULT_RECENT = 100
"""The number of recent messages when no ``$mem`` layer says another."""


class InlineLayer(msgspec.Struct, frozen=True):
    """A text, written as it is."""

    text: str


class FieldLayer(msgspec.Struct, frozen=True):
    """``$this``: a field of the same definition, such as ``.prompt``."""

    path: str
    """As it was written; the leading dot is optional."""

    @property
    def field(self) -> str:
        """The name of the field, without the dot."""
        return self.path.removeprefix(".")


class ContextLayerReference(msgspec.Struct, frozen=True):
    """``$ref``: a context definition."""

    reference: Reference


class EnvironmentLayer(msgspec.Struct, frozen=True):
    """``$env``: the text of a variable of the environment; an empty one drops the layer."""

    variable: str


class MemoryLayer(msgspec.Struct, frozen=True):
    """``$mem``: what of the conversation and its memory the model sees."""

    summary: bool = False
    query: bool = False
    recent: int = DEFAULT_RECENT
    """The number of recent messages."""


ContextLayer: TypeAlias = InlineLayer | FieldLayer | ContextLayerReference | EnvironmentLayer | MemoryLayer
