"""Try file operations as an unprivileged user: ``attempts.py ROOT UID OPENER``; prints each outcome as JSON."""

import asyncio
import os
import sys
from collections.abc import Awaitable

import msgspec

from vaka.core.types.errors import FileError
from vaka.files.disk import DiskFiles
from vaka.files.safe_open import OpenerName
from vaka.files.walk import walk


async def describe_outcome(attempt: Awaitable[object]) -> str:
    try:
        await attempt
    except FileError as error:
        return f"{type(error).__name__}: {error}"
    return "done"


async def collect_walk(files: DiskFiles) -> list[str]:
    seen: list[str] = []
    try:
        async for info in walk(files):
            seen.append(info.path)  # noqa: PERF401  # entries before an error count
    except FileError as error:
        seen.append(str(error))
    return seen


async def main(root: str, opener: OpenerName) -> dict[str, object]:
    files = DiskFiles(root, opener=opener)
    return {
        "unreadable": await describe_outcome(files.read("unreadable")),
        "known": await describe_outcome(files.write("unreadable", b"x", known="0" * 64)),  # type: ignore[arg-type]  # a digest
        "read-only": await describe_outcome(files.write("read-only", b"x")),
        "theirs": await describe_outcome(files.write("theirs", b"mine")),
        "closed": await describe_outcome(files.read("closed/file")),
        "through": await describe_outcome(files.read("through/file")),
        "list": await describe_outcome(files.entries("through")),
        "write-only": await describe_outcome(files.write("write-only/new", b"x")),
        "shut": await describe_outcome(files.write("shut/new", b"x")),
        "shut-folder": await describe_outcome(files.write("shut/new/deep", b"x")),
        "delete": await describe_outcome(files.delete("shut/file")),
        "out": await describe_outcome(files.read("out")),
        "walk": await collect_walk(files),
    }


if __name__ == "__main__":
    asyncio.run(
        collect_walk(DiskFiles(sys.argv[1]))
    )  # loads modules that Python imports late and that an unprivileged user may not be able to read
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(int(sys.argv[2]))
        os.setuid(int(sys.argv[2]))
    chosen: OpenerName = "walk" if sys.argv[3] == "walk" else "openat2"
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(main(sys.argv[1], chosen))))
