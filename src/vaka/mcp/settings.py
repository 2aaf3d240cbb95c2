"""``McpSettings``: the settings, folders and files that say which MCP servers there are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class SettingsDocument(Protocol):
    """A settings file."""

    @property
    def layer(self) -> str:
        """``user``, ``project``, ``local``, ``settings``, ``override`` or ``managed``."""
        ...

    @property
    def path(self) -> Path: ...

    @property
    def document(self) -> Mapping[str, Any]: ...

    @property
    def folder(self) -> str:
        """The folder that its relative paths begin at."""
        ...

    @property
    def project(self) -> bool:
        """Whether it is a file of the project's folder."""
        ...


class PluginFolder(Protocol):
    """A plugin, which may define servers."""

    @property
    def name(self) -> str: ...

    @property
    def root(self) -> Path: ...

    @property
    def manifest(self) -> Mapping[str, Any]: ...

    @property
    def variables(self) -> Mapping[str, str]: ...


class McpSettings(Protocol):
    """The settings of a working folder. Each method that reads or changes a file raises ``ConfigError``."""

    @property
    def cwd(self) -> Path: ...

    @property
    def home(self) -> Path: ...

    @property
    def environ(self) -> Mapping[str, str]: ...

    @property
    def repository(self) -> Path:
        """The root of the repository around the working folder, else the working folder."""
        ...

    @property
    def project_folder(self) -> Path | None: ...

    @property
    def files(self) -> Sequence[SettingsDocument]:
        """The settings files, the weakest first."""
        ...

    @property
    def trusted(self) -> bool:
        """Whether the servers of the project's folder may be started."""
        ...

    @property
    def state_file(self) -> Path:
        """The file in the home folder with the user's servers, and those that the user added for single projects."""
        ...

    @property
    def shared_name(self) -> str:
        """The name of the files with the servers of a project, or of a plugin."""
        ...

    @property
    def managed_files(self) -> Sequence[Path]:
        """The administrator's files whose servers are the only ones."""
        ...

    def shared_files(self) -> Sequence[Path]:
        """Return the files of the project up to the working folder that exist, the weakest first."""
        ...

    def variables(self) -> Mapping[str, str]:
        """Return the variables that settings files set."""
        ...

    def find_plugins(self, folders: Iterable[Path], problems: list[str], /) -> Sequence[PluginFolder]:
        """Return the plugins that are switched on, those in ``folders`` first."""
        ...

    def is_of_project(self, path: Path, /) -> bool:
        """Return whether a file belongs to the project, and not to the user."""
        ...

    def read_servers(self, path: Path, /) -> tuple[object, str]:
        """Return a file of servers as data, and what is wrong with its JSON."""
        ...

    def read_state(self, path: Path, /) -> dict[str, Any]:
        """Return the state file as data, ``{}`` when it does not exist."""
        ...

    def parse_json(self, text: str, origin: str, /) -> tuple[object, str]:
        """Return a JSON document, which may have comments, and what is wrong with it."""
        ...

    def read_editable(self, path: Path, /) -> dict[str, Any]:
        """Return a JSON file that may be changed, ``{}`` when it does not exist."""
        ...

    def edit(self, path: Path, change: Callable[[dict[str, Any]], None], /) -> None:
        """Change a JSON file under a lock."""
        ...
