"""Scripts inside a command: arguments of a shell (sh -c, eval) or of an option (git -c, tar --to-command)."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.parse.syntax import Redirection, SimpleCommand, Word, Words
from vaka.policy.bash.parse.words import decode_ansi
from vaka.policy.bash.parse.wrappers import base_name
from vaka.policy.bash.programs import read_table

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "yash", "posh", "pdksh"})

_STDIN_PATHS = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}

_SHELL_VALUED_OPTIONS = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}


class ScriptText(NamedTuple):
    """The input or output of a command; not ``certain`` when parts are unknown before it runs."""

    text: str
    certain: bool


class InlineScript(NamedTuple):
    """A script inside a command, and the command or option it belongs to."""

    origin: str
    text: ScriptText


ScriptFinder: TypeAlias = Callable[[Words, ScriptText | None], Iterator[InlineScript]]


def find_inline_scripts(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    """Yield the scripts in the arguments or the input of a command."""
    name = base_name(words[0].placeholder_text) if words else ""
    if name in SHELLS:
        yield from _find_shell_script(name, words[1:], stdin)
    elif (finder := _SCRIPT_FINDERS.get(name)) is not None:
        yield from finder(words[1:], stdin)
    elif name in _SCRIPT_OPTIONS:
        yield from _find_in_options(words[1:], _SCRIPT_OPTIONS[name].split())


def _text_of_word(word: Word) -> ScriptText:
    return ScriptText(word.placeholder_text, word.guess is not None)


def _join_words(words: Words) -> ScriptText:
    return ScriptText(" ".join(word.placeholder_text for word in words), all(word.guess is not None for word in words))


def _process_substitution_text(words: Words) -> ScriptText | None:
    """Return the predicted text of ``<(echo …)`` as the first word."""
    expansions = words[0].expansions if words else ()
    if len(expansions) != 1 or expansions[0].kind != "process" or expansions[0].guess is None:
        return None
    return ScriptText(expansions[0].guess, certain=True)


def _find_shell_script(name: str, words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    index, letters = 0, ""
    while index < len(words) and words[index].value not in {"-", "--"}:
        value = words[index].placeholder_text
        if not value.startswith(("-", "+")):
            break
        short = not value.startswith("--")
        letters += value if short and value.startswith("-") else ""
        index += 2 if value in _SHELL_VALUED_OPTIONS or (value[-1:] in "oO" and short) else 1
    if index < len(words) and words[index].value in {"-", "--"}:
        index += 1
    rest = words[index:]
    if "c" in letters:
        if rest:
            yield InlineScript(f"{name} -c", _text_of_word(rest[0]))
    elif (text := _process_substitution_text(rest)) is not None:
        yield InlineScript(f"{name} <(…)", text)
    elif stdin is not None and ("s" in letters or not rest or rest[0].value in _STDIN_PATHS):
        yield InlineScript(f"{name}, from its input", stdin)


def _find_eval(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    rest = words[1:] if words and words[0].value == "--" else words
    if rest:
        yield InlineScript("eval", _join_words(rest))


def _find_trap(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    rest = words[1:] if words and words[0].value == "--" else words
    if len(rest) > 1 and (rest[0].value is None or not re.fullmatch(r"-[lp]?|\d*", rest[0].value)):
        yield InlineScript("trap", _text_of_word(rest[0]))


def _find_in_options(words: Words, options: list[str]) -> Iterator[InlineScript]:
    for index, word in enumerate(words):
        value = word.placeholder_text
        if _takes_next_word(value, options) and index + 1 < len(words):
            yield InlineScript(value, _text_of_word(words[index + 1]))
        elif start := next((option for option in options if _has_attached_value(option, value)), ""):
            yield InlineScript(start, ScriptText(value[len(start) :].removeprefix("="), word.guess is not None))


def _takes_next_word(value: str, options: list[str]) -> bool:
    """Return whether the next word is the value of an option, or of the last option of a cluster (``-qc``)."""
    return value in options or (re.fullmatch(r"-[A-Za-z]+", value) is not None and f"-{value[-1]}" in options)


def _has_attached_value(option: str, value: str) -> bool:
    return value.startswith(option + "=") if option.startswith("--") else value.startswith(option) and value != option


def _skip_options(words: Words, takes_value: Callable[[Word], bool]) -> int:
    """Return the index of the first word that is neither an option nor the value of one."""
    index = 0
    while index < len(words) and words[index].placeholder_text.startswith("-"):
        index += 2 if takes_value(words[index]) else 1
    return index


def _find_watch(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    rest = words[_skip_options(words, lambda word: word.value in {"-n", "--interval", "-q", "--equexit"}) :]
    if rest:
        yield InlineScript("watch", _join_words(rest))


def _find_source(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    text = stdin if words and words[0].value in _STDIN_PATHS else _process_substitution_text(words)
    if text is not None:
        yield InlineScript("source", text)


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
    start = _skip_options(words[:end], lambda word: word.value in _PARALLEL_VALUED)
    if start < end:
        yield InlineScript("parallel", _join_words(words[start:end]))
    else:
        yield from (InlineScript("parallel", _text_of_word(word)) for word in words[end + 1 :])
        if stdin is not None:
            yield InlineScript("parallel", stdin)


_PARALLEL_VALUED = frozenset({"-j", "-P", "-I", "-n", "-N", "-a", "-S", "-d", "-E", "--jobs", "--arg-file", "--delay"})

_SSH_VALUED = re.compile(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOopQRSWw]")


def _find_ssh(words: Words, _stdin: ScriptText | None) -> Iterator[InlineScript]:
    """The words after the host are a script for the remote shell."""
    index = _skip_options(words, lambda word: _SSH_VALUED.fullmatch(word.placeholder_text) is not None)
    while index + 1 < len(words) and words[index + 1].placeholder_text.startswith("-"):
        index += 1
    if words[index + 1 :]:
        yield InlineScript("ssh", _join_words(words[index + 1 :]))


_SCRIPT_FINDERS: Mapping[str, ScriptFinder] = {
    "eval": _find_eval, "trap": _find_trap, "watch": _find_watch, "alias": _find_alias, "git": _find_git_alias,
    "parallel": _find_parallel, "ssh": _find_ssh, "source": _find_source, ".": _find_source,
    "at": _find_stdin_script, "batch": _find_stdin_script,
}  # fmt: skip

_SCRIPT_OPTIONS: Mapping[str, str] = read_table("script_options")


# ------------------------------------------------------------------------------------------- predicted output


_PRINTF_DIRECTIVE = re.compile(r"%([%sb])")


def predict_output(command: SimpleCommand) -> ScriptText | None:
    """Return the output of ``echo``, ``printf`` or ``cat``, as far as it follows from the command."""
    if command.name not in {"echo", "printf", "cat"} or any(item.writes for item in command.redirections):
        return None
    texts = [word.placeholder_text for word in command.words[1:]]
    certain = all(word.guess is not None for word in command.words)
    if command.name == "echo":
        return ScriptText(_echo_output(texts), certain)
    if command.name == "printf" and texts:
        output = _printf_output(texts)
        return ScriptText(output, certain) if output is not None else None
    if command.name == "cat" and texts in ([], ["-"]):
        return input_text_of(command.redirections)
    return None


def input_text_of(redirections: tuple[Redirection, ...]) -> ScriptText | None:
    """Return the input that a here-document, here-string or ``<(…)`` gives to a command."""
    for redirection in reversed(redirections):
        body, target = redirection.body, redirection.target
        if body is not None:
            return ScriptText(body, target.value is not None)
        if redirection.operator == "<" and (text := _process_substitution_text((target,))) is not None:
            return text
    return None


def _echo_output(texts: list[str]) -> str:
    decode = False
    while texts and re.fullmatch(r"-[neE]+", texts[0]):
        decode = "e" in texts[0]
        texts = texts[1:]
    text = " ".join(texts)
    return _decode_escapes(text) if decode else text


def _printf_output(texts: list[str]) -> str | None:
    template, *values = texts[1:] if texts[0] == "--" and len(texts) > 1 else texts
    if "%" in _PRINTF_DIRECTIVE.sub("", template):
        return None
    template = _decode_escapes(template)
    directives = len(re.findall(r"%[sb]", template))
    remaining = iter(values)

    def fill(found: re.Match[str]) -> str:
        return "%" if found[1] == "%" else next(remaining, "")

    rounds = -(-len(values) // directives) if directives else 1
    return "".join(_PRINTF_DIRECTIVE.sub(fill, template) for _ in range(max(rounds, 1)))


def _decode_escapes(text: str) -> str:
    decoded = decode_ansi(text.encode("utf-8", "surrogateescape").decode("latin-1"))
    return decoded.encode("latin-1").decode("utf-8", "replace")


def find_option_commands(words: Words) -> Iterator[str]:
    """Yield the texts that a program passes to a shell, such as ``tar --to-command``."""
    name = base_name(words[0].placeholder_text) if words else ""
    if name not in _COMMAND_RUNNERS:
        return
    values = [word.placeholder_text for word in words[1:]]
    if name == "git":
        yield from _find_git_commands(values)
    yield from _find_option_values(values, _COMMAND_OPTIONS.get(name, ""))
    for value in values:
        for pattern in _COMMAND_PATTERNS.get(name, ()):
            yield from re.findall(pattern, value, re.DOTALL)


def _find_option_values(values: list[str], options: str) -> Iterator[str]:
    """Yield the values of options: in the next word, after ``=``, or attached to a letter."""
    for index, value in enumerate(values):
        for option in options.split():
            if value == option and index + 1 < len(values):
                yield values[index + 1]
            elif value != option and value.startswith(option):
                yield value[len(option) :].removeprefix("=")


_GIT_SETTINGS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor)|diff\.external|pager\..*|.*\.cmd)=(.*)",
    re.IGNORECASE | re.DOTALL,
)

_GIT_OPTIONS = {"rebase": "-x --exec", "difftool": "-x --extcmd"}


def _find_git_commands(values: list[str]) -> Iterator[str]:
    for index, value in enumerate(values):
        if found := _GIT_SETTINGS.fullmatch(value):
            yield found[1]
        if value in _GIT_OPTIONS:
            yield from _find_option_values(values[index + 1 :], _GIT_OPTIONS[value])
    if "filter-branch" in values:
        yield from (after for value, after in pairwise(values) if value.endswith("-filter"))
    if "foreach" in values:
        yield " ".join(value for value in values[values.index("foreach") + 1 :] if not value.startswith("-"))


_COMMAND_OPTIONS: Mapping[str, str] = read_table("command_options")

_COMMAND_PATTERNS: Mapping[str, list[str]] = read_table("command_patterns")

_COMMAND_RUNNERS = frozenset({"git", *_COMMAND_OPTIONS, *_COMMAND_PATTERNS})
