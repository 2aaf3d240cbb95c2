"""Repositories that commands make in a sandboxed workspace: git works, and nothing in them runs a program."""

import os
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
    init = await bench.bash("git init -b main")
    assert init.text == f"Initialized empty Git repository in {bench.root}/.git/\n[exit code 0]"
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
    ("attack", "removed"),
    [
        ("git config core.fsmonitor ./evil", ["config"]),
        ("echo '[core] pager = ./evil' >> .git/config", ["config"]),
        ("printf '[core]\n\tsshCommand = evil' > .git/config", ["config"]),
        ("printf '[include]\n\tpath = ../evil\n' > .git/config", ["config"]),
        ("ln -sf ../evil .git/config", ["config"]),
        ("cp evil .git/hooks/pre-commit", ["hooks/pre-commit"]),
        ("rm -rf .git/hooks; ln -s .. .git/hooks", ["hooks"]),
        ("rm -rf .git; echo gitdir: evil > .git", [""]),
        ("mv .git/hooks .git/was; mkdir .git/hooks; touch .git/hooks/post-checkout", ["hooks/post-checkout"]),
        ("echo '* filter=evil' > .git/info/attributes", ["info/attributes"]),
        ("echo x > .git/commondir", ["commondir"]),
        ("mv .git was; cp evil was/hooks/pre-push; mv was .git", ["hooks/pre-push"]),
    ],
)
async def test_settings_and_hooks_that_run_programs_are_removed_from_a_new_repository(
    bench: ProtectedGitHarness, attack: str, removed: list[str]
) -> None:
    bench.write("evil", "#!/bin/sh\ntouch ran\n")
    (bench.root / "evil").chmod(0o755)
    result = await bench.bash(f"git init -q -b main; {attack}")
    for name in removed:
        path = f"{bench.root}/.git/{name}".rstrip("/")
        assert f"{path} appeared while the command ran and was moved to" in result.text
        assert not os.path.lexists(path)
    subprocess.run(["git", "status"], cwd=bench.root, check=False, capture_output=True)
    assert not (bench.root / "ran").exists()


@pytest.mark.parametrize(
    "command",
    [
        "cd . && git init",
        "sh -c 'git init'",
        "mkdir -p .git/hooks && git init",
        "git init -b 'ab' --template=empty",
        "git clone -q source sub && git clone -q source/.git copy && mv copy/.git .",
        "git init && git remote add origin https://example.org/x.git && git config user.name kim",
        "git init && git add . && git commit -qm one && git checkout -qb two && git branch --set-upstream-to=main",
    ],
)
async def test_a_repository_can_be_made_by_every_program(bench: ProtectedGitHarness, command: str) -> None:
    (bench.root / "empty").mkdir()
    if "source" in command:
        run_git(bench.root, "init", "-q", "source")
    identity = "export GIT_AUTHOR_NAME=kim GIT_AUTHOR_EMAIL=k@x.org GIT_COMMITTER_NAME=kim GIT_COMMITTER_EMAIL=k@x.org"
    result = await bench.bash(f"{identity}; export HOME=$PWD; git config --global init.defaultBranch main; {command}")
    assert "appeared while the command ran" not in result.text
    assert (result.failed, run_git(bench.root, "rev-parse", "--git-dir")) == (False, ".git\n")


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


async def test_git_init_works_while_another_command_runs(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    await bench.bash("sleep 1000", run_in_background=True)
    result = await bench.bash(f"git init -q && git add a.txt && git {IDENTITY} commit -qm first && echo done")
    assert result.text.startswith("done\n")
    await bench.shells.end_all()
    assert run_git(bench.root, "log", "--format=%s") == "first\n"


async def test_only_files_of_the_workspace_are_committed(bench: ProtectedGitHarness) -> None:
    bench.write("a.txt", "hello")
    bench.write(".mcp.json", '{"mine": 1}')
    await bench.bash("sleep 1000", run_in_background=True)
    result = await bench.bash(f"git init -q && git add -A && git {IDENTITY} commit -qm first; git status --short")
    assert result.text == "[exit code 0]", "nothing is left to add"
    assert run_git(bench.root, "ls-files").split() == [".mcp.json", "a.txt"]
    await bench.shells.end_all()
    assert run_git(bench.root, "status", "--short") == ""
