"""Packages made on the spot, and archives nobody should send."""

import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vaka.luau.packages.package import pack
from vaka.luau.packages.registry import FolderRegistry, Release


def manifest(name: str = "demo", version: str = "1.0.0", **fields: Any) -> bytes:
    return json.dumps({"name": name, "version": version, **fields}).encode()


def write(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


async def archive(
    folder: Path, name: str = "demo", version: str = "1.0.0", code: str = "return 1", **fields: Any
) -> bytes:
    """Pack a package of one module, written below a folder."""
    place = folder / "made" / name / version / str(abs(hash(code)))
    return await pack(write(place, {"pkg.json": manifest(name, version, **fields), "init.luau": code.encode()}))


async def publish(registry: FolderRegistry, name: str, version: str, **dependencies: str) -> Release:
    """Publish a package of one module that needs others."""
    made = await archive(registry.root.parent, name, version, dependencies=dependencies)
    return await registry.publish(made)


def entry(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname = kind, len(data), link
    return info, data


def tar(*entries: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as file:
        for info, data in entries:
            file.addfile(info, io.BytesIO(data))
    return target.getvalue()


def gzip(data: bytes) -> bytes:
    return zlib.compress(data, 9, wbits=31)
