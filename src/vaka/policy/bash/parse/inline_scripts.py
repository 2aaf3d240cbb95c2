"""Scripts inside a command: handed to a shell (sh -c, eval), or run by an option (git -c, tar --to-command)."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.parse.syntax import Redirection, SimpleCommand, Word, Words
from vaka.policy.bash.parse.words import decode_ansi
from vaka.policy.bash.parse.wrappers import base_name

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "yash", "posh", "pdksh"})

_STDIN_PATHS = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}

_SHELL_VALUED_OPTIONS = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}


class ScriptText(NamedTuple):
    """A text that a command gets or prints; not ``sure`` when parts of it only bash will know."""

    text: str
    certain: bool


class InlineScript(NamedTuple):
    """A script inside a command, and where it was found."""

    origin: str
    text: ScriptText


ScriptFinder: TypeAlias = Callable[[Words, ScriptText | None], Iterator[InlineScript]]


def find_inline_scripts(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    """Yield the scripts that a command runs, besides itself."""
    name = base_name(words[0].placeholder_text) if words else ""
    if name in SHELLS:
        yield from _find_shell_script(name, words[1:], stdin)
    elif (found := _SCRIPT_FINDERS.get(name)) is not None:
        yield from found(words[1:], stdin)


def _text_of_word(word: Word) -> ScriptText:
    return ScriptText(word.placeholder_text, word.guess is not None)


def _join_words(words: Words) -> ScriptText:
    return ScriptText(" ".join(word.placeholder_text for word in words), all(word.guess is not None for word in words))


def _process_substitution_text(words: Words) -> ScriptText | None:
    """What ``<(echo …)`` as the first word gives to read."""
    hole = words[0].expansions[0] if words and len(words[0].expansions) == 1 else None
    return ScriptText(hole.guess, certain=True) if hole and hole.kind == "process" and hole.guess is not None else None


def _find_shell_script(name: str, words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    index, script, listens = 0, False, False
    while (
        index < len(words)
        and words[index].placeholder_text.startswith(("-", "+"))
        and words[index].value not in {"-", "--"}
    ):
        value = words[index].placeholder_text
        if not value.startswith("--"):
            script = script or (value.startswith("-") and "c" in value)
            listens = listens or (value.startswith("-") and "s" in value)
        index += 2 if value in _SHELL_VALUED_OPTIONS or (value[-1:] in "oO" and not value.startswith("--")) else 1
    if index < len(words) and words[index].value in {"-", "--"}:
        index += 1
    rest = words[index:]
    if script:
        if rest:
            yield InlineScript(f"{name} -c", _text_of_word(rest[0]))
    elif (given := _process_substitution_text(rest)) is not None:
        yield InlineScript(f"{name} <(…)", given)
    elif stdin is not None and (listens or not rest or rest[0].value in _STDIN_PATHS):
        yield InlineScript(f"{name}, from its input", stdin)


def _find_eval(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    rest = words[1:] if words and words[0].value == "--" else words
    if rest:
        yield InlineScript("eval", _join_words(rest))


def _find_trap(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    rest = words[1:] if words and words[0].value == "--" else words
    if len(rest) > 1 and (rest[0].value is None or not re.fullmatch(r"-[lp]?|\d*", rest[0].value)):
        yield InlineScript("trap", _text_of_word(rest[0]))


def _find_in_options(*options: str) -> ScriptFinder:
    def find(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
        for index, word in enumerate(words):
            value = word.placeholder_text
            if _takes_next_word(value, options) and index + 1 < len(words):
                yield InlineScript(value, _text_of_word(words[index + 1]))
            elif (start := next((one for one in options if _has_attached_value(one, value)), "")) != "":
                yield InlineScript(start, ScriptText(value[len(start) :].removeprefix("="), word.guess is not None))

    return find


def _takes_next_word(value: str, options: tuple[str, ...]) -> bool:
    """Return whether the next word is the value of an option, alone or the last of several in one word (``-qc``)."""
    return value in options or (re.fullmatch(r"-[A-Za-z]+", value) is not None and f"-{value[-1]}" in options)


def _has_attached_value(option: str, value: str) -> bool:
    return value.startswith(option + "=") if option.startswith("--") else value.startswith(option) and value != option


def _find_watch(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    index = 0
    while index < len(words) and words[index].placeholder_text.startswith("-"):
        index += 2 if words[index].value in {"-n", "--interval", "-q", "--equexit"} else 1
    if words[index:]:
        yield InlineScript("watch", _join_words(words[index:]))


def _find_source(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    given = stdin if words and words[0].value in _STDIN_PATHS else _process_substitution_text(words)
    if given is not None:
        yield InlineScript("source", given)


def _find_stdin_script(_words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    if stdin is not None:
        yield InlineScript("its input", stdin)


def _find_alias(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    for word in words:
        name, equals, body = word.placeholder_text.partition("=")
        if equals and name:
            yield InlineScript("alias", ScriptText(body, word.guess is not None))


def _find_git_alias(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    for before, word in pairwise(words):
        key, _, body = word.placeholder_text.partition("=")
        if before.value in {"-c", "--config-env"} and key.lower().startswith("alias.") and body:
            text = body[1:] if body.startswith("!") else f"git {body}"
            yield InlineScript("git alias", ScriptText(text, word.guess is not None))


def _find_parallel(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    end = next((index for index, word in enumerate(words) if word.placeholder_text.startswith(":::")), len(words))
    start = 0
    while start < end and words[start].placeholder_text.startswith("-"):
        start += 2 if words[start].value in _PARALLEL_VALUED else 1
    if start < end:
        yield InlineScript("parallel", _join_words(words[start:end]))
    else:
        yield from (InlineScript("parallel", _text_of_word(word)) for word in words[end + 1 :])
        if stdin is not None:
            yield InlineScript("parallel", stdin)


_PARALLEL_VALUED = frozenset({"-j", "-P", "-I", "-n", "-N", "-a", "-S", "-d", "-E", "--jobs", "--arg-file", "--delay"})


def _find_ssh(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    """What stands behind the host is a script for the shell over there."""
    index = 0
    while index < len(words) and words[index].placeholder_text.startswith("-"):
        index += 2 if re.fullmatch(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOopQRSWw]", words[index].placeholder_text) else 1
    while index + 1 < len(words) and words[index + 1].placeholder_text.startswith("-"):
        index += 1
    if words[index + 1 :]:
        yield InlineScript("ssh", _join_words(words[index + 1 :]))


_SCRIPT_FINDERS: Mapping[str, ScriptFinder] = {
    "eval": _find_eval,
    "trap": _find_trap,
    "watch": _find_watch,
    "source": _find_source,
    ".": _find_source,
    "alias": _find_alias,
    "git": _find_git_alias,
    "at": _find_stdin_script,
    "batch": _find_stdin_script,
    "parallel": _find_parallel,
    "ssh": _find_ssh,
    "su": _find_in_options("-c", "--command", "--session-command"),
    "runuser": _find_in_options("-c", "--command"),
    "script": _find_in_options("-c", "--command"),
    "flock": _find_in_options("-c", "--command"),
    "sg": _find_in_options("-c"),
    "mapfile": _find_in_options("-C"),
    "readarray": _find_in_options("-C"),
    "compgen": _find_in_options("-C", "-W"),
    "complete": _find_in_options("-C", "-W"),
    "nix-shell": _find_in_options("--run", "--command"),
    "npx": _find_in_options("-c", "--call"),
}


# ------------------------------------------------------------------------------------------- what a command prints


_PRINTF_DIRECTIVE = re.compile(r"%([%sb])")


def predict_output(command: SimpleCommand) -> ScriptText | None:
    """Return what a command prints when that is plain to see, as for ``echo`` of known words."""
    if command.name not in {"echo", "printf", "cat"} or any(">" in one.operator for one in command.redirections):
        return None
    texts = [word.placeholder_text for word in command.words[1:]]
    sure = all(word.guess is not None for word in command.words)
    if command.name == "echo":
        return ScriptText(_echo_output(texts), sure)
    if command.name == "printf" and texts:
        said = _printf_output(texts)
        return ScriptText(said, sure) if said is not None else None
    if command.name == "cat" and texts in ([], ["-"]):
        return input_text_of(command.redirections)
    return None


def input_text_of(redirections: tuple[Redirection, ...]) -> ScriptText | None:
    """Return the text that a command gets as its input from a here-document or here-string."""
    for one in reversed(redirections):
        if one.body is not None:
            return ScriptText(one.body, one.target.value is not None)
        if one.operator == "<" and (given := _process_substitution_text((one.target,))) is not None:
            return given
    return None


def _echo_output(texts: list[str]) -> str:
    decode = False
    while texts and re.fullmatch(r"-[neE]+", texts[0]):
        decode = "e" in texts[0]
        texts = texts[1:]
    text = " ".join(texts)
    return _decode_escapes(text) if decode else text


def _printf_output(texts: list[str]) -> str | None:
    style, *values = texts[1:] if texts[0] == "--" and len(texts) > 1 else texts
    if "%" in _PRINTF_DIRECTIVE.sub("", style):
        return None
    style = _decode_escapes(style)
    holes = len(re.findall(r"%[sb]", style))
    filling = iter(values)

    def fill(found: re.Match[str]) -> str:
        return "%" if found[1] == "%" else next(filling, "")

    rounds = -(-len(values) // holes) if holes else 1
    return "".join(_PRINTF_DIRECTIVE.sub(fill, style) for _ in range(max(rounds, 1)))


def _decode_escapes(text: str) -> str:
    return (
        decode_ansi(text.encode("utf-8", "surrogateescape").decode("latin-1"))
        .encode("latin-1")
        .decode("utf-8", "replace")
    )


CommandFinder: TypeAlias = Callable[[list[str]], Iterator[str]]


def find_option_commands(words: Words) -> Iterator[str]:
    """Yield the texts that a command hands to a shell, as far as it is known where they stand."""
    found = _COMMAND_FINDERS.get(base_name(words[0].placeholder_text)) if words else None
    if found is not None:
        yield from found([word.placeholder_text for word in words[1:]])


def _find_option_values(*options: str) -> CommandFinder:
    """Find the values of some options: in the next word, behind ``=``, or right behind a letter."""

    def find(values: list[str]) -> Iterator[str]:
        for index, value in enumerate(values):
            for option in options:
                if value == option and index + 1 < len(values):
                    yield values[index + 1]
                elif value != option and value.startswith(option):
                    yield value[len(option) :].removeprefix("=")

    return find


def _find_in_text(*patterns: str) -> CommandFinder:
    """Find what stands in the words themselves."""
    compiled = [re.compile(pattern, re.DOTALL) for pattern in patterns]

    def find(values: list[str]) -> Iterator[str]:
        for value in values:
            for pattern in compiled:
                yield from pattern.findall(value)

    return find


_GIT_SETTINGS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor)|diff\.external|pager\..*|.*\.cmd)=(.*)",
    re.IGNORECASE | re.DOTALL,
)

_GIT_OPTIONS = {"rebase": _find_option_values("-x", "--exec"), "difftool": _find_option_values("-x", "--extcmd")}


def _find_git_commands(values: list[str]) -> Iterator[str]:
    for index, value in enumerate(values):
        if found := _GIT_SETTINGS.fullmatch(value):
            yield found[1]
        if value in _GIT_OPTIONS:
            yield from _GIT_OPTIONS[value](values[index + 1 :])
    if "filter-branch" in values:
        yield from (after for value, after in pairwise(values) if value.endswith("-filter"))
    if "foreach" in values:
        yield " ".join(value for value in values[values.index("foreach") + 1 :] if not value.startswith("-"))


_AWK_FINDER = _find_in_text(r'system\s*\(\s*"([^"]*)"', r'(?<!\|)\|&?\s*"([^"]*)"', r'"([^"]*)"\s*\|(?!\|)')

_EDITOR_FINDER = _find_in_text(r"^\+?:?!(.+)")

_COMMAND_FINDERS: Mapping[str, CommandFinder] = {
    "git": _find_git_commands,
    "tar": _find_option_values("--checkpoint-action=exec", "--to-command", "-I", "--use-compress-program"),
    "rsync": _find_option_values("-e", "--rsh"),
    "ssh": _find_in_text(r"(?i)^(?:-o)?(?:Proxy|Local)Command[= ](.*)"),
    "scp": _find_option_values("-S"),
    "sftp": _find_option_values("-S"),
    "man": _find_option_values("-P", "--pager"),
    "rg": _find_option_values("--pre"),
    "sort": _find_option_values("--compress-program"),
    "split": _find_option_values("--filter"),
    "awk": _AWK_FINDER,
    "gawk": _AWK_FINDER,
    "mawk": _AWK_FINDER,
    "nawk": _AWK_FINDER,
    "sed": _find_in_text(r"(?:^|[;\n{\d$/!])[ \t]*e[ \t]+([^\n]+)"),
    "gsed": _find_in_text(r"(?:^|[;\n{\d$/!])[ \t]*e[ \t]+([^\n]+)"),
    "vi": _EDITOR_FINDER,
    "vim": _EDITOR_FINDER,
    "nvim": _EDITOR_FINDER,
    "less": _EDITOR_FINDER,
    "ex": _EDITOR_FINDER,
}
