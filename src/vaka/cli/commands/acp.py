"""``vaka acp``: serve an agent to an editor on stdin and stdout, in the Agent Client Protocol."""

import json
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vaka.agents.react import Agent
from vaka.cli.build_agent import apply_model_flags, load_agent_of_flags
from vaka.cli.kit import options
from vaka.cli.kit.bootstrap import (
    claude_files_of,
    config_context,
    create_default_store_folder,
    find_servers,
    load_flag_settings,
    print_notes,
    runtime_from_settings,
)
from vaka.cli.kit.event_loop import run_loop
from vaka.cli.kit.stdio_agents import require_stdin
from vaka.cli.kit.stdout import reserve_stdout
from vaka.cli.settings_source import variables_of
from vaka.cli.turn.input import StdinReader
from vaka.cli.turn.report import write_line_unblocked
from vaka.cli.turn.session_record import ContinuedSession, absolute_flags, describe_run
from vaka.config.settings import Settings, absolute_store_url, use_settings_folder
from vaka.core.ports.store import Store
from vaka.core.types.errors import ConfigError
from vaka.runtime.open_store import open_store
from vaka.server.acp.server import AcpServer
from vaka.server.acp.workspaces import AcpPlace, AcpWorkspace


@click.command(
    "acp",
    epilog=options.format_examples(
        "vaka acp",
        "vaka acp --model anthropic/claude-sonnet-5-5",
        "vaka acp --agent review.py --permission-mode plan",
    ),
)
@options.agent_options
@options.served_agent_options
def acp(**flags: Any) -> None:
    """Serve an agent to an editor: stdin and stdout carry the Agent Client Protocol, stderr the rest.

    Each session works in the folder that the editor names, with the settings of that folder. When a person must decide,
    the editor is asked. The end of stdin interrupts the turns that run and ends the process.
    """
    require_stdin("vaka acp", "an editor")
    reserve_stdout()
    logging.basicConfig(level=logging.INFO if flags["verbose"] else logging.WARNING, stream=sys.stderr)
    run_loop(_serve(flags))


async def _serve(flags: Mapping[str, Any]) -> None:
    workspaces = SettingsWorkspaces(flags)
    try:
        await AcpServer(workspaces, StdinReader().read_bounded, write_line_unblocked).serve()
    finally:
        await workspaces.close()


class SettingsWorkspaces:
    """Makes the runtime of each session from the flags of the command and the settings of its folder."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        started = config_context().cwd
        self._trusted = started.resolve() if flags["trust"] else None
        self._flags = {**absolute_flags(flags), "tool_choice": None, "output_schema": None}
        self._flags["add_dir"] = tuple(str(started / Path(folder).expanduser()) for folder in flags["add_dir"] or ())
        if flags["store"]:
            self._flags["store"] = absolute_store_url(started, flags["store"])
        self._stores: dict[str, Store] = {}

    def open(self, place: AcpPlace) -> AcpWorkspace:
        """Return a workspace with a runtime of its own; the store is shared. Raises ``VakaError``."""
        flags = self._flags_for(Path(place.folder))
        flags["add_dir"] = (*flags["add_dir"], *place.directories)
        if place.servers:
            flags["mcp_config"] = (*flags["mcp_config"], json.dumps({"mcpServers": place.servers}))
        with use_settings_folder(Path(place.folder)):
            settings = load_flag_settings(flags)
            print_notes(settings.notes)
            _require_servers(place, settings)
            agent = load_agent_of_flags(flags, settings, keep_model=True)
            apply_model_flags(agent, flags["option"], None, None)
            return self._make_workspace(flags, settings, agent)

    def _make_workspace(self, flags: dict[str, Any], settings: Settings, agent: Agent) -> AcpWorkspace:
        ask, store = settings["ask"] or "wait", self._store_of(settings)
        runtime = runtime_from_settings(settings, agent, quiet=True, ask=ask, store=store)
        # Settings files of the folders of other sessions may set the same variables of the process.
        runtime.env.variables.update(variables_of(claude_files_of(settings)))
        has_project = runtime.options.project.content is not None

        def set_mode(mode: str) -> None:
            settings.flags["permission_mode"] = mode
            settings.reload()

        return AcpWorkspace(
            runtime=runtime,
            agent=agent,
            models=_models_of(settings, agent),
            set_mode=set_mode,
            run_settings=describe_run(ContinuedSession(record=None, flags=flags, settings=settings), agent),
            commands=_slash_commands_of(settings) if has_project else {},
            find_mode=lambda: str(getattr(runtime.env.policy, "mode", settings["permission_mode"])),
        )

    def find_store(self, folder: str = "") -> Store:
        """Return the store that the settings of a folder name. Raises ``VakaError``."""
        path = Path(folder) if folder else config_context().cwd
        with use_settings_folder(path):
            return self._store_of(load_flag_settings(self._flags_for(path)))

    def _flags_for(self, folder: Path) -> dict[str, Any]:
        """Return the flags for a folder; --trust is about the folder where it is typed."""
        return {**self._flags, "trust": self._trusted is not None and folder.resolve() == self._trusted}

    def _store_of(self, settings: Settings) -> Store:
        url = settings["store"]
        if url not in self._stores:
            create_default_store_folder(settings)
            self._stores[url] = open_store(url, durability=settings["durability"])
        return self._stores[url]

    async def close(self) -> None:
        for store in self._stores.values():
            await store.close()


def _require_servers(place: AcpPlace, settings: Settings) -> None:
    """Raise ``ConfigError`` if a server that the client gives may not be started."""
    for server in find_servers(settings)[0] if place.servers else ():
        if server.name in place.servers and server.refusal:
            raise ConfigError(f"mcpServers: {server.name}: {server.refusal}")


def _models_of(settings: Settings, agent: Agent) -> tuple[str, ...]:
    """Return the names of the agent's own model and of the tiers and models of the settings."""
    own = agent.model or settings["model"]
    name = own if isinstance(own, str) else str(getattr(own, "name", "") or "default")
    return tuple(dict.fromkeys((name, *settings["tiers"], *settings["models"])))


def _slash_commands_of(settings: Settings) -> dict[str, str]:
    from vaka.project.components import slash_commands

    return slash_commands(config_context(), settings.plugin_dirs)
