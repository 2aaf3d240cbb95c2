"""Commands under the policy: rules for commands and files, modes, protected paths, and approvals."""

from pathlib import Path
from typing import Any

import pytest

from tests.policy.tables import each_row
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolCall
from vaka.core.types.tool import Ask, ToolSpec
from vaka.policy.decision import MODES
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of

BASH = spec_of("Bash")


def make_policy(mode: str = "default", *layers: Layer, cwd: str = "/nowhere/app", **lists: Any) -> LayeredPolicy:
    return LayeredPolicy([Layer(name="user", mode=mode, **lists), *layers], cwd=cwd, home="/nowhere/kim")


def decide_command(layered: LayeredPolicy, command: str, **more: Any) -> tuple[str, str, str]:
    found = layered.decide(BASH, {"command": command, **more})
    return found.decision, found.rule, found.layer


@each_row(MODES)
def test_a_read_only_command_runs_in_every_mode_but_dont_ask(mode: str) -> None:
    decision, rule, layer = decide_command(make_policy(mode), "git log --oneline | head -5")
    if mode == "dontAsk":
        assert (decision, rule, layer) == ("deny", "dontAsk", "mode")
    else:
        assert decision == "allow"
    expected = {"plan": "deny", "dontAsk": "deny", "bypassPermissions": "allow"}.get(mode, "ask")
    assert decide_command(make_policy(mode), "make all") == (expected, mode, "mode")


def test_rules_are_matched_against_each_command() -> None:
    layered = make_policy(allow=("Bash(npm run:*)",), deny=("Bash(git push:*)",), ask=("Bash(npm run deploy:*)",))
    assert decide_command(layered, "npm run test && ls") == ("allow", "Bash(npm run:*), read-only", "user, read-only")
    assert decide_command(layered, "npm run test && git -C x push") == ("deny", "Bash(git push:*)", "user")
    assert decide_command(layered, "npm run deploy") == ("ask", "Bash(npm run deploy:*)", "user")
    assert decide_command(layered, "npm run test; make") == ("ask", "default", "mode")
    found = layered.decide(BASH, {"command": "npm run test && make && git push"})
    assert [(part.command, part.decision, part.layer) for part in found.subcommands] == [
        ("npm run test", "allow", "user"),
        ("make", "ask", "mode"),
        ("git push", "deny", "user"),
    ]


def test_rules_for_files_apply_to_commands() -> None:
    layered = make_policy("bypassPermissions", deny=("Read(.env)", "Edit(gen/**)"), ask=("Read(key)",), allow=("Bash",))
    for command in (
        "cat .env",
        "cat ./sub/../.env",
        "grep x < .env",
        "cp .env x",
        "echo x > .env",
        "tee .env",
        "cat .EN\\V",
    ):
        assert decide_command(layered, command) == ("deny", "Read(.env)", "user"), command
    assert decide_command(layered, "cat gen/a")[0] == "allow"
    assert decide_command(layered, "echo x > gen/a") == ("deny", "Edit(gen/**)", "user")
    assert decide_command(layered, "cat key") == ("ask", "Read(key)", "user")


def test_a_redirection_to_a_file_needs_the_permission_to_edit_it() -> None:
    assert decide_command(make_policy(), "echo x > a")[0] == "ask"
    assert decide_command(make_policy(allow=("Edit(a)",)), "echo x > a")[0] == "allow"
    assert decide_command(make_policy("acceptEdits"), "echo x > a")[0] == "allow"
    assert decide_command(make_policy("acceptEdits"), "echo x > /etc/a")[0] == "ask"
    assert decide_command(make_policy("plan"), "echo x > a")[0] == "deny"
    assert decide_command(make_policy(allow=("Bash",)), "echo x > a")[0] == "allow"
    assert decide_command(make_policy(allow=("Bash(make:*)",)), "make > /etc/a")[0] == "ask"


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", ["echo x > .git/hooks/pre-commit", "tee vaka.toml", "cp x .claude/settings.json"])
def test_protected_paths_are_protected_from_commands_too(mode: str, command: str) -> None:
    for allow in ((), ("Bash", "Edit(//**)")):
        found = make_policy(mode, allow=allow).decide(BASH, {"command": command})
        assert found.decision in ("ask", "deny")
    assert make_policy(mode).decide(ToolSpec(name="Bash"), {"command": command}).decision in ("ask", "deny")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("command", ["rm -rf /", "rm -rf ~", ":(){ :|:& };:", "dd if=x of=/dev/sda"])
def test_the_guard_applies_in_every_mode(mode: str, command: str) -> None:
    for allow in ((), ("Bash",)):
        assert decide_command(make_policy(mode, allow=allow), command)[0] != "allow"


def test_a_command_tool_from_code_is_allowed() -> None:
    for name in ("Bash", "bash"):
        tool = ToolSpec(name=name)
        found = make_policy().decide(tool, {"command": "make > out"})
        assert (found.decision, found.rule, found.layer) == ("allow", name, "code")
        assert make_policy(deny=("Bash(make:*)",)).decide(tool, {"command": "make"}).decision == "deny"
        assert make_policy(ask=("Bash(make:*)",)).decide(tool, {"command": "make"}).decision == "ask"
        assert make_policy("plan").decide(tool, {"command": "make"}).decision == "deny"
    assert (
        make_policy(allow=("Bash(make:*)",)).decide(ToolSpec(name="bash", layer="plugin"), {"command": "make"}).decision
        == "ask"
    )


def test_a_rule_can_match_another_argument_of_a_command() -> None:
    layered = make_policy(deny=("Bash(run_in_background:true)",), allow=("Bash",))
    assert decide_command(layered, "make", run_in_background=True) == ("deny", "Bash(run_in_background:true)", "user")
    assert decide_command(layered, "make", run_in_background=False) == ("allow", "Bash", "user")
    asking = make_policy(ask=("Bash(run_in_background:true)",), allow=("Bash",))
    found = asking.decide(BASH, {"command": "make; ls", "run_in_background": True})
    assert (found.decision, found.rule, len(found.subcommands)) == ("ask", "Bash(run_in_background:true)", 2)


def test_a_tool_that_is_asked_about_or_denied_as_a_whole() -> None:
    assert decide_command(make_policy(deny=("*",), allow=("Bash",)), "ls") == ("deny", "*", "user")
    assert decide_command(make_policy(ask=("Bash",)), "ls") == ("ask", "Bash", "user")
    assert decide_command(make_policy(ask=("Bash",), deny=("Bash(rm:*)",)), "ls; rm x") == (
        "deny",
        "Bash(rm:*)",
        "user",
    )


def test_the_offered_rules_match_each_part_that_asked_or_there_are_none() -> None:
    def grant(layered: LayeredPolicy, command: str) -> str:
        verdict = layered.judge(ToolCall(id=CallId("c"), name="Bash", arguments={"command": command}), BASH, ())
        assert isinstance(verdict, Ask)
        return verdict.grant

    assert grant(make_policy(), "make all && ls") == "Bash(make all)"
    assert grant(make_policy(), "make 'it is' 'a*b' \"it's\"") == "Bash(make 'it is' a\\*b it\\'s)"
    assert grant(make_policy(), "rm *.o") == "", "which files are meant is not known"
    asking = make_policy(ask=("Bash(git push:*)", "Bash(git:*)", "Bash(npm:*)"))
    assert grant(asking, "git push x") == "Bash(git push x)"
    assert grant(asking, "git push x; npm i") == "Bash(git push x)\nBash(npm i)"
    assert grant(asking, "git push x; make") == "Bash(git push x)\nBash(make)"
    assert grant(asking, "git push $(") == ""
    assert grant(make_policy(deny=("Bash(rm:*)",), allow=("Bash",)), "$X y") == ""
    assert grant(make_policy(), "make > out.txt") == "Bash(make)\nEdit(//nowhere/app/out.txt)"
    assert grant(make_policy(), "make 2>/dev/null; timeout 5 make x") == "Bash(make)\nBash(timeout 5 make x)"
    assert grant(make_policy(), "rm -rf $X") == "", "the guard asks every time"
    assert grant(make_policy(), "PATH=x make") == ""
    assert grant(make_policy(), "make 'two\nlines'") == ""


@each_row([{}, {"command": 5}, {"command": None}, {"command": ["ls"]}])
def test_a_call_without_a_command_is_asked_about(arguments: dict[str, Any]) -> None:
    assert make_policy().decide(BASH, arguments).decision == "ask"
    assert make_policy("bypassPermissions", deny=("Bash(rm:*)",)).decide(BASH, arguments).decision == "ask"


def test_cd_is_allowed_within_the_working_directories() -> None:
    layered = make_policy("default", Layer(name="flag", directories=("/nowhere/lib",)))
    assert decide_command(layered, "cd src && ls")[0] == "allow"
    assert decide_command(layered, "cd /nowhere/lib && ls")[0] == "allow"
    assert decide_command(layered, "cd /etc && ls")[0] == "ask"


def test_an_approval_of_a_dangerous_call_answers_no_other_question() -> None:
    def question(name: str, **arguments: Any) -> str:
        call = ToolCall(id=CallId("c"), name=name, arguments=arguments)
        verdict = make_policy("bypassPermissions").judge(call, spec_of(name), ())
        assert isinstance(verdict, Ask)
        assert verdict.rule
        return verdict.rule

    commands = ["rm -rf $X", "rm -rf $Y", "$X y", "echo x > .git/config", "echo x > .git/HEAD", "rm -rf $X \ud800"]
    asked = [question("Bash", command=command) for command in commands]
    asked += [question("Write", file_path=path) for path in (".git/config", ".git/HEAD")]
    assert len(set(asked)) == len(asked)
    assert question("Bash", command="rm -rf $X") == asked[0], "the same command is the same question"
    assert "$X" not in asked[0]


def test_a_read_only_command_asks_about_secrets_through_links_and_patterns(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").symlink_to("/etc/shadow")
    (tmp_path / "plain.txt").write_text("x")
    (tmp_path / "other.txt").symlink_to("plain.txt")
    layered = make_policy(cwd=str(tmp_path))
    up = "../" * (len(tmp_path.parts) - 1)
    for command in ("cat notes.txt", "head < notes.txt", f"cat {up}etc/shadow", "cat /e*/shadow", "cat ~/.s*/id_*"):
        assert decide_command(layered, command) == ("ask", "default", "mode"), command
    for command in ("cat other.txt", "cat *.txt", "ls -d .*", f"ls {up}etc", "cat /dev/null"):
        assert decide_command(layered, command)[0] == "allow", command
    for command in (f"cat {up}etc/hostname", "cat /etc/*-release"):
        assert decide_command(layered, command) == ("ask", "default", "mode"), command
    assert decide_command(make_policy(cwd=str(tmp_path), allow=("Bash(cat:*)",)), "cat notes.txt")[0] == "allow"
    assert decide_command(make_policy("bypassPermissions", cwd=str(tmp_path)), "cat notes.txt")[0] == "allow"


# ---------------------------------------- redirections of groups, and programs that only read protected files


@each_row(["(make; make test) > log 2>&1", "{ echo a; echo b; } > f", "> f", "for i in 1; do make; done >> log"])
def test_a_rule_for_every_command_covers_the_redirections_of_groups(command: str) -> None:
    assert decide_command(make_policy(allow=("Bash",)), command)[0] == "allow"
    assert decide_command(make_policy(allow=("Bash(make:*)", "Bash(echo:*)")), command)[0] == "ask"
    assert decide_command(make_policy(allow=("Bash",), deny=("Edit(**)",)), command)[0] == "deny"


@each_row(["source ~/.bashrc; make", "sha256sum vaka.toml", "strings .git/index", ". .envrc"])
def test_a_program_that_only_reads_may_use_a_protected_file(command: str) -> None:
    assert decide_command(make_policy(allow=("Bash",)), command)[0] == "allow"
    assert decide_command(make_policy(allow=("Bash",), deny=("Read(**)", "Read(~/**)")), command)[0] == "deny"


@each_row(["yq -i .a vaka.toml", "iconv -o .envrc x", "anything ~/.bashrc", "cp x .git/config"])
def test_a_program_that_may_write_to_a_protected_file_is_asked_about(command: str) -> None:
    assert decide_command(make_policy(allow=("Bash",)), command)[0] == "ask"


# ---------------------------------------- the guard by the start folder of a command


@each_row(
    [
        ("rm -rf ../../..", "/srv/site/app"),
        ("rm -rf ../../../etc", "/srv/site/app"),
        ("rm -rf ../../../*", "/srv/site/app"),
        ("cd ../.. && rm -rf ../usr", "/srv/site/app"),
        ("rm -rf *", "/home/kim"),
        ("rm -rf .", "/etc"),
        ("find . -delete", "/"),
        ("chmod -R 777 .", "/usr"),
        ("find -- / -delete", "/srv/site"),
        ("find / -ok rm {} \\;", "/srv/site"),
        ("find / -exec sh -c 'rm \"$1\"' _ {} \\;", "/srv/site"),
        ("dd if=x of=//dev/sda", "/srv/site"),
        ("cat x > //dev/sda", "/srv/site"),
        ("mv x /dev/sda", "/srv/site"),
        ("trash /", "/srv/site"),
    ]
)
def test_removing_a_system_folder_by_a_relative_path_is_denied(command: str, cwd: str) -> None:
    for mode in ("bypassPermissions", "default"):
        assert decide_command(make_policy(mode, cwd=cwd, allow=("Bash",)), command)[0] == "deny"


@each_row(["rm -rf ..", "rm -rf ../", "chmod -R 777 .."])
def test_removing_a_parent_folder_is_asked_about(command: str) -> None:
    assert decide_command(make_policy("bypassPermissions", cwd="/srv/site/app", allow=("Bash",)), command)[0] == "ask"


@each_row(
    [
        "rm -rf *",
        "rm -rf .",
        "rm -rf ../other",
        "rm -rf build/*",
        "cd build && rm -rf *",
        "find . -name x -delete",
        "find . -exec sh -c 'echo \"$1\"' _ {} \\;",
        "find src -exec rm {} +",
        "mv a b",
        "trash x",
        "chmod -R 755 dist",
        "dd if=/dev/sda of=image",
        "cat x > /dev/null",
    ]
)
def test_removing_files_below_the_folder_is_allowed(command: str) -> None:
    assert decide_command(make_policy("bypassPermissions", cwd="/srv/site/app", allow=("Bash",)), command)[0] == "allow"


# ---------------------------------------- a bare repository inside the workspace


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
    assert decide_command(make_policy(cwd=str(workspace)), command)[0] == "ask"


@pytest.mark.parametrize(
    "command",
    ["cd src && git status", "git -C src log", "git status", "ls bare", "cat bare/HEAD", "(cd src && git diff)"],
)
def test_git_outside_a_nested_repository_is_allowed(command: str, workspace: Path) -> None:
    assert decide_command(make_policy(cwd=str(workspace)), command)[0] == "allow"


@pytest.mark.parametrize(
    ("command", "decision"),
    [
        ("cp mine.json .cl*/settings.json", "ask"),
        ("cp settings.json .cl*", "ask"),
        ("mv -t .cl* settings.json", "ask"),
        ("tee .c*/settings.json < mine.json", "ask"),
        ("echo x > .cl*/settings.json", "ask"),
        ("sed -i s/a/b/ */settings.json .cl*/*.json", "ask"),
        ("cd .cl* && cp ../mine.json settings.json", "ask"),
        ("cp mine.json src/*.json", "allow"),
        ("cp mine.json s*", "allow"),
        ("cat .cl*/settings.json", "allow"),
    ],
)
def test_a_pattern_that_matches_a_protected_path_on_disk_is_asked_about(
    tmp_path: Path, command: str, decision: str
) -> None:
    for name in (".claude/settings.json", "src/a.json", "mine.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    policy = LayeredPolicy([Layer(name="user", allow=("Bash",))], cwd=str(tmp_path), home="/nonexistent")
    assert policy.decide(spec_of("Bash"), {"command": command}).decision == decision
