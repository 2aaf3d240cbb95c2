"""Record and restore files without permissions as an unprivileged user: ``restore_modes.py FOLDER UID``.

Prints as JSON the paths that are lost after the command and after a later one, and the files after the restore.
"""

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from vaka.core.types.ids import CallId, SessionId
from vaka.files.command_changes import CommandRecorder, parse_record
from vaka.files.snapshots import FileSnapshots
from vaka.files.workspace import WorkspaceFiles
from vaka.stores.memory import MemoryStore


def change_files(work: Path) -> None:
    """Change files as a command does that leaves files and folders without permissions."""
    (work / "sub/b.txt").unlink()
    (work / "sub").chmod(0o555)
    (work / "made").mkdir()
    (work / "made/new.txt").write_text("new")
    (work / "made").chmod(0o555)
    (work / "plain.txt").write_text("changed")
    (work / "plain.txt").chmod(0o444)
    for closed, mode in (("closed", 0o000), ("listed", 0o444)):
        (work / closed / "deep/c.txt").write_text("changed")
        (work / closed).chmod(mode)


def read_files(work: Path) -> dict[str, str]:
    for closed in ("closed", "listed"):
        (work / closed).chmod(0o755)
    return {str(path.relative_to(work)): path.read_text() for path in sorted(work.rglob("*")) if path.is_file()}


async def main(root: Path) -> dict[str, object]:
    work = root / "work"
    for name in ("sub/b.txt", "plain.txt", "closed/deep/c.txt", "listed/deep/c.txt"):
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text("old")
    (work / "link").symlink_to("closed")
    store = MemoryStore()
    recorder = CommandRecorder([str(work)], root / "records", store.blobs)
    begun = await recorder.begin_command(CallId("c"), "command")
    change_files(work)
    record = parse_record(await recorder.end_command(begun, SessionId("s")))
    later = parse_record(
        await recorder.end_command(await recorder.begin_command(CallId("d"), "command"), SessionId("s"))
    )
    found = await recorder.read_packs(record)
    snapshots = FileSnapshots(WorkspaceFiles(work), store.blobs)
    plan = await snapshots.plan_restore(found.changes)
    await snapshots.apply_steps(plan.steps, await snapshots.load_copies(plan.steps, found.contents))
    await snapshots.remove_empty_folders(record.folders)
    return {"lost": record.lost, "lost later": later.lost, "files": read_files(work)}


if __name__ == "__main__":
    folder, user = Path(sys.argv[1]), int(sys.argv[2])
    asyncio.run(main(folder / "first"))  # loads modules that an unprivileged user may not be able to read
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(user)
        os.setuid(user)
    sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(main(folder / "second"))))
