"""Command rules: precedence, and which commands a pattern matches."""

import msgspec

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.core.types.tool import Allow, Ask, Deny
from vaka.policy.bash import (
    CommandRule,
    CommandRules,
    judge_script,
    matches_command,
    read_script,
)

# ---------------------------------------------------------------------------- V1: precedence


def test_deny_wins_over_ask_and_ask_over_allow_however_narrow_each_is() -> None:
    assert judge_command("git push -f", allow=["git push -f"], ask=["git:*"], deny=[None]).decision == "deny"
    assert judge_command("git push -f", allow=["git push -f"], ask=["git:*"]).decision == "ask"
    assert judge_command("git push -f", allow=["git push -f"]).decision == "allow"
    assert judge_command("git push -f", allow=[None], deny=["git push -f"]).decision == "deny"


def test_the_strictest_verdict_on_a_part_is_the_verdict_on_the_whole() -> None:
    found = judge_command("ls; npm test && rm x | cat", allow=["npm test"], deny=["rm:*"])
    expected = [
        ("ls", "allow", "read-only", "read-only", "it only reads"),
        ("npm test", "allow", "Bash(npm test)", "user", "the rule Bash(npm test) allows it"),
        ("rm x", "deny", "Bash(rm:*)", "user", "the rule Bash(rm:*) denies it"),
        ("cat", "allow", "read-only", "read-only", "it only reads"),
    ]
    assert [msgspec.structs.astuple(part) for part in found.subcommands] == expected
    assert found.rule_verdict == Deny("the rule Bash(rm:*) denies it", "Bash(rm:*)", "user")


def test_the_default_decides_where_no_rule_matches() -> None:
    assert judge_command("npm test").rule_verdict == Ask("no rule allows it", "default", "mode")
    assert judge_command("npm test", default=Allow("bypassPermissions", "mode")).rule_verdict == Allow(
        "bypassPermissions", "mode"
    )
    denied = Deny("no questions", "dontAsk", "mode")
    assert judge_command("npm test", default=denied).rule_verdict == denied
    assert judge_command("ls; npm test", default=denied).rule_verdict == denied


def test_a_verdict_names_the_rule_and_the_layer_it_came_from() -> None:
    rules = [CommandRule("npm test", "allow", "project"), CommandRule("npm run *", "allow", "user")]
    assert judge_script(read_script("npm test"), rules).rule_verdict == Allow("Bash(npm test)", "project")
    both = judge_script(read_script("npm test && npm run x && ls"), rules)
    assert both.rule_verdict == Allow("Bash(npm test), Bash(npm run *), read-only", "project, user, read-only")


def test_rules_can_be_compiled_once_for_many_commands() -> None:
    rules = CommandRules([CommandRule("npm test", "allow", "user"), CommandRule(None, "ask", "managed")])
    assert judge_script(read_script("npm test"), rules) == judge_script(
        read_script("npm test"), [CommandRule("npm test", "allow", "user"), CommandRule(None, "ask", "managed")]
    )
    assert judge_script(read_script("npm test"), rules).layer == "managed"


def test_a_text_that_runs_nothing_is_allowed() -> None:
    for text in ("", "  ", "# a comment", "\n\n", "((1 + 2))", "x=1"):
        assert judge_command(text).decision == "allow"
        assert judge_command(text, use_profile=False, default=Deny()).decision == "allow"


# ---------------------------------------------------------------------------- V11: patterns


def split_pairs(table: str) -> list[tuple[str, str]]:
    """Return the rows of a table: a pattern, an arrow, a command."""
    return [(pattern, command) for pattern, _, command in (row.partition(" ⇒ ") for row in split_table(table))]


FITS = [
    *split_pairs(r"""
    git status ⇒ git status
    git status ⇒ git  status
    git status ⇒ 'git' "status"
    git status ⇒ g\it status
    git status:* ⇒ git status
    git status:* ⇒ git status -s
    git status:* ⇒ git status $x
    git:* ⇒ git
    git:* ⇒ git log --oneline
    git * ⇒ git
    git * ⇒ git log
    git log * ⇒ git log
    git log * ⇒ git log -5 x
    git log* ⇒ git log
    git log* ⇒ git log -5
    npm run * ⇒ npm run build
    npm run * ⇒ npm run build -- --watch
    npm run build ⇒ npm run build
    * --version ⇒ node --version
    git * main ⇒ git push main
    git * main ⇒ git push origin main
    docker run * alpine * ⇒ docker run -it alpine sh -x
    * ⇒ anything at all
    :* ⇒ anything at all
    npm test:* ⇒ npm test -- x
    echo \* ⇒ echo '*'
    echo 'a b' ⇒ echo "a b"
    echo "a b" * ⇒ echo 'a b' c
    git commit -m * ⇒ git commit -m 'a b c'
    git commit -m * ⇒ git commit -m "$x"
    find . -name * ⇒ find . -name x
    ./gradlew:* ⇒ ./gradlew build
    make ⇒ make
    /usr/bin/make ⇒ /usr/bin/make
    make:* ⇒ /usr/bin/make x
    python -m pytest:* ⇒ python -m pytest -q tests
    npm run test:unit ⇒ npm run test:unit
    npm run test:* ⇒ npm run test
    a*b*c ⇒ axxbyyc
    ls * ⇒ ls 'a b'
    echo a\ b ⇒ echo 'a b'
    x  y:* ⇒ x y z
    cargo test:* ⇒ timeout 60 cargo test x
    cargo test ⇒ nice -n 5 time cargo test
    cargo test ⇒ LANG=C TZ=UTC cargo test
    cargo test ⇒ NODE_ENV=test cargo test
    cargo test ⇒ cargo test 2>&1
    cargo test ⇒ cargo test >/dev/null
    cargo test ⇒ (cargo test)
    cargo test ⇒ cargo test &
    timeout 5 cargo test ⇒ timeout 5 cargo test
    watch ls ⇒ watch ls
    setsid x y ⇒ setsid x y
    find . -delete ⇒ find . -delete
    find . -exec ls {} ; ⇒ find . -exec ls {} \;
    find:* ⇒ find . -name x
    """),
    ("  ls  ", "ls"),
]

MISSES = [
    *split_pairs(r"""
    git status ⇒ git status -s
    git status ⇒ git
    git status:* ⇒ git statusx
    git status:* ⇒ git
    git status:* ⇒ git log
    git:* ⇒ gitk
    git:* ⇒ legit
    git * ⇒ gitk x
    git log * ⇒ git logx
    npm run build ⇒ npm run build:prod
    npm run test:* ⇒ npm run test:unit
    npm run * ⇒ npm
    git * main ⇒ git push
    git * main ⇒ git main
    * --version ⇒ node --version x
    echo \* ⇒ echo x
    echo a b ⇒ echo 'a b'
    echo 'a b' ⇒ echo a b
    git push * ⇒ git 'push x'
    x y z * ⇒ x 'y z' w
    git push ⇒ git "$x"
    git push ⇒ git pu$x
    git commit -m a ⇒ git commit -m "$x"
    npm run * x ⇒ npm run $y
    a*b*c ⇒ axxc
    ls * ⇒ ls2
    make:* ⇒ ./make x
    make:* ⇒ /tmp/make x
    make:* ⇒ ../bin/make
    make:* ⇒ mаke x
    cargo test ⇒ PATH=x cargo test
    cargo test ⇒ FOO=x cargo test
    cargo test ⇒ RUSTC=x cargo test
    cargo test ⇒ cargo test; rm x
    cargo test ⇒ cargo test && rm x
    cargo test:* ⇒ cargo test || rm x
    cargo test:* ⇒ cargo test | sh
    cargo test:* ⇒ cargo test & rm x
    cargo test:* ⇒ cargo test⏎rm x
    cargo test:* ⇒ cargo test $(rm x)
    cargo test:* ⇒ cargo test `rm x`
    cargo test:* ⇒ cargo test "$(rm x)"
    cargo test:* ⇒ cargo test <(rm x)
    cargo test:* ⇒ cargo test > x
    cargo test * ⇒ cargo test >> x
    cargo test * ⇒ cargo test &> x
    cargo test:* ⇒ cargo test < /dev/tcp/a/1
    cargo test ⇒ sudo cargo test
    cargo test ⇒ env cargo test
    cargo test ⇒ command cargo test
    cargo test ⇒ exec cargo test
    cargo test ⇒ xargs cargo test
    cargo test ⇒ nohup env cargo test
    cargo test ⇒ timeout $x cargo test
    cargo test ⇒ timeout -x 5 cargo test
    cargo test ⇒ watch cargo test
    cargo test ⇒ setsid cargo test
    cargo test ⇒ bash -c 'cargo test'
    cargo test ⇒ eval cargo test
    cargo test ⇒ eval 'cargo test'
    watch:* ⇒ watch ls
    watch * ⇒ watch ls
    setsid:* ⇒ setsid x
    ionice * ⇒ ionice -c 3 x
    flock:* ⇒ flock x y
    find:* ⇒ find . -delete
    find * ⇒ find . -exec ls {} \;
    find . * ⇒ find . -execdir x \;
    find:* ⇒ find . -ok x \;
    fd:* ⇒ fd x -x rm
    bash:* ⇒ bash -c 'rm x'
    bash:* ⇒ bash -c "$x"
    sh:* ⇒ echo 'rm x' | sh
    eval:* ⇒ eval rm x
    xargs:* ⇒ xargs $x
    git:* ⇒ {git,push}
    git:* ⇒ $GIT push
    git:* ⇒ g{it,x} push
    git:* ⇒ /opt/evil/git push
    npm * ⇒ npmx y
    echo:* ⇒ echo x > y
    cat:* ⇒ cat x | tee y
    git log:* ⇒ git log > x
    git log:* ⇒ git -c x=y log
    """),
    ("", "x"),
]


@each_row(FITS)
def test_a_pattern_allows_matching_commands(pattern: str, command: str) -> None:
    assert judge_command(command, allow=[pattern], use_profile=False).decision == "allow"


@each_row(MISSES)
def test_a_pattern_does_not_allow_other_commands(pattern: str, command: str) -> None:
    assert judge_command(command, allow=[pattern], use_profile=False).decision != "allow"


@each_row([pair for pair in FITS if "$" not in pair[1]])
def test_a_pattern_denies_the_commands_that_it_allows(pattern: str, command: str) -> None:
    assert judge_command(command, allow=[None], deny=[pattern]).decision == "deny"


def test_a_pattern_matches_known_words() -> None:
    assert matches_command("git log:*", ["git", "log", "-5"])
    assert matches_command(None, ["anything"])
    assert not matches_command("git log", ["git", "log", "-5"])
    assert matches_command("echo *", ["echo", "a b"])


def test_a_pattern_with_many_wildcards_takes_one_pass() -> None:
    pattern = "*a" * 200 + "*b"
    assert not matches_command(pattern, ["a" * 5000])
    assert matches_command(pattern, ["a" * 5000 + "b"])


def test_only_a_rule_for_every_command_covers_redirections() -> None:
    assert judge_command("make > out", allow=[None]).decision == "allow"
    assert judge_command("make > out", allow=["*"]).decision == "allow"
    assert judge_command("make > out", allow=["make:*"]).decision == "ask"
    assert (
        judge_command("make > out", allow=["make *"], may_write=lambda path: Allow("Edit(/out)", "user")).decision
        == "allow"
    )


@each_row(
    split_table("""
    f() { npm test; }; f
    function f { npm test; }; f x y
    f() { npm test; }; g() { f; }; g
""")
)
def test_a_function_call_is_judged_by_the_body_of_the_function(command: str) -> None:
    assert judge_command(command, allow=["npm test"]).decision == "allow"
    assert judge_command(command).decision == "ask"
    assert judge_command(command, allow=[None], deny=["npm:*"]).decision == "deny"


def test_a_function_is_known_only_after_its_definition_and_hides_no_denied_name() -> None:
    assert judge_command("f; f() { ls; }").decision == "ask"
    assert judge_command("if true; then f() { ls; }; fi; f").decision == "ask"
    assert judge_command("(f() { ls; }); f").decision == "ask"
    assert judge_command("curl() { ls; }; curl x", allow=[None], deny=["curl:*"]).decision == "deny"
