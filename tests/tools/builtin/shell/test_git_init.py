"""A repository can be begun in a sandboxed workspace; its settings and hooks stay out of a command's reach."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.tools.builtin.shell_harness import ShellHarness
from vaka.sandbox.linux import Landlock
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.sensitive_paths import protected_paths
from vaka.sandbox.unconfined import Unconfined
from vaka.tools.builtin.shell.supervisor import CommandScope

IDENTITY = "-c user.name=kim -c user.email=kim@example.org"


class ProtectedGitHarness(ShellHarness):
    """Commands in a sandbox, with what a workspace protects."""

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


async def test_a_repository_is_begun_and_the_first_commit_made(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    begun = await bench.bash("git init")
    assert begun.text == f"Initialized empty Git repository in {bench.root}/.git/ (branch main)\n[exit code 0]"
    done = await bench.bash(f"git add a.txt && git {IDENTITY} commit -qm first && git log --format=%s")
    assert done.text == "first\n[exit code 0]"
    assert run_git(bench.root, "log", "--format=%s") == "first\n"
    assert run_git(bench.root, "fsck") == ""
    assert run_git(bench.root, "branch", "--show-current") == "main\n"


async def test_what_follows_runs_after_it(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    done = await bench.bash(f"git init -q -b trunk && git add a.txt && git {IDENTITY} commit -qm first; git status -sb")
    assert done.text.startswith("## trunk\n")
    assert run_git(bench.root, "log", "--format=%s") == "first\n"


@pytest.mark.parametrize(
    "attack",
    [
        "git config core.fsmonitor ./evil", "echo '[core] pager = ./evil' >> .git/config",
        "echo evil > .git/hooks/pre-commit", "mv .git/hooks .git/was && mkdir .git/hooks", "rm -rf .git/config",
        "mv .git gone && mkdir .git", "echo '* filter=evil' > .git/info/attributes", "rm -rf .git",
    ],
)  # fmt: skip
async def test_settings_and_hooks_stay_as_they_are_from_the_same_command_on(
    bench: ProtectedGitHarness, attack: str
) -> None:
    done = await bench.bash(f"git init -q; {attack}")
    assert done.failed
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
async def test_anything_else_fails_and_says_why(bench: ProtectedGitHarness, command: str) -> None:
    (bench.root / "evil").mkdir()
    done = await bench.bash(command)
    if "--bare" in command:  # that makes no .git
        assert not (bench.root / ".git").exists()
        return
    assert done.failed
    assert "the settings and hooks of a repository are protected" in done.text
    assert not (bench.root / ".git").exists()


async def test_a_link_in_its_place_is_not_followed(
    bench: ProtectedGitHarness, tmp_path_factory: pytest.TempPathFactory
) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (bench.root / ".git").symlink_to(elsewhere)
    await bench.bash("git init")
    assert list(elsewhere.iterdir()) == []


async def test_a_repository_that_is_there_is_left_alone(bench: ProtectedGitHarness) -> None:
    run_git(bench.root, "init", "-q", "-b", "own")
    before = (bench.root / ".git/config").read_text()
    done = await bench.bash("git init")
    assert "Initialized empty" not in done.text
    assert ((bench.root / ".git/config").read_text(), run_git(bench.root, "branch", "--show-current")) == (
        before,
        "own\n",
    )


async def test_one_in_a_folder_below_is_gits_own(bench: ProtectedGitHarness) -> None:
    (bench.root / "sub").mkdir()
    done = await bench.bash("cd sub && git init -q && ls .git/HEAD")
    assert done.text.startswith(".git/HEAD\n")


async def test_without_a_sandbox_git_does_it(tmp_path: Path) -> None:
    bench = ProtectedGitHarness(tmp_path, Unconfined())
    await bench.bash("git init -q")
    assert (tmp_path / ".git/description").exists(), "git's own template has that"


async def test_while_another_command_holds_the_place(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    await bench.bash("sleep 1000", run_in_background=True)
    done = await bench.bash(f"git init -q && git add a.txt && git {IDENTITY} commit -qm first && echo done")
    assert done.text.startswith("done\n")
    await bench.shells.end_all()
    assert run_git(bench.root, "log", "--format=%s") == "first\n"


async def test_what_only_holds_a_place_is_not_committed(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    bench.write(".mcp.json", '{"mine": 1}')
    await bench.bash("sleep 1000", run_in_background=True)
    done = await bench.bash(f"git init -q && git add -A && git {IDENTITY} commit -qm first; git status --short")
    assert done.text == "[exit code 0]", "nothing is left to add"
    assert run_git(bench.root, "ls-files").split() == [".mcp.json", "a.txt"]
    await bench.shells.end_all()
    assert run_git(bench.root, "status", "--short") == ""
