"""sed: scripts that only print."""

import re

from vaka.policy.bash.profile.brackets import end_of_pattern
from vaka.policy.bash.profile.options import Parsed, Refused

_ADDRESS = re.compile(r"\d+(?:~\d+)?|\$|\+\d+|~\d+")
_SPACES = re.compile(r"[\s;]*")
_TEXT = re.compile(r"[ \t]*(?:\\\n)?(?:[^\n\\]|\\[^\\\n \t]|\\[ \t]+(?=[^\s\\])|(?<!\\)\\\n)*(?:\n|\\?\Z)")
"""What is put in: to the end of a line that no single backslash stands at."""
_PLAIN = frozenset("=dDgGhHlnNpPxzFqQ")


def check_sed(parsed: Parsed) -> None:
    """Raise ``Refused`` unless every script is known and only prints."""
    scripts = parsed.values("-e", "--expression")
    if not scripts:
        if not parsed.operands:
            return
        scripts = [parsed.operands[0]]
    for script in scripts:
        if script.numbered is None:
            raise Refused(f"the sed script {script.source} is not known beforehand")
    _Script("\n".join(script.numbered or "" for script in scripts)).check()


class _Script:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.depth = 0

    def check(self) -> None:
        while True:
            self._skip(_SPACES)
            if self.at >= len(self.text):
                break
            self._addresses()
            self._command()
        if self.depth:
            raise Refused("a sed script that does not end is not known to only read")

    def _skip(self, pattern: re.Pattern[str]) -> None:
        found = pattern.match(self.text, self.at)
        self.at = found.end() if found else self.at

    def _peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def _addresses(self) -> None:
        while True:
            self._skip(re.compile(r"[ \t]*"))
            sign = self._peek()
            if sign in {"/", "\\"} and sign:
                self._regex()
            elif found := _ADDRESS.match(self.text, self.at):
                self.at = found.end()
            else:
                break
            self._skip(re.compile(r"[ \t]*"))
            if self._peek() == ",":
                self.at += 1
        self._skip(re.compile(r"[! \t]*"))

    def _regex(self) -> None:
        if self._peek() == "\\":
            self.at += 1
        delimiter = self._peek()
        self.at += 1
        self._until(delimiter, regex=True)
        self._skip(re.compile(r"[IM]*"))

    def _until(self, delimiter: str, *, regex: bool = False) -> None:
        """Go behind the next delimiter; a line that ends before it is an error for some and not for others."""
        if not delimiter or delimiter in "\n\\[]-" or delimiter.isdigit():  # a number may be another one in the end
            raise Refused("a sed script with such a delimiter is not known to only read")
        end = end_of_pattern(self.text, self.at, delimiter) if regex else self._plain_end(delimiter, self.at)
        if end is None:
            raise Refused("a sed script with a pattern of which it is not certain where it ends")
        self.at = end + 1

    def _plain_end(self, delimiter: str, start: int) -> int | None:
        found = re.compile(rf"(?:[^\\\n{re.escape(delimiter)}]|\\.)*", re.DOTALL).match(self.text, start)
        return found.end() if found is not None and self.text.startswith(delimiter, found.end()) else None

    def _command(self) -> None:
        name = self._peek()
        self.at += 1
        if name == "":
            raise Refused("a sed script that does not end is not known to only read")
        if name == "{":
            self.depth += 1
        elif name == "}":
            self.depth -= 1
            self._end()
        elif name == "s":
            self._substitute()
        elif name == "y":
            delimiter = self._peek()
            self.at += 1
            self._until(delimiter)
            self._until(delimiter)
            self._end()
        elif name in _PLAIN:
            self._skip(re.compile(r"[ \t]*\d*"))
            self._end()
        else:
            self._with_text(name)

    def _with_text(self, name: str) -> None:
        if name in "btT:":
            self._skip(re.compile(r"[ \t]*[A-Za-z0-9_.-]*"))
            self._end()
        elif name in "aic":
            found = _TEXT.match(self.text, self.at)
            if found is None:
                raise Refused("a sed script with a text of which it is not certain where it ends")
            self.at = found.end()
        elif name == "#":
            self._skip(re.compile(r"[^\n]*"))
        else:
            raise Refused(f"the sed command {name!r} is not known to only print")

    def _substitute(self) -> None:
        delimiter = self._peek()
        self.at += 1
        start = self.at
        self._until(delimiter, regex=True)
        if self._plain_end(delimiter, start) != self.at - 1:
            self._without_brackets(delimiter, start)
        self._until(delimiter)
        found = re.compile(r"[gpiImM0-9]*").match(self.text, self.at)
        self.at = found.end() if found else self.at
        self._end()

    def _without_brackets(self, delimiter: str, start: int) -> None:
        """An older sed ends the pattern in its brackets; before it finds that to be none it opens the file of ``w``."""
        for _ in range(2):
            end = self._plain_end(delimiter, start)
            if end is None:
                return
            start = end + 1
        if re.compile(r"[gpiImMe0-9]*w").match(self.text, start):
            raise Refused("a sed pattern with its delimiter in brackets may write a file")

    def _end(self) -> None:
        self._skip(re.compile(r"[ \t]*"))
        if self.at < len(self.text) and self._peek() not in {";", "\n", "}", "#"}:
            raise Refused(f"the sed script goes on with {self.text[self.at :]!r}, which is not known to only print")
