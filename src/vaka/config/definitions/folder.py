"""Definitions of a project: the files of ``agents/``, ``tools/``, ``rules/``, ``contexts/`` and ``models/``."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec

from vaka.config.definitions.codecs import FORMATS, LocatedDocument, read_document
from vaka.config.definitions.definition_set import Definition, DefinitionSet
from vaka.config.definitions.fields import ParseSettings, with_article
from vaka.config.definitions.parser import parse_document
from vaka.config.definitions.references import DefinitionKind, Reference, iter_references
from vaka.config.definitions.scripts import SCRIPT_KEYS
from vaka.config.documents import JsonPath, read_errors
from vaka.core.types.errors import ConfigError

FOLDERS: dict[str, DefinitionKind] = {
    "agents": "agent", "tools": "tool", "rules": "rule", "contexts": "context", "models": "generator",
    "generators": "generator", "agent_v1": "agent", "tool_v1": "tool", "rule_v1": "rule", "context_v1": "context",
}  # fmt: skip
"""The folders of definitions, each with the kind that its files define."""
LIST_KINDS = ("rule", "tool")
"""Kinds of which a file may have a list."""
MAX_CYCLES = 20
"""How many cycles are reported."""

IsKnown: TypeAlias = Callable[[DefinitionKind, str], bool]
"""Tell whether something outside of the folder has a name: a tool of the host, or a model."""

_TYPICAL_KEYS: dict[DefinitionKind, frozenset[str]] = {
    "agent": frozenset({
        "type", "name", "prompt", "context_layers", "generator", "tools", "rules", "route",
        "lua", "lua_file", "script", "script_file",
    }),
    "tool": frozenset({
        "type", "name", "description", "params", "parameters", "lua", "lua_file", "script", "script_file"
    }),
    "rule": frozenset({"name", "patterns", "examples", "vars"}),
    "context": frozenset({"prompt"}),
    "generator": frozenset({"model", "temperature", "max_tokens", "top_p", "top_k"}),
}  # fmt: skip
"""Keys by which a file is taken for a definition; folders with such names also hold other things."""


class _FoundDefinition(msgspec.Struct, frozen=True):
    """A definition with its document, which knows the lines."""

    definition: Definition
    document: LocatedDocument
    path: JsonPath
    """Where in the document it is: ``()``, or its place in a list."""

    def place_of(self, path: JsonPath) -> str:
        return f"{self.definition.path}:{self.document.line_of((*self.path, *path))}"


def load_definitions(
    folder: Path, settings: ParseSettings | None = None, *, is_known: IsKnown | None = None
) -> DefinitionSet:
    """Return the definitions of a folder. What is wrong is in ``problems`` of the set, each with file and line.

    ``is_known`` tells of names that references may have beside those of the folder.
    """
    loader = _FolderLoader(folder, settings or ParseSettings())
    for name, kind in FOLDERS.items():
        for path in list_files(folder / name):
            loader.load_file(path, kind)
    loader.check_references(is_known or (lambda kind, name: False))
    loader.check_cycles()
    return loader.definition_set()


def load_definition_file(path: Path, kind: DefinitionKind, settings: ParseSettings | None = None) -> DefinitionSet:
    """Return the definitions of one file; references to other files are not checked."""
    folder = path.resolve().parent
    loader = _FolderLoader(folder.parent if folder.name in FOLDERS else folder, settings or ParseSettings())
    loader.load_file(path, kind)
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
    """Yield the definitions of a file with their places: one, or those of a list, for rules also under ``rules``."""
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
        self.found: dict[tuple[DefinitionKind, str], _FoundDefinition] = {}
        self.invalid: dict[tuple[DefinitionKind, str], str] = {}
        """Definitions with problems: a reference to one is not a second problem."""
        self.problems: list[str] = []
        self.notes: list[str] = []
        self.model_files: list[Path] = []

    def definition_set(self) -> DefinitionSet:
        definitions = [found.definition for found in self.found.values()]
        return DefinitionSet(
            definitions, problems=self.problems, notes=self.notes, model_files=self.model_files, invalid=self.invalid
        )

    def load_file(self, path: Path, kind: DefinitionKind) -> None:
        try:
            document = read_document(path)
        except ConfigError as error:
            self.problems.append(str(error))
            self.invalid[kind, path.stem] = str(error)
            return
        value = document.value
        if kind == "generator" and isinstance(value, dict) and "models" in value:
            self.model_files.append(path)
        elif isinstance(value, list) and kind not in LIST_KINDS:
            self.problems.append(f"{path}:1: expected the definition of {with_article(kind)}, got a list")
        else:
            for at, item in iter_definitions(kind, document.value):
                self.load_definition(path, kind, document, at, item)

    def load_definition(
        self, path: Path, kind: DefinitionKind, document: LocatedDocument, at: JsonPath, value: Any
    ) -> None:
        line = document.line_of(at)
        keys = set(cast("dict[str, Any]", value)) if isinstance(value, dict) else set[str]()
        if not at and not keys & _TYPICAL_KEYS[kind]:
            message = f"{path}:{line}: does not define {with_article(kind)}: it has none of its keys"
            (self.problems if self.settings.strict else self.notes).append(message)
            return
        settings = msgspec.structs.replace(self.settings, script_folders=(path.parent, self.folder))
        parsed = parse_document(kind, cast("object", value), name="" if at else path.stem, settings=settings)
        problems, notes = (
            [f"{path}:{document.line_of((*at, *place))}: {message}" for place, message in findings]
            for findings in (parsed.problems, parsed.notes)
        )
        self.problems += problems
        self.notes += notes
        if problems:
            given: object = cast("dict[str, Any]", value).get("name") if isinstance(value, dict) else None
            self.invalid[kind, given if isinstance(given, str) else path.stem] = "; ".join(problems)
            return
        name: str = parsed.value["name"] if kind == "rule" else parsed.value.name
        definition = Definition(kind=kind, name=name, value=parsed.value, path=path, line=line)
        first = self.found.setdefault((kind, name), _FoundDefinition(definition, document, at))
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
                near = get_close_matches(reference.name, known, n=1)
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
