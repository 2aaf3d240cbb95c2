"""Agents that ``--agent`` names: agents of definitions, and agents of ``.claude/agents``."""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vaka.agents.react import Agent, ToolLike, tool_name_of
from vaka.cli.kit.bootstrap import (
    claude_files_of,
    config_context,
    load_flag_settings,
    open_models,
    print_notes,
    script_environment,
)
from vaka.cli.kit.options import DEFINITION_SUFFIXES, expand_path
from vaka.config.setting_keys import SETTING_KEYS
from vaka.config.settings import Settings, SettingValue, trust_root_of
from vaka.core.types.errors import ConfigError
from vaka.core.types.keywords import unknown_name_message
from vaka.feature import has_feature, require_feature

if TYPE_CHECKING:
    from vaka.genx.definitions.catalog import AgentCatalog
    from vaka.project.components import Components

MAX_PROBLEMS = 5
"""The problems of definitions that are printed when an agent is run."""
_AGENT_HELP = "`vaka agents list` shows all, and --agent also takes FILE.py[:OBJECT], FILE.luau or agents/FILE.yaml"
_PERSONAL_LAYERS = ("user", "environment", "flag", "managed")


def find_project_agent(settings: Settings, name: str, tools: Sequence[ToolLike] = ()) -> Agent:
    """Return the agent with a name, or of the file with a definition; definitions come before ``.claude/agents``.

    Raises ``ConfigError`` with names that are near.
    """
    if name.endswith(DEFINITION_SUFFIXES):
        return _load_definition(settings, expand_path(name).absolute(), tools)
    catalog = find_catalog(settings, tools)
    agent = catalog.find(name) if catalog is not None else None
    if agent is not None and catalog is not None:
        _finish_loading(settings, catalog)
        return agent
    components = find_components(settings)
    file = components.find_agent(name) if components is not None else None
    if components is None or file is None:
        names = [agent.name for agent in components.agents] if components is not None else []
        explain = catalog.explain_missing if catalog is not None else partial(unknown_name_message, "agent")
        problem = explain(name, names)
        raise ConfigError(f"{problem} {_AGENT_HELP}" if problem.endswith("?") else f"{problem}; {_AGENT_HELP}")
    from vaka.runtime.project_agents import FileAgent

    models = open_models(settings, quiet=True)
    return FileAgent(file, components, models)


def _load_definition(settings: Settings, path: Path, tools: Sequence[ToolLike]) -> Agent:
    """Return the agent of a file in a folder ``agents``. Raises ``ConfigError``."""
    require_feature("genx", f"the definition {path}")
    from vaka.genx.definitions.folder import AGENT_FOLDERS

    if path.parent.name not in AGENT_FOLDERS:
        raise ConfigError(f"{path}: expected a file in a folder 'agents', beside the folders of its tools")
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file")
    catalog = _open_catalog(settings, path.parent.parent, tools)
    table = catalog.definitions.table("agent")
    name = next((name for name, found in table.items() if found.path == path), None)
    agent = catalog.find(name) if name is not None else None
    if agent is None:
        problems = [text for text in catalog.notes if text.startswith(f"{path}:")]
        raise ConfigError("; ".join(problems) or f"{path}: does not define an agent")
    _finish_loading(settings, catalog)
    return agent


def _finish_loading(settings: Settings, catalog: "AgentCatalog") -> None:
    """Use the MCP servers whose tools agents name, and the models of files in ``models/``. Prints notes.

    Such files decide where keys are sent: only ``--trust`` lets them count.
    """
    settings.wants_servers = settings.wants_servers or catalog.names_server_tools
    files, notes = tuple(str(path) for path in catalog.definitions.model_files), list(catalog.notes)
    if files and settings.flags.get("trust"):
        settings.add(SETTING_KEYS["model_files"], SettingValue(files, files[0], "project"))
    else:
        notes += [f"{file}: its models do not count; --trust counts them" for file in files]
    left = len(notes) - MAX_PROBLEMS
    more = [f"{left} more problems of definitions; `vaka config validate {catalog.folder}` shows them"]
    print_notes(notes[:MAX_PROBLEMS], more if left > 0 else ())


def project_agent_names(settings: Settings) -> list[str]:
    """Return the names of the agents that ``--agent`` takes, sorted."""
    catalog = find_catalog(settings)
    components = find_components(settings)
    return sorted({*(catalog or ()), *(agent.name for agent in (components.agents if components is not None else ()))})


def describe_defined_agents(notes: list[str]) -> list[dict[str, Any]]:
    """Return the agents of definitions as ``vaka agents list`` shows them; add what is wrong to ``notes``."""
    try:
        catalog = find_catalog(load_flag_settings({}))
    except ConfigError as error:
        notes.append(str(error))
        return []
    if catalog is None:
        return []
    definitions = catalog.definitions
    notes += [*definitions.problems, *definitions.notes]
    return [
        {
            "name": name,
            "description": found.value.description,
            "source": "definition",
            "plugin": "",
            "path": str(found.path),
            "line": found.line,
            "type": found.value.type,
            "model": found.value.generator.definition.model if found.value.generator.definition else "",
            "active": True,
            "problems": (),
        }
        for name, found in definitions.table("agent").items()
    ]


def find_components(settings: Settings) -> "Components | None":
    """Return the components of ``.claude`` folders in force, ``None`` without the feature ``project``."""
    if not has_feature("project"):
        return None
    from vaka.project.components import components_in_force

    files = claude_files_of(settings)
    return components_in_force(config_context(), settings.plugin_dirs, files, trusted=settings.trusted)


def find_catalog(settings: Settings, tools: Sequence[ToolLike] = ()) -> "AgentCatalog | None":
    """Return the agents of definitions, ``None`` if no folder has any. ``tools`` are the tools of the command."""
    folder = find_definitions_folder(settings)
    return _open_catalog(settings, folder, tools) if folder is not None else None


def _open_catalog(settings: Settings, folder: Path, tools: Sequence[ToolLike]) -> "AgentCatalog":
    from vaka.genx.definitions.builder import DefinitionSources
    from vaka.genx.definitions.catalog import AgentCatalog
    from vaka.runtime.definition_parts import RuntimeParts

    sources = DefinitionSources(
        parts=RuntimeParts(),
        trusted=_is_trusted(settings, folder),
        tools={tool_name_of(tool): tool for tool in tools},
        variables=script_environment(settings),
        models=frozenset((*settings["models"], *settings["tiers"])),
    )
    return AgentCatalog(folder, sources)


def find_definitions_folder(settings: Settings) -> Path | None:
    """Return the folder that the setting ``definitions`` names, else the project's if it has definitions of agents.

    Raises ``ConfigError`` for a setting that names no folder.
    """
    setting = settings.values["definitions"]
    if setting.value:
        require_feature("genx", "the setting definitions")
        folder = Path(setting.value).expanduser().absolute()
        if not folder.is_dir():
            raise ConfigError(f"{setting.origin}: definitions: there is no folder {setting.value!r}")
        return folder
    if not has_feature("genx"):
        return None
    context = config_context()
    project = context.project_file
    folders = [context.cwd, *([project.parent] if project is not None else []), context.repository]
    return next((folder for folder in folders if _has_definitions(folder)), None)


def _has_definitions(folder: Path) -> bool:
    """Return whether a folder ``agents`` has a file that may be a definition."""
    from vaka.genx.definitions.folder import AGENT_FOLDERS, list_files

    with suppress(ConfigError, OSError):
        return any(list_files(folder / name) for name in AGENT_FOLDERS)
    return False


def _is_trusted(settings: Settings, folder: Path) -> bool:
    """Return whether scripts of a folder may run in this process: the project is trusted, or the user names it."""
    if settings.flags.get("untrusted"):
        return False
    setting = settings.values["definitions"]
    if setting.layer in _PERSONAL_LAYERS and folder == Path(setting.value).expanduser().absolute():
        return True
    return settings.trusted and folder.resolve().is_relative_to(trust_root_of(config_context().cwd))


class ProjectOrigin:
    """Lets scripts of a command name agents of definitions; implements ``AgentOrigin``."""

    def __init__(self, settings: Settings, tools: Sequence[ToolLike]) -> None:
        self._settings, self._tools = settings, tools
        self._catalog: AgentCatalog | None = None

    def current_agent(self, agent: Agent) -> Agent:
        """Return the agent itself: its file was read when the command started."""
        return agent

    def own_files(self) -> Sequence[str]:
        """Return no files: a change of the agent's own counts for the next command."""
        return ()

    def find_agent(self, name: str) -> Agent | None:
        """Return an agent of the definitions."""
        if self._catalog is None:
            self._catalog = find_catalog(self._settings, self._tools)
        return self._catalog.find(name) if self._catalog is not None else None
