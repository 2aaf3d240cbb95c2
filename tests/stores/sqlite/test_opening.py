"""Several processes open a database that is not there yet, all at the same moment."""

import subprocess
import sys
from pathlib import Path

OPEN = """
import asyncio, sys
from pathlib import Path
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore

async def main() -> None:
    store = SqliteStore(Path(sys.argv[1]))
    print("ready", flush=True)
    sys.stdin.readline()
    assert await store.sessions.find(SessionId("s")) is None
    await store.values.put(f"from {sys.argv[2]}", 1)
    await store.close()

asyncio.run(main())
"""


def test_whoever_comes_while_the_schema_is_made_waits_for_it(tmp_path: Path) -> None:
    for attempt in range(6):
        path = tmp_path / f"{attempt}.db"
        pipe = subprocess.PIPE
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", OPEN, str(path), str(number)], stdin=pipe, stdout=pipe, stderr=pipe, text=True
            )
            for number in range(5)
        ]
        for process in processes:
            assert process.stdout is not None
            process.stdout.readline()
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        ended = [(process.communicate(timeout=60)[1], process.returncode) for process in processes]
        assert ended == [("", 0)] * 5
