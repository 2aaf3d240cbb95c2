"""A bare repository inside the workspace: git would run what its settings say."""

from pathlib import Path

import pytest

from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of


def decide_command(command: str, cwd: Path) -> str:
    return LayeredPolicy([], cwd=str(cwd), home="/home/kim").decide(spec_of("Bash"), {"command": command}).decision


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for folder in ("src", "bare/objects", "bare/refs", "bare/hooks", ".git/objects", ".git/refs"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "partly").mkdir()
    (tmp_path / "partly/commondir").write_text("../bare\n", encoding="utf-8")
    for file in ("bare/HEAD", "partly/HEAD", ".git/HEAD"):
        (tmp_path / file).write_text("ref: refs/heads/main\n", encoding="utf-8")
    (tmp_path / "link").symlink_to("bare")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "cd bare && git status",
        "cd bare/hooks; git diff",
        "git -C bare log",
        "git -C bare/hooks diff",
        "cd link && git log",
        "cd partly && git log",
        "git -C partly status",
    ],
)
def test_git_in_a_nested_bare_repository_is_asked_about(command: str, workspace: Path) -> None:
    assert decide_command(command, workspace) == "ask"


@pytest.mark.parametrize(
    "command",
    ["cd src && git status", "git -C src log", "git status", "ls bare", "cat bare/HEAD", "(cd src && git diff)"],
)
def test_git_outside_a_nested_repository_is_allowed(command: str, workspace: Path) -> None:
    assert decide_command(command, workspace) == "allow"
