"""sed, awk and jq scripts: check that they only print."""

import re
from itertools import product

from vaka.policy.bash.profile.options import NotReadOnly, ParsedOptions

_BRACKET_CLASS = re.compile(r"\[([:.=])[^\]\n]{1,32}?\1\]")


def find_pattern_end(text: str, start: int, delimiter: str) -> int | None:
    """Return where the delimiter of a pattern stands that begins at ``start``; ``None`` when that is not certain.

    Programs disagree on what a backslash, a first ``]`` and ``[:`` are inside brackets, so every reading must end at
    the same place. A program that knows no brackets at all finds a pattern there that is none, and stops.
    """
    plain = re.compile(rf"(?:[^\\\n\[{re.escape(delimiter)}]|\\[^\n])*").match(text, start)
    if plain is not None and text[plain.end() : plain.end() + 1] == delimiter:
        return plain.end()
    ends = {_find_end(text, start, delimiter, *reading) for reading in product((False, True), repeat=3)}
    return ends.pop() if len(ends) == 1 else None


def _find_end(text: str, at: int, delimiter: str, escapes: bool, first: bool, classes: bool) -> int | None:
    """Read it in one way: whether backslashes count in brackets, a first ``]`` is itself, and ``[:alpha:]`` is one."""
    inside = False
    while at < len(text) and text[at] != "\n":
        sign = text[at]
        if sign == "\\" and (escapes or not inside):
            if text[at + 1 : at + 2] == "\n":
                return None
            at += 2
            continue
        if not inside:
            if sign == delimiter:
                return at
            inside = sign == "["
            at += inside and text.startswith("^", at + 1)
            at += inside and first and text.startswith("]", at + 1)
        elif classes and sign == "[" and text[at + 1 : at + 2] in {":", ".", "="}:
            found = _BRACKET_CLASS.match(text, at)
            if found is None:
                return None
            at = found.end()
            continue
        elif sign == "]":
            inside = False
        at += 1
    return None


_SED_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$|\+\d+|~\d+")

_SED_SPACES = re.compile(r"[\s;]*")

_SED_TEXT = re.compile(r"[ \t]*(?:\\\n)?(?:[^\n\\]|\\[^\\\n \t]|\\[ \t]+(?=[^\s\\])|(?<!\\)\\\n)*(?:\n|\\?\Z)")
"""What is put in: to the end of a line that no single backslash stands at."""

_SED_PLAIN_COMMANDS = frozenset("=dDgGhHlnNpPxzFqQ")


def check_sed(parsed: ParsedOptions) -> None:
    """Raise ``Refused`` unless every script is known and only prints."""
    scripts = parsed.values("-e", "--expression")
    if not scripts:
        if not parsed.operands:
            return
        scripts = [parsed.operands[0]]
    for script in scripts:
        if script.numeric_template is None:
            raise NotReadOnly(f"the sed script {script.source} is not known beforehand")
    _SedScript("\n".join(script.numeric_template or "" for script in scripts)).check()


class _SedScript:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.depth = 0

    def check(self) -> None:
        while True:
            self._skip(_SED_SPACES)
            if self.position >= len(self.text):
                break
            self._skip_addresses()
            self._check_command()
        if self.depth:
            raise NotReadOnly("a sed script that does not end is not known to only read")

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.position)
        self.position = found.end() if found else self.position

    def _peek(self) -> str:
        return self.text[self.position : self.position + 1]

    def _skip_addresses(self) -> None:
        while True:
            self._skip(re.compile(r"[ \t]*"))
            sign = self._peek()
            if sign in {"/", "\\"} and sign:
                self._skip_regex()
            elif found := _SED_ADDRESS.match(self.text, self.position):
                self.position = found.end()
            else:
                break
            self._skip(re.compile(r"[ \t]*"))
            if self._peek() == ",":
                self.position += 1
        self._skip(re.compile(r"[! \t]*"))

    def _skip_regex(self) -> None:
        if self._peek() == "\\":
            self.position += 1
        delimiter = self._peek()
        self.position += 1
        self._skip_past(delimiter, regex=True)
        self._skip(re.compile(r"[IM]*"))

    def _skip_past(self, delimiter: str, *, regex: bool = False) -> None:
        """Go behind the next delimiter; a line that ends before it is an error for some and not for others."""
        if not delimiter or delimiter in "\n\\[]-" or delimiter.isdigit():  # a number may be another one in the end
            raise NotReadOnly("a sed script with such a delimiter is not known to only read")
        end = (
            find_pattern_end(self.text, self.position, delimiter)
            if regex
            else self._find_literal_end(delimiter, self.position)
        )
        if end is None:
            raise NotReadOnly("a sed script with a pattern of which it is not certain where it ends")
        self.position = end + 1

    def _find_literal_end(self, delimiter: str, start: int) -> int | None:
        found = re.compile(rf"(?:[^\\\n{re.escape(delimiter)}]|\\.)*", re.DOTALL).match(self.text, start)
        return found.end() if found is not None and self.text.startswith(delimiter, found.end()) else None

    def _check_command(self) -> None:
        name = self._peek()
        self.position += 1
        if name == "":
            raise NotReadOnly("a sed script that does not end is not known to only read")
        if name == "{":
            self.depth += 1
        elif name == "}":
            self.depth -= 1
            self._require_end()
        elif name == "s":
            self._check_substitute()
        elif name == "y":
            delimiter = self._peek()
            self.position += 1
            self._skip_past(delimiter)
            self._skip_past(delimiter)
            self._require_end()
        elif name in _SED_PLAIN_COMMANDS:
            self._skip(re.compile(r"[ \t]*\d*"))
            self._require_end()
        else:
            self._check_text_command(name)

    def _check_text_command(self, name: str) -> None:
        if name in "btT:":
            self._skip(re.compile(r"[ \t]*[A-Za-z0-9_.-]*"))
            self._require_end()
        elif name in "aic":
            found = _SED_TEXT.match(self.text, self.position)
            if found is None:
                raise NotReadOnly("a sed script with a text of which it is not certain where it ends")
            self.position = found.end()
        elif name == "#":
            self._skip(re.compile(r"[^\n]*"))
        else:
            raise NotReadOnly(f"the sed command {name!r} is not known to only print")

    def _check_substitute(self) -> None:
        delimiter = self._peek()
        self.position += 1
        start = self.position
        self._skip_past(delimiter, regex=True)
        if self._find_literal_end(delimiter, start) != self.position - 1:
            self._check_without_brackets(delimiter, start)
        self._skip_past(delimiter)
        found = re.compile(r"[gpiImM0-9]*").match(self.text, self.position)
        self.position = found.end() if found else self.position
        self._require_end()

    def _check_without_brackets(self, delimiter: str, start: int) -> None:
        """An older sed ends the pattern in its brackets; before it finds that to be none it opens the file of ``w``."""
        for _ in range(2):
            end = self._find_literal_end(delimiter, start)
            if end is None:
                return
            start = end + 1
        if re.compile(r"[gpiImMe0-9]*w").match(self.text, start):
            raise NotReadOnly("a sed pattern with its delimiter in brackets may write a file")

    def _require_end(self) -> None:
        self._skip(re.compile(r"[ \t]*"))
        if self.position < len(self.text) and self._peek() not in {";", "\n", "}", "#"}:
            raise NotReadOnly(
                f"the sed script goes on with {self.text[self.position :]!r}, which is not known to only print"
            )


_AWK_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\n)|(?P<comment>#[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<sign>\|\||&&|\|&|>>|>=|<=|==|!=|!~|\+\+|--|[-+*/%^]=|\*\*|[{}()\[\];,?:<>=!~|+\-*/%^$\n@])",
    re.DOTALL,
)

_AWK_CONTINUES_LINE = frozenset({",", "&&", "||", "{", "?", ":"})

_AWK_BEFORE_VALUE = frozenset({"print", "printf", "return", "else", "do", "case", "in", "exit", "delete"})
"""Words behind which a value may begin, and so a pattern."""

_AWK_BEFORE_CONDITION = frozenset({"if", "while", "for", "switch"})

_AWK_REFUSED = frozenset({"system", "getline", "ENVIRON", "ARGV", "close", "fflush", "PROCINFO", "SYMTAB", "FUNCTAB"})

_AWK_STREAMS = frozenset({'"/dev/stdout"', '"/dev/stderr"'})


def check_awk(parsed: ParsedOptions) -> None:
    """Raise ``Refused`` unless every program is known and only prints."""
    programs = parsed.values("-e", "--source")
    if not programs:
        if not parsed.operands:
            return
        programs = [parsed.operands[0]]
    for program in programs:
        text = program.numeric_template
        if text is None:
            raise NotReadOnly(f"the awk program {program.source} is not known beforehand")
        _AwkProgram(text).check()


class _AwkProgram:
    """One pass over the tokens; ``>`` writes only in a ``print`` outside parentheses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0
        self.previous = ""
        self.divides: bool | None = False
        """Whether ``/`` would divide what stands before it, or begin a pattern; ``None``: programs disagree."""
        self.before_parentheses: list[str] = []
        """What stood before each parenthesis that is open."""
        self.printing = False
        self.depth = 0

    def check(self) -> None:
        while self.position < len(self.text):
            if self.text[self.position] == "/" and not self.divides:
                end = find_pattern_end(self.text, self.position + 1, "/") if self.divides is False else None
                if end is None:
                    raise NotReadOnly("an awk program with such a pattern is not known to only print")
                self.position, self.previous, self.divides = end + 1, "/", True
                continue
            found = _AWK_TOKEN.match(self.text, self.position)
            if found is None:
                raise NotReadOnly(f"the awk program has {self.text[self.position]!r}, which is not known to only print")
            self.position = found.end()
            if found.lastgroup not in {"blank", "comment"}:
                self._check_token(found[0], found.lastgroup or "")
                self.divides = self._ends_value(found[0], found.lastgroup or "")
                self.previous = found[0]

    def _ends_value(self, sign: str, kind: str) -> bool | None:
        """Return whether what was just read may be divided."""
        if kind == "name":
            return None if sign == "length" else sign not in _AWK_BEFORE_VALUE
        if sign == "(":
            self.before_parentheses.append(self.previous)
        elif (
            sign == ")"
            and (self.before_parentheses.pop() if self.before_parentheses else "if") in _AWK_BEFORE_CONDITION
        ) or sign in {
            "++",
            "--",
        }:
            return None
        return kind != "sign" or sign in {")", "]"}

    def _check_token(self, sign: str, kind: str) -> None:
        if kind == "name":
            if sign in _AWK_REFUSED:
                raise NotReadOnly(f"{sign} in an awk program does more than read files")
            if sign in {"print", "printf"}:
                self.printing, self.depth = True, 0
        elif kind == "sign":
            self._check_sign(sign)

    def _check_sign(self, sign: str) -> None:
        if sign in {"|", "|&", "@"}:
            raise NotReadOnly(f"{sign!r} in an awk program runs something")
        if sign in "([":
            self.depth += 1
        elif sign in ")]":
            self.depth -= 1
        elif sign in ";\n{}":
            self.printing = self.printing and sign == "\n" and self.previous in _AWK_CONTINUES_LINE
        elif sign in {">", ">>"} and self.printing and self.depth <= 0:
            rest = self.text[self.position :].lstrip(" \t")
            if not rest.startswith(tuple(_AWK_STREAMS)) or not re.match(r'"[^"]*"\s*(?:[;}\n]|$)', rest):
                raise NotReadOnly("print with '>' in an awk program writes a file")


_JQ_OUTSIDE_INPUT = re.compile(
    r"""(?<![.\w$"])(?:env\b(?!\s*:)|(?:import|include|get_search_list|modulemeta)\b)|\$(?:\s|\#[^\n]*\n)*ENV\b"""
)


def check_jq(parsed: ParsedOptions) -> None:
    """Raise ``Refused`` unless the program is known and reads neither the environment nor modules."""
    if not parsed.operands:
        return
    program = parsed.operands[0]
    if program.value is None:
        raise NotReadOnly(f"the jq program {program.source} is not known beforehand")
    _check_jq_program(program.value, program.source)


def _check_jq_program(program: str, source: str) -> None:
    if _JQ_OUTSIDE_INPUT.search(program):
        raise NotReadOnly(f"the jq program {source} reads more than its input")
