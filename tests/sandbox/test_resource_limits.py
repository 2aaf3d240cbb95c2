"""Limits on processes and memory, each alone, for root and for the user that root switches to."""

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import ResourceLimits, Sandbox
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.select import detect_capabilities
from vaka.sandbox.unconfined import Unconfined
from vaka.sandbox.warden import resource_limits
from vaka.testing.sandboxes import CompletedCommand, run_to_end, shell_command

FORK_PROGRAM = (
    "import os\nmade = 0\nfor _ in range(120):\n try: pid = os.fork()\n except OSError: break\n"
    " if pid == 0:\n  os.read(0, 1); os._exit(0)\n made += 1\nprint(made, flush=True)\nos.kill(0, 9)"
)
FORK_SCRIPT = f"sleep 600 | /usr/bin/python3 -c '{FORK_PROGRAM}'"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")


@pytest.fixture
def owned_workspace() -> Iterator[Path]:
    """A workspace owned by another user than root."""
    with tempfile.TemporaryDirectory(prefix="vaka-test-") as folder:
        os.chown(folder, 65534, 65534)
        Path(folder).chmod(0o755)
        yield Path(folder)


async def run_script(sandbox: Sandbox, script: str, workspace: Path, **bounds: int) -> CompletedCommand:
    return await run_to_end(await sandbox.start(shell_command(script, workspace, bounds=ResourceLimits(**bounds))))


@needs_root
@pytest.mark.skipif(
    "pids" not in detect_capabilities().cgroup_controllers, reason="no control group for processes can be made here"
)
@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_processes_of_root_are_limited_by_a_control_group(kind: type[Bubblewrap], tmp_path: Path) -> None:
    ended = await run_script(kind(), FORK_SCRIPT, tmp_path, processes=30)
    assert "processes" in kind().enforces
    assert 0 < int(ended.stdout) < 31


@needs_root
@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_processes_of_root_are_limited_as_another_user(kind: type[Bubblewrap], owned_workspace: Path) -> None:
    sandbox = kind(cgroups=False, user=(65534, 65534))
    assert "processes" in sandbox.enforces
    ended = await run_script(sandbox, FORK_SCRIPT, owned_workspace, processes=30)
    assert 0 < int(ended.stdout) < 31


@needs_root
@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_processes_of_root_are_otherwise_limited_by_the_supervisor(
    kind: type[Bubblewrap], tmp_path: Path
) -> None:
    sandbox = kind(cgroups=False)
    assert "processes" not in sandbox.enforces
    many = "for n in $(seq 100); do sleep 600 & done; wait"
    ended = await run_script(sandbox, many, tmp_path, processes=30)
    assert (ended.code, "more than 30 processes" in ended.stderr) == (-signal.SIGKILL, True)


@needs_root
@pytest.mark.parametrize("kind", [Bubblewrap, Landlock])
async def test_commands_of_root_run_as_the_owner_of_the_workspace(
    kind: type[Bubblewrap], owned_workspace: Path
) -> None:
    ended = await run_script(kind(), "id -u; id -G; touch made; echo x > made; cat made", owned_workspace)
    assert ended == CompletedCommand(0, "65534\n65534\nx\n", "")
    assert (owned_workspace / "made").stat().st_uid == 65534


async def test_without_limits_nothing_is_limited(tmp_path: Path) -> None:
    free = ResourceLimits(memory_bytes=None, processes=None, file_bytes=None, open_files=None)
    for sandbox in (Bubblewrap(), Landlock(), Unconfined()):
        process = await sandbox.start(
            shell_command("head -c 3000000 /dev/zero > big; echo done", tmp_path, bounds=free)
        )
        assert (await run_to_end(process)).stdout == "done\n"


async def test_a_limit_above_the_hard_limit_is_accepted(tmp_path: Path) -> None:
    ended = await run_script(Unconfined(), "ulimit -n", tmp_path, open_files=10**9)
    assert ended.code == 0


# ------------------------------------------------------------------------------------------------------- control groups


def write_cgroup_files(folder: Path, controllers: str, place: str = "user/app") -> tuple[Path, Path]:
    """Write the files of a system whose own group is ``place``, with controllers delegated to its parent."""
    group = folder / "fs" / place
    group.mkdir(parents=True)
    for path in (group, *group.parents):
        if not path.is_relative_to(folder / "fs"):
            break
        (path / "cgroup.procs").touch()
        (path / "cgroup.subtree_control").write_text("" if path == group else controllers)
    mounts, own = folder / "mounts", folder / "own"
    mounts.write_text(f"cgroup2 {folder}/fs cgroup2 rw,nosuid 0 0\nproc /proc proc rw 0 0\n")
    own.write_text(f"0::/{place}\n")
    return mounts, own


def test_version_2_groups_are_made_beside_the_own_group(tmp_path: Path) -> None:
    found = resource_limits.find_cgroup_bases(*write_cgroup_files(tmp_path, "cpu memory pids"))
    assert found == (resource_limits.CgroupBase(tmp_path / "fs/user", frozenset({"memory", "pids"})),)
    assert resource_limits.controllers_of(found) == {"memory", "pids"}


@pytest.mark.parametrize("controllers", ["", "cpu", "hugetlb io"])
def test_groups_without_controllers_are_not_used(tmp_path: Path, controllers: str) -> None:
    assert resource_limits.find_cgroup_bases(*write_cgroup_files(tmp_path, controllers)) == ()


def test_limits_of_a_group_are_set_and_lifted(tmp_path: Path) -> None:
    found = resource_limits.find_cgroup_bases(*write_cgroup_files(tmp_path, "memory pids"))
    groups = resource_limits.Cgroups(found, "12")
    made = tmp_path / "fs/user/vaka-12"
    (made / "memory.swap.max").touch()
    assert (made / "cgroup.procs").read_text() == str(os.getpid())
    assert groups.set_limits(pids=7, memory=None) == {"pids"}
    assert groups.set_limits(pids=7, memory=9) == {"pids", "memory"}
    texts = {name: (made / name).read_text() for name in ("pids.max", "memory.max", "memory.swap.max")}
    assert texts == {"pids.max": "7", "memory.max": "9", "memory.swap.max": "0"}


def test_a_group_that_cannot_be_made_limits_nothing(tmp_path: Path) -> None:
    (tmp_path / "vaka-12").mkdir()
    base = resource_limits.CgroupBase(tmp_path, frozenset({"pids"}))
    assert resource_limits.Cgroups((base,), "12").set_limits(pids=7, memory=9) == frozenset()


def test_stale_groups_are_removed(tmp_path: Path) -> None:
    for name in ("vaka-1", "vaka-999999999", "vaka-other", "mine-999999999"):
        (tmp_path / name).mkdir()
    resource_limits.remove_stale_cgroups((resource_limits.CgroupBase(tmp_path, frozenset({"pids"})),))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine-999999999", "vaka-1", "vaka-other"]


@needs_root
@pytest.mark.skipif(
    "memory" not in detect_capabilities().cgroup_controllers, reason="the memory controller is not handed down here"
)
async def test_memory_is_limited_by_a_control_group(tmp_path: Path) -> None:
    hog = "/usr/bin/python3 -c 'import mmap; m = mmap.mmap(-1, 300 << 20); m.write(bytes(300 << 20))'"
    ended = await run_script(Bubblewrap(), hog, tmp_path, memory_bytes=100 << 20)
    assert ended.code != 0
