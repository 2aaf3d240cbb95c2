"""References between definitions, and the slots that hold either a reference or an inline definition."""

from typing import Any, Generic, Literal, TypeAlias, TypeVar

import msgspec

DefinitionKind: TypeAlias = Literal["agent", "tool", "rule", "context", "generator"]
"""What a file can define."""

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
        definition: Any = self.definition
        name = definition.get("name") if isinstance(definition, dict) else getattr(definition, "name", "")
        return name if isinstance(name, str) else ""
