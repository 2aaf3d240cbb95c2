"""Parse the text of a command into simple commands, or guess them when it cannot be parsed."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import msgspec

from vaka.policy.bash.parse.preflight import (
    CONTROL_CHARACTERS,
    INVISIBLE_CHARACTERS,
    describe_forbidden_character,
    join_lines,
    name_set,
)
from vaka.policy.bash.parse.syntax import ShellScript, SimpleCommand, UnreadableScript, Word, literal_word
from vaka.policy.bash.parse.walker import TreeWalker
from vaka.policy.bash.parse.words import ParseMismatch
from vaka.policy.bash.parse.wrappers import find_wrapped_commands

if TYPE_CHECKING:
    from tree_sitter import Parser


@cache
def _load_parser() -> "Parser | None":
    try:
        import tree_sitter_bash  # noqa: PLC0415  # an optional library
        from tree_sitter import Language, Parser  # noqa: PLC0415  # as above
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


_SEPARATORS = re.compile(r"[;&|\n(){}`]|\$\(|[<>]+&?")

_STRONG_SEPARATORS = re.compile(r"[;&|\n()`]")

_QUOTES = re.compile(r"\\\n|\$(?=['\"])|['\"\\]")

_BRACES = re.compile(r"[{},]")

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")

_KEYWORDS = name_set("if then elif else do while until ! { } in function coproc")


_MAX_FRAGMENT_WORDS = 16


def guess_commands(command: str) -> tuple[SimpleCommand, ...]:
    """Return everything that may be a command in a text, for several ways to split it."""
    visible = INVISIBLE_CHARACTERS.sub("", CONTROL_CHARACTERS.sub("", command))
    texts = {command, CONTROL_CHARACTERS.sub("\n", command), visible}
    return tuple(map(_build_command, dict.fromkeys(words for text in sorted(texts) for words in _split_commands(text))))


def _split_commands(text: str) -> Iterator[tuple[str, ...]]:
    unquoted = _QUOTES.sub("", text)
    sources = (
        (_SEPARATORS, unquoted),
        (_STRONG_SEPARATORS, unquoted),
        (_SEPARATORS, _QUOTES.sub(" ", text)),
        (_STRONG_SEPARATORS, _BRACES.sub(" ", unquoted)),
    )
    for cuts, source in sources:
        for part in cuts.split(source):
            words = part.split()
            while words and (words[0] in _KEYWORDS or _ASSIGNMENT.match(words[0])):
                words.pop(0)
            if words:
                yield tuple(words)


def _build_command(values: tuple[str, ...]) -> SimpleCommand:
    words: tuple[Word, ...] = tuple(map(literal_word, values))
    try:
        wrapped = find_wrapped_commands(words)
    except ParseMismatch:  # treat each word as the start of a command of limited length: this must stay fast
        wrapped = tuple(words[start : start + _MAX_FRAGMENT_WORDS] for start in range(len(words)))
    return SimpleCommand(words, source=" ".join(values), wrapped_commands=wrapped, unwrapped_words=words)


MAX_ALLOWED_LENGTH = 10_000
"""Characters; a longer text is always asked about."""

MAX_LENGTH = 128 * 1024
"""Characters; the kernel accepts no longer argument, so a longer command cannot run."""

_MAX_SCRIPT_DEPTH = 8


def read_script(command: str) -> ShellScript | UnreadableScript:
    """Return every simple command of a text, or why it cannot be parsed with certainty. Never raises."""
    if _load_parser() is None:
        return _unreadable_script(command, "the grammar of bash is not installed: pip install 'vaka[shell]'")
    if len(command) > MAX_LENGTH:
        reason = f"it is longer than {MAX_LENGTH} characters, which cannot be run"
        return UnreadableScript(command, reason, guess_commands(command[:MAX_LENGTH]))
    if problem := describe_forbidden_character(command):
        return _unreadable_script(command, problem)
    try:
        script = _read_nested(command, 0)
    except ParseMismatch as error:
        return _unreadable_script(command, str(error))
    except RecursionError:
        return _unreadable_script(command, "it is nested too deeply")
    except (LookupError, ValueError):  # a syntax tree of an unexpected shape
        return _unreadable_script(command, "it is not understood")
    if len(command) > MAX_ALLOWED_LENGTH:
        doubts = (*script.doubts, f"it is longer than {MAX_ALLOWED_LENGTH} characters")
        return msgspec.structs.replace(script, doubts=doubts, assigned_values=())
    return script


def _unreadable_script(command: str, reason: str) -> UnreadableScript:
    return UnreadableScript(command, reason, guess_commands(command))


def _read_nested(command: str, depth: int) -> ShellScript:
    """Parse a text, and the scripts inside its words."""
    if depth > _MAX_SCRIPT_DEPTH:
        raise ParseMismatch("scripts inside scripts go too deep")
    if depth and (problem := describe_forbidden_character(command)):
        raise ParseMismatch(problem)
    text = join_lines(command)
    if text is None:
        raise ParseMismatch("it is not certain which of its lines are one")
    data = text.encode("utf-8")
    parser = _load_parser()
    if parser is None or (root := parser.parse(data).root_node).has_error:
        raise ParseMismatch("it is not valid bash")
    walker = TreeWalker(data.decode("latin-1"), text, lambda inner: _read_nested(inner, depth + 1))
    walker.walk_program(root)
    return walker.build_script()
