"""``vaka doctor`` shows what this machine can enforce."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vaka.sandbox.select import detect_capabilities, select_sandbox


def run_doctor(folder: Path, before: str = "") -> dict[str, tuple[str, str]]:
    """Return the checks of ``vaka doctor`` by name, as state and detail."""
    script = f"{before}\nfrom vaka.cli.main import main\nmain()"
    words = ["doctor", "--json", "--store", "memory:"]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    return {check["name"]: (check["state"], check["detail"]) for check in json.loads(done.stdout)["checks"]}


def test_doctor_shows_what_is_enforced_and_by_what(tmp_path: Path) -> None:
    found, machine = run_doctor(tmp_path), detect_capabilities()
    assert found["sandbox"] == ("ok", f"bubblewrap, which enforces {', '.join(sorted(select_sandbox('on').enforces))}")
    assert found["bubblewrap"] == ("ok", machine.bubblewrap)
    assert found["landlock"] == ("ok", f"version {machine.landlock_abi}, with namespaces")
    assert found["limits"][1].startswith(
        f"control groups limit {', '.join(sorted(machine.cgroup_controllers)) or 'nothing'}"
    )


@pytest.mark.skipif(detect_capabilities().system != "linux", reason="the filter is for Linux")
def test_doctor_shows_what_cannot_be_enforced(tmp_path: Path) -> None:
    no_namespaces = (
        "from vaka.sandbox.warden import seccomp; from vaka.system import libc, syscalls; libc.prctl(38, 1)\n"
        "syscalls.install_seccomp_filter(seccomp.build_filter(syscalls.ARCHITECTURE, 'network'))"
    )
    found = run_doctor(tmp_path, no_namespaces)
    assert found["sandbox"][0] == "note"
    assert "landlock, which enforces" in found["sandbox"][1]
    assert "cannot be protected" in found["sandbox"][1]
    assert found["bubblewrap"][0] == "note"
    assert found["landlock"][1].endswith("without namespaces, which are switched off")


def test_on_another_system_doctor_shows_no_sandbox(tmp_path: Path) -> None:
    found = run_doctor(tmp_path, "import sys, urllib.request; sys.platform = 'darwin'")
    assert found["sandbox"][0] == "note"
    assert "none, which enforces nothing; commands run WITHOUT a sandbox" in found["sandbox"][1]
    assert "bubblewrap" not in found
