"""The settings of a project and its user for a runtime: permissions, hooks, and variables of commands."""

import os
from collections.abc import Iterable
from pathlib import Path

from vaka.config.hook_definition import Hook
from vaka.config.settings import MANAGED, ConfigContext
from vaka.core.types.tool import Layer
from vaka.project.claude_settings import load_permissions, may_have_plugins, settings_env, watched_places
from vaka.project.content import ProjectSource
from vaka.project.hook_sources import hooks_in_force
from vaka.runtime.live_settings import LoadedSettings
from vaka.runtime.options import Options


class ProjectSettings:
    """Reads the settings files of a project; the rules and hooks of the options are added."""

    def __init__(self, source: ProjectSource, options: Options) -> None:
        self._options, self._source = options, source
        self._folder = Path(options.workspace.folder or ".").absolute()

    def _make_context(self) -> ConfigContext:
        """Return where the settings are now."""
        return ConfigContext(cwd=self._folder, home=Path.home(), environ=os.environ)

    def places(self) -> Iterable[Path]:
        """Return the settings files of all layers, existing or not."""
        return watched_places(self._make_context(), self._source.settings_file)

    def load(self) -> LoadedSettings:
        """Read the settings. Raises ``ConfigError``."""
        source, options = self._source, self._options
        context = self._make_context()
        files = source.load_files(context)
        layers = load_permissions(context, files=files).layers
        permissions = options.permissions
        own = Layer(
            name="flag",
            mode=permissions.mode if permissions.mode != "default" else "",
            allow=tuple(permissions.allow),
            ask=tuple(permissions.confirm),
            deny=options.deny_rules,
            directories=tuple(options.workspace.add_dirs),
        )
        hooks: tuple[Hook, ...] = ()
        plugin_dirs = [Path(folder) for folder in source.plugin_dirs]
        if plugin_dirs or any("hooks" in file.document for file in files) or may_have_plugins(context):
            hooks = hooks_in_force(context, files, trusted=source.trusted, plugin_dirs=plugin_dirs).hooks
        return LoadedSettings(
            layers=(
                *(layer for layer in layers if layer.name != MANAGED),
                own,
                *(layer for layer in layers if layer.name == MANAGED),
            ),
            hooks=(*options.project.hooks, *hooks),
            variables=settings_env(files),
            trusted=source.trusted,
        )
