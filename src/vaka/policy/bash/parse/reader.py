"""Parse the text of a command into simple commands, or guess them when it cannot be parsed."""

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from vaka.policy.bash.parse.inline_scripts import ScriptText
from vaka.policy.bash.parse.syntax import ShellScript, SimpleCommand, UnreadableScript, Word, literal_word
from vaka.policy.bash.parse.walker import TreeWalker
from vaka.policy.bash.parse.words import ParseMismatch
from vaka.policy.bash.parse.wrappers import find_wrapped_commands
from vaka.policy.bash.parse.written_scripts import add_written_scripts
from vaka.policy.bash.programs import name_set

if TYPE_CHECKING:
    from tree_sitter import Parser


MAX_ALLOWED_LENGTH = 10_000
"""Characters; a longer text is always asked about."""

MAX_LENGTH = 128 * 1024
"""Characters; the kernel accepts no longer argument, so a longer command cannot run."""

INSTALL_GRAMMAR = "pip install tree-sitter tree-sitter-bash"
"""Installs the grammar, which is a dependency of vaka."""

_MAX_SCRIPT_DEPTH = 8


@cache
def _load_parser() -> "Parser | None":
    try:
        import tree_sitter_bash  # noqa: PLC0415  # loaded when the first command is parsed
        from tree_sitter import Language, Parser  # noqa: PLC0415  # as above
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


def read_script(command: str) -> ShellScript | UnreadableScript:
    """Return every simple command of a text, or why it cannot be parsed with certainty. Never raises."""
    if _load_parser() is None:
        return _unreadable_script(command, f"the grammar of bash is not installed: {INSTALL_GRAMMAR}")
    if len(command) > MAX_LENGTH:
        reason = f"it is longer than {MAX_LENGTH} characters, which cannot be run"
        return UnreadableScript(command, reason, _guess_commands(command[:MAX_LENGTH]))
    if problem := _describe_forbidden_character(command):
        return _unreadable_script(command, problem)
    try:
        script = add_written_scripts(_read_nested(command, 0), lambda text: _read_nested(text, 1))
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
    return UnreadableScript(command, reason, _guess_commands(command))


def _read_nested(command: str, depth: int, stdin: ScriptText | None = None) -> ShellScript:
    """Parse a text, and the scripts inside its words."""
    if depth > _MAX_SCRIPT_DEPTH:
        raise ParseMismatch("scripts inside scripts go too deep")
    if depth and (problem := _describe_forbidden_character(command)):
        raise ParseMismatch(problem)
    text = _join_lines(command)
    if text is None:
        raise ParseMismatch("it is not certain which of its lines are one")
    data = text.encode("utf-8")
    parser = _load_parser()
    if parser is None or (root := parser.parse(data).root_node).has_error:
        raise ParseMismatch("it is not valid bash")
    walker = TreeWalker(data.decode("latin-1"), text, lambda inner, stdin: _read_nested(inner, depth + 1, stdin), stdin)
    walker.walk_program(root)
    return walker.build_script()


# ------------------------------------------------------------------------------------------- guessed commands


_SEPARATORS = re.compile(r"[;&|\n(){}`]|\$\(|[<>]+&?")

_STRONG_SEPARATORS = re.compile(r"[;&|\n()`]")

_QUOTES = re.compile(r"\\\n|\$(?=['\"])|['\"\\]")

_BRACES = re.compile(r"[{},]")

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")

_KEYWORDS = name_set("if then elif else do while until ! { } in function coproc")


_MAX_FRAGMENT_WORDS = 16


def _guess_commands(command: str) -> tuple[SimpleCommand, ...]:
    """Return everything that may be a command in a text, for several ways to split it."""
    visible = _INVISIBLE_CHARACTERS.sub("", _CONTROL_CHARACTERS.sub("", command))
    texts = {command, _CONTROL_CHARACTERS.sub("\n", command), visible}
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


# ------------------------------------------------------------------------------------------- checks before parsing


_CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Characters that are invisible or change the display order. A variation selector after a character that is not ASCII
# is part of an emoji.
_INVISIBLE_CHARACTERS = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u06dd\u070f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f"
    "\u205f-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000110bd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|(?<![\u0080-\U0010ffff])\ufe0f"
)


def _describe_forbidden_character(text: str) -> str:
    """Return a description of the first forbidden character of a text, ``""`` when there is none."""
    if text.isascii() and text.isprintable():
        return ""
    if found := _CONTROL_CHARACTERS.search(text):
        return f"it has the control character U+{ord(found[0]):04X}"
    if found := _INVISIBLE_CHARACTERS.search(text):
        return f"it has the invisible character U+{ord(found[0]):04X}"
    return ""


_LINE_TOKEN = re.compile(
    r"(?P<continuation>\\\n)|(?P<escape>\\.?)|(?P<open>\$[({])|(?P<quote>(?<=\$)'(?:\\.|[^'\\])*'?|'[^']*'?)"
    r"|(?P<comment>(?<![^ \t\n;&|()<>])#[^\n]*)|(?P<herestring><<<)"
    r"|(?P<heredoc><<(?P<dash>-?)[ \t]*(?P<word>(?:\\[^\n]|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|()<>'\"\\])+))"
    r"|(?P<text>[^\\$'\"`(){}#<\n]+|.)",
    re.DOTALL,
)

_CODE_TOKENS = frozenset({"comment", "herestring", "heredoc"})

_OPENING_SIGNS = {")": "(", "}": "{", '"': '"', "`": "`"}


class _Heredoc(NamedTuple):
    delimiter: str
    quoted: bool
    tabs: bool
    """Whether tabs before its lines are removed."""


def _join_by_context(text: str) -> str | None:
    """Join continued lines in one pass, by the quoting context of each backslash."""
    output: list[str] = []
    contexts = ["("]  # open contexts: ( code, " string, { parameter, ` code in backquotes
    heredocs: list[_Heredoc] = []
    position = 0
    while position < len(text) and (found := _LINE_TOKEN.match(text, position)):
        kind = found.lastgroup
        sign = found[0]
        in_code = contexts[-1] in "(`"
        if (kind in _CODE_TOKENS and not in_code) or (kind == "quote" and contexts[-1] == '"'):
            kind, sign = "text", sign[0]
        position += len(sign)
        output.append(sign if kind != "continuation" else "")
        if kind == "heredoc":
            heredocs.append(_read_heredoc_start(found))
        elif kind in {"open", "text"}:
            _update_contexts(contexts, sign)
        while sign == "\n" and in_code and heredocs:
            end = _copy_heredoc(text, position, heredocs.pop(0), output)
            if end is None:
                return None
            position = end
    return "".join(output) if len(contexts) == 1 and not heredocs else None


def _update_contexts(contexts: list[str], sign: str) -> None:
    inside = contexts[-1]
    if _OPENING_SIGNS.get(sign) == inside and (sign != ")" or len(contexts) > 1):
        contexts.pop()
    elif sign in {'"', "`", "$(", "${"} or (sign == "(" and inside in "(`"):
        contexts.append(sign[-1])


def _read_heredoc_start(found: re.Match[str]) -> _Heredoc:
    word = found["word"]
    quoted = any(sign in word for sign in "\\'\"")
    return _Heredoc(re.sub(r"\\(.)|['\"]", r"\1", word), quoted, found["dash"] == "-")


def _copy_heredoc(text: str, position: int, heredoc: _Heredoc, output: list[str]) -> int | None:
    """Copy the lines of a here-document; return the position after it, ``None`` when it does not end."""
    while position < len(text):
        line, position = _take_line(text, position)
        while not heredoc.quoted and (len(line) - len(line.rstrip("\\"))) % 2 and position < len(text):
            rest, position = _take_line(text, position)
            line = line[:-1] + rest
        output.append(line + ("\n" if position <= len(text) else ""))
        if (line.lstrip("\t") if heredoc.tabs else line) == heredoc.delimiter:
            return position
    return None


def _take_line(text: str, position: int) -> tuple[str, int]:
    end = text.find("\n", position)
    end = end if end >= 0 else len(text)
    return text[position:end], end + 1


# A parenthesis that closes nothing, and a dollar that may or may not belong to the quote after it.
_AMBIGUOUS = re.compile(r"\besac\b|\$\$+'")


def _join_lines(text: str) -> str | None:
    """Return a text with continued lines joined as in bash, ``None`` when the result is not certain."""
    if "\\\n" not in text:
        return text
    if _AMBIGUOUS.search(text):
        return None
    return _join_by_context(text)
