"""Increment a number in a file: ``increment.py ROOT PATH TIMES``; reads again what other processes changed."""

import asyncio
import hashlib
import sys

from vaka.core.types.errors import FileChanged
from vaka.core.types.ids import Digest
from vaka.files.disk import DiskFiles


async def increment(files: DiskFiles, path: str) -> None:
    while True:
        data = (await files.read(path)).data
        try:
            await files.write(path, b"%d" % (int(data) + 1), known=Digest(hashlib.sha256(data).hexdigest()))
        except FileChanged:
            continue
        return


async def main(root: str, path: str, times: int) -> None:
    files = DiskFiles(root)
    for _ in range(times):
        await increment(files, path)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
