"""What a plain user meets: ``plain.py ROOT UID WAY``; prints what came of each try as JSON."""

import asyncio
import os
import sys
from collections.abc import Awaitable

import msgspec

from vaka.core.types.errors import FileError
from vaka.files.disk import Disk
from vaka.files.walk import walk
from vaka.files.ways import WayName


async def told(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except FileError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


async def walked(files: Disk) -> list[str]:
    seen: list[str] = []
    try:
        async for info in walk(files):
            seen.append(info.path)  # noqa: PERF401  # what came before an error counts
    except FileError as error:
        seen.append(str(error))
    return seen


async def main(root: str, way: WayName) -> dict[str, object]:
    files = Disk(root, way=way)
    return {
        "unreadable": await told(files.read("unreadable")),
        "known": await told(files.write("unreadable", b"x", known="0" * 64)),  # type: ignore[arg-type]  # a digest
        "read-only": await told(files.write("read-only", b"x")),
        "theirs": await told(files.write("theirs", b"mine")),
        "closed": await told(files.read("closed/file")),
        "through": await told(files.read("through/file")),
        "list": await told(files.entries("through")),
        "write-only": await told(files.write("write-only/new", b"x")),
        "shut": await told(files.write("shut/new", b"x")),
        "shut-folder": await told(files.write("shut/new/deep", b"x")),
        "delete": await told(files.delete("shut/file")),
        "out": await told(files.read("out")),
        "walk": await walked(files),
    }


if __name__ == "__main__":
    asyncio.run(walked(Disk(sys.argv[1])))  # loads what Python loads late, which a plain user may not be able to
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    chosen: WayName = "walk" if sys.argv[3] == "walk" else "openat2"
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(main(sys.argv[1], chosen))))
