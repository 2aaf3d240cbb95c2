"""Git, package managers, build tools, tests and a file watcher work with commands in the sandbox as without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.journeys.answers import call, say
from tests.journeys.installed import Home
from tests.journeys.project import Project
from tests.journeys.provider import MODELS, Provider

RUST_FOLDER = os.environ.get("RUSTUP_HOME", str(Path("~/.rustup").expanduser()))
COMMANDS = {
    "stash": 'git stash -u && test -z "$(git status --porcelain)" && git stash pop --index',
    "clean": (
        "mkdir -p build/deep && touch build/deep/x junk && git clean -fdx -e draft.txt && test ! -e junk -a ! -e build"
    ),
    "branch": "git checkout -q -b side && git checkout -q main && git branch -d side && git status --porcelain",
    "commit": (
        "git worktree add -q -b side tree && cd tree && echo x > new && git add new && git commit -qm new"
        " && git log --oneline side | wc -l && cd .. && git worktree remove tree && git branch -D side"
    ),
    "clone": "git clone -q . copy && cd copy && git log --oneline && cd .. && rm -rf copy",
    "submodule": "git init -q sub && cd sub && git commit -q --allow-empty -m one && cd .. && rm -rf sub",
    "npm": (
        "mkdir -p web/lib && cd web && npm init -y >/dev/null && (cd lib && npm init -y >/dev/null)"
        " && npm install --no-audit --no-fund ./lib && npm pkg set scripts.greet='echo hello' && npm run greet"
        " && cd .. && rm -rf web"
    ),
    "cargo": "cargo new --quiet boats && cd boats && cargo run --quiet --offline && cd .. && rm -rf boats",
    "make": (
        "printf 'all: out.txt\\nout.txt: plan.md\\n\\tcp plan.md out.txt\\n' > Makefile"
        " && make && make -q && rm Makefile out.txt"
    ),
    "pytest": (
        f"echo 'def test_it(): pass' > test_it.py && {sys.executable} -m pytest -q test_it.py"
        " && git clean -fdxq -e draft.txt"
    ),
}
WATCH = """
const changed = new Set();
require('fs').watch('.', (kind, name) => {
    changed.add(name);
    if (name === 'last.txt') { console.log(JSON.stringify([...changed].sort())); process.exit(); }
});
console.log('ready');
"""


def run_command(command: str, home: Home, project: Project, provider: Provider) -> str:
    """Let the model run a command in the sandbox, and return what the model gets to read."""
    script = provider.script("Run the command.", call("Bash", command=command), say("Done."))
    flags = ("--model", MODELS["anthropic"], "--sandbox", "on", "--permission-mode", "bypassPermissions")
    python = ("--add-dir", sys.prefix)  # commands do not see the environment of the tests if it is below /tmp
    home.run(project.folder, "run", "Run the command.", *flags, *python)
    return script.requests[-1].text


@pytest.mark.parametrize("program", COMMANDS)
def test_a_program_works_in_a_repository_with_uncommitted_work(
    program: str, home: Home, project: Project, provider: Provider
) -> None:
    home.environment["RUSTUP_HOME"] = RUST_FOLDER  # the home folder of the story has no compiler
    result = run_command(COMMANDS[program], home, project, provider)
    assert "[exit code 0]" in result, result[-3000:]
    assert "appeared while the command ran" not in result


def test_a_file_watcher_of_an_editor_sees_only_what_a_command_changes(
    home: Home, project: Project, provider: Provider
) -> None:
    watcher = subprocess.Popen(["node", "-e", WATCH], cwd=project.folder, stdout=subprocess.PIPE, text=True)
    assert watcher.stdout is not None
    with watcher, watcher.stdout as lines:
        assert lines.readline() == "ready\n"
        run_command("ls -A; echo x > made.txt; rm made.txt", home, project, provider)
        (project.folder / "last.txt").touch()
        assert lines.readline() == '["last.txt","made.txt"]\n'
    (project.folder / "last.txt").unlink()


@pytest.mark.parametrize(
    ("path", "script"),
    [
        (".claude", "mkdir .claude; until [ ! -e .claude ]; do :; done"),
        (".vscode", "mkdir .vscode; until [ ! -e .vscode ]; do :; done"),
        (
            ".github/workflows",
            "mv .github g; w=.github/workflows; mkdir -p $w; while [ -e $w ]; do :; done; rmdir .github; mv g .github",
        ),
    ],
)
def test_what_a_command_creates_at_a_protected_path_is_kept_elsewhere_and_named(
    path: str, script: str, home: Home, project: Project, provider: Provider
) -> None:
    project.add({".github/CODEOWNERS": "* @moana\n", "setup.sh": f"{script}; echo moved\n"})
    result = run_command("sh setup.sh", home, project, provider)
    assert f"{project.folder}/{path} appeared while the command ran and was moved to {home.folder}/" in result
    (kept,) = (home.folder / ".local/share/vaka/quarantine").glob(f"*/1/{Path(path).name}")
    assert kept.is_dir()
    assert not (project.folder / path).exists()
