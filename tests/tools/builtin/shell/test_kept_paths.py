"""Commands that cannot change an existing protected path: the model reads why, and what it can do."""

import subprocess
from pathlib import Path

import pytest

from tests.tools.builtin.shell.test_git_init import ProtectedGitHarness
from vaka.core.types.message import Text
from vaka.sandbox.select import select_sandbox
from vaka.sandbox.unconfined import Unconfined
from vaka.tools.builtin.shell.kept_paths import describe_kept

NOTE = "[the sandbox lets commands change no existing file that decides what other programs run or what is allowed ("


@pytest.fixture
def bench(tmp_path: Path) -> ProtectedGitHarness:
    """A repository with a workflow."""
    made = ProtectedGitHarness(tmp_path, select_sandbox("on"))
    made.write(".github/workflows/ci.yml", "on: push\n")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return made


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("git remote add origin https://example.org/x.git", ".git/config"),
        ("git config user.name kim; echo done", ".git/config"),
        ("echo x > .github/workflows/ci.yml", ".github/workflows/ci.yml"),
        ("rm -rf .github", ".github/workflows/ci.yml"),
        ("python3 -c \"open('.github/workflows/ci.yml', 'a')\"", ".github/workflows/ci.yml"),
    ],
)
async def test_the_result_names_the_path_and_the_ways_to_change_it(
    bench: ProtectedGitHarness, command: str, named: str
) -> None:
    result = await bench.bash(command)
    assert f"{NOTE}{named}); other effects of the command stay." in result.text
    assert "dangerouslyDisableSandbox; a person is asked for both]" in result.text


async def test_other_failures_and_commands_without_a_sandbox_have_no_such_note(
    bench: ProtectedGitHarness, tmp_path: Path
) -> None:
    for command in ("echo x > /usr/x", "cat .github/workflows/missing", "ls .github", "git status"):
        assert "the sandbox lets commands" not in (await bench.bash(command)).text
    free = ProtectedGitHarness(tmp_path, Unconfined())
    assert NOTE not in (await free.bash("echo '.git/config: Read-only file system'")).text


def test_many_paths_are_named_in_part() -> None:
    output = "".join(f"rm: cannot remove '.vscode/{number}': Read-only file system\n" for number in range(9))
    [note] = describe_kept([Text(text=output)])
    assert ".vscode/4 and others)" in note
    assert ".vscode/5" not in note
