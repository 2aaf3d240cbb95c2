"""Workspaces on file systems of their own, with others below them, some of them read-only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount")

MOUNT_SCRIPT = """
set -e
mount --make-rprivate /
mount -t tmpfs vaka {at}/own && mkdir {at}/own/folder
mkdir {at}/own/below && mount -t tmpfs vaka {at}/own/below && mkdir {at}/own/below/.git
touch {at}/own/below/.git/config
mkdir {at}/own/fixed && mount -t tmpfs vaka {at}/own/fixed && echo fixed > {at}/own/fixed/file
mount -o remount,ro {at}/own/fixed
exec {python} -c "$1"
"""
RUN_PROGRAM = """
import asyncio
from vaka.sandbox.linux import {kind}
from vaka.sandbox.sensitive import protected_paths
from vaka.testing.sandboxes import run_to_end, shell_command
from pathlib import Path

async def main():
    folder = Path("{folder}")
    command = shell_command({script!r}, folder, protected=protected_paths(str(folder)))
    print((await run_to_end(await {kind}().start(command))).stdout, sorted(path.name for path in folder.iterdir()))

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["Bubblewrap", "Landlock"])
@pytest.mark.parametrize(
    ("workspace", "expected"),
    [
        ("own", "new\nbelow\nfixed\n ['below', 'fixed', 'folder', 'new']\n"),
        ("own/below", "new\n ['.git', 'new']\n"),
        ("own/fixed", " ['file']\n"),
    ],
)
def test_a_workspace_may_be_a_mount_and_have_mounts_in_it(
    kind: str, workspace: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    script = (
        "exec 2>/dev/null; echo new > new; cat new; echo below > below/new && cat below/new; cat fixed/file"
        "; echo x > fixed/new; mkdir .git/hooks .claude/x; mv .git was; true"
    )
    run = RUN_PROGRAM.format(kind=kind, folder=tmp_path / workspace, script=script)
    mounts = MOUNT_SCRIPT.format(at=tmp_path, python=sys.executable)
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", mounts, "bash", run], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == (expected, "")
