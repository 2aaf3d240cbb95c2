"""Check that sed, awk and jq scripts only print."""

import re
from collections.abc import Iterator
from contextlib import suppress
from itertools import product

from vaka.policy.bash.options import NotReadOnly, ParsedOptions

_BRACKET_CLASS = re.compile(r"\[([:.=])[^\]\n]{1,32}?\1\]")


def find_pattern_end(text: str, start: int, delimiter: str) -> int | None:
    """Return the position of the delimiter that ends a pattern; ``None`` when it is not certain.

    Programs disagree on a backslash, a first ``]`` and ``[:`` inside brackets, so every interpretation must end at the
    same position. A program without bracket expressions reports an invalid pattern and stops.
    """
    plain = re.compile(rf"(?:[^\\\n\[{re.escape(delimiter)}]|\\[^\n])*").match(text, start)
    if plain is not None and text[plain.end() : plain.end() + 1] == delimiter:
        return plain.end()
    ends = {_find_end(text, start, delimiter, *reading) for reading in product((False, True), repeat=3)}
    return ends.pop() if len(ends) == 1 else None


def _find_end(text: str, position: int, delimiter: str, escapes: bool, first: bool, classes: bool) -> int | None:
    """Find the end for one interpretation of backslashes in brackets, a first ``]``, and ``[:alpha:]``."""
    inside = False
    while position < len(text) and text[position] != "\n":
        sign = text[position]
        if sign == "\\" and (escapes or not inside):
            if text[position + 1 : position + 2] == "\n":
                return None
            position += 2
            continue
        if not inside:
            if sign == delimiter:
                return position
            inside = sign == "["
            position += inside and text.startswith("^", position + 1)
            position += inside and first and text.startswith("]", position + 1)
        elif classes and sign == "[" and text[position + 1 : position + 2] in {":", ".", "="}:
            found = _BRACKET_CLASS.match(text, position)
            if found is None:
                return None
            position = found.end()
            continue
        elif sign == "]":
            inside = False
        position += 1
    return None


def _scripts_of(parsed: ParsedOptions, what: str, *options: str) -> Iterator[str]:
    """Yield the scripts that options give, or else the first operand. Raises ``NotReadOnly`` for an unknown one."""
    for script in parsed.values(*options) or parsed.operands[:1]:
        if script.numeric_template is None:
            raise NotReadOnly(f"the {what} {script.source} is not known beforehand")
        yield script.numeric_template


_SED_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$|\+\d+|~\d+")

_SED_TEXT = re.compile(r"[ \t]*(?:\\\n)?(?:[^\n\\]|\\[^\\\n \t]|\\[ \t]+(?=[^\s\\])|(?<!\\)\\\n)*(?:\n|\\?\Z)")
"""Inserted text: to the end of a line that does not end in a single backslash."""

_SED_ARGUMENTS = {
    **dict.fromkeys("=dDgGhHlnNpPxzFqQ", r"[ \t]*\d*"),
    **dict.fromkeys("btT:", r"[ \t]*[A-Za-z0-9_.-]*"),
    "#": r"[^\n]*",
    "}": "",
}
"""Commands that only print or jump, and their arguments."""


def check_sed(parsed: ParsedOptions) -> None:
    """Raise ``NotReadOnly`` unless every script is known and only prints."""
    _SedScript("\n".join(_scripts_of(parsed, "sed script", "-e", "--expression"))).check()


def may_sed_run(text: str) -> bool:
    """Return whether a sed script may run a program, with the command ``e`` or the flag ``e`` of ``s``."""
    if "e" not in text:
        return False
    try:
        _SedScript(text, may_use_files=True).check()
    except NotReadOnly:
        return True
    return False


def sed_input_files(text: str) -> list[str]:
    """Return the files that a sed script reads with the commands ``r`` and ``R``, up to what is not understood."""
    script = _SedScript(text, may_use_files=True)
    with suppress(NotReadOnly):
        script.check()
    return script.input_files


_SED_OUTPUT = re.compile(r"(?:^|[;{}\n\d/$!|,#@ ]|[/|,#@][gpimIMe]+)[wW][ \t]*([^\s;}]+)")


def sed_output_files(text: str) -> list[str]:
    """Return the files that a sed script writes with ``w`` and ``W``; more than it does where it is not understood."""
    script = _SedScript(text, may_use_files=True)
    try:
        script.check()
    except NotReadOnly:
        return [*script.output_files, *_SED_OUTPUT.findall(text)]
    return script.output_files


class _SedScript:
    def __init__(self, text: str, *, may_use_files: bool = False) -> None:
        self.text = text
        self.input_files: list[str] = []
        self.output_files: list[str] = []
        self.may_use_files = may_use_files
        self.position = 0
        self.depth = 0

    def check(self) -> None:
        while True:
            self._skip(r"[\s;]*")
            if self.position >= len(self.text):
                break
            self._skip_addresses()
            self._check_command()
        if self.depth:
            raise NotReadOnly("an incomplete sed script is not known to only read")

    def _skip(self, pattern: str) -> None:
        found = re.compile(pattern).match(self.text, self.position)
        self.position = found.end() if found else self.position

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _take(self) -> str:
        self.position += 1
        return self.text[self.position - 1 : self.position]

    def _skip_addresses(self) -> None:
        while True:
            self._skip(r"[ \t]*")
            if self._peek() in {"/", "\\"}:
                sign = self._take()
                self._skip_past(self._take() if sign == "\\" else sign, regex=True)
                self._skip(r"[IM]*")
            elif found := _SED_ADDRESS.match(self.text, self.position):
                self.position = found.end()
            else:
                break
            self._skip(r"[ \t]*")
            if self._peek() == ",":
                self.position += 1
        self._skip(r"[! \t]*")

    def _skip_past(self, delimiter: str, *, regex: bool = False) -> None:
        """Skip to after the next delimiter; a line end before it is an error only for some versions of sed."""
        if not delimiter or delimiter in "\n\\[]-" or delimiter.isdigit():  # a digit may come from an expansion
            raise NotReadOnly("a sed script with such a delimiter is not known to only read")
        if regex:
            end = find_pattern_end(self.text, self.position, delimiter)
        else:
            end = self._find_literal_end(delimiter, self.position)
        if end is None:
            raise NotReadOnly("the end of a pattern in a sed script is not certain")
        self.position = end + 1

    def _find_literal_end(self, delimiter: str, start: int) -> int | None:
        found = re.compile(rf"(?:[^\\\n{re.escape(delimiter)}]|\\.)*", re.DOTALL).match(self.text, start)
        return found.end() if found is not None and self.text.startswith(delimiter, found.end()) else None

    def _check_command(self) -> None:
        name = self._take()
        self.depth += (name == "{") - (name == "}")
        if name == "":
            raise NotReadOnly("an incomplete sed script is not known to only read")
        if name in _SED_ARGUMENTS:
            self._skip(_SED_ARGUMENTS[name])
            self._require_end()
        elif self.may_use_files and name in "rRwW":
            start = self.position
            self._skip(r"[^\n]*")
            files = self.input_files if name in "rR" else self.output_files
            files.append(self.text[start : self.position].strip())
        elif name == "s":
            self._check_substitute()
        elif name == "y":
            delimiter = self._take()
            self._skip_past(delimiter)
            self._skip_past(delimiter)
            self._require_end()
        elif name in "aic":
            found = _SED_TEXT.match(self.text, self.position)
            if found is None:
                raise NotReadOnly("the end of a text in a sed script is not certain")
            self.position = found.end()
        elif name != "{":
            raise NotReadOnly(f"the sed command {name!r} is not known to only print")

    def _check_substitute(self) -> None:
        delimiter = self._take()
        start = self.position
        self._skip_past(delimiter, regex=True)
        if not self.may_use_files and self._find_literal_end(delimiter, start) != self.position - 1:
            self._check_without_brackets(delimiter, start)
        self._skip_past(delimiter)
        self._skip(r"[gpiImM0-9]*")
        if self.may_use_files and self._peek() == "w":
            start = self.position + 1
            self._skip(r"w[^\n]*")
            self.output_files.append(self.text[start : self.position].strip())
        self._require_end()

    def _check_without_brackets(self, delimiter: str, start: int) -> None:
        """Refuse ``w`` after a pattern that an older sed ends in its brackets: it opens the file before the error."""
        for _ in range(2):
            end = self._find_literal_end(delimiter, start)
            if end is None:
                return
            start = end + 1
        if re.compile(r"[gpiImMe0-9]*w").match(self.text, start):
            raise NotReadOnly("a sed pattern with its delimiter in brackets may write a file")

    def _require_end(self) -> None:
        self._skip(r"[ \t]*")
        if self.position < len(self.text) and self._peek() not in {";", "\n", "}", "#"}:
            rest = self.text[self.position :]
            raise NotReadOnly(f"the sed script continues with {rest!r}, which is not known to only print")


_AWK_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\n)|(?P<comment>#[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<sign>\|\||&&|\|&|>>|>=|<=|==|!=|!~|\+\+|--|[-+*/%^]=|\*\*|[{}()\[\];,?:<>=!~|+\-*/%^$\n@])",
    re.DOTALL,
)

_AWK_CONTINUES_LINE = frozenset({",", "&&", "||", "{", "?", ":"})

_AWK_BEFORE_VALUE = frozenset({"print", "printf", "return", "else", "do", "case", "in", "exit", "delete"})
"""Words after which a value, and so a pattern, may start."""

_AWK_BEFORE_CONDITION = frozenset({"if", "while", "for", "switch"})

_AWK_REFUSED = frozenset({"system", "getline", "ENVIRON", "ARGV", "close", "fflush", "PROCINFO", "SYMTAB", "FUNCTAB"})

_AWK_STREAMS = frozenset({'"/dev/stdout"', '"/dev/stderr"'})


def check_awk(parsed: ParsedOptions) -> None:
    """Raise ``NotReadOnly`` unless every program is known and only prints."""
    for text in _scripts_of(parsed, "awk program", "-e", "--source"):
        _AwkProgram(text).check()


def may_awk_run(text: str) -> bool:
    """Return whether an awk program may run a command that is not a string constant in it."""
    if not re.search(r"system|@|(?<!\|)\|(?!\|)", text):
        return False
    try:
        _AwkProgram(text, may_use_files=True).check()
    except NotReadOnly:
        return True
    return False


def may_awk_write_computed_name(text: str) -> bool:
    """Return whether an awk program may write to a file whose name is not a string constant in it."""
    if ">" not in text:
        return False
    try:
        _AwkProgram(text, may_use_files=True, may_compute_outputs=False).check()
    except NotReadOnly:
        return True
    return False


_AWK_CONSTANT_OUTPUT = re.compile(r'[ \t]*"[^"$]*"[ \t]*(?:[;}\n]|$)')

_AWK_CONSTANT_COMMAND = re.compile(r'[ \t]*"[^"]*"[ \t]*(?:[;}\n)]|$)')


class _AwkProgram:
    """Checks the tokens in one pass; ``>`` writes only in a ``print`` outside parentheses."""

    def __init__(self, text: str, *, may_use_files: bool = False, may_compute_outputs: bool = True) -> None:
        self.text = text
        self.may_compute_outputs = may_compute_outputs
        self.may_use_files = may_use_files
        """Whether it may also use files, the environment and commands that are string constants."""
        self.before_previous = ""
        self.position = 0
        self.previous = ""
        self.divides: bool | None = False
        """Whether ``/`` divides rather than starts a pattern; ``None``: programs disagree."""
        self.before_parentheses: list[str] = []
        """The token before each open parenthesis."""
        self.printing = False
        self.depth = 0

    def check(self) -> None:
        while self.position < len(self.text):
            if self.text[self.position] == "/" and not self.divides:
                end = find_pattern_end(self.text, self.position + 1, "/") if self.divides is False else None
                if end is None:
                    raise NotReadOnly("an awk program with such a pattern is not known to only print")
                self.position = end + 1
                self.previous = "/"
                self.divides = True
                continue
            found = _AWK_TOKEN.match(self.text, self.position)
            if found is None:
                raise NotReadOnly(f"the awk program has {self.text[self.position]!r}, which is not known to only print")
            self.position = found.end()
            if found.lastgroup not in {"blank", "comment"}:
                self._check_token(found[0], found.lastgroup or "")
                self.divides = self._ends_value(found[0], found.lastgroup or "")
                self.before_previous, self.previous = self.previous, found[0]

    def _ends_value(self, sign: str, kind: str) -> bool | None:
        """Return whether ``/`` after this token divides."""
        if kind == "name":
            return None if sign == "length" else sign not in _AWK_BEFORE_VALUE
        if sign == "(":
            self.before_parentheses.append(self.previous)
        elif sign == ")":
            before = self.before_parentheses.pop() if self.before_parentheses else "if"
            return None if before in _AWK_BEFORE_CONDITION else True
        elif sign in {"++", "--"}:
            return None
        return kind != "sign" or sign == "]"

    def _check_token(self, sign: str, kind: str) -> None:
        if kind == "name":
            if sign in _AWK_REFUSED and not self._is_constant_use(sign):
                raise NotReadOnly(f"{sign} in an awk program does more than read files")
            if sign in {"print", "printf"}:
                self.printing, self.depth = True, 0
        elif kind == "sign":
            self._check_sign(sign)

    def _is_constant_use(self, sign: str) -> bool:
        """Return whether a name or pipe may be used: it runs at most a command that is a string constant."""
        if not self.may_use_files or sign == "@":
            return False
        rest = self.text[self.position :]
        if sign == "system":
            return rest.lstrip().startswith("(") and _AWK_CONSTANT_COMMAND.match(rest.lstrip()[1:]) is not None
        if sign in {"|", "|&"} and rest.lstrip().startswith("getline"):
            return self.previous.startswith('"') and self.before_previous in {"", "{", "(", ";", "\n", "&&", "||", "!"}
        return sign not in {"|", "|&"} or _AWK_CONSTANT_COMMAND.match(rest) is not None

    def _check_sign(self, sign: str) -> None:
        if sign in {"|", "|&", "@"} and not self._is_constant_use(sign):
            raise NotReadOnly(f"{sign!r} in an awk program runs something")
        if sign in "([":
            self.depth += 1
        elif sign in ")]":
            self.depth -= 1
        elif sign in ";\n{}":
            self.printing = self.printing and sign == "\n" and self.previous in _AWK_CONTINUES_LINE
        elif sign in {">", ">>"} and self.printing and self.depth <= 0:
            self._check_output()

    def _check_output(self) -> None:
        if not self.may_compute_outputs and not _AWK_CONSTANT_OUTPUT.match(self.text, self.position):
            raise NotReadOnly("print with '>' in an awk program writes a file whose name it computes")
        if not self.may_use_files:
            rest = self.text[self.position :].lstrip(" \t")
            if not rest.startswith(tuple(_AWK_STREAMS)) or not re.match(r'"[^"]*"\s*(?:[;}\n]|$)', rest):
                raise NotReadOnly("print with '>' in an awk program writes a file")


_JQ_OUTSIDE_INPUT = re.compile(
    r"""(?<![.\w$"])(?:env\b(?!\s*:)|(?:import|include|get_search_list|modulemeta)\b)|\$(?:\s|\#[^\n]*\n)*ENV\b"""
)


def check_jq(parsed: ParsedOptions) -> None:
    """Raise ``NotReadOnly`` unless the program is known and reads neither the environment nor modules."""
    if not parsed.operands:
        return
    program = parsed.operands[0]
    if program.value is None:
        raise NotReadOnly(f"the jq program {program.source} is not known beforehand")
    if _JQ_OUTSIDE_INPUT.search(program.value):
        raise NotReadOnly(f"the jq program {program.source} reads more than its input")
