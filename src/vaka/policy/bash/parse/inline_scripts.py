"""Scripts inside a command: arguments of a shell (sh -c, eval) or of an option (git -c, tar --to-command)."""

import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.parse.syntax import PLACEHOLDER, Redirection, SimpleCommand, Word, Words
from vaka.policy.bash.parse.words import decode_ansi
from vaka.policy.bash.parse.wrappers import base_name, find_wrapped_commands
from vaka.policy.bash.programs import read_set, read_table

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "yash", "posh", "pdksh"})

_DESCRIPTOR_PATH = re.compile(r"/dev/(?:fd/\d+|std(?:in|out|err))|/proc/(?:.*/)?fd/\d+")

_STDIN_PATHS = frozenset({"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0", "/proc/thread-self/fd/0"})

_SHELL_VALUED_OPTIONS = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}


_ZSH_SYNTAX = re.compile(r"(?:^|[\s;&|(])=|\*\(|\$\{\(")
"""Syntax of zsh alone, which may run commands: ``=name``, glob qualifiers and flags of parameters."""


class ScriptText(NamedTuple):
    """The input or output of a command; not ``certain`` when parts are unknown before it runs."""

    text: str
    certain: bool
    unknown: bool = False
    """Whether nothing of it is known."""
    is_file: bool = False
    """Whether it is the content of a file on disk."""


UNKNOWN_TEXT = ScriptText("", certain=False, unknown=True)

_FILE_TEXT = ScriptText("", certain=False, unknown=True, is_file=True)


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
    if stdin is not None and _starts_default_shell(name, words):
        yield InlineScript(f"{name}, from its input", stdin)


def _starts_default_shell(name: str, words: Words) -> bool:
    """Return whether a program starts a shell because no command is given."""
    if name not in _DEFAULT_SHELLS or any(word.value in {"-c", "--command", "--run"} for word in words[1:]):
        return False
    if name in {"sudo", "doas"} and not any(re.match(r"-\w*[si]|--(?:shell|login)", word.prefix) for word in words[1:]):
        return False
    return name in {"su", "script", "newgrp", "nix-shell"} or not find_wrapped_commands(words)


_DEFAULT_SHELLS = read_set("default_shells")


def _text_of_word(word: Word) -> ScriptText:
    return ScriptText(word.placeholder_text, word.guess is not None)


def _join_words(words: Words) -> ScriptText:
    return ScriptText(" ".join(word.placeholder_text for word in words), all(word.guess is not None for word in words))


def text_of_file(word: Word, stdin: ScriptText | None) -> ScriptText | None:
    """Return the text of a file that is not on disk: ``<(echo …)``, ``/dev/stdin``, ``/dev/fd/3``.

    A word that is unknown beforehand may name the input, if there is one.
    """
    if "process" in word.expansion_kinds:
        guess = word.expansions[0].guess if len(word.pieces) == 1 else None
        return ScriptText(guess, certain=True) if guess is not None else UNKNOWN_TEXT
    if word.value is None:
        return UNKNOWN_TEXT if stdin is not None else None
    path = posixpath.normpath(word.value).replace("//", "/", 1)
    if path in _STDIN_PATHS:
        return stdin
    return UNKNOWN_TEXT if _DESCRIPTOR_PATH.fullmatch(path) else None


def _find_shell_script(name: str, words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    index, letters = 0, ""
    for option, file in pairwise(words):
        if option.value in {"--rcfile", "--init-file"} and (text := text_of_file(file, stdin)) is not None:
            yield InlineScript(f"{name} {option.value}", text)
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
            if "input" in rest[0].expansion_kinds or (name == "zsh" and _ZSH_SYNTAX.search(rest[0].placeholder_text)):
                yield InlineScript(f"{name} -c", UNKNOWN_TEXT)
        return
    text = stdin if "s" in letters or not rest else text_of_file(rest[0], stdin)
    if text is not None:
        yield InlineScript(f"{name}, from its input", text)


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
        elif found := next(filter(None, (_match_attached(option, value) for option in options)), None):
            yield InlineScript(found[1], ScriptText(found[2], word.guess is not None))


def _takes_next_word(value: str, options: list[str]) -> bool:
    """Return whether the next word is the value of an option, or of the last option of a cluster (``-qc``)."""
    if len(value) > len("--x") and value.startswith("--"):
        return any(option.startswith(value) for option in options)
    return value in options or (re.fullmatch(r"-[A-Za-z]+", value) is not None and f"-{value[-1]}" in options)


def _match_attached(option: str, value: str) -> re.Match[str] | None:
    """Return the option and its value in one word: ``--filter=x``, ``--fil=x``, ``-cx``, ``-qcx``."""
    if option.startswith("--"):
        found = re.fullmatch(r"(--\w[\w-]+)=(.*)", value, re.DOTALL)
        return found if found is not None and option.startswith(found[1]) else None
    if len(option) > len("-x"):
        return re.fullmatch(rf"({option})=?(.+)", value, re.DOTALL)
    return re.fullmatch(rf"(-[A-Za-z]*?{option[1]})=?(.+)", value, re.DOTALL)


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
    text = text_of_file(words[0], stdin) if words else None
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
        text, certain, *_ = _join_words(words[start:end])
        filled = _REPLACEMENT.sub(lambda _: PLACEHOLDER, text)
        yield InlineScript("parallel", ScriptText(filled if filled != text else f"{text} {PLACEHOLDER}", certain))
    else:
        yield from (InlineScript("parallel", _text_of_word(word)) for word in words[end + 1 :])
        if any(_PARALLEL_FILE.match(word.placeholder_text) for word in words):
            yield InlineScript("parallel, from a file", UNKNOWN_TEXT)
        elif stdin is not None:
            yield InlineScript("parallel", stdin)


_REPLACEMENT = re.compile(r"\{[\w./#%+-]*\}")
"""Where ``parallel`` inserts an argument; without one it is appended."""

_PARALLEL_FILE = re.compile(r"-a|--arg-file|::::")

_PARALLEL_VALUED = frozenset({"-j", "-P", "-I", "-n", "-N", "-a", "-S", "-d", "-E", "--jobs", "--arg-file", "--delay"})

_SSH_VALUED = re.compile(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOopQRSWw]")


def _find_ssh(words: Words, stdin: ScriptText | None) -> Iterator[InlineScript]:
    """The words after the host are a script for the remote shell; without them it reads its input."""
    index = _skip_options(words, lambda word: _SSH_VALUED.fullmatch(word.placeholder_text) is not None)
    while index + 1 < len(words) and words[index + 1].placeholder_text.startswith("-"):
        index += 1
    if words[index + 1 :]:
        yield InlineScript("ssh", _join_words(words[index + 1 :]))
        if words[index + 1].guess is None and not words[index + 1].prefix:
            yield InlineScript("ssh", UNKNOWN_TEXT)
    elif stdin is not None:
        yield InlineScript("ssh, from its input", stdin if stdin.certain else UNKNOWN_TEXT)


_SCRIPT_FINDERS: Mapping[str, ScriptFinder] = {
    "eval": _find_eval,
    "trap": _find_trap,
    "watch": _find_watch,
    "alias": _find_alias,
    "git": _find_git_alias,
    "parallel": _find_parallel,
    "ssh": _find_ssh,
    "source": _find_source,
    ".": _find_source,
    "at": _find_stdin_script,
    "batch": _find_stdin_script,
}

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
        text = input_text_of(command.redirections, None)
        return text if text is None or not text.unknown else None
    return None


def input_text_of(redirections: tuple[Redirection, ...], inherited: ScriptText | None) -> ScriptText | None:
    """Return the input of a command, ``None`` when it has none."""
    for redirection in reversed(redirections):
        body, target = redirection.body, redirection.target
        if not redirection.operator.startswith("<") or redirection.descriptor not in {"", "0"}:
            continue
        if body is not None:
            return ScriptText(body, target.value is not None)
        if redirection.operator == "<&":
            return UNKNOWN_TEXT if target.value != "0" else inherited
        if redirection.operator == "<&-" or target.value == "/dev/null":
            return None
        return text_of_file(target, inherited) or _FILE_TEXT
    return inherited


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
        value = "%" if found[1] == "%" else next(remaining, "")
        return _decode_escapes(value) if found[1] == "b" else value

    rounds = -(-len(values) // directives) if directives else 1
    return "".join(_PRINTF_DIRECTIVE.sub(fill, template) for _ in range(max(rounds, 1)))


def _decode_escapes(text: str) -> str:
    decoded = decode_ansi(text.encode("utf-8", "surrogateescape").decode("latin-1"))
    return decoded.encode("latin-1").decode("utf-8", "replace")


def find_option_commands(words: Words) -> Iterator[str]:
    """Yield the texts that a program passes to a shell, such as ``tar --to-command``."""
    name = base_name(words[0].placeholder_text) if words else ""
    if name != "git" and name not in _COMMAND_OPTIONS:
        return
    values = [word.placeholder_text for word in words[1:]]
    if name == "git":
        yield from _find_git_commands(values)
    yield from filter(None, _find_option_values(values, _COMMAND_OPTIONS.get(name, "")))


def find_likely_commands(words: Words, codes: Iterable[str] = ()) -> Iterator[str]:
    """Yield the texts that look like a command which the program runs, such as ``awk``'s ``system``.

    They are in its arguments, or in the ``codes`` that it reads.
    """
    name = base_name(words[0].placeholder_text) if words else ""
    for pattern in _COMMAND_PATTERNS.get(name, ()):
        texts = (*(word.placeholder_text for word in words[1:]), *codes)
        yield from (found for text in texts for found in re.findall(pattern, text, re.DOTALL))


_SHORTEST_ABBREVIATION = len("--xx")
"""Long options may be abbreviated."""


def _find_option_values(values: list[str], options: str) -> Iterator[str]:
    """Yield the values of options: in the next word, after ``=``, or attached to a letter; ``*`` is any argument."""
    if options == "*":
        yield from (value if not value.startswith("-") else value.partition("=")[2] for value in values)
    for index, value in enumerate(values):
        name, equals, text = value.partition("=")
        for option in options.split():
            option, _, start = option.partition("=")
            if option.startswith("--"):
                if len(name) < _SHORTEST_ABBREVIATION or not option.startswith(name):
                    continue
                text = text if equals else "".join(values[index + 1 : index + 2])
            elif value.startswith(option):
                text = value[len(option) :].removeprefix("=") or "".join(values[index + 1 : index + 2])
            elif len(option) == 2 and re.fullmatch(rf"-[A-Za-z]+{option[1]}", value):  # the last of a cluster
                text = "".join(values[index + 1 : index + 2])
            else:
                continue
            if text.startswith(start):
                yield text.removeprefix(start).removeprefix("=")


_GIT_SETTINGS = re.compile(
    r"(?:core\.(?:pager|editor|sshcommand|askpass|fsmonitor|gitproxy|alternaterefscommand)|diff\.external|pager\..*"
    r"|sequence\.editor|interactive\.difffilter|uploadpack\.packobjectshook"
    r"|.*\.(?:cmd|command|program|clean|smudge|process|textconv|driver|uploadpack|receivepack|defaultkeycommand))",
    re.IGNORECASE,
)
"""Settings of git whose value is a command."""

_GIT_SETTING_OPTION = re.compile(r"^(?:-c|--c\w*=)(?=\w)")
"""The option of ``git clone`` that is attached to a setting, also when it is abbreviated."""

_GIT_OPTIONS = {
    "rebase": "-x --exec",
    "difftool": "-x --extcmd",
    "grep": "-O --open-files-in-pager",
    "clone": "-u --upload-pack",
    "push": "--receive-pack --exec",
    **dict.fromkeys(("fetch", "pull", "ls-remote"), "--upload-pack --exec"),
    "archive": "--exec",
    "fetch-pack": "--upload-pack --exec",
    "send-pack": "--receive-pack --exec",
}


def _find_git_commands(values: list[str]) -> Iterator[str]:
    for value in values:
        key, equals, setting = _GIT_SETTING_OPTION.sub("", value).partition("=")
        if equals and _GIT_SETTINGS.fullmatch(key):
            yield setting
    for subcommand, options in _GIT_OPTIONS.items():
        if subcommand in values:
            yield from filter(None, _find_option_values(values[values.index(subcommand) + 1 :], options))
    if "config" in values:
        yield from (after for key, after in pairwise(values) if _GIT_SETTINGS.fullmatch(key))
    if "filter-branch" in values:
        yield from (after for value, after in pairwise(values) if value.endswith("-filter"))
    if "foreach" in values:
        yield " ".join(value for value in values[values.index("foreach") + 1 :] if not value.startswith("-"))


_COMMAND_OPTIONS: Mapping[str, str] = read_table("command_options")

_COMMAND_PATTERNS: Mapping[str, list[str]] = read_table("command_patterns")
