"""Sessions that an earlier vaka has recorded continue with the flags of their logs."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.cli.shell import Shell, call_line, say_line
from vaka.core.types.decode import decode
from vaka.core.types.ids import SessionId
from vaka.stores.sqlite import SqliteStore

RECORDED = Path(__file__).with_name("recorded_run.jsonl")
"""The first event of ``vaka run`` in ``/recorded/folder`` with many flags, written before options had groups."""


def write_recorded_session(shell: Shell) -> dict[str, Any]:
    """Store the recorded session for the folder of the shell, and return the flags that its log has."""
    document = json.loads(RECORDED.read_text(encoding="utf-8").replace("/recorded/folder", str(shell.folder)))
    for key in ("device", "inode", "host"):  # of a folder of another machine
        document["data"]["workspace"].pop(key)
    opened = decode(json.dumps(document).encode())

    async def append() -> None:
        shell.write_file("data/vaka/.keep", "")
        store = SqliteStore(shell.folder / "data/vaka/vaka.db")
        term = await store.events.claim(SessionId("s"))
        await store.events.append(SessionId("s"), [opened], head=0, term=term, release=True)
        await store.close()

    asyncio.run(append())
    flags: dict[str, Any] = document["data"]["run"]["flags"]
    return flags


def test_a_recorded_session_continues_with_the_same_permissions(shell: Shell) -> None:
    (shell.folder / "extra").mkdir()
    flags = write_recorded_session(shell)
    calls = [
        call_line("Bash", command="touch made"),
        call_line("Bash", command="git push"),
        call_line("Write", file_path=str(shell.folder / "notes"), content="kept"),
    ]
    shell.write_script(*calls, say_line("Done."), name="m.jsonl")
    done = shell.vaka("run", "Again.", "--session", "s")
    assert (done.code, done.out) == (0, "Done.\n"), done.err
    assert "the rule Bash(touch made) denies it" in done.err
    assert "--permission-mode acceptEdits" in done.err
    assert "--env HOME" in done.err, "the flag of a setting with another name"
    assert (shell.folder / "notes").read_text() == "kept", "the mode acceptEdits is in force"
    assert not (shell.folder / "made").exists()
    assert "Bash git push" in done.err
    assert "no person can be asked" in done.err, "the rule of --confirm and the mode of --ask are in force"
    runs = [event["data"]["run"] for event in shell.events("s") if event["data"].get("run")]
    assert all(run["flags"] == flags for run in runs)
