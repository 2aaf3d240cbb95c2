"""``git init`` in a sandboxed workspace: the repository is created, its settings and hooks stay protected."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.shell_harness import ShellHarness
from vaka.sandbox.linux import Landlock
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.sensitive import protected_paths
from vaka.sandbox.unconfined import Unconfined
from vaka.tools.builtin.shell.supervisor import CommandScope

IDENTITY = "-c user.name=kim -c user.email=kim@example.org"


class ProtectedGitHarness(ShellHarness):
    """Commands in a sandbox with the protected paths of a workspace."""

    def __init__(self, root: Path, sandbox: Any) -> None:
        super().__init__(root, sandbox=sandbox)
        self.shells.scope = CommandScope(protected=protected_paths(str(root)))


@pytest.fixture(params=["best", "landlock"])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> ProtectedGitHarness:
    return ProtectedGitHarness(tmp_path, select_sandbox("on") if request.param == "best" else Landlock())


def run_git(folder: Path, *words: str) -> str:
    program = shutil.which("git")
    assert program is not None
    return subprocess.run([program, "-C", str(folder), *words], capture_output=True, text=True, check=True).stdout


async def test_git_init_makes_a_repository_that_takes_commits(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    init = await bench.bash("git init")
    assert init.text == f"Initialized empty Git repository in {bench.root}/.git/ (branch main)\n[exit code 0]"
    result = await bench.bash(f"git add a.txt && git {IDENTITY} commit -qm first && git log --format=%s")
    assert result.text == "first\n[exit code 0]"
    assert run_git(bench.root, "log", "--format=%s") == "first\n"
    assert run_git(bench.root, "fsck") == ""
    assert run_git(bench.root, "branch", "--show-current") == "main\n"


async def test_commands_after_git_init_run(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    result = await bench.bash(
        f"git init -q -b trunk && git add a.txt && git {IDENTITY} commit -qm first; git status -sb"
    )
    assert result.text.startswith("## trunk\n")
    assert run_git(bench.root, "log", "--format=%s") == "first\n"


@pytest.mark.parametrize(
    "attack",
    [
        "git config core.fsmonitor ./evil", "echo '[core] pager = ./evil' >> .git/config",
        "echo evil > .git/hooks/pre-commit", "mv .git/hooks .git/was && mkdir .git/hooks", "rm -rf .git/config",
        "mv .git gone && mkdir .git", "echo '* filter=evil' > .git/info/attributes", "rm -rf .git",
    ],
)  # fmt: skip
async def test_settings_and_hooks_are_protected_from_the_same_command_on(
    bench: ProtectedGitHarness, attack: str
) -> None:
    result = await bench.bash(f"git init -q; {attack}")
    assert result.failed
    text = (bench.root / ".git/config").read_text()
    assert text.splitlines()[0] == "[core]"
    assert "evil" not in text
    assert list((bench.root / ".git/hooks").iterdir()) == []
    assert not (bench.root / ".git/info/attributes").exists()


@pytest.mark.parametrize(
    "command",
    [
        "git init --template=evil", "git init --separate-git-dir=x", "git init --bare .", "cd . && git init",
        "mkdir -p .git/hooks && git init", "git clone /nowhere .", "git init -b 'a b'",
    ],
)  # fmt: skip
async def test_other_git_init_commands_fail_with_advice(bench: ProtectedGitHarness, command: str) -> None:
    (bench.root / "evil").mkdir()
    result = await bench.bash(command)
    if "--bare" in command:  # creates no .git
        assert not (bench.root / ".git").exists()
        return
    assert result.failed
    assert "the settings and hooks of a repository are protected" in result.text
    assert not (bench.root / ".git").exists()


async def test_a_link_named_git_is_not_followed(
    bench: ProtectedGitHarness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (bench.root / ".git").symlink_to(elsewhere)
    await bench.bash("git init")
    assert list(elsewhere.iterdir()) == []


async def test_an_existing_repository_is_not_touched(bench: ProtectedGitHarness) -> None:
    run_git(bench.root, "init", "-q", "-b", "own")
    before = (bench.root / ".git/config").read_text()
    result = await bench.bash("git init")
    assert "Initialized empty" not in result.text
    assert ((bench.root / ".git/config").read_text(), run_git(bench.root, "branch", "--show-current")) == (
        before,
        "own\n",
    )


async def test_a_repository_in_a_subfolder_is_made_by_git(bench: ProtectedGitHarness) -> None:
    (bench.root / "sub").mkdir()
    result = await bench.bash("cd sub && git init -q && ls .git/HEAD")
    assert result.text.startswith(".git/HEAD\n")


async def test_without_a_sandbox_git_makes_the_repository(tmp_path: Path) -> None:
    bench = ProtectedGitHarness(tmp_path, Unconfined())
    await bench.bash("git init -q")
    assert (tmp_path / ".git/description").exists(), "git's own template has that"


async def test_git_init_works_while_another_command_holds_a_placeholder(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    await bench.bash("sleep 1000", run_in_background=True)
    result = await bench.bash(f"git init -q && git add a.txt && git {IDENTITY} commit -qm first && echo done")
    assert result.text.startswith("done\n")
    await bench.shells.end_all()
    assert run_git(bench.root, "log", "--format=%s") == "first\n"


async def test_placeholders_are_not_committed(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    bench.write(".mcp.json", '{"mine": 1}')
    await bench.bash("sleep 1000", run_in_background=True)
    result = await bench.bash(f"git init -q && git add -A && git {IDENTITY} commit -qm first; git status --short")
    assert result.text == "[exit code 0]", "nothing is left to add"
    assert run_git(bench.root, "ls-files").split() == [".mcp.json", "a.txt"]
    await bench.shells.end_all()
    assert run_git(bench.root, "status", "--short") == ""
