"""Checks of definitions, also by the parts that run them: jq, Luau, the match engine, model files."""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, cast

import msgspec

from vaka.config.documents import JsonPath
from vaka.core.types.errors import ConfigError, InvalidInput, ScriptError
from vaka.genx.definitions.codecs import FORMATS, read_document
from vaka.genx.definitions.definition_set import DefinitionSet
from vaka.genx.definitions.fields import DefinitionChecks, ParseSettings
from vaka.genx.definitions.folder import FOLDERS, guess_kind, list_files, load_definition_file, load_definitions
from vaka.genx.definitions.references import DefinitionKind, Slot
from vaka.genx.definitions.tools import HttpToolDefinition
from vaka.genx.kinds.http import HttpTool
from vaka.genx.kinds.jq import JqProgram
from vaka.genx.match.rules import check_rule


class CheckParts(Protocol):
    """What the checks need of other folders: built-in tools, scripts, settings and model files."""

    def is_builtin_tool(self, name: str, /) -> bool: ...

    def compile_script(self, source: str, name: str, /) -> object:
        """Raises ``ScriptError`` for a script with a wrong syntax, and ``ConfigError`` without the Luau engine."""
        ...

    def read_setting(self, file: Path, name: str, /) -> Any:
        """Return a setting of a settings file, ``None`` if the file has none. Raises ``ConfigError``."""
        ...

    def read_model_file(self, file: Path, /) -> tuple[Sequence[str], Sequence[str]]:
        """Return the names of the models of a file, and notes. Raises ``ConfigError``."""
        ...


def is_definition(path: Path) -> bool:
    """Return whether a file is to be read as a definition: a JSON file only if its folder or its keys say so."""
    suffix = path.suffix.lower()
    if FORMATS.get(suffix) != "json":
        return suffix in FORMATS
    try:
        return guess_kind(path, read_document(path).value) is not None
    except ConfigError:
        return path.absolute().parent.name in FOLDERS


def check_definitions(path: Path, parts: CheckParts, *, strict: bool = False) -> DefinitionSet:
    """Return the definitions of a file or folder with their problems; references may name others of the project."""
    checks = _SyntaxChecks(parts)
    settings = ParseSettings(
        strict=strict, checks=DefinitionChecks(jq=checks.check_jq, luau=checks.check_luau, rule=checks.check_rule)
    )
    found = _load(path, parts, settings)
    problems = [*found.problems, *(text for one in found for text in _check_requests(one.value, one.origin))]
    notes = [*found.notes, *checks.missing_parts]
    for file in found.model_files:
        try:
            notes += parts.read_model_file(file)[1]
        except ConfigError as error:
            problems.append(str(error))
    return DefinitionSet(found, problems=problems, notes=notes, model_files=found.model_files)


def _load(path: Path, parts: CheckParts, settings: ParseSettings) -> DefinitionSet:
    named = path if (path.name if path.is_dir() else path.parent.name) else path.absolute()
    folder = named if path.is_dir() else named.parent
    if folder.name in FOLDERS:
        found = _load_project(folder.parent, parts, settings)
        return _select(found, named)
    if path.is_dir():
        return _load_project(_definitions_folder(path, parts), parts, settings)
    kind = guess_kind(path, read_document(path).value)
    if kind is None:
        expected = "an agent, a tool, a rule, a context or a generator"
        return DefinitionSet(problems=[f"{path}:1: does not define {expected}; put it into agents/, tools/, …"])
    return load_definition_file(path, kind, settings)


def _load_project(folder: Path, parts: CheckParts, settings: ParseSettings) -> DefinitionSet:
    if not any(list_files(folder / name) for name in FOLDERS):
        return _load_files(folder, settings)
    models = set(_iter_models(folder, parts))

    def is_known(kind: DefinitionKind, name: str) -> bool:
        if kind == "tool":
            return parts.is_builtin_tool(name) or name.startswith("mcp__")
        return kind == "generator" and ("/" in name or name in models)

    return load_definitions(folder, settings, is_known=is_known)


def _load_files(folder: Path, settings: ParseSettings) -> DefinitionSet:
    """Return the definitions of a folder with another name, if all its YAML files define the same kind."""
    files = [path for path in list_files(folder) if FORMATS[path.suffix.lower()] == "yaml"]
    try:
        kinds: set[DefinitionKind | None] = {guess_kind(path, read_document(path).value) for path in files}
    except ConfigError:
        return DefinitionSet()
    kind: DefinitionKind | None = next(iter(kinds)) if len(kinds) == 1 else None
    loaded = [load_definition_file(path, kind, settings) for path in files] if kind is not None else []
    return DefinitionSet(
        [definition for found in loaded for definition in found],
        problems=[problem for found in loaded for problem in found.problems],
        notes=[note for found in loaded for note in found.notes],
    )


def _definitions_folder(project: Path, parts: CheckParts) -> Path:
    """Return the folder that the setting ``definitions`` of a project names, else the project itself."""
    with suppress(ConfigError):
        return project / (parts.read_setting(project / "vaka.toml", "definitions") or "")
    return project


def _iter_models(folder: Path, parts: CheckParts) -> Iterator[str]:
    """Yield the names of models that the settings and the model files of a project define."""
    with suppress(ConfigError):
        for name in ("models", "tiers"):
            yield from parts.read_setting(folder / "vaka.toml", name) or ()
    for path in list_files(folder / "models"):
        with suppress(ConfigError):
            yield from parts.read_model_file(path)[0]


def _select(found: DefinitionSet, path: Path) -> DefinitionSet:
    """Return the definitions, problems and notes of one file or folder."""
    start = f"{path}{os.sep}" if path.is_dir() else f"{path}:"
    return DefinitionSet(
        [one for one in found if one.origin.startswith(start)],
        problems=[problem for problem in found.problems if problem.startswith(start)],
        notes=[note for note in found.notes if note.startswith(start)],
        model_files=[file for file in found.model_files if f"{file}:".startswith(start)],
    )


def _check_requests(value: object, origin: str) -> Iterator[str]:
    """Yield what is wrong with the URLs and parameters of HTTP tools, also of inline ones."""
    if isinstance(value, HttpToolDefinition):
        try:
            HttpTool(
                value.name,
                endpoint=value.endpoint,
                method=value.method,
                params=value.params,
                headers=value.headers,
                query=value.query,
            )
        except InvalidInput as error:
            yield f"{origin}: {error}"
    elif isinstance(value, Slot):
        yield from _check_requests(cast("Slot[object]", value).definition, origin)
    elif isinstance(value, tuple):
        yield from (text for item in cast("tuple[object, ...]", value) for text in _check_requests(item, origin))
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _check_requests(getattr(value, name), origin)


class _SyntaxChecks:
    """Compiles expressions and scripts; what cannot be checked because a package is missing is noted once."""

    def __init__(self, parts: CheckParts) -> None:
        self.missing_parts: dict[str, None] = {}
        self._parts = parts

    def check_jq(self, expression: str) -> str:
        try:
            JqProgram(expression)
        except InvalidInput as error:
            return str(error)
        except ConfigError as error:
            self.missing_parts[f"jq expressions are not checked: {error}"] = None
        return ""

    def check_luau(self, source: str, name: str) -> str:
        try:
            self._parts.compile_script(source, name or "script")
        except ScriptError as error:
            return str(error)
        except ConfigError as error:
            self.missing_parts[f"scripts are not checked: {error}"] = None
        return ""

    def check_rule(self, document: dict[str, Any]) -> Iterator[tuple[JsonPath, str, bool]]:
        return ((problem.path, problem.message, problem.is_warning) for problem in check_rule(document))
