"""Write a file and be killed at a failpoint: ``crash_in_write.py ROOT PATH FAILPOINT``, new content on stdin."""

import asyncio
import sys

from vaka.files.disk import DiskFiles
from vaka.testing.files import kill_at_failpoint


def main() -> None:
    root, path, place = sys.argv[1:]
    files = DiskFiles(root)
    kill_at_failpoint(place)
    asyncio.run(files.write(path, sys.stdin.buffer.read()))


if __name__ == "__main__":
    main()
