"""Parsing of a command: its words after quote removal, and every simple command in it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.policy.bash.bash_cases import judge_command
from tests.policy.tables import each_row, split_table
from vaka.policy.bash import (
    Assignment,
    Redirection,
    ShellScript,
    SimpleCommand,
    UnreadableScript,
    Word,
    WordExpansion,
    judge_script,
    read_script,
)


def read_commands(command: str) -> tuple[SimpleCommand, ...]:
    script = read_script(command)
    assert isinstance(script, ShellScript), script
    return script.commands


def parsed_words(*commands: str) -> tuple[tuple[Word, ...], ...]:
    return tuple(tuple(Word(text, text) for text in command.split()) for command in commands)


def read_argvs(command: str) -> list[list[str | None]]:
    return [[word.value for word in simple.words] for simple in read_commands(command)]


QUOTING = [
    (r"a b", ["a", "b"]),
    (r"a  'b c'   \"d\"", ["a", "b c", '"d"']),
    (r'a "b c" "d"', ["a", "b c", "d"]),
    (r"a b\ c", ["a", "b c"]),
    (r"a 'b'\''c'", ["a", "b'c"]),
    (r'a "b\"c" "\$d" "\`" "\\" "\e"', ["a", 'b"c', "$d", "`", "\\", r"\e"]),
    (r"a '\n' '\\'", ["a", r"\n", r"\\"]),
    (r"a $'\n\t\\\'' $'\x41\101\u00e9\U0001f600' $'\cA'", ["a", "\n\t\\'", "AAé😀", "\x01"]),
    (r"a $'b\0c'd", ["a", "bd"]),
    (r'a $"b"', ["a", "b"]),
    (r"a '' " + '""', ["a", "", ""]),
    (r"a b'c'" + '"d"e', ["a", "bcde"]),
    ("a \\\nb c\\\nd 'e\\\nf' \"g\\\nh\"", ["a", "b", "cd", "e\\\nf", "gh"]),
    (r"a {b,c}d {1..3} {a..c} {03..1}", ["a", "bd", "cd", "1", "2", "3", "a", "b", "c", "03", "02", "01"]),
    (r"a {b} {} '{b,c}' \{b,c\} x{,y} {b", ["a", "{b}", "{}", "{b,c}", "{b,c}", "x", "xy", "{b"]),
    (r"a {b,{c,d}} {1..5..2}", ["a", "b", "c", "d", "1", "3", "5"]),
    (r"a b#c '#' \# d", ["a", "b#c", "#", "#", "d"]),
    (r"a b # c d", ["a", "b"]),
    (r"a @{u} HEAD^ HEAD~2 a=b --c=d %e +f", ["a", "@{u}", "HEAD^", "HEAD~2", "a=b", "--c=d", "%e", "+f"]),
    (r"a 'é' ü\ñ 你好", ["a", "é", "üñ", "你好"]),
    (r"a $ '$b' \$c", ["a", "$", "$b", "$c"]),
    (r"a > b c 2>&1 d", ["a", "c", "d"]),
]


@pytest.mark.parametrize(("command", "argv"), QUOTING)
def test_quotes_are_removed_as_bash_removes_them(command: str, argv: list[str], tmp_path: Path) -> None:
    assert read_argvs(command) == [argv]
    code = "import sys; sys.stdout.buffer.write(b'\\0'.join(a.encode() for a in sys.argv[1:]))"
    script = f'a() {{ "{sys.executable}" -c "$CODE" a "$@"; }}\n{command}'
    environment = {"CODE": code, "LANG": "C.UTF-8"}
    done = subprocess.run(["/bin/bash", "-c", script], cwd=tmp_path, capture_output=True, check=True, env=environment)
    written = (tmp_path / "b").read_bytes() if ">" in command else done.stdout
    assert written.decode().split("\0") == argv


@each_row(
    [
        ("$x", (WordExpansion("parameter", "x", may_split=True),), True),
        ('"$x"', (WordExpansion("parameter", "x"),), False),
        ("${x}", (WordExpansion("parameter", "x", may_split=True),), True),
        ('a"${x:-b}"c', ("a", WordExpansion("parameter", "x:-b"), "c"), False),
        ('"$@"', (WordExpansion("parameter", "@", may_split=True),), True),
        ('"$*"', (WordExpansion("parameter", "*"),), False),
        ('"${x[@]}"', (WordExpansion("parameter", "x[@]", may_split=True),), True),
        ("$(b)", (WordExpansion("command", may_split=True, producers=parsed_words("b")),), True),
        (
            "$(echo b c)",
            (WordExpansion("command", may_split=True, guess="b c", producers=parsed_words("echo b c")),),
            True,
        ),
        ("$(b | c d)", (WordExpansion("command", may_split=True, producers=parsed_words("b", "c d")),), True),
        ("$(b; c)", (WordExpansion("command", may_split=True),), True),
        ('"`b`"', (WordExpansion("command", producers=parsed_words("b")),), False),
        ("$((1+2))", (WordExpansion("arithmetic"),), False),
        ("<(b)", (WordExpansion("process", producers=parsed_words("b")),), False),
        ("*.py", (WordExpansion("glob", "*", may_split=True), ".py"), True),
        (
            "a?[bc]",
            ("a", WordExpansion("glob", "?", may_split=True), WordExpansion("glob", "[bc]", may_split=True)),
            True,
        ),
        ("~", (WordExpansion("tilde", "~"),), False),
        ("~/x", (WordExpansion("tilde", "~"), "/x"), False),
        ("~u/x", (WordExpansion("tilde", "~u"), "/x"), False),
        ("of=~/x", ("of=", WordExpansion("tilde", "~"), "/x"), False),
        ("{b},c}", (WordExpansion("brace", "{b},c}", may_split=True),), True),
        ("{1..1000}", (WordExpansion("brace", "{1..1000}", may_split=True),), True),
    ],
)
def test_an_unknown_word_has_its_known_parts(word: str, pieces: tuple[str | WordExpansion, ...], splits: bool) -> None:
    found = read_commands(f"a {word}")[-1].words[1]
    assert (found.value, found.pieces, found.may_split) == (None, pieces, splits)
    assert found.prefix == (pieces[0] if isinstance(pieces[0], str) else "")


def test_a_pattern_in_quotes_is_a_plain_word() -> None:
    assert read_argvs("a '*' \"?\" \\[b] '~' \\~") == [["a", "*", "?", "[b]", "~", "~"]]


def test_a_command_has_its_variables_and_redirections() -> None:
    (simple,) = read_commands("A=1 B='x y' cmd a b <<< word > f 2>&1 >> g")
    assert [word.value for word in simple.words] == ["cmd", "a", "b"]
    assert simple.assignments == (
        Assignment("A", Word("1", "1")),
        Assignment("B", Word("x y", "'x y'", unquoted=False)),
    )
    assert simple.redirections == (
        Redirection("<<<", Word("word", "word"), "word\n"),
        Redirection(">", Word("f", "f")),
        Redirection(">&", Word("1", "1"), descriptor="2"),
        Redirection(">>", Word("g", "g")),
    )
    assert simple.source == "A=1 B='x y' cmd a b <<< word > f 2>&1 >> g"


def test_a_here_document_is_text_and_what_it_expands_is_not() -> None:
    quoted = read_commands("cat <<'EOF'\n$(a) `b`\nEOF\n")
    assert quoted == (
        SimpleCommand(
            (Word("cat", "cat"),),
            (),
            (Redirection("<<", Word(""), "$(a) `b`\n"),),
            "cat",
            unwrapped_words=(Word("cat", "cat"),),
        ),
    )
    assert [simple.name for simple in read_commands("cat <<EOF\n$(a) `b` ${x:-$(c)} \\`d\\`\nEOF\ne")] == [
        "a",
        "c",
        "b",
        "cat",
        "e",
    ]
    assert read_commands("cat <<-EOF\n\tx\n\t\ty\n\tEOF\n")[0].redirections[0].body == "x\ny\n"


def test_words_after_a_redirection_belong_to_the_command() -> None:
    assert read_argvs("a > b c d") == [["a", "c", "d"]]
    assert read_argvs("a && b > c d") == [["a"], ["b", "d"]]
    assert read_argvs("> a b c > d e") == [["b", "c", "e"]]


@each_row(
    [
        ("a; b && c || d | e |& f & g", "abcdefg"),
        ("(a; { b; }; ( c ))", "abc"),
        ("if a; then b; elif c; then d; else e; fi", "abcde"),
        ("while a; do b; done; until c; do d; done", "abcd"),
        ("for i in $(a); do b; done; select i in x; do c; done", "abc"),
        ("for ((i=0; i<$(a); i++)); do b; done", "ab"),
        ("case $(a) in x|y) b;; (z) c;; esac", "abc"),
        ("f() { a; }; function g { b; }; h() ( c )", "abc"),
        ('x "$(a "$(b)")" `c`', "bacx"),
        ("[[ $(a) == b ]] && c; (( $(d) + 1 ))", "a[cd"),
        ("x=$(a) y=`b` z", "abz"),
        ("a=($(b) $(c)); d[$(e)]=1", "bc e "),
        ("a <(b) >(c)", "bca"),
        ("time a; ! b", "tb"),
        ("a\n\n# c\nb # d\n", "ab"),
    ],
)
def test_every_simple_command_is_found(command: str, names: str) -> None:
    assert "".join((simple.name or " ")[0] for simple in read_commands(command)) == names


def test_a_script_inside_a_command_is_parsed_and_has_an_origin() -> None:
    found = [(simple.name, simple.origin) for simple in read_commands("sudo bash -c 'a; eval \"b c\"'; trap 'd' EXIT")]
    assert found == [
        ("sudo", ""),
        ("a", "bash -c"),
        ("eval", "bash -c"),
        ("b", "eval"),
        ("trap", ""),
        ("d", "trap"),
    ]


def test_a_wrapper_has_its_commands_for_each_interpretation_of_its_options() -> None:
    (simple,) = read_commands("sudo -u root env A=1 nice ls -l")
    assert [[word.value for word in words] for words in simple.wrapped_commands] == [
        ["env", "A=1", "nice", "ls", "-l"],
        ["nice", "ls", "-l"],
        ["ls", "-l"],
    ]
    (unknown,) = read_commands("timeout --odd x 5 ls")
    assert [words[0].value for words in unknown.wrapped_commands] == ["ls", "5"]


def test_only_transparent_wrappers_are_removed_for_allow_rules() -> None:
    (simple,) = read_commands("time nice -n 5 timeout -k 1 10 nohup stdbuf -oL ls -l")
    assert [word.value for word in simple.unwrapped_words] == ["ls", "-l"]
    for command in ("sudo ls", "env ls", "timeout $x ls", "nice --odd ls", "timeout", "nice -n $x ls"):
        assert read_commands(command)[0].unwrapped_words == read_commands(command)[0].words


@each_row(
    split_table(r"""
    cat <<A <<B⏎a⏎A⏎b⏎B
    exec 3<>f
    time { ls; }
    coproc X { ls; }
    cat <<EOF; ls⏎x⏎EOF
    {fd}> f ls
    A=1 > f
""")
)
def test_syntax_that_the_grammar_lacks_is_unreadable(command: str) -> None:
    """Valid but rare syntax is asked about."""
    assert isinstance(read_script(command), UnreadableScript)


@each_row(
    [
        ("ls\0", "it has the control character U+0000"),
        ("ls \u200b", "it has the invisible character U+200B"),
        ("ls (", "it is not valid bash"),
        ("ls ;; ls", "';;' is where it should not be"),
    ],
)
def test_an_unreadable_text_has_a_reason(text: str, reason: str) -> None:
    script = read_script(text)
    assert isinstance(script, UnreadableScript)
    assert script.reason == reason
    assert judge_script(script).reason == f"it cannot be judged: {reason}"


def test_without_the_grammar_nothing_is_ever_allowed() -> None:
    program = """
import sys
sys.modules["tree_sitter_bash"] = None
from vaka.policy.bash import CommandRule, judge_script, read_script
found = judge_script(read_script("ls"), [CommandRule(None, "allow")])
assert found.decision == "ask" and "pip install tree-sitter tree-sitter-bash" in found.reason, found
denied = judge_script(read_script("ls; curl x"), [CommandRule(None, "allow"), CommandRule("curl:*", "deny")])
assert denied.decision == "deny", denied
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_decision_is_plain_data() -> None:
    assert judge_script(read_script("ls")) == judge_script(read_script("ls"))
    assert repr(judge_script(read_script("ls"))).startswith("PermissionDecision(")


# ---------------------------------------- words before a here-document that the grammar drops


@each_row(
    [
        ("python3 - <<'E'\nx\nE", ["python3", "-"]),
        ("python3 -<<'E'\nx\nE", ["python3", "-"]),
        ("psql -h x - <<E\nx\nE", ["psql", "-h", "x", "-"]),
        ("a 2>/dev/null - <<E\nx\nE", ["a", "-"]),
        ("a - <<E b\nx\nE", ["a", "-", "b"]),
        ("cat -n<<E\nx\nE", ["cat", "-n"]),
        ("cat -n<<-E\n\tx\n\tE", ["cat", "-n"]),
        ("sort --output=x<<E\nx\nE", ["sort", "--output=x"]),
        ("sort -o<<E out\nx\nE", ["sort", "-o", "out"]),
    ]
)
def test_words_before_a_here_document_are_kept(command: str, words: list[str]) -> None:
    assert read_argvs(command) == [words]


@each_row(["sort -oout<<E\nx\nE", "sort -o<<E out\nx\nE", "sed -i<<E f\nx\nE", "ls; sort -ox<<E\nx\nE"])
def test_an_option_directly_before_the_here_document_operator_is_judged(command: str) -> None:
    assert judge_command(command).decision == "ask"


def test_a_script_in_a_here_document_is_judged() -> None:
    assert judge_command("sh - <<E\nrm x\nE", allow=[None], deny=["rm:*"]).decision == "deny"
    assert judge_command("python3 - <<'E'\nprint(1)\nE", allow=["python3:*"]).decision == "allow"
    assert judge_command("cd src && python3 - <<'E' | head\nprint(1)\nE", allow=["python3:*"]).decision == "allow"
