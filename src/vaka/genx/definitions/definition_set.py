"""The definitions of a project, found by kind and name, each with the file and line it comes from."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from vaka.core.types.errors import ConfigError
from vaka.genx.definitions.agents import AgentDefinition, RuleDocument
from vaka.genx.definitions.generators import ContextDefinition, GeneratorDefinition
from vaka.genx.definitions.references import DefinitionKind, Reference
from vaka.genx.definitions.tools import ToolDefinition

T = TypeVar("T")


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    """A definition under its name, and where it was written."""

    kind: DefinitionKind
    name: str
    value: Any
    """An agent, tool, context or generator definition, or the document of a rule."""
    path: Path | None = None
    line: int = 1

    @property
    def origin(self) -> str:
        """``file:line``, empty for a definition that does not come from a file."""
        return f"{self.path}:{self.line}" if self.path is not None else ""


class DefinitionSet:
    """Definitions by kind and name. Of two with one name the first counts."""

    def __init__(
        self,
        definitions: Iterable[Definition] = (),
        *,
        problems: Iterable[str] = (),
        notes: Iterable[str] = (),
        model_files: Iterable[Path] = (),
        invalid: Mapping[tuple[DefinitionKind, str], str] | None = None,
        included: Iterable[Path] = (),
    ) -> None:
        self._tables: dict[DefinitionKind, dict[str, Definition]] = {}
        for definition in definitions:
            self._tables.setdefault(definition.kind, {}).setdefault(definition.name, definition)
        self.problems = tuple(problems)
        """Errors in the files, each with ``file:line``; the definitions with errors are left out."""
        self.notes = tuple(notes)
        """Fields that have no effect or are deprecated, each with ``file:line``."""
        self.model_files = tuple(model_files)
        """Files of ``models/`` in the format of model files, which name providers and keys."""
        self.invalid = invalid or {}
        """Errors of the definitions that cannot be used, by kind and name."""
        self.included = tuple(included)
        """The files that definitions include, also unreadable files."""

    def __iter__(self) -> Iterator[Definition]:
        return (definition for table in self._tables.values() for definition in table.values())

    def __len__(self) -> int:
        return sum(map(len, self._tables.values()))

    def find(self, kind: DefinitionKind, name: str) -> Definition | None:
        """Return the definition of a kind with a name."""
        return self._tables.get(kind, {}).get(name)

    def table(self, kind: DefinitionKind) -> Mapping[str, Definition]:
        """Return the definitions of a kind by name, in the order of their files."""
        return self._tables.get(kind, {})

    def resolve(self, reference: Reference) -> Definition | None:
        """Return what a reference refers to."""
        return self.find(reference.kind, reference.name) or self.find(reference.kind, reference.text)

    def require_valid(self, kind: DefinitionKind, name: str) -> None:
        """Raise ``ConfigError`` if there is a definition with this name that cannot be used."""
        problem = self.invalid.get((kind, name))
        if problem is not None:
            raise ConfigError(f"the {kind} {name!r} cannot be used: {problem}")

    def agent(self, name: str) -> AgentDefinition | None:
        """Return the agent with a name."""
        return _value_of(self.find("agent", name), AgentDefinition)

    def tool(self, name: str) -> ToolDefinition | None:
        """Return the tool with a name."""
        return _value_of(self.find("tool", name), ToolDefinition)

    def context(self, name: str) -> ContextDefinition | None:
        """Return the context with a name."""
        return _value_of(self.find("context", name), ContextDefinition)

    def generator(self, name: str) -> GeneratorDefinition | None:
        """Return the generator with a name."""
        return _value_of(self.find("generator", name), GeneratorDefinition)

    def rule(self, name: str) -> RuleDocument | None:
        """Return the document of the rule with a name."""
        definition = self.find("rule", name)
        return None if definition is None else definition.value


def _value_of(definition: Definition | None, kind: type[T]) -> T | None:
    return definition.value if definition is not None and isinstance(definition.value, kind) else None
