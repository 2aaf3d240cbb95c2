"""Context layers: the pieces that the system prompt of an agent or a generator tool is made of."""

from typing import Any, TypeAlias, cast

import msgspec

from vaka.genx.definitions.fields import DefinitionFields
from vaka.genx.definitions.references import Reference, parse_reference

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

THIS_FIELDS = ("prompt", "name", "description", "model", "mode")
"""The fields that a ``$this`` layer may name; only generator tools have the last two."""
_LAYER_KEYS = ("$this", "$ref", "$env", "$mem")


def parse_layers(fields: DefinitionFields) -> tuple[ContextLayer, ...]:
    found = (
        _parse_layer(fields, value, "context_layers", index)
        for index, value in enumerate(fields.items("context_layers"))
    )
    return tuple(layer for layer in found if layer is not None)


def _parse_layer(fields: DefinitionFields, value: object, *keys: str | int) -> ContextLayer | None:
    expected = "must have one of $this, $ref, $env and $mem, or be a text"
    if isinstance(value, str) and value:
        return InlineLayer(value)
    if not isinstance(value, dict):
        fields.fail(f"context layer: {expected}", *keys)
        return None
    layer = fields.fields_at(cast("dict[str, Any]", value), *keys, prefix="context layer: ")
    given = [key for key in _LAYER_KEYS if layer.get(key) not in (None, "")]
    if len(given) != 1:
        several = f"must have only one of $this, $ref, $env and $mem, got {' and '.join(given)}"
        layer.fail(several if given else expected)
        return None
    layer.report_unknown_keys()
    if given[0] == "$mem":
        return _parse_memory_layer(layer)
    if given[0] == "$ref":
        reference = parse_reference(layer, "context")
        return ContextLayerReference(reference) if reference is not None else None
    text = layer.text(given[0])
    if given[0] == "$env":
        return EnvironmentLayer(text)
    field = FieldLayer(text)
    if field.field not in THIS_FIELDS:
        layer.note(f"$this: {text!r} is always empty; expected one of {', '.join(THIS_FIELDS)}", "$this")
    return field


def _parse_memory_layer(layer: DefinitionFields) -> MemoryLayer:
    memory = layer.fields_at(layer.table("$mem") or {}, "$mem", prefix="$mem: ")
    recent = memory.integer("recent", least=0)
    found = MemoryLayer(memory.flag("summary"), memory.flag("query"), DEFAULT_RECENT if recent is None else recent)
    memory.report_unknown_keys()
    return found
