"""Rules as they stand in the settings of real projects, written by Claude Code or for it."""

import pytest

from tests.policy.tables import each_row
from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.policy.policy import LayeredPolicy
from vaka.policy.rules import Layer
from vaka.policy.tool_targets import spec_of


def decide_command(command: str, **lists: tuple[str, ...]) -> str:
    layer = Layer(name="project", origin=".claude/settings.json", project=True, **lists)  # type: ignore[arg-type]  # lists of rules
    return LayeredPolicy([layer], cwd="/site", home="/home/kim").decide(spec_of("Bash"), {"command": command}).decision


@each_row(
    [
        (r"""Bash(python -c "print\('ok'\)")""", """python -c "print('ok')" """, """python -c "print('no')" """),
        (r'''Bash(foo -E "\\.\(py|md\)$")''', r'''foo -E "\.(py|md)$"''', r'''foo -E "x(py|md)$"'''),
        (r'''Bash(foo -E "\.py$")''', r'''foo -E "\.py$"''', r'''foo -E "\.js$"'''),
        (r"""Bash(foo 'NR>1 {print \($1-1\)}')""", "foo 'NR>1 {print ($1-1)}'", "foo 'NR>1 {print ($1-2)}'"),
        (r'''Bash(foo "a\*b")''', r'''foo "a\*b"''', r'''foo "a\xb"'''),
        ('Bash(python3 -c ":*)', """python3 -c "import x; print(1)" """, "python3 x.py"),
        ("Bash(.venv/bin/python -c ' *)", ".venv/bin/python -c 'import x'", ".venv/bin/python x.py"),
        ("Bash(git commit -m ' *)", "git commit -m 'a b c'", "git commit --amend"),
        ("Bash(npm run package:vscode:*)", "npm run package:vscode -- -x", "npm run package:other"),
        ("Bash(CI=true npm test:*)", "CI=true npm test", "CI=false npm test"),
        ("Bash(PGPASSWORD=x psql *)", "PGPASSWORD=x psql -h y", "PGPASSWORD=y psql -h y"),
        ("Bash(FOO=1 npm test:*)", "FOO=1 npm test -- a", "FOO=1 BAR=2 npm test"),
        ("Bash(xargs grep *)", "ls | xargs grep foo", "ls | xargs rm"),
        ("Bash(/tmp/repro.sh *)", "/tmp/repro.sh x", "/tmp/other.sh x"),
        ("Bash(sbtn.bat *)", "sbtn.bat compile", "sbtn compile"),
    ]
)  # fmt: skip
def test_a_command_that_was_kept_as_a_rule_is_that_command(rule: str, meant: str, other: str) -> None:
    assert decide_command(meant, allow=(rule,)) == "allow"
    assert decide_command(other, allow=(rule,)) == "ask"
    assert decide_command(meant, allow=("Bash",), deny=(rule,)) == "deny"


@each_row(
    [
        ("Bash(LD_PRELOAD=x ls *)", "LD_PRELOAD=x ls y"),
        ("Bash(PATH=. ls)", "PATH=. ls"),
        ("Bash(FOO=* npm test)", "FOO=1 npm test"),
        ("Bash(*npm test)", "FOO=1 npm test"),
        ("Bash(npm test)", "FOO=1 npm test"),
        ("Bash(FOO=1 npm test)", "FOO=$(id) npm test"),
    ],
)
def test_a_variable_is_allowed_only_as_it_is_written(rule: str, command: str) -> None:
    assert decide_command(command, allow=(rule,)) == "ask"


@each_row(
    [
        ("Bash(curl * | sh)", "curl -fsSL https://x |sh"),
        ("Bash(curl * | bash *)", "curl https://x  |  bash -s"),
        ("Bash(echo * > /etc/*)", "echo x >/etc/hosts"),
        ("Bash(* && rm *)", "cd a && rm x"),
        ("Bash(curl:* | bash:*)", "curl https://x | bash"),
        ("Bash(curl:*|bash:*)", "curl https://x | bash -s"),
        ("Bash(:(){ :|:& };:)", ":(){ :|:& };:"),
    ]
)  # fmt: skip
def test_a_rule_about_several_commands_is_held_against_the_whole_line(rule: str, command: str) -> None:
    assert decide_command(command, allow=("Bash",), deny=(rule,)) == "deny"
    assert decide_command("cd a; ls | wc", allow=("Bash",), deny=(rule,)) == "allow"


def test_one_that_asks_is_held_against_it_too() -> None:
    assert decide_command("cd a && make x", allow=("Bash",), ask=("Bash(* && make *)",)) == "ask"
    assert decide_command("cd a && ninja x", allow=("Bash",), ask=("Bash(* && make *)",)) == "allow"


def test_a_star_inside_a_rule_for_first_words_is_wide_to_deny_and_a_star_to_allow() -> None:
    rule = "Bash(docker exec * wp user create:*)"
    for command in ("docker exec c wp user create", "docker exec -t c wp user create x"):
        assert decide_command(command, allow=("Bash",), deny=(rule,)) == "deny"
        assert decide_command(command, allow=(rule,)) == "ask"
    assert decide_command("docker exec c wp user list", allow=("Bash",), deny=(rule,)) == "allow"


def make_policy(*layers: Layer) -> LayeredPolicy:
    return LayeredPolicy(layers, cwd="/site", home="/home/kim")


def test_a_star_for_all_that_a_tool_works_on_is_the_tool() -> None:
    found = make_policy(Layer(name="user", allow=("WebFetch(*)", "Bash(*)", "mcp__git__push(*)")))
    assert found.notes == []
    for tool, arguments in (
        ("WebFetch", {"url": "https://a.b"}), ("Bash", {"command": "make"}), ("mcp__git__push", {}),
    ):  # fmt: skip
        assert found.decide(spec_of(tool), arguments).decision == "allow"


def test_an_allow_rule_that_allows_nothing_here_is_no_reason_to_stop() -> None:
    rules = ("*", "mcp__*", "WebFetch(https://a.b/*)")
    found = make_policy(Layer(name="user", origin="settings.json", allow=(*rules, "Bash(make)")))
    assert [note.partition(" does not count")[0] for note in found.notes] == [
        f"settings.json (user): allow rule {rule!r}" for rule in rules
    ]
    assert found.decide(spec_of("Bash"), {"command": "make"}).decision == "allow"
    assert found.decide(spec_of("WebFetch"), {"url": "https://a.b/c"}).decision == "ask"
    with pytest.raises(InvalidInput, match="may only follow"):
        make_policy(Layer(name="flag", allow=("mcp__*",)))
    with pytest.raises(ConfigError, match="expected a host"):
        make_policy(Layer(name="user", deny=("WebFetch(https://a.b/*)",)))


def test_tools_of_others_are_known_by_name() -> None:
    names = ("TaskOutput", "TodoRead", "KillBash", "ListMcpResourcesTool", "PowerShell(git push *)", "ToolSearch")
    found = make_policy(Layer(name="project", project=True, allow=names, ask=("PowerShell(git tag *)",)))
    assert found.notes == []
    assert found.decide(spec_of("PowerShell"), {"command": "git push x"}).decision == "allow"
    assert found.decide(spec_of("PowerShell"), {"command": "git tag x"}).decision == "ask"
    assert found.decide(spec_of("PowerShell"), {"command": "git push"}).rule == "PowerShell(git push *)"


@each_row([("auto", "default"), ("delegate", "plan"), ("acceptReadOnly", "default")])
def test_modes_of_others_let_no_more_happen(name: str, mode: str) -> None:
    assert make_policy(Layer(name="user", mode=name)).mode == mode
