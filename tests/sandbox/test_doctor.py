"""``vaka doctor`` shows what this machine can enforce."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from vaka.sandbox.abilities import abilities
from vaka.sandbox.choose import choose


def doctor(folder: Path, before: str = "") -> dict[str, tuple[str, str]]:
    """Return what it says of each thing, as state and detail."""
    script = f"{before}\nfrom vaka.cli.main import main\nmain()"
    words = ["doctor", "--json", "--store", "memory:"]
    env = {"HOME": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", script, *words], env=env, cwd=folder, capture_output=True, text=True, check=False
    )
    return {check["name"]: (check["state"], check["detail"]) for check in json.loads(done.stdout)["checks"]}


def test_it_says_what_is_enforced_and_with_what(tmp_path: Path) -> None:
    found, here = doctor(tmp_path), abilities()
    assert found["sandbox"] == ("ok", f"bubblewrap, which enforces {', '.join(sorted(choose('on').enforces))}")
    assert found["bubblewrap"] == ("ok", here.bubblewrap)
    assert found["landlock"] == ("ok", f"version {here.landlock}, with namespaces")
    assert found["limits"][1].startswith(f"control groups bound {', '.join(sorted(here.groups)) or 'nothing'}")


@pytest.mark.skipif(abilities().system != "linux", reason="the filter is for Linux")
def test_it_says_what_cannot_be_enforced(tmp_path: Path) -> None:
    no_namespaces = (
        "from vaka.sandbox.warden import kernel, seccomp; kernel.prctl(38, 1)\n"
        "kernel.seccomp(seccomp.build(kernel.ARCHITECTURE, 'network'))"
    )
    found = doctor(tmp_path, no_namespaces)
    assert found["sandbox"][0] == "note"
    assert "landlock, which enforces" in found["sandbox"][1]
    assert "cannot be held" in found["sandbox"][1]
    assert found["bubblewrap"][0] == "note"
    assert found["landlock"][1].endswith("without namespaces, which are switched off")


def test_on_another_system_it_says_that_there_is_none(tmp_path: Path) -> None:
    found = doctor(tmp_path, "import sys; sys.platform = 'darwin'")
    assert found["sandbox"][0] == "note"
    assert "none, which enforces nothing; commands run WITHOUT a sandbox" in found["sandbox"][1]
    assert "bubblewrap" not in found
