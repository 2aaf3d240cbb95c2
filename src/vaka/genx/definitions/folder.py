"""Definitions of a project: the files of ``agents/``, ``tools/``, ``rules/``, ``contexts/`` and ``models/``."""

from collections.abc import Callable, Collection, Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from vaka.config.documents import JsonPath, read_errors
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import find_near_names
from vaka.genx.definitions.codecs import FORMATS
from vaka.genx.definitions.definition_set import Definition, DefinitionSet
from vaka.genx.definitions.fields import ParseSettings, with_article
from vaka.genx.definitions.includes import ComposedDocument, IncludeError, IncludeScope, read_composed
from vaka.genx.definitions.inheritance import (
    EXTENDS,
    DefinitionKey,
    ExtendError,
    Inheritance,
    PlaceOf,
    WrittenDefinition,
    base_name,
)
from vaka.genx.definitions.parser import parse_document
from vaka.genx.definitions.references import DefinitionKind, Reference, iter_references
from vaka.genx.definitions.scripts import SCRIPT_KEYS

FOLDERS: dict[str, DefinitionKind] = {
    "agents": "agent",
    "tools": "tool",
    "rules": "rule",
    "contexts": "context",
    "models": "generator",
    "generators": "generator",
    "agent_v1": "agent",
    "tool_v1": "tool",
    "rule_v1": "rule",
    "context_v1": "context",
}
"""The folders of definitions, each with the kind that its files define."""
AGENT_FOLDERS = tuple(name for name, kind in FOLDERS.items() if kind == "agent")
"""The folders by which a project with definitions is known."""
LIST_KINDS = ("rule", "tool")
"""Kinds of which a file may have a list."""
MAX_CYCLES = 20
"""How many cycles are reported."""

IsKnown: TypeAlias = Callable[[DefinitionKind, str], bool]
"""Tell whether something outside of the folder has a name: a tool of the host, or a model."""

_TYPICAL_KEYS: dict[DefinitionKind, frozenset[str]] = {
    "agent": frozenset(
        {
            "type",
            "name",
            "prompt",
            "context_layers",
            "generator",
            "tools",
            "rules",
            "route",
            "lua",
            "lua_file",
            "script",
            "script_file",
        }
    ),
    "tool": frozenset(
        {"type", "name", "description", "params", "parameters", "lua", "lua_file", "script", "script_file"}
    ),
    "rule": frozenset({"name", "patterns", "examples", "vars"}),
    "context": frozenset({"prompt"}),
    "generator": frozenset({"model", "temperature", "max_tokens", "top_p", "top_k"}),
}
"""Keys by which a file is taken for a definition; folders with such names also hold other things."""


class _FoundDefinition(msgspec.Struct, frozen=True):
    """A definition, and the lines of its document."""

    definition: Definition
    place_of: PlaceOf


class _WrittenFile(msgspec.Struct, frozen=True):
    """A definition of a file before it is checked."""

    path: Path
    kind: DefinitionKind
    document: ComposedDocument
    at: JsonPath
    """Where in the document it is: ``()``, or its place in a list."""
    value: object

    @property
    def fields(self) -> dict[str, Any]:
        """Its fields; none if it is not a table."""
        value: Any = self.value
        return cast("dict[str, Any]", value) if isinstance(value, dict) else {}

    @property
    def key(self) -> DefinitionKey:
        """Its kind and name."""
        name = self.fields.get("name")
        return self.kind, name if isinstance(name, str) and name else self.path.stem

    def place_of(self, path: JsonPath) -> str:
        return self.document.place_of((*self.at, *path))


def include_scope(folder: Path, *, trusted: bool = True) -> IncludeScope:
    """Return what the definitions of a folder may include."""
    return IncludeScope(root=folder, folders=() if trusted else tuple(FOLDERS))


def load_definitions(
    folder: Path, settings: ParseSettings | None = None, *, is_known: IsKnown | None = None
) -> DefinitionSet:
    """Return the definitions of a folder. ``problems`` of the set has every error, with file and line.

    ``is_known`` returns whether references may use a name that the folder does not define.
    """
    loader = _FolderLoader(folder, settings or ParseSettings())
    for name, kind in FOLDERS.items():
        for path in list_files(folder / name):
            loader.read_file(path, kind)
    loader.load_definitions()
    loader.check_references(is_known or (lambda kind, name: False))
    loader.check_cycles()
    return loader.definition_set()


def load_definition_file(path: Path, kind: DefinitionKind, settings: ParseSettings | None = None) -> DefinitionSet:
    """Return the definitions of one file. They may extend other files; references to other files are not checked."""
    place, given = path.resolve().parent, settings or ParseSettings()
    folder = place.parent if place.name in FOLDERS else place
    loader, others = _FolderLoader(folder, given), _FolderLoader(folder, given)
    loader.read_file(path, kind)
    for name, known in FOLDERS.items() if folder != place else ():
        for other in list_files(folder / name):
            others.read_file(other, known)
    loader.load_definitions(others)
    return loader.definition_set()


def list_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be definitions, by name; a folder that does not exist has none."""
    if not folder.is_dir():
        return []
    with read_errors(folder):
        found = [path for path in folder.iterdir() if path.suffix.lower() in FORMATS and not path.name.startswith(".")]
    return sorted(path for path in found if path.is_file())


def guess_kind(path: Path, document: object) -> DefinitionKind | None:
    """Return what a file defines: its folder tells, else the keys that only one kind has; ``None`` for another file."""
    kind = FOLDERS.get(path.absolute().parent.name)
    if kind is not None:
        return kind
    items = cast("list[object]", document) if isinstance(document, list) else [document]
    if not items or not isinstance(items[0], dict):
        return None
    table = cast("dict[str, Any]", items[0])
    keys = table.keys() - {"$schema"}
    if table.get("type") in ("react", "match", "realtime") or keys & {"route", "context_layers", "tools", "generator"}:
        return "agent" if table.get("type") != "generator" else "tool"
    if keys & {"patterns", "vars", "examples"}:
        return "rule"
    if "name" in keys and keys & {"type", "params", "parameters", *SCRIPT_KEYS}:
        return "tool"
    if "prompt" in keys:
        return "context" if keys <= {"name", "prompt"} else "agent"
    return "generator" if "model" in keys else None


def iter_definitions(kind: DefinitionKind, document: object) -> Iterator[tuple[JsonPath, object]]:
    """Yield the definitions of a file with their places: one definition or a list, for rules also under ``rules``."""
    at: JsonPath = ()
    if kind == "rule" and isinstance(document, dict) and "rules" in document and "name" not in document:
        at, document = ("rules",), cast("dict[str, object]", document)["rules"]
    if isinstance(document, list) and kind in LIST_KINDS:
        yield from (((*at, index), value) for index, value in enumerate(cast("list[object]", document)))
    else:
        yield at, document


class _FolderLoader:
    """Reads files one after the other, and checks what they have in common."""

    def __init__(self, folder: Path, settings: ParseSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.scope = include_scope(folder, trusted=settings.trusted)
        self.written: list[_WrittenFile | str] = []
        """The read definitions, and problems in their order."""
        self.found: dict[DefinitionKey, _FoundDefinition] = {}
        self.invalid: dict[DefinitionKey, str] = {}
        """Definitions with problems: a reference to one is not a second problem."""
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.model_files: list[Path] = []
        self.included: list[Path] = []

    def definition_set(self) -> DefinitionSet:
        definitions = [found.definition for found in self.found.values()]
        return DefinitionSet(
            definitions,
            problems=self.problems,
            notes=self.notes,
            model_files=self.model_files,
            invalid=self.invalid,
            included=self.included,
        )

    def read_file(self, path: Path, kind: DefinitionKind) -> None:
        try:
            document = read_composed(path, self.scope)
        except ConfigError as error:
            self.included += error.files if isinstance(error, IncludeError) else ()
            self.written.append(str(error))
            self.invalid[kind, path.stem] = str(error)
            return
        self.included += document.files
        value = document.value
        if kind == "generator" and isinstance(value, dict) and "models" in value:
            self.model_files.append(path)
        elif isinstance(value, list) and kind not in LIST_KINDS:
            self.written.append(f"{path}:1: expected the definition of {with_article(kind)}, got a list")
        else:
            self.written += (
                _WrittenFile(path, kind, document, at, item) for at, item in iter_definitions(kind, document.value)
            )

    def load_definitions(self, others: "_FolderLoader | None" = None) -> None:
        """Check what was read; it may also extend the definitions of other files."""
        known: dict[DefinitionKey, WrittenDefinition] = {}
        for one in (*self.written, *(others.written if others is not None else ())):
            if isinstance(one, _WrittenFile):
                known.setdefault(one.key, WrittenDefinition(one.value, one.place_of))
        unreadable = {**(others.invalid if others is not None else {}), **self.invalid}
        inheritance = Inheritance(known, unreadable)
        for one in self.written:
            if isinstance(one, str):
                self.problems.append(one)
            elif self.is_definition(one, {*known, *unreadable}):
                self.load_definition(one, inheritance)

    def is_definition(self, one: _WrittenFile, known: Collection[DefinitionKey]) -> bool:
        """Return whether a file is a definition; if not, say so."""
        extends = base_name(one.fields.get(EXTENDS), one.kind) in known
        if one.at or extends or one.fields.keys() & _TYPICAL_KEYS[one.kind]:
            return True
        message = f"{one.place_of(())}: does not define {with_article(one.kind)}: it has none of its keys"
        (self.problems if self.settings.strict else self.notes).append(message)
        return False

    def load_definition(self, one: _WrittenFile, inheritance: Inheritance) -> None:
        path, kind = one.path, one.kind
        try:
            complete = inheritance.complete(kind, WrittenDefinition(one.value, one.place_of))
        except ExtendError as error:
            self.invalid[one.key] = problem = f"{one.place_of(error.path)}: {error}"
            self.problems.append(problem)
            return
        settings = msgspec.structs.replace(self.settings, script_folders=(path.parent, self.folder))
        parsed = parse_document(kind, complete.value, name="" if one.at else path.stem, settings=settings)
        problems, notes = (
            [f"{complete.place_of(place)}: {message}" for place, message in findings]
            for findings in (parsed.problems, parsed.notes)
        )
        self.problems += problems
        self.notes += notes
        if problems:
            self.invalid[one.key] = "; ".join(problems)
            return
        name: str = parsed.value["name"] if kind == "rule" else parsed.value.name
        line = one.document.line_of(one.at)
        definition = Definition(kind=kind, name=name, value=parsed.value, path=path, line=line)
        first = self.found.setdefault((kind, name), _FoundDefinition(definition, complete.place_of))
        if first.definition is not definition:
            self.problems.append(f"{definition.origin}: {kind} {name!r} is defined twice: {first.definition.origin}")

    def check_references(self, is_known: IsKnown) -> None:
        """Report each reference to a definition that does not exist, with the near name."""
        for found in self.found.values():
            for reference, path in iter_references(found.definition.value):
                key = (reference.kind, reference.name)
                if self.resolve(reference) is not None or key in self.invalid or is_known(*key):
                    continue
                known = [name for kind, name in (*self.found, *self.invalid) if kind == reference.kind]
                near = find_near_names(reference.name, known, n=1)
                home = next(name for name, kind in FOLDERS.items() if kind == reference.kind)
                hint = f"; did you mean {near[0]!r}?" if near else f"; define it in {home}/"
                owner = f"{found.definition.kind} {found.definition.name}"
                message = f"{owner}: {reference.kind} {reference.name!r} not found{hint}"
                self.problems.append(f"{found.place_of(path)}: {message}")

    def resolve(self, reference: Reference) -> tuple[DefinitionKind, str] | None:
        """Return the kind and name of what a reference refers to."""
        names = (reference.name, reference.text)
        return next((key for name in names if (key := (reference.kind, name)) in self.found), None)

    def check_cycles(self) -> None:
        """Report agents and tools that contain themselves through their references."""
        graph = {key: dict(self.iter_edges(found)) for key, found in self.found.items()}
        for _ in range(MAX_CYCLES):
            try:
                TopologicalSorter(graph).prepare()
            except CycleError as error:
                # The cycle is listed against the direction of the references.
                cycle = cast("list[tuple[DefinitionKind, str]]", error.args[1])[::-1]
                place = graph[cycle[0]].pop(cycle[1])
                words = " → ".join(f"{kind} {name!r}" for kind, name in cycle)
                self.problems.append(f"{self.found[cycle[0]].place_of(place)}: the references form a cycle: {words}")
            else:
                return

    def iter_edges(self, found: _FoundDefinition) -> Iterator[tuple[tuple[DefinitionKind, str], JsonPath]]:
        """Yield the definitions that one refers to."""
        for reference, path in iter_references(found.definition.value):
            target = self.resolve(reference)
            if target is not None:
                yield target, path
