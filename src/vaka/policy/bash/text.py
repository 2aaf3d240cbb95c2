"""What a command may not contain, and lines that go on."""

import re


def names(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")

# Everything that is drawn as nothing or that turns the order of what is drawn. A variation selector after something
# that is not ASCII is part of an emoji.
INVISIBLE = re.compile(
    "[\u00a0\u00ad\u034f\u061c\u06dd\u070f\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f\u2028-\u202f"
    "\u205f-\u206f\u2800\u3164\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000110bd\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]|(?<![\u0080-\U0010ffff])\ufe0f"
)


def unprintable(text: str) -> str:
    """Return what of a text must not be there, in words; nothing when it is clean."""
    if text.isascii() and text.isprintable():
        return ""
    if found := CONTROL.search(text):
        return f"it has the control character {_name(found[0])}"
    if found := INVISIBLE.search(text):
        return f"it has the invisible character {_name(found[0])}"
    return ""


def _name(character: str) -> str:
    return f"U+{ord(character):04X}"


_HEREDOC = re.compile(r"<<(-?)[ \t]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|()<>'\"\\])+)")
_WORD_ENDS = " \t\n;&|()<>"


class _Lines:
    """One pass over a text that knows where a backslash before a line's end joins two lines."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.out: list[str] = []
        self.at = 0
        self.stack = ["("]  # what we are inside of: ( code, " a string, { a parameter, ` code in backquotes
        self.pending: list[tuple[str, bool, bool]] = []

    def keep(self, end: int) -> None:
        self.out.append(self.text[self.at : end])
        self.at = end

    def joined(self) -> str | None:
        text, size = self.text, len(self.text)
        while self.at < size:
            if not self._escape() and not self._quote(text[self.at]) and not self._nest(text[self.at]):
                self._code(text[self.at])
        return "".join(self.out) if len(self.stack) == 1 and not self.pending else None

    def _escape(self) -> bool:
        if self.text[self.at] != "\\":
            return False
        if self.text.startswith("\n", self.at + 1):
            self.at += 2
        else:
            self.keep(self.at + 2)
        return True

    def _quote(self, character: str) -> bool:
        inside = self.stack[-1]
        if character == '"':
            if inside == '"':
                self.stack.pop()
            else:
                self.stack.append('"')
            self.keep(self.at + 1)
            return True
        if character != "'" or inside == '"':
            return False
        ansi = self.text.startswith("$", self.at - 1) and self.at > 0
        found = re.compile(r"'(?:\\.|[^'\\])*'" if ansi else r"'[^']*'", re.DOTALL).match(self.text, self.at)
        self.keep(found.end() if found else len(self.text))
        return True

    def _nest(self, character: str) -> bool:
        inside = self.stack[-1]
        if self.text.startswith(("$(", "${"), self.at):
            self.stack.append(self.text[self.at + 1])
            self.keep(self.at + 2)
            return True
        if character == "`":
            if inside == "`":
                self.stack.pop()
            else:
                self.stack.append("`")
        elif character == "(" and inside in "(`":
            self.stack.append("(")
        elif (character == ")" and inside == "(" and len(self.stack) > 1) or (character == "}" and inside == "{"):
            self.stack.pop()
        else:
            return False
        self.keep(self.at + 1)
        return True

    def _code(self, character: str) -> None:
        if self.stack[-1] in "(`":
            if character == "#" and (self.at == 0 or self.text[self.at - 1] in _WORD_ENDS):
                end = self.text.find("\n", self.at)
                return self.keep(end if end >= 0 else len(self.text))
            if character == "<" and not self.text.startswith("<<<", self.at):
                found = _HEREDOC.match(self.text, self.at)
                if found:
                    word = found[2]
                    quoted = any(sign in word for sign in "\\'\"")
                    self.pending.append((re.sub(r"\\(.)|['\"]", r"\1", word), quoted, found[1] == "-"))
                    return self.keep(found.end())
            if self.text.startswith("<<<", self.at):
                return self.keep(self.at + 3)
        self.keep(self.at + 1)
        if character == "\n" and self.pending and self.stack[-1] in "(`":
            self._bodies()
        return None

    def _bodies(self) -> None:
        while self.pending:
            delimiter, quoted, tabs = self.pending[0]
            if not self._body(delimiter, quoted=quoted, tabs=tabs):
                self.at = len(self.text)
                return
            self.pending.pop(0)

    def _body(self, delimiter: str, *, quoted: bool, tabs: bool) -> bool:
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            line = self.text[self.at : end if end >= 0 else len(self.text)]
            self.at += len(line) + 1
            while not quoted and _goes_on(line) and self.at < len(self.text):
                end = self.text.find("\n", self.at)
                more = self.text[self.at : end if end >= 0 else len(self.text)]
                line = line[:-1] + more
                self.at += len(more) + 1
            self.out.append(line + ("\n" if self.at <= len(self.text) else ""))
            if (line.lstrip("\t") if tabs else line) == delimiter:
                return True
        return False


def _goes_on(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


# A parenthesis that closes nothing, and a dollar that may or may not belong to the quote behind it.
_UNSURE = re.compile(r"\besac\b|\$\$+'")


def join_lines(text: str) -> str | None:
    """Return a text with its continued lines joined as bash joins them, ``None`` when that is not certain."""
    if "\\\n" not in text:
        return text
    if _UNSURE.search(text):
        return None
    return _Lines(text).joined()
