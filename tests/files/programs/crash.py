"""Write a file and be killed at a place of the write: ``crash.py ROOT PATH PLACE``, new content on stdin."""

import asyncio
import sys

from vaka.files.disk import Disk
from vaka.testing.files import arm


def main() -> None:
    root, path, place = sys.argv[1:]
    files = Disk(root)
    arm(place)
    asyncio.run(files.write(path, sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
