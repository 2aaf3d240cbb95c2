"""Translate jq expressions to Luau expressions, with the helper functions that they call.

A Luau expression has one value, a jq expression any number. Where jq may have several, the translation is an expression
for the list of them. JSON null is nil: a key with that value is missing, as in every Luau table.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from vaka.genx.conversion.jq_parser import (
    ArrayNode,
    Binary,
    Comma,
    Condition,
    Identity,
    Index,
    Interpolation,
    Iterate,
    JqCall,
    Literal,
    Node,
    ObjectNode,
    Pipe,
    UntranslatableJq,
    parse_jq,
)

HELPERS_FILE = Path(__file__).with_name("conversion_helpers.luau")
MAX_LINE = 100
"""Characters of a table constructor on one line."""
_HELPER = re.compile(r"(?:^--[^\n]*\n)+local function (\w+)\(.*?^end\n", re.MULTILINE | re.DOTALL)
_LUAU_KEYWORDS = frozenset(
    {
        "and",
        "break",
        "do",
        "else",
        "elseif",
        "end",
        "false",
        "for",
        "function",
        "if",
        "in",
        "local",
        "nil",
        "not",
        "or",
        "repeat",
        "return",
        "then",
        "true",
        "until",
        "while",
    }
)
_CALLS = {
    "tostring": "text_of",
    "tonumber": "number_of",
    "length": "length_of",
    "add": "add",
    "keys": "keys_of",
    "ascii_downcase": "string.lower",
    "ascii_upcase": "string.upper",
    "tojson": "ctx.json.encode",
    "fromjson": "ctx.json.decode",
}
_COMPARISONS = {"==": "==", "!=": "~=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}


def luau_string(text: str) -> str:
    """Return a text as a Luau literal: a block of lines in long brackets, otherwise in quotes."""
    if "\n" in text and text.isprintable() is False and not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text):
        level = "=" * next(
            n for n in range(len(text)) if f"]{'=' * n}]" not in text and not text.endswith(f"]{'=' * n}")
        )
        return f"[{level}[\n{text}]{level}]"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return '"' + re.sub(r"[\x00-\x1f\x7f]", lambda found: f"\\x{ord(found[0]):02x}", escaped) + '"'


def luau_key(name: str) -> str:
    """Return the key of an entry of a table constructor."""
    plain = re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and name not in _LUAU_KEYWORDS
    return name if plain else f"[{luau_string(name)}]"


def luau_table(entries: Sequence[str]) -> str:
    """Return a table constructor, on one line if it is short."""
    line = f"{{ {', '.join(entries)} }}" if entries else "{}"
    if len(line) <= MAX_LINE and "\n" not in line:
        return line
    return "{\n" + "".join(f"{indent(entry)},\n" for entry in entries) + "}"


def indent(text: str) -> str:
    """Return lines one level deeper; lines of long strings stay unchanged."""
    lines, end_of_string = list[str](), ""
    for line in text.split("\n"):
        lines.append(line if end_of_string or not line else f"\t{line}")
        if not end_of_string or end_of_string in line:
            opened = re.search(r"\[(=*)\[$", line)
            end_of_string = f"]{opened[1]}]" if opened else ""
    return "\n".join(lines)


@functools.cache
def _load_helpers() -> dict[str, str]:
    """Return the helper functions by name, in their order."""
    text = HELPERS_FILE.read_text("utf-8").partition("\n\n")[2]
    return {found[1]: found[0] for found in _HELPER.finditer(text)}


class JqTranslator:
    """Translates the expressions of one script; ``helpers`` are the functions that they call."""

    def __init__(self) -> None:
        self._needed: set[str] = set()

    @property
    def helpers(self) -> str:
        """The text of the helper functions, each after the functions it calls."""
        return "\n".join(text for name, text in _load_helpers().items() if name in self._needed)

    def use(self, name: str) -> str:
        """Add a helper function with the functions it calls, and return its name."""
        if name not in self._needed:
            self._needed.add(name)
            text = _load_helpers()[name]
            for other in _load_helpers():
                if other != name and re.search(rf"\b{other}\(", text):
                    self.use(other)
        return name

    def is_taken(self, name: str) -> bool:
        """Return whether a helper function has this name, or it has another meaning in converted scripts."""
        return name in _load_helpers() or name in ("ctx", "args", "steps", "body", "item", "inner", "invoke", "select")

    def translate(self, expression: str, root: str, members: Mapping[str, str] | None = None) -> str:
        """Return the Luau expression for the first result of a jq expression whose input is ``root``.

        ``members`` are keys of the input that have a Luau expression of their own. Raises ``UntranslatableJq``.
        """
        self._root, self._members = root, members or {}
        node = parse_jq(expression)
        return self._single(node, root)

    def _single(self, node: Node, value: str) -> str:
        """Return the expression for the first result."""
        if self._has_several(node):
            return f"{self.use('first_of')}({self._all(node, value)})"
        return self._one(node, value)

    def _has_several(self, node: Node) -> bool:
        """Return whether an expression may have more or fewer than one result."""
        if isinstance(node, Iterate | Comma):
            return True
        if isinstance(node, JqCall):
            return node.name in ("select", "empty")
        if isinstance(node, Pipe | Binary):
            return self._has_several(node.left) or self._has_several(node.right)
        if isinstance(node, Index):
            return self._has_several(node.base) or self._has_several(node.key)
        if isinstance(node, Condition):
            return any(map(self._has_several, (node.test, node.then, node.otherwise)))
        return False

    def _all(self, node: Node, value: str) -> str:
        """Return the expression for the list of all results."""
        if not self._has_several(node):
            return f"{{ {self._one(node, value)} }}"
        if isinstance(node, Iterate) and not self._has_several(node.base):
            return f"{self.use('items_of')}({self._one(node.base, value)})"
        if isinstance(node, Comma):
            parts = self._comma_parts(node)
            if not any(map(self._has_several, parts)):
                return f"{self.use('list_of')}({', '.join(self._one(part, value) for part in parts)})"
            lists = ", ".join(self._all(part, value) for part in parts)
            return f"{self.use('flat_map')}({{ {lists} }}, function(list) return list end)"
        if isinstance(node, JqCall) and node.name == "select" and len(node.arguments) == 1:
            test = self._one(node.arguments[0], value)
            return f"(if {test} then {{ {value} }} else {{}})"
        if isinstance(node, Pipe):
            return self._all_of_pipe(node.left, node.right, value)
        if isinstance(node, Index | Iterate) and self._has_several(node.base):
            rest = Index(Identity(), node.key) if isinstance(node, Index) else Iterate(Identity())
            return self._all_of_pipe(node.base, rest, value)
        raise UntranslatableJq(f"several results of {self._describe(node)} cannot be translated")

    def _all_of_pipe(self, left: Node, right: Node, value: str) -> str:
        if not self._has_several(left):
            return self._bind_input(left, value, lambda inner: self._all(right, inner), self._uses(right))
        item = _next_name(value)
        if self._has_several(right):
            body = self._all(right, item)
            return f"{self.use('flat_map')}({self._all(left, value)}, function({item}) return {body} end)"
        body = self._one(right, item)
        if body == item:
            return self._all(left, value)
        return f"{self.use('map')}({self._all(left, value)}, function({item}) return {body} end)"

    def _one(self, node: Node, value: str) -> str:
        """Return the expression for the only result."""
        match node:
            case Identity():
                return value
            case Literal():
                return _literal(node.value)
            case Interpolation():
                return self._interpolation(node, value)
            case Index():
                return self._path(node, value)
            case _:
                return self._translate_composed(node, value)

    def _translate_composed(self, node: Node, value: str) -> str:
        match node:
            case Pipe():
                right = node.right
                return self._bind_input(node.left, value, lambda inner: self._one(right, inner), self._uses(right))
            case ObjectNode():
                return self._object(node, value)
            case ArrayNode():
                return self._array(node, value)
            case Condition():
                parts = [self._single(part, value) for part in (node.test, node.then, node.otherwise)]
                return f"(if {parts[0]} then {parts[1]} else {parts[2]})"
            case Binary():
                return self._binary(node, value)
            case JqCall():
                return self._call(node, value)
            case _:
                raise UntranslatableJq(f"several results of {self._describe(node)} cannot be translated")

    def _bind_input(self, left: Node, value: str, translate: Callable[[str], str], uses: int) -> str:
        """Return the translation of what follows a pipe; the left side is evaluated once."""
        inner = self._one(left, value)
        if uses <= 1 or re.fullmatch(r"[\w.]+", inner):
            return translate(inner)
        name = _next_name(value)
        return f"(function({name}) return {translate(name)} end)({inner})"

    def _uses(self, node: Node) -> int:
        """Return how often the translation of an expression mentions its input."""
        if isinstance(node, Identity):
            return 1
        if isinstance(node, Pipe):
            return self._uses(node.left)
        if isinstance(node, JqCall):
            own = 2 if node.name in ("select", "not", "has") else 1
            return own + (sum(map(self._uses, node.arguments)) if node.name != "map" else 0)
        return sum(self._uses(child) for child in _children_of(node))

    def _path(self, node: Index, value: str) -> str:
        keys: list[str] = []
        base: Node = node
        while isinstance(base, Index):
            keys.insert(0, self._single(base.key, value))
            base = base.base
        if base == Identity() and value == self._root and keys[0].strip('"') in self._members:
            start = self._members[keys.pop(0).strip('"')]
        else:
            start = self._one(base, value)
        if not keys:
            return start
        name = keys[0][1:-1]
        if len(keys) == 1 and start == "args" and keys[0].startswith('"') and luau_key(name) == name:
            return f"{start}.{name}"  # the arguments of a tool are an object
        return f"{self.use('at')}({', '.join((start, *keys))})"

    def _interpolation(self, node: Interpolation, value: str) -> str:
        parts = [
            luau_string(part) if isinstance(part, str) else self._text(part, value) for part in node.parts if part != ""
        ]
        return f"({' .. '.join(parts)})"

    def _text(self, node: Node, value: str) -> str:
        inner = self._single(node, value)
        return inner if self._is_text(node) else f"{self.use('text_of')}({inner})"

    def _is_text(self, node: Node) -> bool:
        """Return whether the result is certainly a text."""
        if isinstance(node, Pipe):
            return self._is_text(node.right)
        if isinstance(node, Binary):
            return node.operator == "+" and self._is_text(node.left) and self._is_text(node.right)
        if isinstance(node, JqCall):
            return node.name in ("tostring", "join", "tojson", "ascii_downcase", "ascii_upcase")
        return isinstance(node, Interpolation) or (isinstance(node, Literal) and isinstance(node.value, str))

    def _object(self, node: ObjectNode, value: str) -> str:
        entries: list[str] = []
        for key, item in node.entries:
            if isinstance(key, Literal) and isinstance(key.value, str):
                name = luau_key(key.value)
            else:
                name = f"[{self._single(key, value)}]"
            if self._has_several(item):
                raise UntranslatableJq("an object with several results as a value cannot be translated")
            entries.append(f"{name} = {self._one(item, value)}")
        return luau_table(entries)

    def _array(self, node: ArrayNode, value: str) -> str:
        if node.items is None:
            return f"{self.use('list_of')}()"
        if self._has_several(node.items):
            return self._all(node.items, value)
        return f"{self.use('list_of')}({self._one(node.items, value)})"

    def _binary(self, node: Binary, value: str) -> str:
        left, right = (self._single(side, value) for side in (node.left, node.right))
        if node.operator in _COMPARISONS:
            if not (_is_scalar(node.left) or _is_scalar(node.right)):
                raise UntranslatableJq(f"{node.operator!r} between two computed values cannot be translated")
            return f"({left} {_COMPARISONS[node.operator]} {right})"
        if node.operator == "//":
            return f"({left} or {right})"
        if node.operator in ("and", "or"):
            return f"(not not ({left} {node.operator} {right}))"
        if node.operator == "+":
            if self._is_text(node.left) and self._is_text(node.right):
                return f"({left} .. {right})"
            return f"{self.use('plus')}({left}, {right})"
        if not (_is_number(node.left) or _is_number(node.right)):
            raise UntranslatableJq(f"{node.operator!r} between two computed values cannot be translated")
        return f"({left} {node.operator} {right})"

    def _call(self, node: JqCall, value: str) -> str:
        name, arguments = node.name, node.arguments
        if not arguments:
            return self._simple_call(name, value)
        if len(arguments) == 1 and name == "join":
            return f"{self.use('join')}({value}, {self._single(arguments[0], value)})"
        if len(arguments) == 1 and name == "split":
            return f"string.split({value}, {self._single(arguments[0], value)})"
        if len(arguments) == 1 and name == "has":
            return f"({self.use('at')}({value}, {self._single(arguments[0], value)}) ~= nil)"
        if len(arguments) == 1 and name == "first":
            return f"{self.use('first_of')}({self._all(arguments[0], value)})"
        if len(arguments) == 1 and name == "map":
            return self._all_of_pipe(Iterate(Identity()), arguments[0], value)
        raise UntranslatableJq(f"the function {name}/{len(arguments)} cannot be translated")

    def _simple_call(self, name: str, value: str) -> str:
        if name in _CALLS:
            function = _CALLS[name]
            return f"{self.use(function) if function in _load_helpers() else function}({value})"
        if name in ("first", "last"):
            return f"{self.use('at')}({value}, {0 if name == 'first' else -1})"
        if name == "not":
            return f"(not {value})"
        if name == "now":
            return "ctx.now()"
        raise UntranslatableJq(f"the function {name}/0 cannot be translated")

    def _comma_parts(self, node: Node) -> list[Node]:
        return [*self._comma_parts(node.left), node.right] if isinstance(node, Comma) else [node]

    def _describe(self, node: Node) -> str:
        return f"the function {node.name}" if isinstance(node, JqCall) else f"{type(node).__name__.lower()}"


def _children_of(node: Node) -> tuple[Node, ...]:
    match node:
        case Interpolation():
            return tuple(part for part in node.parts if not isinstance(part, str))
        case Index():
            return (node.base, node.key)
        case Iterate():
            return (node.base,)
        case Comma() | Binary():
            return (node.left, node.right)
        case ArrayNode():
            return () if node.items is None else (node.items,)
        case ObjectNode():
            return tuple(part for entry in node.entries for part in entry)
        case Condition():
            return (node.test, node.then, node.otherwise)
        case _:
            return ()


def _literal(value: str | float | bool | None) -> str:
    if isinstance(value, str):
        return luau_string(value)
    if value is None:
        return "nil"
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _is_scalar(node: Node) -> bool:
    return isinstance(node, Literal) or _is_number(node)


def _is_number(node: Node) -> bool:
    if isinstance(node, JqCall):
        return node.name in ("length", "tonumber", "now")
    if isinstance(node, Pipe):
        return _is_number(node.right)
    if isinstance(node, Binary):
        return node.operator in ("-", "*", "/", "%") and _is_number(node.left) and _is_number(node.right)
    return isinstance(node, Literal) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def _next_name(value: str) -> str:
    """Return a name for an inner value that does not hide the name of its source."""
    return "inner" if re.search(r"\bitem\b", value) else "item"
