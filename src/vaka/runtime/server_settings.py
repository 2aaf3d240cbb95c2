"""What settings say about MCP servers, for the feature that starts them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from vaka.config.documents import parse_tolerant_json
from vaka.config.settings import ConfigContext, SettingsFile
from vaka.project.claude_settings import (
    CLAUDE_STATE,
    MANAGED_SERVERS,
    MAX_STATE_BYTES,
    PROJECT_SERVERS,
    is_of_project,
    managed_folders,
    project_server_files,
    settings_env,
)
from vaka.project.claude_writer import edit_document, read_editable
from vaka.project.components import plugins_in_force
from vaka.project.plugins import Plugin
from vaka.project.server_files import read_claude_state, read_server_file


class FolderSettings:
    """The settings of a working folder; implements ``McpSettings``."""

    shared_name = PROJECT_SERVERS

    def __init__(
        self,
        context: ConfigContext,
        files: Sequence[SettingsFile] = (),
        *,
        trusted: bool = False,
        managed: Sequence[Path] | None = None,
    ) -> None:
        """``managed`` are the folders of the administrator; by default the folders of this system."""
        self._context = context
        self.files, self.trusted = files, trusted
        self.cwd, self.home = context.cwd, context.home
        self.environ = context.environ
        self.state_file = context.home / CLAUDE_STATE
        folders = managed_folders() if managed is None else managed
        self.managed_files = [path for folder in folders if (path := folder / MANAGED_SERVERS).exists()]

    @property
    def repository(self) -> Path:
        return self._context.repository

    @property
    def project_folder(self) -> Path | None:
        return self._context.project_folder

    def shared_files(self) -> list[Path]:
        return project_server_files(self._context)

    def has_named_servers(self) -> bool:
        """Return whether a file names servers. Plugins and the entries of servers are not read."""
        state = self.read_state(self.state_file)
        projects: object = state.get("projects")
        tables: list[object] = [state, *(file.document for file in self.files)]
        tables += cast("dict[str, object]", projects).values() if isinstance(projects, dict) else ()
        return bool(any(map(_defines_servers, tables)) or self.shared_files() or self.managed_files)

    def variables(self) -> Mapping[str, str]:
        return settings_env(self.files)

    def find_plugins(self, folders: Iterable[Path], problems: list[str]) -> list[Plugin]:
        return plugins_in_force(self._context, folders, self.files, problems)

    def is_of_project(self, path: Path) -> bool:
        return is_of_project(path, self.cwd, self.home)

    def read_servers(self, path: Path) -> tuple[object, str]:
        return read_server_file(path)

    def read_state(self, path: Path) -> dict[str, Any]:
        return read_claude_state(path)

    def parse_json(self, text: str, origin: str) -> tuple[object, str]:
        return parse_tolerant_json(text, origin)

    def read_editable(self, path: Path) -> dict[str, Any]:
        return read_editable(path, MAX_STATE_BYTES)

    def edit(self, path: Path, change: Callable[[dict[str, Any]], None]) -> None:
        edit_document(path, change, MAX_STATE_BYTES)


def _defines_servers(table: object) -> bool:
    entries = cast("dict[str, object]", table) if isinstance(table, dict) else {}
    return bool(entries.get("mcpServers") or entries.get("mcp"))
