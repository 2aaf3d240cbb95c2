"""awk: programs that only print."""

import re

from vaka.policy.bash.profile.brackets import end_of_pattern
from vaka.policy.bash.profile.options import Parsed, Refused

_TOKEN = re.compile(
    r"(?P<blank>[ \t\r]+|\\\n)|(?P<comment>#[^\n]*)|(?P<string>\"(?:\\.|[^\"\\\n])*\")"
    r"|(?P<name>[A-Za-z_]\w*)|(?P<number>\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)"
    r"|(?P<sign>\|\||&&|\|&|>>|>=|<=|==|!=|!~|\+\+|--|[-+*/%^]=|\*\*|[{}()\[\];,?:<>=!~|+\-*/%^$\n@])",
    re.DOTALL,
)
_GOES_ON = frozenset({",", "&&", "||", "{", "?", ":"})
_BEFORE_VALUE = frozenset({"print", "printf", "return", "else", "do", "case", "in", "exit", "delete"})
"""Words behind which a value may begin, and so a pattern."""
_BEFORE_CONDITION = frozenset({"if", "while", "for", "switch"})
_REFUSED = frozenset({"system", "getline", "ENVIRON", "ARGV", "close", "fflush", "PROCINFO", "SYMTAB", "FUNCTAB"})
_STREAMS = frozenset({'"/dev/stdout"', '"/dev/stderr"'})


def check_awk(parsed: Parsed) -> None:
    """Raise ``Refused`` unless every program is known and only prints."""
    programs = parsed.values("-e", "--source")
    if not programs:
        if not parsed.operands:
            return
        programs = [parsed.operands[0]]
    for program in programs:
        text = program.numbered
        if text is None:
            raise Refused(f"the awk program {program.source} is not known beforehand")
        _Program(text).check()


class _Program:
    """One pass over the tokens; ``>`` writes only in a ``print`` outside parentheses."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.last = ""
        self.divides: bool | None = False
        """Whether ``/`` would divide what stands before it, or begin a pattern; ``None``: programs disagree."""
        self.opened: list[str] = []
        """What stood before each parenthesis that is open."""
        self.printing = False
        self.depth = 0

    def check(self) -> None:
        while self.at < len(self.text):
            if self.text[self.at] == "/" and not self.divides:
                end = end_of_pattern(self.text, self.at + 1, "/") if self.divides is False else None
                if end is None:
                    raise Refused("an awk program with such a pattern is not known to only print")
                self.at, self.last, self.divides = end + 1, "/", True
                continue
            found = _TOKEN.match(self.text, self.at)
            if found is None:
                raise Refused(f"the awk program has {self.text[self.at]!r}, which is not known to only print")
            self.at = found.end()
            if found.lastgroup not in {"blank", "comment"}:
                self._one(found[0], found.lastgroup or "")
                self.divides = self._ends_value(found[0], found.lastgroup or "")
                self.last = found[0]

    def _ends_value(self, sign: str, kind: str) -> bool | None:
        """Return whether what was just read may be divided."""
        if kind == "name":
            return None if sign == "length" else sign not in _BEFORE_VALUE
        if sign == "(":
            self.opened.append(self.last)
        elif (sign == ")" and (self.opened.pop() if self.opened else "if") in _BEFORE_CONDITION) or sign in {
            "++",
            "--",
        }:
            return None
        return kind != "sign" or sign in {")", "]"}

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
