"""The modules a script can ``require``, read before the script runs.

A name is the path of a file inside a library, without ``.luau``; ``a/init.luau`` is named ``a``. ``./b`` and ``../b``
are relative to the requiring module and never leave its library. A script is not in a library and cannot use them.
"""

import asyncio
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vaka.core.types.errors import ConfigError, ScriptError
from vaka.core.types.keywords import find_near_names

REQUIRE_CALL = "$require"
"""The host call by which ``require.luau`` requests a module."""
REQUIRE_PRELUDE = (Path(__file__).parent / "require.luau").read_text("utf-8")
SOURCE_SUFFIX = ".luau"
DECLARATION_SUFFIX = ".d.luau"
MAX_LIBRARY_FILES = 5_000
MAX_LIBRARY_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Module:
    """A file that can be required by its full name."""

    name: str
    source: str
    is_folder: bool = False
    """Whether it is the ``init.luau`` of a folder, so that ``./b`` is inside it."""

    @property
    def file(self) -> str:
        """Its name in error messages; the same on every machine."""
        return f"{self.name}/init{SOURCE_SUFFIX}" if self.is_folder else f"{self.name}{SOURCE_SUFFIX}"


@dataclass(frozen=True, slots=True)
class Library:
    """All modules that a script can require."""

    modules: Mapping[str, Module] = field(default_factory=dict[str, Module])
    folders: tuple[str, ...] = ()
    """The folders that were searched."""
    refused: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names that cannot be read, and why."""

    def find(self, name: str, origin: str = "") -> Module:
        """Return the module ``name`` as required by the module ``origin``; raise ``ScriptError`` if there is none."""
        key = _module_key(name, self.modules.get(origin))
        module = self.modules.get(key)
        if module is None:
            raise self._not_found_error(name, key)
        return module

    def _not_found_error(self, name: str, key: str) -> ScriptError:
        if key in self.refused:
            return ScriptError(f"require: module {name!r}: {self.refused[key]}")
        near = find_near_names(key, self.modules, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        looked = f"looked for {key}{SOURCE_SUFFIX} and {key}/init{SOURCE_SUFFIX} in {', '.join(self.folders)}"
        if not self.folders:
            looked = "there is no library folder: name one with libs (--libs), or make one at ../libs"
        return ScriptError(f"require: module {name!r} not found: {looked}{hint}")


async def read_library(folders: Sequence[Path | str], *, builtin: Sequence[Path] = ()) -> Library:
    """Read the modules of some folders; the first has precedence.

    ``builtin`` folders come last and are not named in errors. A missing folder has no modules.
    """
    roots = [*(Path(folder) for folder in folders), *builtin]
    modules, refused = await asyncio.to_thread(_read_folders, roots)
    return Library(modules, tuple(str(folder) for folder in folders), refused)


def _module_key(name: str, origin: Module | None) -> str:
    """Return the module name that ``name`` resolves to; raise ``ScriptError`` for an invalid one."""
    if not name:
        raise ScriptError("require: the name of a module is empty")
    shown = repr(name[:200])
    if "\0" in name or not name.isprintable():
        raise ScriptError(f"require: {shown}: a name must not contain control characters")
    if name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name):
        raise ScriptError(f"require: {shown} is an absolute path; expected a path inside a library")
    if "\\" in name:
        raise ScriptError(f"require: {shown}: a name must use '/', not a backslash")
    if name.startswith(("./", "../")):
        return _resolve_relative(name, origin)
    if any(part in {"", ".", ".."} for part in name.split("/")) or ".." in name:
        raise ScriptError(f"require: {shown}: a name must not contain '..', '.' or an empty part")
    return name.removesuffix("/init")


def _resolve_relative(name: str, origin: Module | None) -> str:
    if origin is None:
        raise ScriptError(f"require: {name!r}: a script is not in a library; expected a path inside a library")
    parts = origin.name.split("/")
    if not origin.is_folder:
        parts = parts[:-1]
    for part in name.split("/"):
        if not part:
            raise ScriptError(f"require: {name!r} has an empty part")
        if part == "..":
            if not parts:
                raise ScriptError(f"require: {name!r} leaves the library of {origin.file}")
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts).removesuffix("/init")


def _read_folders(roots: Sequence[Path]) -> tuple[dict[str, Module], dict[str, str]]:
    modules: dict[str, Module] = {}
    refused: dict[str, str] = {}
    size = 0
    for root in roots:
        root_modules: dict[str, Module] = {}
        for path, why in _walk_sources(root):
            name = path.relative_to(root).as_posix().removesuffix(SOURCE_SUFFIX)
            if why:
                refused.setdefault(name.removesuffix("/init"), why)
                continue
            module = _make_module(name, _read_text(path))
            size += len(module.source)
            if module.name not in root_modules or not module.is_folder:
                root_modules[module.name] = module
        modules = {**root_modules, **modules}
        if len(modules) > MAX_LIBRARY_FILES or size > MAX_LIBRARY_BYTES:
            expected = f"expected at most {MAX_LIBRARY_FILES} files and {MAX_LIBRARY_BYTES} bytes"
            raise ConfigError(f"library {str(root)!r} is too large; {expected}")
    return modules, refused


def _make_module(name: str, source: str) -> Module:
    return Module(name.removesuffix("/init"), source, is_folder=name.endswith("/init"))


def _walk_sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield the sources below a folder, each with ``""`` or the reason why it cannot be read."""
    inside = root.resolve()
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in folders:
            if (Path(folder) / name).is_symlink():
                yield Path(folder) / name, "links to folders are not followed"
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
