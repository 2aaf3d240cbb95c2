"""A package: its name, its manifest ``pkg.json``, its files and their checksum."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from vaka.core.types.errors import Corrupt, NotFound
from vaka.luau.packages.files import (
    DEFAULT_LIMITS,
    DEVICE_NAMES,
    PackageLimits,
    check_path,
    pack_files,
    read_folder,
    run_in_thread,
    unpack_archive,
)
from vaka.luau.packages.versions import PackageError, Range, Version, decode_document, encode_document, quote_text

_NAME_PART = r"[a-z0-9][a-z0-9_-]{0,63}"
_NAME = re.compile(rf"(?:@{_NAME_PART}/)?{_NAME_PART}")


def check_package_name(text: str) -> str:
    """Return the name of a package, ``pkg`` or ``@scope/pkg``. Raises ``PackageError``."""
    if _NAME.fullmatch(text) is None or DEVICE_NAMES & set(text.removeprefix("@").split("/")):
        raise PackageError(
            f"{quote_text(text)} is not a package name; "
            "expected 'pkg' or '@scope/pkg' in lower-case letters, digits, '-' and '_'"
        )
    return text


@dataclass(frozen=True, slots=True)
class PackageReference:
    """The argument of ``require``: a package, an optional range, and a module of it (``""``: its entry)."""

    name: str
    range: Range | None = None
    module: str = ""

    @classmethod
    def parse(cls, text: str) -> "PackageReference":
        """Read ``[@scope/]pkg[@range][/sub/module]``. Raises ``PackageError``."""
        steps = text.split("/")
        head = 2 if text.startswith("@") else 1
        name, mark, range_text = "/".join(steps[:head])[1:].partition("@")
        if mark and not range_text.strip():
            raise PackageError(f"{quote_text(text)} has an '@' with no range after it; expected '@scope/pkg@^1.0.0'")
        module = "/".join(steps[head:])
        if len(steps) > head:
            check_path(module)
        return cls(check_package_name(text[:1] + name), Range(range_text) if mark else None, module)

    def __str__(self) -> str:
        range_text = f"@{self.range}" if self.range is not None else ""
        return f"{self.name}{range_text}" + (f"/{self.module}" if self.module else "")


MANIFEST_FILE = "pkg.json"
DEFAULT_ENTRY = "init.luau"
MAX_MANIFEST_BYTES = 64 * 1024
_CHECKSUM_PATTERN = re.compile("sha256:[0-9a-f]{64}")
PackageKind = Literal["lib", "agent", "tool"]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The content of ``pkg.json``. ``checksum`` covers all files, ``pkg.json`` itself without its checksum."""

    name: str
    version: Version
    type: PackageKind = "lib"
    entry: str = DEFAULT_ENTRY
    dependencies: dict[str, Range] = {}
    checksum: str = ""


def read_manifest(data: bytes, where: str = MANIFEST_FILE) -> Manifest:
    """Read ``pkg.json``. Raises ``PackageError``."""
    if len(data) > MAX_MANIFEST_BYTES:
        raise PackageError(f"{where}: {len(data)} bytes; expected at most {MAX_MANIFEST_BYTES}")
    manifest = decode_document(data, Manifest, where)
    try:
        check_package_name(manifest.name)
        check_path(manifest.entry)
        for name in manifest.dependencies:
            check_package_name(name)
    except PackageError as error:
        raise PackageError(f"{where}: {error}") from error
    if not manifest.entry.endswith(".luau"):
        raise PackageError(f"{where}: entry {quote_text(manifest.entry)} is not a .luau file")
    if manifest.checksum and not _CHECKSUM_PATTERN.fullmatch(manifest.checksum):
        checksum = quote_text(manifest.checksum)
        raise PackageError(f"{where}: checksum {checksum}; expected 'sha256:' and 64 hexadecimal digits")
    return manifest


def write_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``pkg.json``; equal manifests give equal bytes."""
    return encode_document(manifest)


@dataclass(frozen=True, slots=True)
class ModuleSource:
    """The text of one module. ``chunk`` names it in error messages: ``@scope/pkg@1.0.0/sub/module.luau``."""

    chunk: str
    path: str
    code: bytes


@dataclass(frozen=True, slots=True)
class Package:
    """A package, completely in memory, so that the checked bytes are the ones used."""

    manifest: Manifest
    files: Mapping[str, bytes]

    @property
    def checksum(self) -> str:
        """The checksum of all files, of ``pkg.json`` without its checksum."""
        files = {**self.files, MANIFEST_FILE: write_manifest(msgspec.structs.replace(self.manifest, checksum=""))}
        digests = (f"{hashlib.sha256(files[path]).hexdigest()}  {path}\n" for path in sorted(files))
        return f"sha256:{hashlib.sha256(''.join(digests).encode()).hexdigest()}"

    def module_source(self, module: str = "") -> ModuleSource:
        """Return ``module.luau`` or ``module/init.luau``, the entry if ``module`` is empty. Raises ``NotFound``."""
        paths = [self.manifest.entry] if not module else [f"{check_path(module)}.luau", f"{module}/init.luau"]
        for path in paths:
            if path in self.files:
                chunk = f"{self.manifest.name}@{self.manifest.version.without_build}/{path}"
                return ModuleSource(chunk, path, self.files[path])
        searched = " and ".join(map(repr, paths))
        raise NotFound(f"package {self} has no module {quote_text(module)}; looked for {searched}")

    def pack(self, limits: PackageLimits = DEFAULT_LIMITS) -> bytes:
        """Return the package as a gzipped tar, with its checksum in ``pkg.json``."""
        manifest = msgspec.structs.replace(self.manifest, checksum=self.checksum)
        return pack_files({**self.files, MANIFEST_FILE: write_manifest(manifest)}, limits)

    def __str__(self) -> str:
        return f"{self.manifest.name!r} {self.manifest.version}"


def read_package(data: bytes, limits: PackageLimits = DEFAULT_LIMITS) -> Package:
    """Read a gzipped tar. Raises ``PackageError``, and ``Corrupt`` when its files do not match its checksum."""
    return _verify_checksum(_make_package(unpack_archive(data, limits), "archive"))


def read_package_folder(folder: Path, limits: PackageLimits = DEFAULT_LIMITS, *, hidden: bool = False) -> Package:
    """Read a folder, blocking; with ``hidden`` also the files that ``pack_folder`` leaves out."""
    return _verify_checksum(_make_package(read_folder(folder, limits, hidden=hidden), str(folder)))


async def pack_folder(folder: Path | str, limits: PackageLimits = DEFAULT_LIMITS) -> bytes:
    """Pack a folder with a ``pkg.json``; equal files give equal bytes. Raises ``PackageError``.

    Names that start with a dot, ``luau_packages`` and the lock file are left out; the checksum is computed again.
    """

    def read_and_pack() -> bytes:
        return _make_package(read_folder(Path(folder), limits), str(folder)).pack(limits)

    return await run_in_thread(read_and_pack)


def _make_package(files: Mapping[str, bytes], where: str) -> Package:
    if MANIFEST_FILE not in files:
        raise PackageError(f"{where}: no {MANIFEST_FILE} at the top level")
    manifest = read_manifest(files[MANIFEST_FILE], f"{where}: {MANIFEST_FILE}")
    if manifest.entry not in files:
        raise PackageError(f"{where}: entry {manifest.entry!r} of {MANIFEST_FILE} does not exist")
    return Package(manifest, files)


def _verify_checksum(package: Package) -> Package:
    expected = package.manifest.checksum
    if expected and expected != package.checksum:
        raise Corrupt(f"package {package}: its {MANIFEST_FILE} has {expected}, its files have {package.checksum}")
    return package
