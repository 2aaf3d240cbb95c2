"""The script that installs Debian packages prints what a newcomer must know, and nothing else."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "system.sh"
APT_GET = """\
#!/bin/sh
[ "$1" = update ] && exit 0
echo "debconf: delaying package configuration" >&2
exit "$APT_RESULT"
"""
SUDO = """\
#!/bin/sh
shift
exec "$@"
"""


@pytest.mark.parametrize(
    ("result", "printed"),
    [("0", ""), ("1", "apt-get could not install ripgrep: debconf: delaying package configuration\n")],
)
def test_notes_of_apt_get_are_printed_only_when_it_fails(tmp_path: Path, result: str, printed: str) -> None:
    for name, text in (("apt-get", APT_GET), ("sudo", SUDO)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    for name in ("bash", "dirname", "sh", "true"):
        (tmp_path / name).symlink_to(os.path.realpath(shutil.which(name) or name))
    done = subprocess.run(
        ["bash", SCRIPT, "ripgrep"],
        env={"PATH": str(tmp_path), "APT_RESULT": result},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "installing ripgrep\n", printed)
