"""Words with what bash puts into them: expansions, arithmetic, conditions and here-documents."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vaka.policy.bash.nested import printed
from vaka.policy.bash.numbers import Numbers, counts
from vaka.policy.bash.quoting import BREAKS, PLAIN, Expansion, Mismatch, Scanner, Segment, decoded
from vaka.policy.bash.shaping import shape
from vaka.policy.bash.variables import unsafe
from vaka.policy.bash.words import Assignment, Hole, HoleKind, Word, literal

if TYPE_CHECKING:
    from tree_sitter import Node

    from vaka.policy.bash.walking import Walk

_KINDS: dict[str, HoleKind] = {
    "command_substitution": "command",
    "process_substitution": "process",
    "expansion": "parameter",
    "arithmetic_expansion": "arithmetic",
}
_ASSIGNS = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\s*(?:(?:<<|>>|[-+*/%&|^])?=(?!=)|\+\+|--)")
_INCREASES = re.compile(r"(?:\+\+|--)\s*([A-Za-z_][A-Za-z0-9_]*)")
_ARITHMETIC = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,()\[\]$#@.]*", re.ASCII)
_STARTS = re.compile(r"\$[({\[]|`|[<>]\(")
_DEFAULTS = re.compile(r"!?([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?:?=")
_INDIRECT = re.compile(r"![A-Za-z_0-9](?!\w*(?:[*@]|\[[@*]\])$)")
_PAYLOAD = re.compile(r"\$[({]|`")
_NUMERIC_TESTS = re.compile(r"(?:^|\s)-(?:eq|ne|lt|le|gt|ge|v|R)\s")
_WORKS = re.compile(r"\(\(|\$\[|\[\[|\{[^}]*[\[:]|\b(?:let|declare|typeset|local)\b")
_SIDES = re.compile(r"\S+(?=\s+-(?:eq|ne|lt|le|gt|ge)\s)|(?<=-(?:eq|ne|lt|le|gt|ge)\s)\s*\S+|(?<=\s-[vR]\s)\s*\S+")
_STRINGS = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_DESCRIPTOR = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\}")
_WORKED = re.compile(r"\[[^\]]*\]|(?<=\w):(?![-=+?]).*", re.DOTALL)
"""In a parameter: a subscript, and behind a colon where a part of its value begins."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Expander:
    """Reads words, and walks over the commands that expansions in them run."""

    def __init__(self, walk: "Walk") -> None:
        self.walk = walk
        self.raw = walk.raw
        self.doubts: list[str] = []
        self.arithmetic = False
        """True when something is worked out as a number, and so may be run."""
        self.numbers = Numbers()
        self.payload = False
        """True when a text would run a command if it were worked out as a number."""

    # ---------------------------------------------------------------------------------------- words

    def one(self, node: "Node") -> list[Word]:
        """Read one word that is one node."""
        words, end = self.word([node], 0)
        if end != node.end_byte:
            raise Mismatch("a word ends elsewhere than it seems to")
        return words

    def word(self, nodes: "Sequence[Node]", index: int) -> tuple[list[Word], int]:
        """Read the word that begins with a node, and return where it ends: at the end of that node or a later one."""
        node = nodes[index]
        start, end = node.start_byte, node.end_byte
        found = PLAIN.match(self.raw, start)
        if found is not None and found.end() == end:
            return [literal(found[0])], end
        if self.raw[start] == "#":
            raise Mismatch("a word begins like a comment")
        parts = nodes[index : index + 1]
        if node.type == "$" and len(nodes) > index + 1 and nodes[index + 1].start_byte == end:
            parts = nodes[index : index + 2]  # $"…" is two nodes
        scanner = Scanner(self.raw, self.expansions(parts))
        at = scanner.word(start, stop=parts[-1].end_byte)
        if at != parts[-1].end_byte or self._goes_on(at):
            raise Mismatch("a word ends elsewhere than it seems to")
        self.apart(nodes, index + len(parts), at)
        if (
            self.raw[start] == "{"
            and self.raw[at : at + 1] in {"<", ">"}
            and _DESCRIPTOR.fullmatch(self.raw, start, at)
        ):
            raise Mismatch("a variable for a descriptor is not understood")
        self._look(scanner.parts)
        return shape(scanner.parts, decoded(self.raw[start:at]), bare=scanner.bare), at

    def apart(self, nodes: "Sequence[Node]", index: int, at: int) -> None:
        """Make sure that what bash takes for one word is not two for the tree."""
        following = nodes[index] if len(nodes) > index else None
        if following is None or following.start_byte != at or not following.is_named:
            return
        if not following.type.endswith("redirect"):
            raise Mismatch("a word goes on where the tree ends it")

    def _goes_on(self, at: int) -> bool:
        return at < len(self.raw) and self.raw[at] not in BREAKS

    def _look(self, parts: Iterable[Segment | Hole]) -> None:
        texts = (part.text.partition("[")[2] for part in parts if isinstance(part, Segment))
        if any(_PAYLOAD.search(text) for text in texts):
            self.payload = True

    def assigned(self, name: str) -> None:
        """Take note that a variable gets a value."""
        if unsafe(name):
            self.doubts.append(f"it sets {name}, which decides what runs")

    def assignment(self, node: "Node") -> Assignment:
        """Read ``name=value``."""
        children = node.children
        target, operator = children[0], children[1]
        found = _NAME.match(self.raw, target.start_byte, target.end_byte)
        if found is None or operator.type not in {"=", "+="} or target.end_byte != operator.start_byte:
            raise Mismatch("an assignment is not understood")
        if target.type == "subscript":
            self.arithmetic = True
            inside = self.expansions(target.children)
            text = self._bare_text(target.start_byte, target.end_byte, inside)
            self.numbers.work(text[len(found[0]) :], (one.hole for one in inside.values()))
        if len(children) > 2 and children[2].type == "array":
            self.numbers.given(found[0], self._array(children[2], operator.end_byte, node.end_byte))
            return Assignment(found[0], Word(None, decoded(self.raw[operator.end_byte : node.end_byte]), bare=False))
        value = self._value(children[2:], operator.end_byte, node.end_byte)
        self.numbers.given(found[0], [value])
        return Assignment(found[0], value)

    def _value(self, nodes: "Sequence[Node]", start: int, end: int) -> Word:
        if start == end:
            return literal("")
        found = PLAIN.match(self.raw, start)
        if found is not None and found.end() == end:
            return literal(found[0])
        scanner = Scanner(self.raw, self.expansions(nodes))
        if scanner.word(start, stop=end) != end or self._goes_on(end):
            raise Mismatch("a value ends elsewhere than it seems to")
        self._look(scanner.parts)
        return shape(scanner.parts, decoded(self.raw[start:end]), bare=scanner.bare, braces=False)[0]

    def _array(self, node: "Node", start: int, end: int) -> list[Word]:
        words: list[Word] = []
        at = start
        for index, child in enumerate(node.children):
            self.walk.gap(at, child.start_byte)
            at = child.end_byte
            if child.type == "comment":
                raise Mismatch("a comment stands in an array")
            if child.is_named:
                words += map(self._element, self.one(child))
                self.apart(node.children, index + 1, at)
        if at != end or node.start_byte != start:
            raise Mismatch("an array ends elsewhere than it seems to")
        return words

    def _element(self, word: Word) -> Word:
        """Work a subscript out that stands before a value, ``[x]=y``; it is no pattern."""
        if not word.source.startswith("[") or "]=" not in word.source:
            return word
        pieces = tuple(piece for piece in word.pieces if isinstance(piece, str) or piece.kind != "glob")
        word = Word(None, word.source, pieces, bare=False)
        self.arithmetic = True
        self.numbers.work(word.source, word.holes)
        return word

    def region(self, node: "Node") -> list[Word]:
        """Read all words of a node that the grammar takes for an expression but bash for a command: ``[ … ]``."""
        expansions = self.expansions([node])
        words: list[Word] = []
        at, end, used = node.start_byte, node.end_byte, 0
        while at < end:
            if self.raw[at] in " \t":
                at += 1
                continue
            start = at
            scanner = Scanner(self.raw, expansions)
            at = scanner.word(start, stop=end, some=True)
            if at == start:
                raise Mismatch(f"{self.raw[at]!r} stands in a test")
            used += scanner.used
            self._look(scanner.parts)
            words += shape(scanner.parts, decoded(self.raw[start:at]), bare=scanner.bare)
        if used != len(expansions):
            raise Mismatch("an expansion stands where bash sees none")
        return words

    # ---------------------------------------------------------------------------------------- expansions

    def expansions(self, nodes: "Iterable[Node]") -> dict[int, Expansion]:
        """Walk over the outermost expansions of some nodes; return them by where they begin."""
        found: dict[int, Expansion] = {}
        waiting = list(nodes)[::-1]
        while waiting:
            node = waiting.pop()
            kind = _KINDS.get(node.type)
            if kind is not None:
                start = node.start_byte
                while self.raw[start] in " \t\n":  # inside strings the grammar counts blanks as part of it
                    start += 1
                found[start] = Expansion(node.end_byte, self._expansion(node, kind, start))
            elif node.child_count:
                waiting += node.children[::-1]
        return found

    def _expansion(self, node: "Node", kind: HoleKind, start: int) -> Hole:
        if kind == "arithmetic":
            two = self.raw.startswith("$((", start)
            self.arithmetic_text(node, start + (3 if two else 2), node.end_byte - (2 if two else 1))
            return Hole(kind)
        if kind == "parameter":
            return self._parameter(node, start)
        count = len(self.walk.commands)
        if self.raw[start] == "`":
            self._backquotes(start + 1, node.end_byte - 1)
        else:
            before, self.walk.stdin = self.walk.stdin, None
            self.walk.depth += 1
            self.walk.block(node)
            self.walk.depth -= 1
            self.walk.stdin = before
        made = self.walk.commands[count:]
        said = printed(made[0]) if len(made) == 1 else None
        if len(made) == 1 and made[0].name in {"echo", "printf"}:
            self.numbers.values += made[0].words[1:]
        guess = said.text.rstrip("\n") if said is not None and said.sure else None
        return Hole(kind, guess=guess, counts=kind == "command" and counts(made))

    def _backquotes(self, start: int, end: int) -> None:
        text = self.raw[start:end]
        if re.search(r"(?<!\\)(?:\\\\)*`", text) or '\\"' in text:
            raise Mismatch("backquotes inside backquotes are not understood")
        if _WORKS.search(text):  # it is read on its own, and the variables are these
            self.numbers.work(text)
        script = self.walk.read(re.sub(r"\\([\\`$])", r"\1", decoded(text)))
        self.walk.merge(script, "")

    def _parameter(self, node: "Node", start: int) -> Hole:
        text = self._bare_text(start + 2, node.end_byte - 1, self.expansions(node.children))
        if "}" in text or ("\\" in text and ('"' in text or "'" in text)) or text.count('"') % 2 or text.count("'") % 2:
            raise Mismatch("it is not certain where a parameter ends")
        if found := _DEFAULTS.match(text):
            self.assigned(found[1])
            self.numbers.foreign.add(found[1])
        if _INDIRECT.match(text) or text.endswith(("@P", "@E")):
            self.doubts.append("it runs or reads what a variable names")
        if ":" in text or "[" in text:
            self.arithmetic = True
            self.numbers.work(" ".join(_WORKED.findall(text)))
        return Hole("parameter", text)

    def _bare_text(self, start: int, end: int, inside: dict[int, Expansion]) -> str:
        """Return a text with a blank for each expansion in it; there must be none that the tree does not know."""
        parts: list[str] = []
        at = start
        for place, one in sorted(inside.items()):
            if place < at:
                raise Mismatch("expansions overlap")
            parts.append(self.raw[at:place])
            at = one.end
        parts.append(self.raw[at:end])
        text = " ".join(parts)
        if at > end or _STARTS.search(text):
            raise Mismatch("an expansion stands where the tree has none")
        return text

    # ---------------------------------------------------------------------------------------- numbers and conditions

    def arithmetic_text(
        self, node: "Node", start: int, end: int, until: int | None = None, *, header: bool = False
    ) -> None:
        """Walk over something that bash works out as a number."""
        children = [child for child in node.children if until is None or child.end_byte <= until]
        inside = self.expansions(children)
        text = self._bare_text(start, end, inside)
        self.numbers.work(text, (one.hole for one in inside.values()))
        if not _ARITHMETIC.fullmatch(text.replace(";", " ", 2) if header else text) or not _balanced(text):
            raise Mismatch("arithmetic is not understood")
        self.arithmetic = self.arithmetic or re.search(r"[A-Za-z_]", text) is not None or " " in text
        for found in (*_ASSIGNS.finditer(text), *_INCREASES.finditer(text)):
            self.assigned(found[1])

    def condition(self, node: "Node") -> list[Word]:
        """Walk over ``[[ … ]]``; it is no command, but what its expansions run is."""
        expansions = self.expansions([node])
        start, end = node.start_byte, node.end_byte
        text = self._conditional(start + 2, end - 2, expansions)
        bare = _STRINGS.sub(" ", text)
        if re.search(r"[;\n'\"\\]|\]\]|(?<!&)&(?!&)", bare) or self.raw[start + 2] not in " \t":
            raise Mismatch("a condition is not understood")
        if _NUMERIC_TESTS.search(bare):
            self.arithmetic = True
            self.numbers.work(_compared(text), (one.hole for one in expansions.values()))
        self._look([Segment(decoded(text), quoted=False)])
        return [literal("[["), Word(None, decoded(self.raw[start + 2 : end - 2]).strip(), bare=False), literal("]]")]

    def _conditional(self, start: int, end: int, inside: dict[int, Expansion]) -> str:
        parts: list[str] = []
        at = start
        for place, one in sorted(inside.items()):
            parts.append(self.raw[at:place])
            at = one.end
        text = " ".join([*parts, self.raw[at:end]])
        if at > end or _STARTS.search(re.sub(r"'[^']*'|\\.", " ", text)):
            raise Mismatch("an expansion stands where the tree has none")
        return text

    def heredoc_text(self, node: "Node", start: int, end: int) -> bool:
        """Walk over what a here-document without quotes expands; return whether there is nothing of the kind."""
        bodies = [child for child in node.children if child.type == "heredoc_body"]
        inside = self.expansions(bodies)
        at, sure, used = start, True, 0
        while at < end:
            character = self.raw[at]
            if character == "\\":
                at += 2
            elif character == "`":
                close = self._closing(at + 1, end)
                self._backquotes(at + 1, close)
                at, sure = close + 1, False
            elif at in inside:
                at, sure, used = inside[at].end, False, used + 1
            elif character == "$" and re.compile(r"\$[A-Za-z_0-9@*#?$!\-({\[]").match(self.raw, at):
                if self.raw[at + 1] in "({[":
                    raise Mismatch("an expansion stands where the tree has none")
                at, sure = at + 2, False
            else:
                at += 1
        if used != len(inside):
            raise Mismatch("an expansion stands where bash sees none")
        return sure

    def _closing(self, at: int, end: int) -> int:
        while at < end and self.raw[at] != "`":
            at += 2 if self.raw[at] == "\\" else 1
        if at >= end:
            raise Mismatch("backquotes are not closed")
        return at


def _balanced(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _compared(text: str) -> str:
    """Return what stands on either side of a comparison of numbers, and what is asked whether it is set."""
    text = _STRINGS.sub(lambda found: "" if found[0][0] == "\\" else re.sub(r"\s", ".", found[0]), text)
    return " ".join(_SIDES.findall(text))
