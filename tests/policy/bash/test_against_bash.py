"""Random scripts, whole and damaged: the parser must find every command that a real bash runs, word for word.

Bash finds none of the programs and passes each command to a function that records its words.
"""

import os
import random
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

from vaka.policy.bash import ShellScript, Word, read_script

WORDS = [
    "a",
    "b",
    "x1",
    '"a b"',
    "'c d'",
    "$x",
    '"$y"',
    "$(k1 z)",
    "`k2 q`",
    '"$(k3 "w v")"',
    '"`k4`"',
    r"a\;b",
    r"$'n\tq'",
    "{p,q}",
    "*",
    "~",
    "g#h",
    '"#"',
    "-x",
    "--",
    "=",
    "A=1",
    "${v}",
    "${v:-w}",
    '"${v:-$(k5)}"',
    "$((1+2))",
    "$((1+$(k6)))",
    "<(k7)",
    "!",
    r"\#",
    "é",
    '"é"',
    '""',
    "''",
    r"\\",
    r'"a\"b"',
    "$",
    "@{u}",
    "{x}",
    r"$'\''",
    "${v#a}",
    "${#v}",
    "{1..3}",
    "\\\n",
    '"x\\\ny"',
    "'x\\\ny'",
    r"\a",
    r'"\a"',
    '$"t"',
    "[a]",
    "a?",
    '"a\nb"',
    r"$'\x41\u00e9'",
    "-ox",
    "a-",
    "1",
    "a=b",
    "a:b",
    "a,b",
    "a+",
    "%",
    "a/b",
    "@",
    "^",
    r"`k8 \`k9\``",
    '"${v}$(k10)"',
]
REDIRECTIONS = [
    ">f",
    "2>&1",
    ">&2",
    "< /dev/null",
    "&>f",
    ">>f",
    "2>f",
    "<<<w",
    '<<<"$z"',
    " > f",
    ">f g",
    ">|f",
    "3>&1",
    ">&-",
]
NAMES = ["c1", "c2", '"c3"', "c\\4", "'c5'", "$c6", "c7"]
DAMAGE = [
    *" \t\n;&|()<>{}[]\"'\\$`#!=*?~-a",
    "\\\n",
    "<<",
    "EOF",
    "\nEOF",
    "$(",
    "${",
    "))",
    "((",
    "$'",
    '$"',
    " #",
    "\n#",
    ";;",
    "if",
    "fi",
    "do",
]


class BashScriptGenerator:
    """Generates random scripts."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def generate_script(self) -> str:
        text = self.generate_statements(0)
        for _ in range(self.random.choice([0, 0, 1, 1, 2, 3])):
            at = self.random.randint(0, len(text))
            if self.random.random() < 0.5:
                text = text[:at] + self.random.choice(DAMAGE) + text[at:]
            else:
                text = text[:at] + text[at + self.random.choice([1, 1, 2]) :]
        return text

    def generate_word(self) -> str:
        glued = self.random.choice(["", "", "", "", "2", "x2"]) + self.random.choice(["", *REDIRECTIONS])
        return "".join(self.random.choices(WORDS, k=self.random.choice([1, 1, 1, 1, 2, 3]))) + self.random.choice(
            ["", "", "", glued]
        )

    def generate_simple(self) -> str:
        parts = [self.random.choice(NAMES), *(self.generate_word() for _ in range(self.random.randint(0, 3)))]
        if self.random.random() < 0.3:
            parts.append(self.random.choice(REDIRECTIONS))
        if self.random.random() < 0.15:
            parts.insert(0, self.random.choice(["V=1", "V=$(k11)", 'V="a b"', "V="]))
        return " ".join(parts)

    def generate_statements(self, depth: int) -> str:
        text = self.generate_statement(depth)
        while self.random.random() < 0.3:
            text += self.random.choice(["; ", "\n", " & ", " ;", " #c\n"]) + self.generate_statement(depth + 1)
        return text

    def generate_statement(self, depth: int) -> str:
        if depth > 2 or self.random.random() < 0.5:
            return self.generate_simple()
        block = self.generate_statements
        statement = self.generate_statement
        simple = self.generate_simple
        word, choose = self.generate_word, self.random.choice
        shapes: list[Callable[[int], str]] = [
            lambda depth: statement(depth) + choose([" | ", "|", " |& "]) + statement(depth),
            lambda depth: statement(depth) + choose([" && ", "||", " &&\n"]) + statement(depth),
            lambda depth: f"({block(depth)})",
            lambda depth: f"{{ {block(depth)}; }}",
            lambda depth: f"if {block(depth)}; then {block(depth)}; else {simple()}; fi",
            lambda depth: f"for i in {word()} {word()}; do {block(depth)}; done",
            lambda depth: f"case {word()} in a|b) {block(depth)};; *) {simple()} ;; esac",
            lambda depth: f"! {statement(depth)}",
            lambda depth: f"time {statement(depth)}",
            lambda _depth: f"{simple()} <<EOF\nbody $(k12) `k13` $v\nEOF\n{simple()}",
            lambda _depth: f"{simple()} <<'EOF'\nbody $(k12)\nEOF\n{simple()}",
            lambda depth: f"f() {{ {block(depth)}; }}; f",
            lambda _depth: f"[[ {word()} == {word()} ]]",
            lambda _depth: "eval " + choose(["'e1 a; e2'", "e1 b", '"e1 $x"']),
            lambda depth: f"while k14; do {block(depth)}; break; done",
        ]
        return self.random.choice(shapes)(depth + 1)


def run_by_bash(script: str, folder: Path) -> list[tuple[str, ...]]:
    """Return the commands that bash tried to run, each as its words."""
    out = folder / "out"
    for old in folder.glob("out.*"):
        old.unlink()
    work = folder / "work"
    work.mkdir(exist_ok=True)
    for left in work.iterdir():
        left.unlink()
    prepared = "FUNCNEST=5\nreadonly FUNCNEST\n"  # limits functions that call themselves
    prepared += "command_not_found_handle() { builtin printf '%s\\0' \"$@\" $'\\001' >>\"$OUT.$BASHPID\"; }\n"
    file = folder / "script"
    file.write_text(prepared + script + "\n", "utf-8")
    environment = {"PATH": "/nonexistent", "OUT": str(out), "LANG": "C.UTF-8"}
    bash = ["/bin/bash", "--norc", str(file)]
    run_bash_isolated(bash, work, environment)
    found: list[tuple[str, ...]] = []
    words: list[str] = []
    output = b"".join(
        file.read_bytes() for file in folder.glob("out.*")
    )  # one file per process, since they run concurrently
    for word in os.fsdecode(output).split("\0")[:-1]:
        if word == "\x01":
            found.append(tuple(words))
            words = []
        else:
            words.append(word)
    return found


def run_bash_isolated(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    """Run a program in its own process group, and kill the group afterwards."""
    quiet = subprocess.DEVNULL
    running = subprocess.Popen(
        command, cwd=folder, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True
    )
    try:
        running.wait(20)
    except subprocess.TimeoutExpired:
        running.kill()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def matches_argv(words: tuple[Word, ...], argv: tuple[str, ...]) -> bool:
    """Return whether words may become an argv: a known word only itself, an unknown one any words."""

    @cache
    def fits(index: int, at: int) -> bool:
        if index == len(words):
            return at == len(argv)
        value = words[index].value
        if value is not None:
            return at < len(argv) and argv[at] == value and fits(index + 1, at + 1)
        return any(fits(index + 1, later) for later in range(at, len(argv) + 1))

    return fits(0, 0)


def find_missed_commands(seed: int, count: int, folder: Path) -> list[tuple[str, tuple[str, ...]]]:
    """Return the commands that bash ran but the parser did not find, each with its script."""
    author = BashScriptGenerator(seed)
    found: list[tuple[str, tuple[str, ...]]] = []
    ran = 0
    for _ in range(count):
        text = author.generate_script()
        script = read_script(text)
        if not isinstance(script, ShellScript):
            continue
        for argv in run_by_bash(text, folder):
            ran += 1
            readings = [words for simple in script.commands for words in (simple.words, *simple.wrapped_commands)]
            if not any(matches_argv(words, argv) for words in readings):
                found.append((text, argv))
    assert ran > count // 4
    return found


def test_bash_runs_only_commands_that_were_parsed(tmp_path: Path) -> None:
    assert find_missed_commands(1, 80, tmp_path) == []


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2, 10))
def test_bash_runs_only_commands_that_were_parsed_in_thousands_of_scripts(tmp_path: Path, seed: int) -> None:
    assert find_missed_commands(seed, 1000, tmp_path) == []
