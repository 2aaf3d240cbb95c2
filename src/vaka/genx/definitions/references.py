"""References between definitions, and the slots that hold either a reference or an inline definition."""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import msgspec

from vaka.config.documents import JsonPath
from vaka.genx.definitions.fields import DefinitionFields, join_words, with_article

DefinitionKind: TypeAlias = Literal["agent", "tool", "rule", "context", "generator"]
"""The kinds of definitions."""

KINDS: "tuple[DefinitionKind, ...]" = ("agent", "tool", "rule", "context", "generator")

PREFIXES: "dict[str, str]" = {
    "agent": "agent",
    "tool": "tool",
    "rule": "rule",
    "context": "context",
    "prompt": "context",
    "character": "context",
    "personality": "context",
    "style": "context",
    "generator": "generator",
    "model": "generator",
    "state": "state",
}
"""The words before the colon of a reference, each with the kind of definition it refers to."""


class Reference(msgspec.Struct, frozen=True):
    """The definition of one kind that has a name, written as ``{"$ref": "kind:name"}`` or ``{"$ref": "name"}``."""

    kind: DefinitionKind
    name: str
    prefix: str = ""
    """The word before the colon, such as ``character`` for a context; empty for a bare name."""

    @property
    def text(self) -> str:
        """The value of ``$ref``."""
        return f"{self.prefix}:{self.name}" if self.prefix else self.name


def split_reference(text: str) -> tuple[str, str]:
    """Return the known prefix and the name; a word that is not a known prefix belongs to the name."""
    prefix, colon, name = text.partition(":")
    return (prefix, name) if colon and prefix in PREFIXES else ("", text)


T = TypeVar("T")


class Slot(msgspec.Struct, Generic[T], frozen=True):
    """A reference or an inline definition, or neither: then it is empty and is written as ``null``."""

    reference: Reference | None = None
    definition: T | None = None

    @property
    def is_ref(self) -> bool:
        """Whether the slot holds a reference."""
        return self.reference is not None

    @property
    def is_empty(self) -> bool:
        """Whether the slot holds neither a reference nor a definition."""
        return self.reference is None and self.definition is None

    @property
    def name(self) -> str:
        """The name of the referenced or inline definition, empty if there is none."""
        if self.reference is not None:
            return self.reference.name
        inline: object = self.definition
        if isinstance(inline, dict):
            return str(cast("dict[str, Any]", inline).get("name", ""))
        return str(getattr(inline, "name", ""))


def parse_slot(
    fields: DefinitionFields,
    value: object,
    kind: DefinitionKind,
    parse: Callable[[DefinitionFields], T | None],
    *keys: str | int,
    required: str = "",
) -> Slot[T]:
    """Return a reference or an inline definition; ``required`` is the message when there is neither."""
    if value is None:
        if required:
            fields.fail(required, *keys)
        return Slot()
    if not isinstance(value, dict):
        fields.fail_type(f"a table with $ref or the definition of {with_article(kind)}", value, *keys)
        return Slot()
    inner = fields.fields_at(cast("dict[str, Any]", value), *keys)
    if not inner.get("$ref"):
        return Slot(definition=parse(inner))
    reference = parse_reference(inner, kind)
    inner.report_unknown_keys(("quit",) if kind == "tool" else ())
    return Slot(reference=reference)


def parse_reference(fields: DefinitionFields, kind: DefinitionKind) -> Reference | None:
    text = fields.text("$ref")
    prefix, name = split_reference(text)
    if prefix and PREFIXES[prefix] != kind:
        wanted = join_words([f"{word}:{name}" for word, target in PREFIXES.items() if target == kind])
        fields.fail(f"$ref {text!r} is a reference to {with_article(prefix)}; expected {wanted}", "$ref")
    elif text and not name.strip():
        fields.fail(f"$ref {text!r} has no name after the colon", "$ref")
    return Reference(kind, name, prefix)


def iter_references(value: object, path: JsonPath = ()) -> Iterator[tuple[Reference, JsonPath]]:
    """Yield each reference of a definition, also of inline ones, with its path in the document."""
    if isinstance(value, Reference):
        yield value, path
    elif isinstance(value, Slot):
        slot = cast("Slot[object]", value)
        yield from iter_references(slot.reference or slot.definition, path)
    elif isinstance(value, tuple):
        for index, item in enumerate(cast("tuple[object, ...]", value)):
            yield from iter_references(item, (*path, index))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from iter_references(getattr(value, name), (*path, name))
