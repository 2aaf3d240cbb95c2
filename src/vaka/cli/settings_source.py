"""The settings of a command, which are read again when their files change."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from vaka.agents.react import Agent
from vaka.cli.kit import bootstrap
from vaka.config.settings import Settings, SettingsFile, trust_root_of, use_settings_folder
from vaka.feature import has_feature
from vaka.runtime.live_settings import LoadedSettings
from vaka.runtime.runtime import Runtime

if TYPE_CHECKING:
    from vaka.config.hook_definition import Hook
    from vaka.mcp.definition import McpServer


class CommandSettings:
    """Reads vaka's settings, ``.claude`` files, files of MCP servers and the flags of a command."""

    def __init__(self, settings: Settings, agent: Agent | None = None) -> None:
        self.flags = settings.flags
        """The flags; a change counts when the settings are read again."""
        self._claude_file = settings.claude_file
        context = settings.context
        self._settings, self._has_servers = settings, bootstrap.uses_servers(settings, agent)
        self._folder = context.cwd
        self._own = [context.user_file, *([context.project_file] if context.project_file is not None else [])]
        self._own.append(context.trust.file_of(trust_root_of(context.cwd)))

    def places(self) -> Iterable[Path]:
        """Return the files of all settings, existing or not, and the file with the decision to trust."""
        with use_settings_folder(self._folder):
            context, known = bootstrap.config_context(), self._settings
            if not has_feature("project"):
                return self._own
            from vaka.project.claude_settings import watched_places, watched_server_files

            places = [*self._own, *watched_places(context, self._claude_file)]
            if self._has_servers:
                places += watched_server_files(context, known.mcp_configs, strict=known.strict_mcp)
            return places

    def load(self) -> LoadedSettings:
        """Read the settings. Raises ``ConfigError`` or ``InvalidInput``."""
        with use_settings_folder(self._folder):
            return self._load()

    def _load(self) -> LoadedSettings:
        settings = bootstrap.load_flag_settings(self.flags)
        files, context = bootstrap.claude_files_of(settings), settings.context
        folders = settings.plugin_dirs
        has_hooks = any("hooks" in file.document for file in files) or bootstrap.may_have_plugins_of(settings)
        hooks: tuple[Hook, ...] = ()
        if has_hooks:
            from vaka.project.hook_sources import hooks_in_force

            hooks = hooks_in_force(context, files, trusted=settings.trusted, plugin_dirs=folders).hooks
        layers = bootstrap.load_permissions_of(settings).layers
        settings.server_documents = self._settings.server_documents
        servers, notes = bootstrap.find_servers(settings) if self._has_servers else (None, [])
        return LoadedSettings(
            layers=layers,
            hooks=hooks,
            variables=variables_of(files),
            trusted=settings.trusted,
            servers=servers,
            notes=tuple(notes),
        )


def variables_of(files: Sequence[SettingsFile]) -> dict[str, str]:
    """Return the variables of settings files, without variables that this process was started with."""
    if not files:
        return {}
    from vaka.project.claude_settings import settings_env

    return {name: value for name, value in settings_env(files).items() if os.environ.get(name) == value}


def follow_settings(runtime: Runtime, settings: Settings) -> None:
    """Have a runtime apply the settings that it was made from again when their files change."""
    agent, servers = runtime.options.agent, cast("tuple[McpServer, ...]", tuple(runtime.options.project.mcp))
    source = CommandSettings(settings, agent)
    loaded = LoadedSettings(
        layers=bootstrap.load_permissions_of(settings).layers,
        hooks=tuple(runtime.options.project.hooks),
        variables=variables_of(files) if (files := bootstrap.claude_files_of(settings)) else {},
        notes=tuple(settings.server_notes),
        servers=servers if bootstrap.uses_servers(settings, agent) else None,
    )
    settings.reload = runtime.follow_settings(source, loaded).reload
