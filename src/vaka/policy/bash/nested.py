"""Commands inside words: scripts that a command hands to a shell."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from vaka.policy.bash.quoting import ansi
from vaka.policy.bash.words import Redirection, Simple, Word, Words
from vaka.policy.bash.wrappers import base

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ksh93", "mksh", "ash", "rbash", "yash", "posh", "pdksh"})
_STDIN = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}
_VALUED = {"-o", "+o", "-O", "+O", "--rcfile", "--init-file"}


class Text(NamedTuple):
    """A text that a command gets or prints; not ``sure`` when parts of it only bash will know."""

    text: str
    sure: bool


class Inner(NamedTuple):
    """A script inside a command, and where it was found."""

    origin: str
    text: Text


Carrier: TypeAlias = Callable[[Words, Text | None], Iterator[Inner]]


def scripts(words: Words, stdin: Text | None) -> Iterator[Inner]:
    """Yield the scripts that a command runs, besides itself."""
    name = base(words[0].sketch) if words else ""
    if name in SHELLS:
        yield from _shell(name, words[1:], stdin)
    elif (found := _CARRIERS.get(name)) is not None:
        yield from found(words[1:], stdin)


def _said(word: Word) -> Text:
    return Text(word.sketch, word.guess is not None)


def _joined(words: Words) -> Text:
    return Text(" ".join(word.sketch for word in words), all(word.guess is not None for word in words))


def _substituted(words: Words) -> Text | None:
    """What ``<(echo …)`` as the first word gives to read."""
    hole = words[0].holes[0] if words and len(words[0].holes) == 1 else None
    return Text(hole.guess, sure=True) if hole and hole.kind == "process" and hole.guess is not None else None


def _shell(name: str, words: Words, stdin: Text | None) -> Iterator[Inner]:
    index, script, listens = 0, False, False
    while index < len(words) and words[index].sketch.startswith(("-", "+")) and words[index].value not in {"-", "--"}:
        value = words[index].sketch
        if not value.startswith("--"):
            script = script or (value.startswith("-") and "c" in value)
            listens = listens or (value.startswith("-") and "s" in value)
        index += 2 if value in _VALUED or (value[-1:] in "oO" and not value.startswith("--")) else 1
    if index < len(words) and words[index].value in {"-", "--"}:
        index += 1
    rest = words[index:]
    if script:
        if rest:
            yield Inner(f"{name} -c", _said(rest[0]))
    elif (given := _substituted(rest)) is not None:
        yield Inner(f"{name} <(…)", given)
    elif stdin is not None and (listens or not rest or rest[0].value in _STDIN):
        yield Inner(f"{name}, from its input", stdin)


def _eval(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    rest = words[1:] if words and words[0].value == "--" else words
    if rest:
        yield Inner("eval", _joined(rest))


def _trap(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    rest = words[1:] if words and words[0].value == "--" else words
    if len(rest) > 1 and (rest[0].value is None or not re.fullmatch(r"-[lp]?|\d*", rest[0].value)):
        yield Inner("trap", _said(rest[0]))


def _option(*options: str) -> Carrier:
    def found(words: Words, _stdin: Text | None) -> Iterator[Inner]:
        for index, word in enumerate(words):
            value = word.sketch
            if _asks_for(value, options) and index + 1 < len(words):
                yield Inner(value, _said(words[index + 1]))
            elif (start := next((one for one in options if _attached(one, value)), "")) != "":
                yield Inner(start, Text(value[len(start) :].removeprefix("="), word.guess is not None))

    return found


def _asks_for(value: str, options: tuple[str, ...]) -> bool:
    """Return whether the next word is the value of an option, alone or the last of several in one word (``-qc``)."""
    return value in options or (re.fullmatch(r"-[A-Za-z]+", value) is not None and f"-{value[-1]}" in options)


def _attached(option: str, value: str) -> bool:
    return value.startswith(option + "=") if option.startswith("--") else value.startswith(option) and value != option


def _watch(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    index = 0
    while index < len(words) and words[index].sketch.startswith("-"):
        index += 2 if words[index].value in {"-n", "--interval", "-q", "--equexit"} else 1
    if words[index:]:
        yield Inner("watch", _joined(words[index:]))


def _source(words: Words, stdin: Text | None) -> Iterator[Inner]:
    given = stdin if words and words[0].value in _STDIN else _substituted(words)
    if given is not None:
        yield Inner("source", given)


def _from_input(_words: Words, stdin: Text | None) -> Iterator[Inner]:
    if stdin is not None:
        yield Inner("its input", stdin)


def _alias(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    for word in words:
        name, equals, body = word.sketch.partition("=")
        if equals and name:
            yield Inner("alias", Text(body, word.guess is not None))


def _git(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    for before, word in pairwise(words):
        key, _, body = word.sketch.partition("=")
        if before.value in {"-c", "--config-env"} and key.lower().startswith("alias.") and body:
            text = body[1:] if body.startswith("!") else f"git {body}"
            yield Inner("git alias", Text(text, word.guess is not None))


def _parallel(words: Words, stdin: Text | None) -> Iterator[Inner]:
    end = next((index for index, word in enumerate(words) if word.sketch.startswith(":::")), len(words))
    start = 0
    while start < end and words[start].sketch.startswith("-"):
        start += 2 if words[start].value in _PARALLEL_VALUED else 1
    if start < end:
        yield Inner("parallel", _joined(words[start:end]))
    else:
        yield from (Inner("parallel", _said(word)) for word in words[end + 1 :])
        if stdin is not None:
            yield Inner("parallel", stdin)


_PARALLEL_VALUED = frozenset({"-j", "-P", "-I", "-n", "-N", "-a", "-S", "-d", "-E", "--jobs", "--arg-file", "--delay"})


def _ssh(words: Words, _stdin: Text | None) -> Iterator[Inner]:
    """What stands behind the host is a script for the shell over there."""
    index = 0
    while index < len(words) and words[index].sketch.startswith("-"):
        index += 2 if re.fullmatch(r"-[A-Za-z0-9]*[BbcDEeFIiJLlmOopQRSWw]", words[index].sketch) else 1
    while index + 1 < len(words) and words[index + 1].sketch.startswith("-"):
        index += 1
    if words[index + 1 :]:
        yield Inner("ssh", _joined(words[index + 1 :]))


_CARRIERS: Mapping[str, Carrier] = {
    "eval": _eval, "trap": _trap, "watch": _watch, "source": _source, ".": _source, "alias": _alias, "git": _git,
    "at": _from_input, "batch": _from_input, "parallel": _parallel, "ssh": _ssh,
    "su": _option("-c", "--command", "--session-command"), "runuser": _option("-c", "--command"),
    "script": _option("-c", "--command"), "flock": _option("-c", "--command"), "sg": _option("-c"),
    "mapfile": _option("-C"), "readarray": _option("-C"),
    "compgen": _option("-C", "-W"), "complete": _option("-C", "-W"),
    "nix-shell": _option("--run", "--command"), "npx": _option("-c", "--call"),
}  # fmt: skip


# ------------------------------------------------------------------------------------------- what a command prints


_PERCENT = re.compile(r"%([%sb])")


def printed(command: Simple) -> Text | None:
    """Return what a command prints when that is plain to see, as for ``echo`` of known words."""
    if command.name not in {"echo", "printf", "cat"} or any(">" in one.operator for one in command.redirections):
        return None
    texts = [word.sketch for word in command.words[1:]]
    sure = all(word.guess is not None for word in command.words)
    if command.name == "echo":
        return Text(_echo(texts), sure)
    if command.name == "printf" and texts:
        said = _printf(texts)
        return Text(said, sure) if said is not None else None
    if command.name == "cat" and texts in ([], ["-"]):
        return fed(command.redirections)
    return None


def fed(redirections: tuple[Redirection, ...]) -> Text | None:
    """Return the text that a command gets as its input from a here-document or here-string."""
    for one in reversed(redirections):
        if one.body is not None:
            return Text(one.body, one.target.value is not None)
        if one.operator == "<" and (given := _substituted((one.target,))) is not None:
            return given
    return None


def _echo(texts: list[str]) -> str:
    decode = False
    while texts and re.fullmatch(r"-[neE]+", texts[0]):
        decode = "e" in texts[0]
        texts = texts[1:]
    text = " ".join(texts)
    return _unescaped(text) if decode else text


def _printf(texts: list[str]) -> str | None:
    style, *values = texts[1:] if texts[0] == "--" and len(texts) > 1 else texts
    if "%" in _PERCENT.sub("", style):
        return None
    style = _unescaped(style)
    holes = len(re.findall(r"%[sb]", style))
    filling = iter(values)

    def fill(found: re.Match[str]) -> str:
        return "%" if found[1] == "%" else next(filling, "")

    rounds = -(-len(values) // holes) if holes else 1
    return "".join(_PERCENT.sub(fill, style) for _ in range(max(rounds, 1)))


def _unescaped(text: str) -> str:
    return ansi(text.encode("utf-8", "surrogateescape").decode("latin-1")).encode("latin-1").decode("utf-8", "replace")
