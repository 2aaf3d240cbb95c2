"""Agents that ``--agent`` names: those of the project, of the user and of plugins."""

from difflib import get_close_matches

from vaka.agents.react import Agent
from vaka.cli.bootstrap import claude_files_of, config_context, model_options
from vaka.config.components import Components, components_in_force
from vaka.config.settings import Settings
from vaka.core.types.errors import ConfigError
from vaka.runtime.model_registry import ModelRegistry
from vaka.runtime.options import Options
from vaka.runtime.project_agents import FileAgent


def find_project_agent(settings: Settings, name: str) -> Agent:
    """Return the agent with a name. Raises ``ConfigError`` with names that are near."""
    components = _components_of(settings)
    file = components.find_agent(name)
    if file is None:
        raise ConfigError(unknown_agent_message(name, [agent.name for agent in components.agents]))
    models = ModelRegistry(Options(**model_options(settings, quiet=True)).build_model_config())
    return FileAgent(file, components, models)


def project_agent_names(settings: Settings) -> list[str]:
    """Return the names of the agents that ``--agent`` takes, sorted."""
    return sorted({agent.name for agent in _components_of(settings).agents})


def _components_of(settings: Settings) -> Components:
    files = claude_files_of(settings)
    return components_in_force(config_context(), settings.plugin_dirs, files, trusted=settings.trusted)


def unknown_agent_message(name: str, known: list[str]) -> str:
    """Return what is wrong with a name, which names are near, and what else ``--agent`` takes."""
    lower = {one.lower(): one for one in known}
    near = [lower[one] for one in get_close_matches(name.lower(), lower, n=3)]
    if near:
        return f"there is no agent {name!r}; did you mean {' or '.join(near)}?"
    names = ", ".join(sorted({*known})[:8]) + (" and others" if len({*known}) > 8 else "")
    listed = f"there are {names}" if known else "the project has none"
    files = "FILE.py[:OBJECT] or FILE.luau"
    return f"there is no agent {name!r}; {listed} (`vaka agents list`), and --agent also takes {files}"
