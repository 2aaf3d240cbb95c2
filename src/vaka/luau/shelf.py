"""Installed packages as ``require`` takes them."""

from pathlib import Path

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.folders import PACKAGES
from vaka.luau.packages.installed import Installed, installed_in
from vaka.luau.packages.names import Reference
from vaka.luau.packages.package import Package as Installation
from vaka.luau.require import DECLARATIONS, SUFFIX, Package


class Shelf:
    """The packages a script can require: those of the project it stands in. Nothing is read before it is asked for."""

    def __init__(self, script: Path) -> None:
        """The project is the nearest folder, from the script's own upwards, with ``luau_packages`` in it."""
        folders = script.resolve().parents
        self.project = next((folder for folder in folders if (folder / PACKAGES).is_dir()), None)
        self._installed: Installed | None = None

    async def __call__(self, name: str) -> Package:
        """Return what ``[@scope/]pkg[@range][/sub/module]`` means; raise a ``VakaError`` when there is none."""
        wanted = Reference.parse(name)
        if self.project is None:
            raise NotFound(f"there is no folder {PACKAGES!r} beside the script or above it")
        self._installed = self._installed or await installed_in(self.project)
        found = await self._installed.find(wanted.name, wanted.range)
        module = found.source(wanted.module).path.removesuffix(SUFFIX)
        return Package(f"{found.manifest.name}@{found.manifest.version.bare}", _texts(found), module)


def _texts(package: Installation) -> dict[str, str]:
    texts: dict[str, str] = {}
    for path, code in package.files.items():
        if path.endswith(SUFFIX) and not path.endswith(DECLARATIONS):
            try:
                texts[path.removesuffix(SUFFIX)] = code.decode()
            except UnicodeDecodeError as error:
                raise Corrupt(f"package {package}: {path!r} is not UTF-8") from error
    return texts
