"""What a script can ``require``: modules by name, read once, before the script runs.

A name is the path of a file inside a library, without ``.luau``; ``a/init.luau`` is known as ``a``. ``./b`` and
``../b`` count from the module that says so and never leave its library; a script is in no library and cannot use them.
"""

import asyncio
import difflib
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from vaka.core.types.errors import ConfigError, ScriptError, VakaError

REQUIRE_CALL = "$require"
"""The request by which ``require.luau`` asks for a module."""
REQUIRE_PRELUDE = (Path(__file__).parent / "require.luau").read_text("utf-8")
SOURCE_SUFFIX = ".luau"
DECLARATION_SUFFIX = ".d.luau"
MAX_LIBRARY_FILES = 5_000
MAX_LIBRARY_BYTES = 32 << 20

_PACKAGE_REQUIRE = re.compile(r"""\brequire\s*[(,]?\s*["'](@[^"'\n]*[^"'\n/])["']""")


@dataclass(frozen=True, slots=True)
class Module:
    """A file that can be required, under its full name."""

    name: str
    source: str
    package: str = ""
    """The package it belongs to, with its version; names inside it are looked for there first."""
    is_folder: bool = False
    """Whether it is the ``init.luau`` of a folder, so that ``./b`` is inside it."""

    @property
    def file(self) -> str:
        """What errors call it; the same on every machine."""
        return f"{self.name}/init{SOURCE_SUFFIX}" if self.is_folder else f"{self.name}{SOURCE_SUFFIX}"


@dataclass(frozen=True, slots=True)
class PackageModules:
    """A package as ``require`` needs it: its files by path without ``.luau``, and which of them was meant."""

    title: str
    """Name and version, such as ``@scope/name@1.2.3``."""
    files: Mapping[str, str]
    module: str


FindPackage: TypeAlias = Callable[[str], Awaitable[PackageModules]]
"""Finds what a name that begins with ``@`` means; raises a ``VakaError`` when there is no such package."""


@dataclass(frozen=True, slots=True)
class Library:
    """Everything a script can require."""

    modules: Mapping[str, Module] = field(default_factory=dict[str, Module])
    folders: tuple[str, ...] = ()
    """Where the modules were looked for."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that stand for something that may not be read, and why."""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """What names of packages, as scripts write them, stand for."""

    def find(self, name: str, origin: str = "") -> Module:
        """Return the module that ``name`` means to the module ``origin``; raise ``ScriptError`` if there is none."""
        here = self.modules.get(origin)
        key = _module_key(name, here)
        if key.startswith("@") and key not in self.modules:
            if key in self.refused:
                raise ScriptError(f"require: {name!r}: {self.refused[key]}")
            if key not in self.aliases:
                raise ScriptError(f"require: {name!r}: packages are found by names that are written out in the source")
            key = self.aliases[key]
        inside = f"{here.package}/{key}" if here is not None and here.package else key
        module = self.modules.get(inside) or self.modules.get(key)
        if module is None:
            raise self._not_found_error(name, key)
        return module

    def _not_found_error(self, name: str, key: str) -> ScriptError:
        if key in self.refused:
            return ScriptError(f"require: module {name!r}: {self.refused[key]}")
        places = ", ".join(self.folders) or "no library folder"
        near = difflib.get_close_matches(key, self.modules, n=1)
        hint = f"; there is {near[0]!r}" if near else ""
        looked = f"looked for {key}{SOURCE_SUFFIX} and {key}/init{SOURCE_SUFFIX} in {places}"
        return ScriptError(f"require: module {name!r} not found: {looked}{hint}")


async def read_library(
    folders: Sequence[Path | str],
    source: str = "",
    find_package: FindPackage | None = None,
    *,
    builtin: Sequence[Path] = (),
) -> Library:
    """Read the modules of some folders (the first has precedence), and the packages that ``source`` and they name.

    ``own`` are folders that come last and are not worth a word in errors. A folder that is not there has no modules.
    """
    roots = [*(Path(folder) for folder in folders), *builtin]
    modules, refused = await asyncio.to_thread(_read_folders, roots)
    aliases: dict[str, str] = {}
    if find_package is not None:
        await _add_packages(find_package, source, modules, refused, aliases)
    return Library(modules, tuple(str(folder) for folder in folders), refused, aliases)


def find_package_names(source: str) -> list[str]:
    """Return the names of packages that a source requires by a written-out name, in order."""
    return list(dict.fromkeys(_PACKAGE_REQUIRE.findall(source)))


def _module_key(name: str, origin: Module | None) -> str:
    """Return the key a name stands for, or raise ``ScriptError`` for one that no module can have."""
    if not name:
        raise ScriptError("require: the name of a module is empty")
    shown = repr(name[:200])
    if "\0" in name or not name.isprintable():
        raise ScriptError(f"require: {shown}: a name has no control characters")
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise ScriptError(f"require: {shown} is an absolute path: a module is named by its path inside a library")
    if "\\" in name:
        raise ScriptError(f"require: {shown}: parts of a name are separated by /")
    if name.startswith(("./", "../")):
        return _resolve_relative(name, origin)
    if any(part in {"", ".", ".."} for part in name.split("/")) or (".." in name and not name.startswith("@")):
        raise ScriptError(f"require: {shown}: a name has no '..', no '.' and nothing empty between its slashes")
    return name.removesuffix("/init")


def _resolve_relative(name: str, origin: Module | None) -> str:
    if origin is None:
        raise ScriptError(f"require: {name!r}: a script is in no library, name the module by its path inside one")
    root = origin.package.split("/") if origin.package else []
    parts = origin.name.split("/")[len(root) :]
    if not origin.is_folder:
        parts = parts[:-1]
    for part in name.split("/"):
        if not part:
            raise ScriptError(f"require: {name!r} names no module")
        if part == "..":
            if not parts:
                raise ScriptError(f"require: {name!r} leaves the library of {origin.file}")
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join([*root, *parts]).removesuffix("/init")


def _read_folders(roots: Sequence[Path]) -> tuple[dict[str, Module], dict[str, str]]:
    modules: dict[str, Module] = {}
    refused: dict[str, str] = {}
    size = 0
    for root in roots:
        mine: dict[str, Module] = {}
        for path, why in _walk_sources(root):
            name = path.relative_to(root).as_posix().removesuffix(SOURCE_SUFFIX)
            if why:
                refused.setdefault(name.removesuffix("/init"), why)
                continue
            module = _make_module(name, _read_text(path))
            size += len(module.source)
            if module.name not in mine or not module.is_folder:
                mine[module.name] = module
        modules = {**mine, **modules}
        if len(modules) > MAX_LIBRARY_FILES or size > MAX_LIBRARY_BYTES:
            raise ConfigError(
                f"{str(root)!r} is too large for a library: {MAX_LIBRARY_FILES} files and {MAX_LIBRARY_BYTES} bytes"
            )
    return modules, refused


def _make_module(name: str, source: str, package: str = "") -> Module:
    is_folder = name == "init" or name.endswith("/init")
    name = name.removesuffix("init").removesuffix("/") if is_folder else name
    full = "/".join(filter(None, (package, name))) or "init"
    return Module(full, source, package, is_folder and full != "init")


def _walk_sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the sources below a folder, and why one may not be read."""
    inside = root.resolve()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(folder) / name).is_symlink():
                yield Path(folder) / name, "a link to a folder is not followed"
        for name in sorted(files):
            if name.startswith(".") or not name.endswith(SOURCE_SUFFIX) or name.endswith(DECLARATION_SUFFIX):
                continue
            path = Path(folder) / name
            real = path.resolve()
            if not real.is_relative_to(inside):
                yield path, "it is a link that leaves the library"
            elif not real.exists() or not stat.S_ISREG(real.stat().st_mode):
                yield path, "it is not a regular file"
            else:
                yield path, ""


def _read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"library file {str(path)!r} cannot be read: {error}") from error


async def _add_packages(
    find_package: FindPackage, source: str, modules: dict[str, Module], refused: dict[str, str], aliases: dict[str, str]
) -> None:
    wanted = find_package_names(source)
    for module in list(modules.values()):
        wanted += find_package_names(module.source)
    while wanted:
        name = wanted.pop()
        if name in aliases or name in refused:
            continue
        try:
            package = await find_package(name)
        except VakaError as error:
            refused[name] = str(error)
            continue
        for path, text in package.files.items():
            module = _make_module(path, text, package.title)
            if module.name not in modules:
                modules[module.name] = module
                wanted += find_package_names(text)
        aliases[name] = _make_module(package.module, "", package.title).name
