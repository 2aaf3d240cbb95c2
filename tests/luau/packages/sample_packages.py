"""Build sample packages, and malformed archives."""

import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vaka.luau.packages.package import pack_folder
from vaka.luau.packages.registry import FolderRegistry, Release


def manifest_json(name: str = "demo", version: str = "1.0.0", **fields: Any) -> bytes:
    return json.dumps({"name": name, "version": version, **fields}).encode()


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    return folder


async def make_archive(
    folder: Path, name: str = "demo", version: str = "1.0.0", code: str = "return 1", **fields: Any
) -> bytes:
    """Pack a package of one module, written below a folder."""
    package = folder / "made" / name / version / str(abs(hash(code)))
    return await pack_folder(
        write_files(package, {"pkg.json": manifest_json(name, version, **fields), "init.luau": code.encode()})
    )


async def publish_package(registry: FolderRegistry, name: str, version: str, **dependencies: str) -> Release:
    """Publish a package of one module with dependencies."""
    archive = await make_archive(registry.root.parent, name, version, dependencies=dependencies)
    return await registry.publish(archive)


def tar_entry(
    name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = ""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.size = len(data)
    info.linkname = link
    return info, data


def make_tar(*entries: tuple[tarfile.TarInfo, bytes], format: int = tarfile.PAX_FORMAT) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w", format=format) as file:
        for info, data in entries:
            file.addfile(info, io.BytesIO(data))
    return target.getvalue()


def gzip_bytes(data: bytes) -> bytes:
    return zlib.compress(data, 9, wbits=31)
