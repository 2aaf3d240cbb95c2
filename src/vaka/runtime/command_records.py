"""Where the records of commands are stored, and which commands need none."""

import os
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from vaka.config.settings import data_folder
from vaka.core.ports.store import Store
from vaka.files.command_changes import CommandRecorder
from vaka.policy.bash.judge import judge_script
from vaka.policy.bash.parse.reader import read_script
from vaka.stores.memory import MemoryStore

_UNUSED_SECONDS = 30 * 24 * 60 * 60
_GIT_SECONDS = 5


def records_folder(environ: Mapping[str, str] | None = None) -> Path:
    """Return the folder with the records of the folders that commands of this user have run in."""
    return data_folder(os.environ if environ is None else environ, Path.home()) / "snapshots"


def make_recorder(
    store: Store, folders: Sequence[str], skipped: Sequence[str], resources: AsyncExitStack, hidden: list[str]
) -> CommandRecorder:
    """Return the recorder of a runtime, and add its storage to ``hidden``.

    The storage is temporary if the log is: then ``resources`` removes it.
    """
    if isinstance(store, MemoryStore):
        storage = resources.enter_context(TemporaryDirectory(prefix="vaka-snapshots-", ignore_cleanup_errors=True))
    else:
        storage = os.path.realpath(records_folder())
    hidden.append(storage)
    return CommandRecorder(
        folders, storage, store.blobs, is_read_only=is_read_only, ignore_files=find_ignore_files, skipped=skipped
    )


def is_read_only(command: str) -> bool:
    """Return whether a command certainly changes no file of the workspace, by the profile of the permission rules."""
    return judge_script(read_script(command)).decision == "allow"


@cache
def find_ignore_files() -> tuple[str, ...]:
    """Return the files with the ignore rules of the user, for all repositories."""
    folder = os.environ.get("XDG_CONFIG_HOME") or f"{Path.home()}/.config"
    named = ""
    with suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(
            [shutil.which("git") or "git", "config", "--global", "--path", "--get", "core.excludesFile"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_GIT_SECONDS,
            cwd="/",
        )
        named = os.fsdecode(done.stdout).strip()
    return (named or f"{folder}/git/ignore",)


def remove_unused_records(folder: Path, *, dry_run: bool = False) -> int:
    """Remove the records of folders that are gone, or in which no command ran for 30 days; return their number."""
    count = 0
    for record in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            is_old = (record / "lock").stat().st_mtime < time.time() - _UNUSED_SECONDS
            recorded = (record / "folder").read_text("utf-8", "surrogateescape")
            if is_old or not Path(recorded).is_dir():
                if not dry_run:
                    shutil.rmtree(record)
                count += 1
    return count
