"""Checks of settings files and folders: every problem, each with its file and line."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from vaka.cli.build_agent import built_in_names_of
from vaka.config.hook_definition import parse_hooks
from vaka.config.setting_keys import FileSetting, check_settings_file
from vaka.config.settings import RULE_SETTINGS, ConfigContext, SettingsFile
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.tool import Layer
from vaka.feature import has_feature, require_feature
from vaka.net.rules import parse_pattern
from vaka.policy.rules import KINDS, read_rules, resolve_mode
from vaka.project.claude_keys import check_document, keys_without_effect
from vaka.project.claude_settings import PROJECT_SERVERS, permission_layer_of, read_settings
from vaka.project.server_files import read_server_file
from vaka.runtime.model_registry import ModelConfig, ModelRegistry
from vaka.sandbox.proxy import parse_allowed_host
from vaka.tools.builtin import select_tools

SETTINGS_NAMES = ("settings.json", "settings.local.json", ".mcp.json", "managed-settings.json")
"""JSON files that are never definitions."""
FOLDER_FILES = ("vaka.toml", ".claude/settings.json", ".claude/settings.local.json")
"""The settings files that are looked for in a folder."""


class FileProblem(msgspec.Struct, frozen=True):
    """A problem, or a note on what is only sloppy or has no effect."""

    message: str
    is_error: bool = True


def validate_path(path: Path, *, strict: bool = False) -> Iterator[FileProblem]:
    """Yield what is wrong with a settings file, a definition, or the files of a folder.

    ``strict`` makes an unknown key of a definition an error.
    """
    if path.is_dir():
        if not _is_definition_folder(path):
            yield from _validate_folder(path)
        yield from _check_definitions(path, strict=strict)
        return
    check = CHECKS_BY_NAME.get(path.name) or (_check_claude_settings if path.suffix == ".json" else _check_toml)
    try:
        if path.name not in SETTINGS_NAMES and _is_definition(path):
            yield from _check_definitions(path, strict=strict)
            return
        yield from check(path)
    except (ConfigError, InvalidInput) as error:
        yield from _split(error)


def _validate_folder(folder: Path) -> Iterator[FileProblem]:
    """Yield the problems of the settings of a folder, and notes on the rest of its files."""
    for path in (folder / name for name in (*FOLDER_FILES, *CHECKS_BY_NAME)):
        if path.is_file():
            yield from validate_path(path)
    if not has_feature("project"):
        return
    from vaka.project.content import load_project_content

    try:
        content = load_project_content(ConfigContext(cwd=folder.resolve(), home=Path.home(), environ=os.environ))
    except ConfigError as error:
        yield from _split(error)
        return
    components = content.components
    items = (*components.skills, *components.commands, *components.agents)
    yield from _notes(content.problems)
    yield from _notes(problem for item in items for problem in item.problems)


def _check_definitions(path: Path, *, strict: bool) -> Iterator[FileProblem]:
    if not has_feature("genx"):
        return
    from vaka.cli.definition_parts import CommandParts
    from vaka.genx.definitions.checks import check_definitions

    found = check_definitions(path, CommandParts(), strict=strict)
    yield from map(FileProblem, found.problems)
    yield from _notes(found.notes)


def _is_definition_folder(folder: Path) -> bool:
    if not has_feature("genx"):
        return False
    from vaka.genx.definitions.folder import FOLDERS

    return folder.absolute().name in FOLDERS


def _is_definition(path: Path) -> bool:
    if not has_feature("genx"):
        return False
    from vaka.genx.definitions.codecs import FORMATS

    if path.suffix.lower() not in FORMATS:
        return False
    from vaka.genx.definitions.checks import is_definition

    return is_definition(path)


def _check_toml(path: Path) -> Iterator[FileProblem]:
    settings, problems = check_settings_file(path)
    yield from map(FileProblem, problems)
    for name, kind in RULE_SETTINGS.items():
        if name in settings:
            rules: dict[str, Any] = {kind: settings[name].value}
            yield from _check_rules(Layer(name="project", origin=settings[name].location, **rules), path.parent)
    for name, check in ITEM_CHECKS.items():
        if name in settings:
            yield from _check_items(name, settings[name], check)
    if "models" in settings:
        yield from _check_models(settings["models"])


def _check_claude_settings(path: Path) -> Iterator[FileProblem]:
    file = read_settings(path)
    if file.has_comments:
        yield from _notes([f"{path}: has comments or final commas; vaka reads them, other programs may not"])
    problems = check_document(file.document)
    unknown = {problem.path[0] for problem in problems if len(problem.path) == 1 and "is not known" in problem.message}
    if path.name not in SETTINGS_NAMES and file.document and unknown.issuperset(file.document):
        yield FileProblem(f"{path}: is neither a definition nor a settings file: no key of either is in it")
        return
    for problem in problems:
        yield FileProblem(f"{file.locate(problem.path)}: {problem.message}", is_error=problem.is_error)
    for key, _ in keys_without_effect(file.document):
        yield FileProblem(f"{file.locate(key.path)}: {key.name} has no effect here: {key.instead}", is_error=False)
    yield from _check_permissions(file)
    if "mcpServers" in file.document:
        yield from _check_entries({"mcpServers": file.document["mcpServers"]}, path)
    hooks = parse_hooks({"hooks": file.document.get("hooks") or {}}, origin=str(path))
    yield from (FileProblem(_add_line(file, text)) for text in hooks.problems)


def _check_servers(path: Path) -> Iterator[FileProblem]:
    """Yield what is wrong with a file of MCP servers; variables that are not set here are only noted."""
    document, problem = read_server_file(path)
    yield from _notes([problem] if problem else [])
    yield from _check_entries(document, path)


def _check_entries(document: object, path: Path) -> Iterator[FileProblem]:
    require_feature("mcp", f"{path}: a definition of MCP servers")
    from vaka.mcp.definition import parse_servers

    parsed = parse_servers(document, origin=str(path), environment=os.environ)
    fatal = {f"{path}: {server.name}: {server.refusal}" for server in parsed.servers if server.refusal}
    for text in parsed.problems:
        yield FileProblem(
            text, is_error=text in fatal and not re.search(r": the variable \S+ of \S+ is not set$", text)
        )


def _add_line(file: SettingsFile, problem: str) -> str:
    """Return a problem that begins with the file and a place such as ``hooks.Stop[0]`` with the line of that place."""
    match = re.match(rf"{re.escape(str(file.path))}: ((?:[\w.-]|\[\d+\])+)", problem)
    if match is None:
        return problem
    parts = re.findall(r"[\w-]+", match[1])
    path = tuple(int(part) if part.isdecimal() else part for part in parts)
    return f"{file.locate(path)}{problem[len(str(file.path)) :]}"


def _check_permissions(file: SettingsFile) -> Iterator[FileProblem]:
    """Yield the problems of each rule, and of the mode."""
    layer = permission_layer_of(file)
    yield from _check_rules(msgspec.structs.replace(layer, name="project"), file.path.parent)
    notes: list[str] = []
    try:
        resolve_mode([msgspec.structs.replace(layer, project=False)], notes)
    except ConfigError as error:
        yield from _split(error)
    yield from _notes(notes)


def _check_rules(layer: Layer, folder: Path) -> Iterator[FileProblem]:
    """Yield the problems of each rule of a layer by itself: reading all of them would stop at the first."""
    for kind in KINDS:
        for rule in getattr(layer, kind):
            lists: dict[str, Any] = {kind: (rule,)}
            one = Layer(name=layer.name, origin=layer.origin, lines=layer.lines, **lists)
            try:
                yield from _notes(read_rules([one], str(folder), str(Path.home()))[1])
            except (ConfigError, InvalidInput) as error:
                yield from _split(error)


def _check_items(name: str, setting: FileSetting, check: Callable[[str], object]) -> Iterator[FileProblem]:
    for item in setting.value:
        try:
            check(item)
        except (ConfigError, InvalidInput) as error:
            yield FileProblem(f"{setting.location}: {name}: {error}")


def _check_command_host(host: str) -> None:
    if host != "*":
        parse_allowed_host(host)


def _check_models(models: FileSetting) -> Iterator[FileProblem]:
    """Resolve the models of a file without their keys."""
    factory = ModelRegistry(ModelConfig(models=models.value)).factory
    for name, entry in models.value.items():
        try:
            factory.resolve_entry(name, entry)
        except ConfigError as error:
            yield FileProblem(f"{models.parts[name]}: {error}")


def _split(error: Exception) -> Iterator[FileProblem]:
    return (FileProblem(line) for line in str(error).splitlines())


def _notes(texts: Iterable[str]) -> Iterator[FileProblem]:
    return (FileProblem(text, is_error=False) for text in texts)


ITEM_CHECKS: Mapping[str, Callable[[str], object]] = {
    "builtin_tools": lambda text: select_tools(built_in_names_of((text,))),
    "allow_host": parse_pattern,
    "command_host": _check_command_host,
}
"""Checks of the items of settings that are lists."""

CHECKS_BY_NAME: Mapping[str, Callable[[Path], Iterator[FileProblem]]] = {PROJECT_SERVERS: _check_servers}
"""Checks of files with a name of their own; they are also looked for in folders."""
