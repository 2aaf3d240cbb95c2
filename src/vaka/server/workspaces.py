"""The folders in which the tools of tenants work: one for each, apart from each other and from the server."""

import hashlib
import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from vaka.config.options import ToolWorkspace
from vaka.core.types.errors import ConfigError

_PLAIN_NAME = re.compile(r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9_-])?", re.ASCII)
"""Names of tenants that are names of their folders, on every file system."""
_SYSTEM_FOLDERS = frozenset(
    ("/", "/bin", "/dev", "/etc", "/home", "/lib", "/lib64", "/nix", "/opt", "/proc", "/sbin", "/sys", "/usr", "/var")
)
"""Folders that commands need, so that they cannot be masked."""


class WorkspaceSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the tools of tenants work. Without both, tenants have neither file tools nor commands."""

    root: str = ""
    """The folder in which each tenant gets a folder of its own, which is created when it is needed."""
    tenants: Mapping[str, str] = {}
    """The folders of single tenants, which must exist."""


def folder_name_of(tenant: str) -> str:
    """Return the name of a tenant's folder below the root. Two tenants never have one, also if case does not count."""
    if _PLAIN_NAME.fullmatch(tenant):
        return tenant
    return f"_{hashlib.sha256(tenant.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


class TenantWorkspaces:
    """Finds and creates the folders of tenants."""

    def __init__(self, settings: WorkspaceSettings, server_folder: str = "", masked: Sequence[str] = ()) -> None:
        """Check the folders. Raises ``ConfigError``.

        Args:
            settings: Where they are; a relative path begins at ``server_folder``.
            server_folder: The working folder of the server; default: the current one.
            masked: Further folders that no command of a tenant may see, for example the folders of settings.
        """
        self._server_folder = os.path.realpath(server_folder or os.curdir)
        self._root = self._resolve(settings.root) if settings.root else ""
        self._tenants = {tenant: self._resolve(folder) for tenant, folder in settings.tenants.items()}
        if self._root:
            _create_folder(self._root, "server.workspaces.root")
        for tenant, folder in self._tenants.items():
            if not Path(folder).is_dir():
                raise ConfigError(f"server.workspaces.tenants.{tenant}: {folder!r} is not a folder; create it")
        self._check_apart()
        own = (self._server_folder, *([self._root] if self._root else []), *self._tenants.values())
        for folder in own if settings != WorkspaceSettings() else ():
            if folder in _SYSTEM_FOLDERS:
                raise ConfigError(
                    f"server.workspaces: {folder!r} is a folder of the system, which commands of tenants have to see; "
                    "start the server in a folder of its own, and name other folders"
                )
        self._masked = tuple(dict.fromkeys((*own, *(os.path.realpath(folder) for folder in masked))))

    def _resolve(self, folder: str) -> str:
        return os.path.realpath(Path(self._server_folder, os.path.expanduser(folder)))  # noqa: PTH111  # then resolved

    def _check_apart(self) -> None:
        """Refuse folders of which one contains another, the folder of the server, or what may be a tenant's."""
        root = Path(self._root)
        named = {f"tenants.{tenant}": folder for tenant, folder in self._tenants.items()}
        for name, folder in named.items():
            others = {other: path for other, path in named.items() if other != name} | {"root": self._root}
            others["the folder of the server"] = self._server_folder
            for other, path in others.items():
                if path and Path(path).is_relative_to(folder):
                    raise ConfigError(
                        f"server.workspaces.{name}: {folder!r} contains {path!r} ({other}); choose another"
                    )
        for tenant, folder in self._tenants.items() if self._root else ():
            inside = Path(folder).relative_to(root).parts if Path(folder).is_relative_to(root) else ()
            if inside and inside[0] != folder_name_of(tenant):
                raise ConfigError(
                    f"server.workspaces.tenants.{tenant}: a tenant named {inside[0]!r} would work in {folder!r} too, "
                    f"as it is in the root {self._root!r}; choose a folder outside of it"
                )

    def find(self, tenant: str) -> ToolWorkspace:
        """Return the workspace of a tenant; its folder is created if it is below the root. Raises ``ConfigError``."""
        folder = self._tenants.get(tenant, "")
        if not folder and self._root:
            folder = str(Path(self._root, folder_name_of(tenant)))
            _create_folder(folder, f"the folder of tenant {tenant!r}")
        # its own folder is writable, and so stays visible inside of masked ones
        masked = tuple(path for path in self._masked if not Path(path).is_relative_to(folder)) if folder else ()
        return ToolWorkspace(folder=folder, masked=masked)


def _create_folder(folder: str, what: str) -> None:
    """Create a folder that only this user can read, unless it exists. Raises ``ConfigError`` for a link or a file."""
    try:
        Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        found = os.lstat(folder)
    except OSError as error:
        raise ConfigError(f"{what}: {folder!r} cannot be created: {error.strerror or error}") from error
    if not stat.S_ISDIR(found.st_mode):
        raise ConfigError(f"{what}: {folder!r} is a link and not a folder")
