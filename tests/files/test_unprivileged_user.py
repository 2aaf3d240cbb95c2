"""Missing permissions are errors, and nothing is left half-done; root drops its privileges first."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.files.programs import attempts

USER = 54321


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that another user may enter."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        root.chmod(0o777)
        for folder in ("closed", "through", "write-only", "shut"):
            (root / folder).mkdir()
        for file in ("unreadable", "read-only", "theirs", "closed/file", "through/file", "shut/file"):
            (root / file).write_text("old")
        (root / "out").symlink_to("/etc/passwd")
        if os.geteuid() == 0:
            for found in root.rglob("*"):
                os.chown(found, USER, USER, follow_symlinks=False)
            os.chown(root / "theirs", 0, 0)
        modes = {"unreadable": 0o000, "read-only": 0o444, "theirs": 0o666, "closed": 0o000, "through": 0o111}
        for path, mode in {**modes, "write-only": 0o333, "shut": 0o555}.items():
            (root / path).chmod(mode)
        yield root
        for folder in ("closed", "through", "write-only", "shut"):
            (root / folder).chmod(0o777)


@pytest.mark.parametrize("way", ["openat2", "walk"])
def test_missing_permissions_are_reported(root: Path, way: str) -> None:
    command = [sys.executable, attempts.__file__, str(root), str(USER), way]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    reply = msgspec.json.decode(done.stdout)
    denied = "permission denied"
    assert reply == {
        "unreadable": f"FileError: 'unreadable': {denied}",
        "known": f"FileError: 'unreadable': {denied}",
        "read-only": f"FileError: 'read-only': {denied}",
        "theirs": "done",
        "closed": f"FileError: 'closed/file': {denied}",
        "through": "done",
        "list": f"FileError: 'through': {denied}",
        "write-only": "done",
        "shut": f"FileError: 'shut/new': {denied}",
        "shut-folder": f"FileError: 'shut/new/deep': {denied}",
        "delete": f"FileError: 'shut/file': {denied}",
        "out": "FileRefused: 'out' leads out of the root by a link to '/etc/passwd'",
        "walk": [
            "closed",
            "out",
            "read-only",
            "shut",
            "theirs",
            "through",
            "unreadable",
            "write-only",
            "shut/file",
            f"some folders could not be listed: 'closed': {denied}; 'through': {denied}; 'write-only': {denied}",
        ],
    }
    written = (root / "theirs").stat()
    assert ((root / "theirs").read_text(), written.st_mode & 0o7777) == ("mine", 0o666)
    assert written.st_uid == (USER if os.geteuid() == 0 else os.geteuid())
    for folder, names in (("shut", ["file"]), ("write-only", ["new"])):
        (root / folder).chmod(0o777)
        assert [path.name for path in (root / folder).iterdir()] == names
