"""Git, run by the owner of a repository, executes nothing that a command left there; git works inside the sandbox."""

import contextlib
import os
import subprocess
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from tests.sandbox.unprivileged import USER_ID, temporary_home
from vaka.core.ports.sandbox import Sandbox
from vaka.sandbox.linux import Bubblewrap, Landlock
from vaka.sandbox.sensitive import protected_paths
from vaka.testing.sandboxes import CompletedCommand, run_to_end, shell_command

SANDBOXES = [Bubblewrap, Landlock]
GIT_CONFIG = "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tfsmonitor = touch ran\\n"
GIT_CONFIG_WITH_WORK_TREE = f"{GIT_CONFIG}\\tworktree = .\\n"
ATTACKS = {
    "settings": f"printf '{GIT_CONFIG}' >> .git/config",
    "settings, from elsewhere": f"cp -r .git evil; printf '{GIT_CONFIG}' > evil/config; echo ../evil > .git/commondir",
    "settings of a work tree": (
        f"git config extensions.worktreeConfig true; printf '{GIT_CONFIG}' > .git/config.worktree"
    ),
    "another repository around it": (
        f"cp -r .git/HEAD .git/objects .git/refs .; printf '{GIT_CONFIG_WITH_WORK_TREE}' > config;"
        " rm -rf .git/HEAD .git/refs"
    ),
    "another repository around it, from elsewhere": (
        "mkdir evil; cp -r .git/HEAD .git/objects .git/refs evil; cp .git/HEAD .; rm .git/HEAD; echo evil > commondir"
        "; printf '[core]\\n\\trepositoryformatversion = 1\\n[extensions]\\n\\tworktreeConfig = true\\n' > evil/config"
        f"; printf '{GIT_CONFIG_WITH_WORK_TREE}' > config.worktree"
    ),
    "another repository in its place": f"mv .git was; cp -r was .git; printf '{GIT_CONFIG}' > .git/config",
    "a file in its place": (
        f"cp -r .git evil; printf '{GIT_CONFIG}' > evil/config; rm -rf .git; echo gitdir: evil > .git"
    ),
}
BARE_ATTACKS = {
    "settings": f"printf '{GIT_CONFIG_WITH_WORK_TREE}' >> config",
    "settings, from elsewhere": (
        f"mkdir evil; cp -r HEAD objects refs evil; printf '{GIT_CONFIG}' > evil/config; echo evil > commondir"
    ),
    "a hook": "printf '#!/bin/sh\\ntouch ran' > hooks/post-index-change; chmod +x hooks/post-index-change",
}


@pytest.mark.parametrize("attack", list(ATTACKS))
@pytest.mark.parametrize("kind", SANDBOXES)
async def test_git_executes_nothing_that_a_command_left(kind: type[Bubblewrap], attack: str, tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    await run_script(kind(), f"{ATTACKS[attack]}; true", tmp_path)
    run_git("status", at=tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("attack", list(ATTACKS))
@pytest.mark.parametrize("kind", SANDBOXES)
async def test_git_executes_nothing_while_the_command_runs(kind: type[Bubblewrap], attack: str, tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    async with run_and_keep_running(kind(), ATTACKS[attack], tmp_path):
        run_git("status", at=tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("there", [["refs"], ["refs", "objects"], ["HEAD", "refs"], ["HEAD", "objects"]])
async def test_git_executes_nothing_where_some_names_of_a_repository_exist(there: list[str], tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    for name in there:
        subprocess.run(["cp", "-r", f".git/{name}", "."], cwd=tmp_path, check=True)
    attack = ATTACKS["another repository around it"]
    async with run_and_keep_running(Bubblewrap(), attack, tmp_path):
        run_git("status", at=tmp_path)
    run_git("status", at=tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_folder_does_not_become_a_repository(kind: type[Bubblewrap], tmp_path: Path) -> None:
    (tmp_path / "below/it").mkdir(parents=True)
    async with run_and_keep_running(kind(), "true", tmp_path):
        for folder in ("", "below", "below/it"):
            assert run_git("rev-parse", "--git-dir", at=tmp_path / folder).startswith(b"fatal: not a git repository")


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_nothing_is_visible_that_is_not_there(kind: type[Bubblewrap], tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    (tmp_path / "file").touch()
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    async with run_and_keep_running(kind(), "true", tmp_path):
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before
    look = "find . -not -path './.git/*' | sort; ls -A .git | sort"
    ended = await run_script(kind(), look, tmp_path)
    assert ended.stdout.split() == [
        ".",
        "./.git",
        "./file",
        *sorted(path.name for path in (tmp_path / ".git").iterdir()),
    ]


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_protection_lasts_until_the_last_command_ends(kind: type[Bubblewrap], tmp_path: Path) -> None:
    attack = "echo evil > commondir; mkdir -p .vscode m; mv m .claude; true"
    async with run_and_keep_running(kind(), "true", tmp_path):
        for _ in range(2):
            await run_script(kind(), f"exec 2>/dev/null; {attack}", tmp_path)
            assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_folders_with_names_that_git_uses_can_be_made(kind: type[Bubblewrap], tmp_path: Path) -> None:
    assert (await run_script(kind(), "mkdir refs && mkdir objects && touch refs/x", tmp_path)).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["objects", "refs"]


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_folder_that_becomes_a_bare_repository_loses_its_head(kind: type[Bubblewrap], tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    process = await kind().start(
        shell_command(ATTACKS["another repository around it"], tmp_path, protected=protected_paths(str(tmp_path)))
    )
    await run_to_end(process)
    assert [path.path for path in process.removed] == [f"{tmp_path}/HEAD"]
    assert run_git("rev-parse", "--git-dir", at=tmp_path).startswith(b"fatal: not a git repository")


@pytest.mark.parametrize("attack", list(BARE_ATTACKS))
@pytest.mark.parametrize("kind", SANDBOXES)
async def test_git_executes_nothing_in_a_bare_repository(kind: type[Bubblewrap], attack: str, tmp_path: Path) -> None:
    run_git("init", "-q", "--bare", ".", at=tmp_path)
    await run_script(kind(), f"{BARE_ATTACKS[attack]}; true", tmp_path)
    use_bare_repository(tmp_path)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("attack", list(ATTACKS))
def test_without_a_sandbox_these_attacks_work(attack: str, tmp_path: Path) -> None:
    run_git("init", "-q", ".", at=tmp_path)
    subprocess.run(["bash", "-c", ATTACKS[attack]], cwd=tmp_path, check=False, capture_output=True)
    run_git("status", at=tmp_path)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("attack", list(BARE_ATTACKS))
def test_without_a_sandbox_attacks_on_bare_repositories_work(attack: str, tmp_path: Path) -> None:
    run_git("init", "-q", "--bare", ".", at=tmp_path)
    subprocess.run(["bash", "-c", BARE_ATTACKS[attack]], cwd=tmp_path, check=False, capture_output=True)
    use_bare_repository(tmp_path)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_usual_git_commands_work(kind: type[Bubblewrap], tmp_path: Path) -> None:
    run_git("init", "-q", "-b", "main", ".", at=tmp_path)
    script = (
        "export GIT_AUTHOR_NAME=kim GIT_AUTHOR_EMAIL=k@example.org"
        " && export GIT_COMMITTER_NAME=kim GIT_COMMITTER_EMAIL=k@example.org"
        " && echo one > file && git add . && git commit -qm one && git checkout -qb other && echo two > file"
        " && git commit -qam two && git log --oneline HEAD | wc -l && git diff main HEAD --stat | wc -l"
        " && git checkout -q main && git merge -q other && git tag v1 && git status --short && cat file"
    )
    assert await run_script(kind(), script, tmp_path) == CompletedCommand(0, "2\n2\ntwo\n", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".git", "file"]
    assert not (tmp_path / ".git/commondir").exists()


async def run_script(sandbox: Sandbox, script: str, workspace: Path) -> CompletedCommand:
    return await run_to_end(
        await sandbox.start(shell_command(script, workspace, protected=protected_paths(str(workspace))))
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a folder of another user")
@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_folder_of_another_user_in_the_workspace_is_left_alone(kind: type[Bubblewrap]) -> None:
    with temporary_home() as folder:
        (folder / ".git").mkdir(mode=0o755)  # a folder of root in the home of another user
        ended = await run_script(kind(), "echo x > free && cat free && id -u; mkdir .git/hooks", folder)
        assert ended.stdout == f"x\n{USER_ID}\n"
        assert "mkdir" in ended.stderr
        assert sorted(path.relative_to(folder) for path in folder.rglob("*")) == [Path(".git"), Path("free")]


@pytest.mark.parametrize("kind", SANDBOXES)
async def test_a_read_only_folder_that_its_owner_makes_writable_stays_protected(kind: type[Bubblewrap]) -> None:
    with temporary_home() as folder:
        (folder / ".git").mkdir(mode=0o555)
        os.chown(folder / ".git", folder.stat().st_uid, -1)
        script = "chmod 755 .git; mkdir .git/hooks; echo x > .git/hooks/pre-commit; echo x > .git/config"
        await run_script(kind(), script, folder)
        assert [path.relative_to(folder) for path in folder.rglob("*")] == [Path(".git"), Path(".git/hooks")]


@contextlib.asynccontextmanager
async def run_and_keep_running(sandbox: Sandbox, script: str, workspace: Path) -> AsyncGenerator[None]:
    """Run a script in a command that is still running, and wait until what it left has been looked at."""
    wait = "mkdir .claude && while [ -e .claude ]; do sleep 0.01; done"  # what appeared before it was moved before it
    command = shell_command(
        f"({script}); {wait}; echo done; exec sleep 600", workspace, protected=protected_paths(str(workspace))
    )
    process = await sandbox.start(command)
    try:
        async with contextlib.aclosing(process.output()) as output:
            async for stream, data in output:
                if stream == "stdout" and b"done\n" in data:
                    break
        yield
    finally:
        await process.stop()


def run_git(*words: str, at: Path) -> bytes:
    """Use the repository as its owner; return what git prints to stderr."""
    return subprocess.run(["git", *words], cwd=at, check=False, capture_output=True).stderr


def use_bare_repository(folder: Path) -> None:
    """Use a bare repository."""
    run_git("status", at=folder)
    run_git("--work-tree=.", "add", "HEAD", at=folder)
