"""awk: programs that only print."""

import re

from vaka.policy.bash.profile.options import Parsed, Refused

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\n)|(?P<comment>#[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<sign>\|\||&&|\|&|>>|>=|<=|==|!=|!~|\+\+|--|[-+*/%^]=|\*\*|[{}()\[\];,?:<>=!~|+\-*/%^$\n@])",
    re.DOTALL,
)
_REGEX = re.compile(r"/(?:\\.|\[\^?\]?[^\]/\n]*\]|[^/\\\n\[])*/")
_GOES_ON = frozenset({",", "&&", "||", "{"})
_BEFORE_REGEX = frozenset({"", "(", ",", "!", "~", "!~", "&&", "||", "{", "}", ";", "\n", "print", "return"})
_REFUSED = frozenset({"system", "getline", "ENVIRON", "close", "fflush", "PROCINFO", "SYMTAB", "FUNCTAB"})
_STREAMS = frozenset({'"/dev/stdout"', '"/dev/stderr"'})


def check_awk(parsed: Parsed) -> None:
    """Raise ``Refused`` unless every program is known and only prints."""
    programs = parsed.values("-e", "--source")
    if not programs:
        if not parsed.operands:
            return
        programs = [parsed.operands[0]]
    for program in programs:
        if program.value is None:
            raise Refused(f"the awk program {program.source} is not known beforehand")
        _Program(program.value).check()


class _Program:
    """One pass over the tokens; ``>`` writes only in a ``print`` outside parentheses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.last = ""
        self.printing = False
        self.depth = 0

    def check(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] == "/" and self.last in _BEFORE_REGEX:
                found = _REGEX.match(self.text, self.at)
                if found is None:
                    raise Refused("an awk program with such a pattern is not known to only print")
                self.at, self.last = found.end(), "/"
                continue
            found = _TOKEN.match(self.text, self.at)
            if found is None:
                raise Refused(f"the awk program has {self.text[self.at]!r}, which is not known to only print")
            self.at = found.end()
            if found.lastgroup not in {"blank", "comment"}:
                self._one(found[0], found.lastgroup or "")
                self.last = found[0]

    def _one(self, sign: str, kind: str) -> None:
        if kind == "name":
            if sign in _REFUSED:
                raise Refused(f"{sign} in an awk program does more than read files")
            if sign in {"print", "printf"}:
                self.printing, self.depth = True, 0
        elif kind == "sign":
            self._mark(sign)

    def _mark(self, sign: str) -> None:
        if sign in {"|", "|&", "@"}:
            raise Refused(f"{sign!r} in an awk program runs something")
        if sign in "([":
            self.depth += 1
        elif sign in ")]":
            self.depth -= 1
        elif sign in ";\n{}":
            self.printing = self.printing and sign == "\n" and self.last in _GOES_ON
        elif sign in {">", ">>"} and self.printing and self.depth <= 0:
            rest = self.text[self.at :].lstrip(" \t")
            if not rest.startswith(tuple(_STREAMS)) or not re.match(r'"[^"]*"\s*(?:[;}\n]|$)', rest):
                raise Refused("print with '>' in an awk program writes a file")
