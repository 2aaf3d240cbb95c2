"""The part of the sandbox contract about protected paths that are links or are reached through links."""
# ruff: noqa: S101, ASYNC240  # a contract suite is made of asserts; commands are observed through files

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from vaka.core.ports.sandbox import Sandbox
from vaka.core.types.errors import SandboxError
from vaka.testing.sandboxes import PYTHON, CompletedCommand, SandboxContract, shell_command

_RENAME_EXCHANGE = "import ctypes; ctypes.CDLL(None).syscall({}, -100, b'evil', -100, b'.claude', 2)".format(
    {"x86_64": 316, "aarch64": 276}.get(os.uname().machine, -1)
)
_PROTECTED_PATHS = (
    ".claude",
    ".vscode",
    ".idea",
    ".mcp.json",
    ".devcontainer",
    "way/link/inner",
    ".git/config",
    ".git/hooks",
    ".envrc",
)


class ProtectedLinksContract(SandboxContract):
    """Neither a protected link nor its target can be changed; both can be read."""

    protects_inside_writable = True
    """Whether the sandbox supports protected and hidden paths inside writable folders."""
    protects_links = True
    """Whether these paths can be links."""

    @pytest.mark.parametrize(
        "attack",
        [
            "rm .claude",
            "mv .claude was",
            "ln -sfn evil .claude",
            "rm -rf .claude; cp -r evil .claude",
            "touch t; mv -fT t .claude",
            "mv -fT evil .claude",
            "ln -s evil t; mv -fT t .claude",
            "touch -h .claude",
            f"{PYTHON} -c {shlex.quote(_RENAME_EXCHANGE)}",
            "ln .claude hard; rm .claude; ln -s evil .claude",
            "ln -P .idea hard && rm -f .idea",
            "unlink .vscode; mkdir .vscode",
            "rm -rf .vscode .idea .git .mcp.json",
            "echo x > .claude/file",
            "echo x > .claude/new",
            "echo x > real/file",
            "echo x > real/new",
            "rm -rf real",
            "mv real was; cp -r evil real",
            "ln real/file hard && echo x > hard",
            "ln .claude/file h && echo x > h",
            "chmod 777 real/file; echo x > real/file",
            "mkdir gone",
            "ln -s evil gone",
            "echo x > .idea",
            "touch gone",
            "echo x > .mcp.json",
            "echo x > conf/mcp.json",
            "mv conf was; mkdir conf; echo x > conf/mcp.json",
            "ln -sf ../evil/file conf/mcp.json",
            "cp evil/file .devcontainer/file",
            "mv deep was; cp -r evil deep",
            "rm -rf deep/er; mkdir -p deep/er; echo x > deep/er/file",
            "mv way was; cp -r evil way",
            "rm way/link; ln -s ../evil way/link",
            "mkdir there/inner; echo x > there/inner/file",
            "mv there was",
            "rm .git; cp -r evil .git",
            "echo x > repo/hooks/new",
            "echo x >> repo/config",
            "mv repo was; mkdir repo",
            "rm one; ln -s evil one",
            "mv two was; mkdir two",
            "echo x > two",
            "rm -f one two; cp evil/file two",
        ],
    )
    async def test_a_protected_link_and_its_target_cannot_be_changed(
        self, sandbox: Sandbox, workspace: Path, attack: str
    ) -> None:
        """Also behind folders, links to links, dangling links and links out of the workspace."""
        self.skip_without_link_protection()
        outside = _make_links(workspace)
        before = _protected_state(workspace, outside)
        protected = tuple(f"{workspace}/{name}" for name in _PROTECTED_PATHS)
        ended = await self.run(sandbox, f"exec 2>&1; {attack}; echo; echo ran", workspace, protected=protected)
        assert ended.stdout.endswith("ran\n")
        assert _protected_state(workspace, outside) == before

    async def test_protected_links_can_be_read_through(self, sandbox: Sandbox, workspace: Path) -> None:
        """Other paths stay writable, and nothing is created."""
        self.skip_without_link_protection()
        _make_links(workspace)
        before = sorted(path.name for path in workspace.iterdir())
        protected = tuple(f"{workspace}/{name}" for name in _PROTECTED_PATHS)
        script = (
            "cat .claude/file .mcp.json .devcontainer/file .git/config && readlink .claude .idea && ls .claude/"
            " && echo x > free && echo x > conf/other && echo x > repo/HEAD && echo x > there/other && mkdir deep/other"
            " && ln -s real/file link && mv link moved && cat moved"
        )
        ended = await self.run(sandbox, script, workspace, protected=protected)
        assert ended == CompletedCommand(0, "as it was" * 4 + "real\ngone\nfile\nas it was", "")
        assert sorted(path.name for path in workspace.iterdir()) == sorted([*before, "free", "moved"])
        assert [path.name for path in (workspace / "there").iterdir()] == ["other"]

    async def test_the_target_of_a_link_outside_the_workspace_can_be_read(
        self, sandbox: Sandbox, workspace: Path
    ) -> None:
        self.skip_without_link_protection()
        (workspace / "os-release").symlink_to("/etc/os-release")
        protected = (f"{workspace}/os-release",)
        ended = await self.run(sandbox, "cat os-release; rm -f os-release 2>&1", workspace, protected=protected)
        assert ended.stdout.startswith(Path("/etc/os-release").read_text())
        assert os.readlink(workspace / "os-release") == "/etc/os-release"  # noqa: PTH115  # the unresolved text

    @pytest.mark.parametrize(
        ("target", "why"),
        [
            (".", "writable folder"),
            ("..", "writable folder"),
            ("/", "writable folder"),
            (".claude", "too many"),
            ("none/../evil", "not a folder"),
        ],
    )
    async def test_a_link_that_cannot_be_protected_is_refused(
        self, sandbox: Sandbox, workspace: Path, target: str, why: str
    ) -> None:
        """Links to the working folder, to themselves, and through a missing folder."""
        self.skip_without_inside_protection()
        (workspace / ".claude").symlink_to(target)
        with pytest.raises(SandboxError, match=why):
            await sandbox.start(shell_command("true", workspace, protected=(f"{workspace}/.claude",)))
        assert [path.name for path in workspace.iterdir()] == [".claude"]

    @pytest.mark.parametrize(
        "attack",
        [
            "echo x > repo/.git/hooks/pre-commit",
            "echo x >> repo/.git/config",
            "mv repo/.git was",
            "mv repo was",
            "echo gitdir: ../evil > tree/.git",
            "rm tree/.git; cp -r evil tree/.git",
            "echo x > $own/config.worktree",
            "echo ../evil > repo/.git/commondir",
            "echo ../../evil > $own/commondir",
            "mv $own was",
            "rm -rf $own",
            "rm $own/commondir; echo ../evil > $own/commondir",
        ],
    )
    async def test_the_git_settings_of_a_work_tree_cannot_be_changed(
        self, sandbox: Sandbox, workspace: Path, attack: str
    ) -> None:
        """Its repository is another folder, whose hooks and settings are protected."""
        self.skip_without_inside_protection()
        _make_work_tree(workspace)
        settings = [
            workspace / name for name in ("tree/.git", "repo/.git/config", "repo/.git/worktrees/tree/commondir")
        ]
        before = [path.read_bytes() for path in settings]
        hooks = sorted(path.name for path in (workspace / "repo/.git/hooks").iterdir())
        script = f"exec 2>&1; own=$PWD/repo/.git/worktrees/tree; {attack}"
        await self.run(sandbox, script, workspace, protected=_git_paths(workspace / "tree"))
        assert [path.read_bytes() for path in settings] == before
        assert sorted(path.name for path in (workspace / "repo/.git/hooks").iterdir()) == hooks
        missing = ("repo/.git/commondir", "repo/.git/worktrees/tree/config.worktree")
        assert [name for name in missing if (workspace / name).exists()] == []

    @pytest.mark.parametrize("folder", ["tree", "repo"])
    async def test_git_commits_in_a_protected_repository(self, sandbox: Sandbox, workspace: Path, folder: str) -> None:
        """In a repository and in its work tree."""
        self.skip_without_inside_protection()
        _make_work_tree(workspace)
        script = (
            f"cd {folder} && git status --short && echo x > new && git add new && git commit -qm new"
            " && git log --oneline | wc -l && git status --short && git rev-parse --show-toplevel"
        )
        ended = await self.run(sandbox, script, workspace, protected=_git_paths(workspace / folder))
        assert ended == CompletedCommand(0, f"2\n{workspace / folder}\n", "")

    async def test_a_commondir_file_cannot_redirect_a_repository(self, sandbox: Sandbox, workspace: Path) -> None:
        """That file makes git take its settings, and the programs they name, from another folder."""
        self.skip_without_inside_protection()
        _make_work_tree(workspace)
        script, protected = "echo ../../evil > .git/commondir", _git_paths(workspace / "repo")
        await self.run(sandbox, script, workspace / "repo", protected=protected)
        assert not (workspace / "repo/.git/commondir").exists()

    def skip_without_inside_protection(self) -> None:
        if not self.protects_inside_writable:
            pytest.skip("Landlock without namespaces cannot protect paths inside writable folders, and refuses them")

    def skip_without_link_protection(self) -> None:
        self.skip_without_inside_protection()
        if not self.protects_links:
            pytest.skip("kernels before Linux 5.12 cannot protect links by mounts; the sandbox refuses them")


def _make_links(workspace: Path) -> Path:
    """Create links of all kinds and their targets; return a folder outside the workspace."""
    outside = workspace.parent / "outside"
    for folder in (outside, *(workspace / name for name in ("real", "conf", "deep/er", "there", "evil", "repo/hooks"))):
        folder.mkdir(parents=True)
    for path in (outside / "file", *(workspace / name for name in ("real/file", "deep/er/file", "conf/mcp.json"))):
        path.write_text("as it was")
    (workspace / "repo/config").write_text("as it was")
    (workspace / "evil/file").write_text("evil")
    (workspace / "way").mkdir()
    links = {
        ".claude": "real",
        ".vscode": "../outside",
        ".idea": "gone",
        ".mcp.json": "conf/mcp.json",
        ".devcontainer": f"{workspace}/deep/./er",
        "way/link": "../there",
        ".git": "repo",
        ".envrc": "one",
        "one": "two",
    }
    for name, target in links.items():
        (workspace / name).symlink_to(target)
    return outside


def _protected_state(workspace: Path, outside: Path) -> list[object]:
    """Return everything that must not change: links with their times, and their targets."""
    links = [workspace / name for name in (".claude", ".vscode", ".idea", ".mcp.json", "way/link", ".git", "one")]
    folders = [outside, *(workspace / name for name in ("real", "deep/er", "repo/hooks"))]
    files = [workspace / name for name in ("real/file", "deep/er/file", "conf/mcp.json", "repo/config")]
    missing = [workspace / name for name in ("gone", "two", "there/inner")]
    return [
        [(os.readlink(path), path.lstat().st_mtime_ns) for path in links],  # noqa: PTH115  # the unresolved text
        [sorted(path.name for path in folder.iterdir()) for folder in folders],
        [path.read_text() for path in files],
        [os.path.lexists(path) for path in missing],
    ]


def _make_work_tree(workspace: Path) -> None:
    """Create a repository with a work tree beside it."""
    script = (
        "git init -q repo && cd repo && git config user.name kim && git config user.email kim@example.org"
        " && git config extensions.worktreeConfig false && git commit -q --allow-empty -m first"
        " && git worktree add -q ../tree && mkdir ../evil"
    )
    subprocess.run(["/bin/bash", "-c", script], cwd=workspace, check=True, capture_output=True)


def _git_paths(folder: Path) -> tuple[str, ...]:
    names = (".git/config", ".git/config.worktree", ".git/commondir", ".git/hooks", ".git/info/attributes")
    return tuple(f"{folder}/{name}" for name in names)
