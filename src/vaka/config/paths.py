"""Where a person's files are, on each platform."""

import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

NAME = "vaka"


def config_file(environ: Mapping[str, str], home: Path) -> Path:
    """Return the user's ``config.toml``."""
    return _folder(environ, home, "XDG_CONFIG_HOME", ".config", "APPDATA") / "config.toml"


def data_folder(environ: Mapping[str, str], home: Path) -> Path:
    """Return the folder for what vaka keeps."""
    return _folder(environ, home, "XDG_DATA_HOME", ".local/share", "LOCALAPPDATA")


def default_store(environ: Mapping[str, str], home: Path) -> str:
    """Return the store used when nobody names one: a SQLite file in the user's data folder."""
    return sqlite_url(data_folder(environ, home) / "vaka.db")


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file."""
    return f"sqlite:///{quote(path.as_posix())}"


def _folder(environ: Mapping[str, str], home: Path, variable: str, unix: str, windows: str) -> Path:
    """Return a folder of ours; an XDG variable counts everywhere, as long as it is absolute."""
    said = environ.get(variable, "")
    if Path(said).is_absolute():
        return Path(said) / NAME
    if sys.platform == "win32":
        return Path(environ.get(windows) or home / "AppData" / "Local") / NAME
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / NAME
    return home / unix / NAME
