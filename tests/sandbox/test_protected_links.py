"""Protected links where root runs commands as the owner of the workspace, and between commands that run at once."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import SandboxError
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.sensitive import protected_paths
from vaka.sandbox.warden import processes
from vaka.sandbox.warden_client import WARDEN
from vaka.testing.sandboxes import CompletedCommand, run_to_end, shell_command, wait_for_file

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can switch users")
SANDBOXES = [Bubblewrap, Landlock]


@pytest.fixture
def owned_workspace() -> Iterator[Path]:
    """A workspace with a link, owned by another user than root."""
    with tempfile.TemporaryDirectory(prefix="vaka-test-") as folder:
        (Path(folder) / "real").mkdir()
        (Path(folder) / "real/file").write_text("as it was")
        (Path(folder) / ".claude").symlink_to("real")
        for path in (folder, f"{folder}/real", f"{folder}/real/file", f"{folder}/.claude"):
            os.chown(path, 65534, 65534, follow_symlinks=False)
        Path(folder).chmod(0o755)
        yield Path(folder)


@needs_root
@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_protected_link_cannot_be_changed_as_another_user(
    kind: type[Bubblewrap], owned_workspace: Path
) -> None:
    sandbox: Sandbox = kind()
    script = (
        "id -u; cat .claude/file; rm .claude; ln -sfn x .claude; echo x > real/file; mv real was; rm -rf real; ls -A"
    )
    ended = await run_to_end(
        await sandbox.start(
            shell_command(f"{script} 2>/dev/null", owned_workspace, protected=(f"{owned_workspace}/.claude",))
        )
    )
    assert (ended.stdout, (owned_workspace / ".claude").readlink()) == ("65534\nas it was.claude\nreal\n", Path("real"))
    assert (owned_workspace / "real/file").read_text() == "as it was"


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_two_commands_can_hold_the_same_link_at_once(kind: type[Bubblewrap], tmp_path: Path) -> None:
    sandbox: Sandbox = kind()
    (tmp_path / ".claude").symlink_to("gone")
    held = protected_paths(str(tmp_path))
    script = (
        "touch up; until [ -e go ]; do sleep 0.01; done; rm .claude; ln -sfn x .claude; echo x > .claude; mkdir gone"
    )
    first = await sandbox.start(shell_command(script, tmp_path, protected=held))
    await wait_for_file(tmp_path / "up")
    assert await run_to_end(
        await sandbox.start(shell_command("readlink .claude", tmp_path, protected=held))
    ) == CompletedCommand(0, "gone\n", "")
    (tmp_path / "go").touch()
    await run_to_end(first)
    assert (sorted(path.name for path in tmp_path.iterdir()), (tmp_path / ".claude").is_symlink()) == (
        [".claude", "go", "up"],
        True,
    )


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_refused_command_leaves_no_processes(kind: type[Bubblewrap], tmp_path: Path) -> None:
    sandbox: Sandbox = kind()
    WARDEN.close()
    (tmp_path / ".claude").symlink_to(".")
    for _ in range(10):
        with pytest.raises(SandboxError, match="writable folder"):
            await sandbox.start(shell_command("true", tmp_path, protected=(f"{tmp_path}/.claude",)))
        assert WARDEN.pid is not None
        assert [pid for pid in processes.list_descendants(WARDEN.pid) if processes.parent_of(pid) != WARDEN.pid] == []


async def test_another_name_of_a_protected_file_cannot_be_changed(tmp_path: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    (tmp_path / ".git/hooks/pre-commit").write_text("as it was")
    (tmp_path / "sub").mkdir()
    os.link(tmp_path / ".git/hooks/pre-commit", tmp_path / "sub/other")
    (tmp_path / "plain").write_text("")
    os.link(tmp_path / "plain", tmp_path / "linked")
    held = protected_paths(str(tmp_path))
    script = (
        "echo evil > sub/other; mv sub x; rm -f sub/other; ln .git/hooks/pre-commit new; echo x > new; echo x > linked"
    )
    await run_to_end(await Bubblewrap().start(shell_command(script, tmp_path, protected=held)))
    assert (tmp_path / ".git/hooks/pre-commit").read_text() == (tmp_path / "sub/other").read_text() == "as it was"
    assert (tmp_path / "plain").read_text() == "x\n"
