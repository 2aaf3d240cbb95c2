"""Parse the common part of jq: paths, literals, construction, pipes, operators, conditions and calls."""

import re
from typing import TypeAlias

import msgspec


class UntranslatableJq(ValueError):
    """A jq expression outside of the part that can be translated; the message names what is outside."""


class Identity(msgspec.Struct, frozen=True):
    """``.``"""


class Literal(msgspec.Struct, frozen=True):
    value: str | int | float | bool | None


class Interpolation(msgspec.Struct, frozen=True):
    r"""``"text \(value)"``"""

    parts: "tuple[str | Node, ...]"


class Index(msgspec.Struct, frozen=True):
    """``.name``, ``.[0]``, ``.["name"]``."""

    base: "Node"
    key: "Node"


class Iterate(msgspec.Struct, frozen=True):
    """``.[]``"""

    base: "Node"


class Pipe(msgspec.Struct, frozen=True):
    left: "Node"
    right: "Node"


class Comma(msgspec.Struct, frozen=True):
    left: "Node"
    right: "Node"


class Binary(msgspec.Struct, frozen=True):
    operator: str
    left: "Node"
    right: "Node"


class ArrayNode(msgspec.Struct, frozen=True):
    items: "Node | None"


class ObjectNode(msgspec.Struct, frozen=True):
    entries: "tuple[tuple[Node, Node], ...]"


class Condition(msgspec.Struct, frozen=True):
    test: "Node"
    then: "Node"
    otherwise: "Node"


class JqCall(msgspec.Struct, frozen=True):
    name: str
    arguments: "tuple[Node, ...]"


Node: TypeAlias = (
    Identity
    | Literal
    | Interpolation
    | Index
    | Iterate
    | Pipe
    | Comma
    | Binary
    | ArrayNode
    | ObjectNode
    | Condition
    | JqCall
)

_TOKEN = re.compile(
    r"""\s+|\#[^\n]*
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+)
    |(?P<field>\.[A-Za-z_]\w*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<quote>")
    |(?P<sign>\?//|//=|\|=|\+=|-=|\*=|/=|%=|//|==|!=|<=|>=|\.\.|[.\[\](){}|,:;+*/%<>=?$@-])""",
    re.VERBOSE,
)
_STRING_PIECE = re.compile(r'[^"\\]+|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_LITERALS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
_KEYWORDS = {"then", "elif", "else", "end", "and", "or", "as", "def", "reduce", "foreach", "try", "catch", "label"}
_BINDING = {
    "//": 2,
    "or": 3,
    "and": 4,
    "==": 5,
    "!=": 5,
    "<": 5,
    "<=": 5,
    ">": 5,
    ">=": 5,
    "+": 6,
    "-": 6,
    "*": 7,
    "/": 7,
    "%": 7,
}
_RIGHT_ASSOCIATIVE = 2


def parse_jq(expression: str) -> Node:
    """Return the syntax tree of an expression. Raises ``UntranslatableJq``."""
    parser = _Parser(expression)
    node = parser.parse_pipe()
    if parser.kind:
        raise parser.make_error()
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.kind = self.word = ""
        self._advance()

    def _advance(self) -> str:
        """Read the next token and return the previous token."""
        before = self.word
        self.kind = self.word = ""
        while self._at < len(self._text) and not self.kind:
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise UntranslatableJq(f"{self._text[self._at]!r} cannot be translated")
            self._at = found.end()
            self.kind, self.word = found.lastgroup or "", found[0]
        return before

    def make_error(self) -> UntranslatableJq:
        """Return the error for the current token."""
        return UntranslatableJq(f"{self.word!r} cannot be translated" if self.word else "the expression is incomplete")

    def _expect(self, token: str) -> None:
        if self.word != token:
            raise self.make_error()
        self._advance()

    def _accept(self, token: str) -> bool:
        if self.word == token and self.kind != "quote":
            self._advance()
            return True
        return False

    def parse_pipe(self) -> Node:
        left = self._parse_comma()
        return Pipe(left, self.parse_pipe()) if self._accept("|") else left

    def _parse_comma(self) -> Node:
        left = self._parse_binary(1)
        while self._accept(","):
            left = Comma(left, self._parse_binary(1))
        return left

    def _parse_binary(self, least: int) -> Node:
        left = self._parse_postfix()
        while (power := _BINDING.get(self.word, 0)) >= least and self.kind in ("sign", "word"):
            operator = self._advance()
            right = self._parse_binary(power if power == _RIGHT_ASSOCIATIVE else power + 1)
            left = Binary(operator, left, right)
        return left

    def _parse_postfix(self) -> Node:
        node = self._parse_term()
        while True:
            if self.kind == "field":
                node = Index(node, Literal(self._advance()[1:]))
            elif self.word == "[":
                node = self._parse_bracket(node)
            elif self.word == "." and self._text[self._at : self._at + 1] in ('"', "["):
                self._advance()
                node = Index(node, self._parse_string()) if self.kind == "quote" else self._parse_bracket(node)
            elif not self._accept("?"):
                return node

    def _parse_bracket(self, base: Node) -> Node:
        self._expect("[")
        if self._accept("]"):
            return Iterate(base)
        key = self.parse_pipe()
        self._expect("]")
        return Index(base, key)

    def _parse_term(self) -> Node:
        if self.kind == "number":
            text = self._advance()
            return Literal(int(text) if text.isdigit() else float(text))
        if self.kind == "quote":
            return self._parse_string()
        if self.kind == "field":
            return Index(Identity(), Literal(self._advance()[1:]))
        return self._parse_word() if self.kind == "word" else self._parse_sign()

    def _parse_sign(self) -> Node:
        if self._accept("."):
            return Index(Identity(), self._parse_string()) if self.kind == "quote" else Identity()
        if self._accept("("):
            node = self.parse_pipe()
            self._expect(")")
            return node
        if self._accept("["):
            items = None if self.word == "]" else self.parse_pipe()
            self._expect("]")
            return ArrayNode(items)
        if self._accept("{"):
            return self._parse_object()
        if self._accept("-"):
            return Binary("-", Literal(0), self._parse_postfix())
        raise self.make_error()

    def _parse_word(self) -> Node:
        if self.word in _KEYWORDS:
            raise self.make_error()
        name = self._advance()
        if name in _LITERALS:
            return Literal(_LITERALS[name])
        if name == "if":
            return self._parse_condition()
        arguments: list[Node] = []
        if self._accept("("):
            arguments.append(self.parse_pipe())
            while self._accept(";"):
                arguments.append(self.parse_pipe())
            self._expect(")")
        return JqCall(name, tuple(arguments))

    def _parse_condition(self) -> Node:
        test = self.parse_pipe()
        self._expect("then")
        then = self.parse_pipe()
        if self._accept("elif"):
            return Condition(test, then, self._parse_condition())
        otherwise = self.parse_pipe() if self._accept("else") else Identity()
        self._expect("end")
        return Condition(test, then, otherwise)

    def _parse_object(self) -> Node:
        entries: list[tuple[Node, Node]] = []
        while not self._accept("}"):
            entries.append(self._parse_entry())
            if self.word != "}":
                self._expect(",")
        return ObjectNode(tuple(entries))

    def _parse_entry(self) -> tuple[Node, Node]:
        if self.kind == "quote":
            key = self._parse_string()
        elif self._accept("("):
            key = self.parse_pipe()
            self._expect(")")
        elif self.kind == "word":
            key = Literal(self._advance())
        else:
            raise self.make_error()
        if not self._accept(":"):
            return key, Index(Identity(), key)
        value = self._parse_binary(_RIGHT_ASSOCIATIVE)
        while self._accept("|"):
            value = Pipe(value, self._parse_binary(_RIGHT_ASSOCIATIVE))
        return key, value

    def _parse_string(self) -> Node:
        """Parse the rest of a string, whose quote is the current token."""
        parts: list[str | Node] = []
        text: list[str] = []
        while not self._text.startswith('"', self._at):
            if self._text.startswith("\\(", self._at):
                parts.append(decode_escapes("".join(text)))
                text.clear()
                self._at += 2
                self._advance()
                parts.append(self.parse_pipe())
                if self.word != ")":
                    raise self.make_error()
                continue
            found = _STRING_PIECE.match(self._text, self._at)
            if found is None:
                raise UntranslatableJq("the expression is incomplete: a string does not end")
            text.append(found[0])
            self._at = found.end()
        self._at += 1
        self._advance()
        last = decode_escapes("".join(text))
        return Interpolation((*parts, last)) if parts else Literal(last)


def decode_escapes(text: str) -> str:
    """Return the text of a jq string, with its escapes decoded."""

    def decode(found: re.Match[str]) -> str:
        word = found[1]
        return chr(int(word[1:], 16)) if word[0] == "u" else _ESCAPES.get(word, word)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", decode, text)
