"""In a folder that is not trusted, git runs nothing that the repository names: it is asked about instead.

Each row plants a program in a real repository, and shows that git would run it and that the policy asks.
"""

import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.policy.tables import each_row
from vaka.core.types.tool import Layer
from vaka.policy.decision import PermissionDecision
from vaka.policy.policy import LayeredPolicy
from vaka.policy.tool_targets import spec_of

IDENTITY = ("-c", "user.name=a", "-c", "user.email=a@example.org")


def run_git(folder: Path, *words: str, check: bool = True) -> None:
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_PAGER": "cat"}
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=check, capture_output=True, env=environ)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    run_git(folder, "init", "-q")
    (folder / "a.txt").write_text("one\n")
    (folder / ".gitattributes").write_text("*.txt filter=x diff=x merge=x\n")
    run_git(folder, "add", ".")
    run_git(folder, "commit", "-qm", "first")
    (folder / "a.txt").write_text("two\n")
    run_git(folder, "commit", "-qam", "second")
    (folder / "a.txt").write_text("TWO\n")
    return folder


@pytest.fixture
def plant(tmp_path: Path) -> Path:
    """A program that leaves a marker beside it."""
    program = tmp_path / "plant.sh"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/marker\nexit 0\n")
    program.chmod(0o755)
    return program


def decide(
    command: str, folder: Path, *, allow: tuple[str, ...] = (), trusted: bool = False, mode: str = ""
) -> PermissionDecision:
    layer = Layer(name="user", allow=allow, mode=mode)
    policy = LayeredPolicy([layer], cwd=str(folder), home="/nowhere", trusted=trusted)
    return policy.decide(spec_of("Bash"), {"command": command})


READING = [
    ("core.fsmonitor", "git status"),
    ("core.fsmonitor", "git diff"),
    ("core.fsmonitor", "git ls-files"),
    ("core.hooksPath", "git status"),
    ("diff.external", "git diff"),
    ("diff.x.command", "git diff HEAD~1 HEAD"),
    ("diff.x.textconv", "git log -p"),
    ("diff.x.textconv", "git show"),
    ("diff.x.textconv", "git blame a.txt"),
    ("filter.x.clean", "git status"),
    ("filter.x.clean", "git diff"),
    ("filter.x.process", "git status --short"),
]


@pytest.mark.parametrize(("key", "command"), READING)
def test_a_command_that_reads_is_asked_about_if_the_repository_names_a_program(
    key: str, command: str, repository: Path, plant: Path
) -> None:
    assert decide(command, repository).decision == "allow"
    value = str(plant)
    if key == "core.hooksPath":
        hook = plant.parent / "post-index-change"
        plant.rename(hook)
        value = str(plant.parent)
    run_git(repository, "config", key, value)
    os.utime(repository / "a.txt")
    run_git(repository, *command.split()[1:], check=False)
    assert (plant.parent / "marker").exists(), "git runs it"
    found = decide(command, repository)
    assert (found.decision, found.layer) == ("ask", "trust")
    assert "this folder is not trusted; vaka trust trusts it" in found.reason
    assert decide(command, repository, trusted=True).decision == "allow"
    assert decide(command, repository, allow=("Bash(git:*)",)).decision == "ask"
    assert decide(command, repository, mode="dontAsk", allow=("Bash(git:*)",)).decision == "deny"
    assert decide(command, repository, allow=("Bash",)).decision == "allow", "every command is allowed by name"


SIGNED = """
S='-----BEGIN PGP SIGNATURE-----\\n \\n x\\n -----END PGP SIGNATURE-----'
T=$(git cat-file commit HEAD | sed "/^committer/a gpgsig $S" |
    git hash-object -t commit -w --stdin) && git update-ref HEAD $T
"""


@pytest.mark.parametrize(
    ("key", "value", "command"),
    [
        ("format.pretty", "format:%G?", "git log"),
        ("format.pretty", "%-GK", "git show"),
        ("pretty.x", "format:%h %GS", "git log --pretty=x"),
    ],
)
def test_a_format_of_the_repository_that_checks_signatures_is_asked_about(
    key: str, value: str, command: str, repository: Path, plant: Path
) -> None:
    subprocess.run(["sh", "-c", SIGNED], cwd=repository, check=True)
    run_git(repository, "config", key, value.replace("%G", "%h").replace("%-G", "%h"))
    run_git(repository, "config", "gpg.program", str(plant))
    assert decide(command, repository).decision == "allow", "it shows no signature"
    run_git(repository, "config", key, value)
    run_git(repository, *command.split()[1:])
    assert (plant.parent / "marker").exists(), "git runs it"
    assert decide(command, repository).layer == "trust"


@pytest.mark.parametrize("key", ["branch.sort", "tag.sort"])
def test_an_order_of_the_repository_that_checks_signatures_is_asked_about(key: str, repository: Path) -> None:
    run_git(repository, "config", key, "-committerdate")
    assert decide("git branch -a", repository).decision == "allow"
    run_git(repository, "config", key, "signature:grade")
    assert decide("git branch -a", repository).layer == "trust"
    (repository / ".git/config").write_text('[pretty]\nx = "format:%""G?"\n')
    assert decide("git log", repository).layer == "trust", "git removes the quotes"


def test_a_merge_driver_is_asked_about_where_a_merge_is_shown(repository: Path, plant: Path) -> None:
    run_git(repository, "checkout", "-q", ".")
    for branch in (("-qb", "theirs", "HEAD~1"), ("-q", "-")):
        run_git(repository, "checkout", *branch)
        (repository / "a.txt").write_text(f"{branch}\n")
        run_git(repository, "commit", "-qam", "changed")
    run_git(repository, "merge", "-q", "-X", "ours", "theirs")
    command = "git log -1 --remerge-diff"
    assert decide(command, repository).decision == "allow"
    run_git(repository, "config", "merge.x.driver", str(plant))
    run_git(repository, *command.split()[1:])
    assert (plant.parent / "marker").exists(), "git runs it"
    assert decide(command, repository).layer == "trust"


def test_a_program_that_lists_other_refs_is_asked_about(repository: Path, plant: Path, tmp_path: Path) -> None:
    run_git(tmp_path, "init", "-q", "other")
    (repository / ".git/objects/info/alternates").write_text(f"{tmp_path}/other/.git/objects\n")
    command = "git rev-list --alternate-refs HEAD"
    assert decide(command, repository).decision == "allow"
    run_git(repository, "config", "core.alternateRefsCommand", str(plant))
    run_git(repository, *command.split()[1:])
    assert (plant.parent / "marker").exists(), "git runs it"
    assert decide(command, repository).layer == "trust"


@each_row(
    [
        ("-c core.fsmonitor=/tmp/x status", "ask"),
        ("--exec-path=/tmp log", "ask"),
        ("rebase -x /tmp/x main", "ask"),
        ("rebase --exec /tmp/x main", "ask"),
        ("fetch --upload-pack=/tmp/x", "ask"),
        ("bisect run /tmp/x", "ask"),
        ("difftool -y -x /tmp/x", "ask"),
        ("submodule foreach /tmp/x", "ask"),
        ("log --output=/tmp/x", "ask"),
        ("!/tmp/x", "ask"),
        ('"!/tmp/x"', "ask"),
        ("status --short", "allow"),
        ("log --oneline --graph", "allow"),
        ("commit --amend --no-edit", "allow"),
        ("checkout", "allow"),
        ("push --force-with-lease", "allow"),
    ]
)
def test_an_alias_that_may_run_a_program_is_asked_about(alias: str, decision: str) -> None:
    with TemporaryDirectory() as folder:
        run_git(Path(folder), "init", "-q")
        run_git(Path(folder), "config", "alias.x", alias)
        assert decide("git x", Path(folder), allow=("Bash(git:*)",)).decision == decision


WRITING = [
    ("core.editor", "git commit"),
    ("core.pager", "git grep -O x"),
    ("pager.grep", "git grep -O x"),
    ("imap.tunnel", "git imap-send"),
    ("core.sshCommand", "git fetch"),
    ("core.askPass", "git push"),
    ("sequence.editor", "git rebase -i HEAD~1"),
    ("credential.helper", "git fetch"),
    ("credential.https://example.org.helper", "git fetch"),
    ("gpg.program", "git commit -S"),
    ("gpg.ssh.defaultKeyCommand", "git commit -S"),
    ("filter.x.smudge", "git checkout other"),
    ("remote.origin.uploadpack", "git fetch"),
    ("interactive.diffFilter", "git add -p"),
    ("trailer.x.command", "git commit -m x"),
    ("tar.x.command", "git archive --format=x HEAD"),
    ("difftool.x.cmd", "git difftool"),
    ("man.x.path", "git help log"),
    ("lfs.customtransfer.x.path", "git push"),
]


@pytest.mark.parametrize(("key", "command"), WRITING)
def test_a_command_that_a_rule_allows_is_asked_about_if_the_repository_names_a_program(
    key: str, command: str, repository: Path, plant: Path
) -> None:
    assert decide(command, repository, allow=("Bash(git:*)",)).decision == "allow"
    run_git(repository, "config", key, str(plant))
    found = decide(command, repository, allow=("Bash(git:*)",))
    assert (found.decision, found.layer) == ("ask", "trust")
    assert decide(command, repository, allow=("Bash(git:*)",), trusted=True).decision == "allow"


def test_a_hook_of_the_repository_is_asked_about(repository: Path, plant: Path) -> None:
    hook = repository / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    plant.rename(hook)
    assert "the hook pre-commit" in decide("git commit -m x", repository, allow=("Bash(git commit:*)",)).reason
    assert decide("git status", repository).decision == "allow", "it does not run this hook"
    hook.chmod(0o644)
    assert decide("git commit -m x", repository, allow=("Bash(git commit:*)",)).decision == "allow"
    hook.chmod(0o755)
    hook.rename(hook.with_name("pre-commit.sample"))
    assert decide("git commit -m x", repository, allow=("Bash(git commit:*)",)).decision == "allow"


FORMS = [
    "cd sub && git status",
    "git -C sub status",
    "git --no-pager log -p",
    "timeout 5 git status",
    "git status | head",
    "echo $(git status)",
    "/usr/bin/git diff",
    "bash -c 'git status'",
]


@pytest.mark.parametrize("command", FORMS)
def test_every_form_of_a_command_is_asked_about(command: str, repository: Path) -> None:
    (repository / "sub").mkdir()
    rules = ("Bash(timeout:*)", "Bash(bash:*)")
    assert decide(command, repository, allow=rules).decision == "allow"
    run_git(repository, "config", "filter.x.clean", "x")
    assert decide(command, repository, allow=rules).decision == "ask"


def test_a_repository_in_a_folder_below_counts(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    run_git(inner, "init", "-q")
    (inner / "b").write_text("b")
    run_git(inner, "add", ".")
    run_git(inner, "commit", "-qm", "x")
    run_git(inner, "config", "core.fsmonitor", "./x")
    assert decide("git status", repository).decision == "allow"
    assert decide("cd inner && git status", repository).decision == "ask"
    assert decide("git -C inner status", repository).decision == "ask"
    run_git(repository, "add", "inner")
    found = decide("git status", repository)
    assert (found.decision, "core.fsmonitor" in found.reason) == ("ask", True), "it is a submodule now"


def test_a_linked_work_tree_has_the_settings_of_its_repository(repository: Path, tmp_path: Path) -> None:
    run_git(repository, "worktree", "add", "-q", str(tmp_path / "linked"))
    assert decide("git status", tmp_path / "linked").decision == "allow"
    run_git(repository, "config", "filter.x.clean", "x")
    assert decide("git status", tmp_path / "linked").decision == "ask"


def test_a_folder_that_git_takes_for_a_repository_is_asked_about(repository: Path) -> None:
    bare = repository / "bare"
    run_git(repository, "init", "-q", "--bare", "bare")
    assert decide("git log", bare).decision == "ask"
    assert decide("git log", repository / "missing").decision == "allow"


def test_another_git_folder_is_not_known(repository: Path) -> None:
    allow = ("Bash(git:*)",)
    assert decide("git --git-dir=/tmp/x status", repository, allow=allow).decision == "ask"
    assert decide("git -C $X status", repository, allow=allow).decision == "ask"
    assert decide("git --git-dir=/tmp/x status", repository, allow=allow, trusted=True).decision == "allow"


UNCLEAR = [
    '[filter "x"]\n\tfoo = a\\\n[user]\n\tclean = y\n',
    "[filter.x] clean = y\n",
    '[FILTER "x"]\r\nCLEAN = y\r\n',
    '\ufeff[filter "x"]clean=y',
    '[filter "a]b"] clean = y\n',
    '[filter "a\\"b"]\nclean = y\n',
    "[core] fsmonitor = /tmp/x\n",
    "[core]\nfsmonitor = true # /x\n",
    "[core]\nhooksPath = hooks ; x\n",
    "[include]\npath = ../x\n",
    '[includeIf "gitdir:/"]\npath = x\n',
    "[core]\nworktree = /\n",
    "[log]\nshowSignature\n",
    "[extensions]\npartialClone = origin\n",
    '[remote "origin"]\npromisor = true\n',
    "[user]\nname = " + "x" * (1 << 20) + "\n",
    '[user] [filter "x"] clean = y\n',
]


@pytest.mark.parametrize("text", UNCLEAR)
def test_settings_are_read_as_git_reads_them(text: str, repository: Path) -> None:
    with (repository / ".git/config").open("a", encoding="utf-8", newline="") as file:
        file.write(text)
    if text.startswith("\ufeff"):
        (repository / ".git/config").write_text(text, "utf-8")
    assert decide("git status", repository).decision == "ask"


HARMLESS = """
[core]
\trepositoryformatversion = 0
\tfsmonitor = true
\tuntrackedCache = keep ; a comment \\
\thooksPath = .husky/_
# [filter "x"] clean = y
[remote "origin"]
\turl = git@example.org:a/b.git
\tfetch = +refs/heads/*:refs/remotes/origin/*
[branch "main"]
\tremote = origin
\tmerge = refs/heads/main
[user]
\tname = A "B" C
[submodule "lib"]
\turl = ../lib
\tactive = true
[filter "lfs"]
\tclean = git-lfs clean -- %f
\tsmudge = git-lfs smudge -- %f
\tprocess = git-lfs filter-process
\trequired = true
[lfs]
\trepositoryformatversion = 0
[alias]
\tst = status
[commit]
\tgpgsign
"""

ORDINARY = [
    "git status",
    "git status --short",
    "git log --oneline -5",
    "git diff",
    "git diff HEAD~1",
    "git show HEAD",
    "git blame a.txt",
    "git branch -a",
    "git ls-files",
    "git remote -v",
    "git rev-parse HEAD",
]
RULED = ["git add -A", 'git commit -m "fix: x"', "git fetch", "git push", "git checkout -b x", "npm test", "make"]


def test_ordinary_commands_in_a_cloned_repository_keep_their_decisions(repository: Path) -> None:
    (repository / ".git/config").write_text(HARMLESS.replace(" ; a comment \\", ""), "utf-8")
    (repository / ".husky/_").mkdir(parents=True)
    assert [one for one in ORDINARY if decide(one, repository).decision != "allow"] == []
    allow = ("Bash(git:*)", "Bash(npm test)", "Bash(make)")
    assert [one for one in RULED if decide(one, repository, allow=allow).decision != "allow"] == []
    assert decide("rm x", repository).decision == "ask"


@each_row(["git status", "git log"])
def test_a_folder_without_a_repository_is_not_asked_about(command: str) -> None:
    assert decide(command, Path("/")).decision == "allow"
