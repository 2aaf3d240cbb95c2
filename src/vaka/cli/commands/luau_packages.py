"""``vaka luau pack``, ``publish``, ``install`` and ``list``: packages of Luau libraries, with a folder as registry."""

from pathlib import Path
from typing import Any

import click

from vaka.cli import options
from vaka.cli.errors import UsageError
from vaka.cli.event_loop import run_loop
from vaka.cli.render import print_json, print_table
from vaka.core.types.errors import NotFound
from vaka.luau.packages.files import LOCK_FILE, PACKAGES_FOLDER, read_file
from vaka.luau.packages.install import InstalledPackages, install
from vaka.luau.packages.package import (
    MANIFEST_FILE,
    MAX_MANIFEST_BYTES,
    PackageReference,
    pack_folder,
    read_manifest,
    read_package,
)
from vaka.luau.packages.registry import FolderRegistry
from vaka.luau.packages.resolution import Resolution, read_lock, resolve, write_lock
from vaka.luau.packages.versions import ANY_VERSION, PackageError, Range

_FOLDER: "click.Path[Path]" = click.Path(exists=True, file_okay=False, path_type=Path)
_FILE_OR_FOLDER: "click.Path[Path]" = click.Path(exists=True, path_type=Path)
_NEW_FILE: "click.Path[Path]" = click.Path(dir_okay=False, path_type=Path)
_REGISTRY: "click.Path[Path]" = click.Path(file_okay=False, path_type=Path)

_registry_option = click.option(
    "--registry", type=_REGISTRY, required=True, metavar="DIR", help="The folder of the published packages."
)


@click.command(epilog=options.format_examples("vaka luau pack .", "vaka luau pack libs/json -o json.tar.gz"))
@click.argument("folder", type=_FOLDER)
@click.option("-o", "file", type=_NEW_FILE, metavar="FILE", help="Where to write; NAME-VERSION.tar.gz by default.")
def pack(folder: Path, file: Path | None) -> None:
    """Pack a folder with a pkg.json into one file."""

    async def work() -> None:
        archive = await pack_folder(folder)
        manifest = read_package(archive).manifest
        name = manifest.name.lstrip("@").replace("/", "-")
        target = file or Path(f"{name}-{manifest.version}.tar.gz")
        target.write_bytes(archive)
        click.echo(target)

    run_loop(work())


@click.command(epilog=options.format_examples("vaka luau publish . --registry /srv/luau"))
@click.argument("source", type=_FILE_OR_FOLDER)
@_registry_option
def publish(source: Path, registry: Path) -> None:
    """Publish a folder with a pkg.json, or a packed file; a published version never changes."""
    packed = None if source.is_dir() else source.read_bytes()

    async def work() -> None:
        archive = await pack_folder(source) if packed is None else packed
        manifest = read_package(archive).manifest
        await FolderRegistry(registry).publish(archive)
        click.echo(f"{manifest.name}@{manifest.version}")

    run_loop(work())


@click.command(
    "install",
    epilog=options.format_examples(
        "vaka luau install json@^1.0.0 @demo/weather --registry /srv/luau", "vaka luau install --registry /srv/luau"
    ),
)
@click.argument("packages", nargs=-1, metavar="[NAME[@RANGE]]...")
@_registry_option
def install_(packages: tuple[str, ...], registry: Path) -> None:
    """Install packages and what they need into luau_packages of this folder, and lock their versions.

    Without a name, install what pkg.json and the lock file of this folder want.
    """

    async def work() -> None:
        published, lock = FolderRegistry(registry), await _read_lock()
        wanted = {**_manifest_dependencies(), **(lock.roots if lock else {})}
        wanted |= dict(_parse_reference(text) for text in packages)
        if not wanted:
            raise UsageError(f"name a package to install: there is no {MANIFEST_FILE} with dependencies here")
        resolution = await resolve(wanted, published, lock=lock)
        added = await install(resolution, Path(PACKAGES_FOLDER), published)
        await write_lock(Path(LOCK_FILE), resolution)
        for name in added:
            click.echo(name)

    run_loop(work())


@click.command("list")
@options.json_option
def list_(as_json: bool) -> None:
    """List the packages that are installed in luau_packages of this folder."""
    names = _installed_names(Path(PACKAGES_FOLDER))

    async def work() -> None:
        installed = InstalledPackages(Path(PACKAGES_FOLDER))
        rows = [(name, str(version)) for name in names for version in await installed.versions(name)]
        if as_json:
            print_json({"packages": [{"name": name, "version": version} for name, version in rows]})
        else:
            print_table(("NAME", "VERSION"), rows)

    run_loop(work())


async def _read_lock() -> Resolution | None:
    try:
        return await read_lock(Path(LOCK_FILE))
    except NotFound:
        return None


def _manifest_dependencies() -> dict[str, Range]:
    path = Path(MANIFEST_FILE)
    return dict(read_manifest(read_file(path, MAX_MANIFEST_BYTES), str(path)).dependencies) if path.exists() else {}


def _parse_reference(text: str) -> tuple[str, Range]:
    try:
        reference = PackageReference.parse(text)
    except PackageError as error:
        raise UsageError(str(error)) from error
    if reference.module:
        raise UsageError(f"{text}: expected the name of a package, not of its module {reference.module!r}")
    return reference.name, reference.range or ANY_VERSION


def _installed_names(root: Path) -> list[str]:
    folders = [folder for folder in root.iterdir() if folder.is_dir()] if root.is_dir() else []
    scopes = [folder for folder in folders if folder.name.startswith("@")]
    names = [folder.name for folder in folders if not folder.name.startswith(("@", "."))]
    return sorted([*names, *(f"{scope.name}/{folder.name}" for scope in scopes for folder in scope.iterdir())])


PACKAGE_COMMANDS: dict[str, click.Command] = {"pack": pack, "publish": publish, "install": install_, "list": list_}


class ScriptCommand(click.Command):
    """``vaka luau``: runs a script, or the package command that is named in the place of its file."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args and args[0] in PACKAGE_COMMANDS:
            return PACKAGE_COMMANDS[args[0]].make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)
