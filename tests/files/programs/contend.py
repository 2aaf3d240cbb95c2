"""Add one to a number in a file, so often: ``contend.py ROOT PATH TIMES``; what others changed is read again."""

import asyncio
import hashlib
import sys

from vaka.core.types.errors import FileChanged
from vaka.core.types.ids import Digest
from vaka.files.disk import Disk


async def add(files: Disk, path: str) -> None:
    while True:
        data = (await files.read(path)).data
        try:
            await files.write(path, b"%d" % (int(data) + 1), known=Digest(hashlib.sha256(data).hexdigest()))
        except FileChanged:
            continue
        return


async def main(root: str, path: str, times: int) -> None:
    files = Disk(root)
    for _ in range(times):
        await add(files, path)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
