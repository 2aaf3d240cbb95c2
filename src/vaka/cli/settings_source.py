"""The settings of a command, which are read again when their files change."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from vaka.cli import bootstrap, lazy
from vaka.config.claude_settings import SettingsFile, may_have_plugins, settings_env, watched_places
from vaka.config.settings import Settings, trust_root_of
from vaka.runtime.live_settings import LoadedSettings
from vaka.runtime.runtime import Runtime


class CommandSettings:
    """Reads vaka's settings, ``.claude`` files and the flags of a command."""

    def __init__(self, settings: Settings) -> None:
        self.flags = settings.flags
        """The flags; a change counts when the settings are read again."""
        self._claude_file = settings.claude_file
        context = bootstrap.config_context()
        self._own = [context.user_file, *([context.project_file] if context.project_file is not None else [])]
        self._own.append(context.trust.file_of(trust_root_of(context.cwd)))

    def places(self) -> Iterable[Path]:
        """Return the files of all settings, also those that do not exist, and that of the decision to trust."""
        return [*self._own, *watched_places(bootstrap.config_context(), self._claude_file)]

    def load(self) -> LoadedSettings:
        """Read the settings. Raises ``ConfigError`` or ``InvalidInput``."""
        settings = bootstrap.load_flag_settings(self.flags)
        files, context = bootstrap.claude_files_of(settings), bootstrap.config_context()
        folders, find = settings.plugin_dirs, lazy.hooks_in_force()
        has_hooks = bool(folders) or any("hooks" in file.document for file in files) or may_have_plugins(context)
        hooks = find(context, files, trusted=settings.trusted, plugin_dirs=folders).hooks if has_hooks else ()
        layers = bootstrap.load_permissions_of(settings).layers
        return LoadedSettings(
            layers=layers, hooks=hooks, variables=variables_of(files), trusted=settings.trusted
        )  # fmt: skip


def variables_of(files: Sequence[SettingsFile]) -> dict[str, str]:
    """Return the variables of settings files, without those that this process was started with."""
    return {name: value for name, value in settings_env(files).items() if os.environ.get(name) == value}


def follow_settings(runtime: Runtime, settings: Settings) -> None:
    """Have a runtime apply the settings that it was made from again when their files change."""
    source = CommandSettings(settings)
    loaded = LoadedSettings(
        layers=bootstrap.load_permissions_of(settings).layers, hooks=runtime.options.hooks,
        variables=variables_of(bootstrap.claude_files_of(settings)),
    )  # fmt: skip
    settings.reload = runtime.follow_settings(source, loaded).reload
