"""Installed packages, as ``require`` asks for them: ``require("@scope/pkg@^1.0.0/sub/module")``."""

from pathlib import Path

from vaka.core.types.errors import ScriptError
from vaka.luau.packages.folders import PACKAGES
from vaka.luau.packages.installed import Installed, installed_in
from vaka.luau.packages.names import Reference
from vaka.luau.require import SUFFIX, Package, Packages


def packages_near(place: Path) -> Packages:
    """Return what finds packages for scripts in a folder: those of the nearest project around it that has some."""
    found: list[Installed] = []

    async def find(text: str) -> Package:
        if not found:
            around = [folder for folder in (place, *place.parents) if (folder / PACKAGES).is_dir()]
            found.append(await installed_in(around[0] if around else place))
        reference = Reference.parse(text)
        package = await found[0].find(reference.name, reference.range)
        meant = package.source(reference.module)
        title = f"{package.manifest.name}@{package.manifest.version.bare}"
        files = {
            path.removesuffix(SUFFIX): _text(f"{title}/{path}", code)
            for path, code in package.files.items()
            if path.endswith(SUFFIX) and not path.endswith(f".d{SUFFIX}")
        }
        return Package(title, files, meant.path.removesuffix(SUFFIX))

    return find


def _text(file: str, code: bytes) -> str:
    try:
        return code.decode()
    except UnicodeDecodeError:
        raise ScriptError(f"{file} is not UTF-8") from None
