"""``pkg.json``: what a package says about itself."""

import re
from typing import Literal

import msgspec

from vaka.luau.packages.codec import decode, encode
from vaka.luau.packages.errors import PackageError, shown
from vaka.luau.packages.names import check_name, check_path
from vaka.luau.packages.ranges import Range
from vaka.luau.packages.version import Version

MANIFEST = "pkg.json"
ENTRY = "init.luau"
LARGEST = 64 * 1024
_CHECKSUM = re.compile("sha256:[0-9a-f]{64}")

Kind = Literal["lib", "agent", "tool"]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a package says about itself. ``checksum`` is of all its files, this one without its checksum."""

    name: str
    version: Version
    type: Kind = "lib"
    entry: str = ENTRY
    dependencies: dict[str, Range] = {}
    checksum: str = ""


def read_manifest(data: bytes, where: str = MANIFEST) -> Manifest:
    """Read ``pkg.json``. Raises ``PackageError``."""
    if len(data) > LARGEST:
        raise PackageError(f"{where}: {len(data)} bytes; expected at most {LARGEST}")
    manifest = decode(data, Manifest, where)
    try:
        check_name(manifest.name)
        check_path(manifest.entry)
        for name in manifest.dependencies:
            check_name(name)
    except PackageError as error:
        raise PackageError(f"{where}: {error}") from error
    if not manifest.entry.endswith(".luau"):
        raise PackageError(f"{where}: entry {shown(manifest.entry)} is not a .luau file")
    if manifest.checksum and not _CHECKSUM.fullmatch(manifest.checksum):
        raise PackageError(
            f"{where}: checksum {shown(manifest.checksum)}; expected 'sha256:' and 64 hexadecimal digits"
        )
    return manifest


def write_manifest(manifest: Manifest) -> bytes:
    """Return the bytes of ``pkg.json``, the same for the same manifest."""
    return encode(manifest)
