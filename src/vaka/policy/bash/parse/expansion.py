"""Words with their expansions: parameters, substitutions, arithmetic, conditions and here-documents."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vaka.policy.bash.parse.inline_scripts import UNKNOWN_TEXT, predict_output
from vaka.policy.bash.parse.syntax import Assignment, ExpansionKind, Word, WordExpansion, Words, literal_word
from vaka.policy.bash.parse.variables import (
    DECLARATION_BUILTINS,
    TaintTracker,
    find_evaluated_words,
    is_unsafe_variable,
    prints_number,
)
from vaka.policy.bash.parse.words import (
    PLAIN_WORD,
    WORD_BREAKS,
    LocatedExpansion,
    ParseMismatch,
    WordScanner,
    WordSegment,
    decode_latin1,
    expand_word,
)

if TYPE_CHECKING:
    from tree_sitter import Node

    from vaka.policy.bash.parse.walker import TreeWalker

_EXPANSION_NODES: dict[str, ExpansionKind] = {
    "command_substitution": "command",
    "process_substitution": "process",
    "expansion": "parameter",
    "arithmetic_expansion": "arithmetic",
}
_ARITHMETIC_ASSIGNMENT = re.compile(
    r"([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?\s*(?:(?:<<|>>|[-+*/%&|^])?=(?!=)|\+\+|--)"
)
_ARITHMETIC_INCREMENT = re.compile(r"(?:\+\+|--)\s*([A-Za-z_][A-Za-z0-9_]*)")
_ARITHMETIC_TEXT = re.compile(r"[\w\s+\-*/%<>=!&|^~?:,()\[\]$#@.]*", re.ASCII)
_EXPANSION_START = re.compile(r"\$[({\[]|`|[<>]\(")
_DEFAULT_ASSIGNMENT = re.compile(r"!?([A-Za-z_][A-Za-z0-9_]*)(?:\[[^\]]*\])?:?=")
_INDIRECT = re.compile(r"![A-Za-z_0-9](?!\w*(?:[*@]|\[[@*]\])$)")
_PAYLOAD = re.compile(r"\$[({]|`")
_NUMERIC_TESTS = re.compile(r"(?:^|\s)-(?:eq|ne|lt|le|gt|ge|v|R)\s")
_EVALUATES = re.compile(r"\(\(|\$\[|\[\[|\{[^}]*[\[:]|\b(?:let|declare|typeset|local)\b")
_NUMERIC_OPERANDS = re.compile(
    r"\S+(?=\s+-(?:eq|ne|lt|le|gt|ge)\s)|(?<=-(?:eq|ne|lt|le|gt|ge)\s)\s*\S+|(?<=\s-[vR]\s)\s*\S+"
)
_QUOTED_TEXT = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_DESCRIPTOR = re.compile(r"\{[A-Za-z_][A-Za-z0-9_]*(?:\[.*\])?\}|\d+")
_EVALUATED_PART = re.compile(r"\[[^\]]*\]|(?<=\w):(?![-=+?]).*", re.DOTALL)
"""The parts of a parameter that bash evaluates: a subscript, and an offset after a colon."""
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Expander:
    """Reads words, and walks over the commands in their expansions."""

    def __init__(self, walker: "TreeWalker") -> None:
        self.walker = walker
        self.raw = walker.raw
        self.doubts: list[str] = []
        self.has_arithmetic = False
        """Whether bash evaluates arithmetic, which may run commands."""
        self.taint = TaintTracker()
        self.has_payload = False
        """Whether a text would run a command if it were evaluated as arithmetic."""

    # ---------------------------------------------------------------------------------------- words

    def read_single_word(self, node: "Node") -> list[Word]:
        words, end = self.read_word([node], 0)
        if end != node.end_byte:
            raise ParseMismatch("a word does not end where the syntax tree ends it")
        return words

    def read_word(self, nodes: "Sequence[Node]", index: int) -> tuple[list[Word], int]:
        """Read the word that starts with a node, and return its end: the end of this node or of a later node."""
        node = nodes[index]
        start, end = node.start_byte, node.end_byte
        found = PLAIN_WORD.match(self.raw, start)
        if found is not None and found.end() == end:
            return [literal_word(found[0])], end
        if self.raw[start] == "#":
            raise ParseMismatch("a word starts like a comment")
        parts = nodes[index : index + 1]
        if node.type == "$" and len(nodes) > index + 1 and nodes[index + 1].start_byte == end:
            parts = nodes[index : index + 2]  # $"…" is two nodes
        scanner = WordScanner(self.raw, self.read_expansions(parts))
        offset = scanner.scan_word(start, stop=parts[-1].end_byte)
        if offset != parts[-1].end_byte or self._continues(offset):
            raise ParseMismatch("a word does not end where the syntax tree ends it")
        self.require_separate(nodes, index + len(parts), offset)
        if self.raw[offset : offset + 1] == "<" and self.raw[start:offset] == "0":
            return [], offset  # the descriptor of the redirection, which the grammar takes for a word
        if self.raw[offset : offset + 1] in {"<", ">"} and _DESCRIPTOR.fullmatch(self.raw, start, offset):
            raise ParseMismatch("a descriptor before a redirection is not understood")
        return self._expand(scanner, start, offset), offset

    def require_separate(self, nodes: "Sequence[Node]", index: int, offset: int) -> None:
        """Raise ``ParseMismatch`` if one word of bash is two nodes of the tree."""
        following = nodes[index] if len(nodes) > index else None
        touches = following is not None and following.start_byte == offset and following.is_named
        if following is not None and touches and not following.type.endswith("redirect"):
            raise ParseMismatch("a word continues where the syntax tree ends it")

    def _continues(self, offset: int) -> bool:
        return offset < len(self.raw) and self.raw[offset] not in WORD_BREAKS

    def _expand(self, scanner: WordScanner, start: int, end: int, *, braces: bool = True) -> list[Word]:
        """Return the words that a scanned word expands to."""
        self._note_payload(scanner.parts)
        source = decode_latin1(self.raw[start:end])
        return expand_word(scanner.parts, source, unquoted=scanner.unquoted, braces=braces)

    def _note_payload(self, parts: Iterable[WordSegment | WordExpansion]) -> None:
        texts = (part.text.partition("[")[2] for part in parts if isinstance(part, WordSegment))
        if any(_PAYLOAD.search(text) for text in texts):
            self.has_payload = True

    def note_assignment(self, name: str) -> None:
        if is_unsafe_variable(name):
            self.doubts.append(f"it sets {name}, which decides what runs")

    def read_assignment(self, node: "Node") -> Assignment:
        """Read ``name=value``."""
        children = node.children
        target, operator = children[0], children[1]
        found = _VARIABLE_NAME.match(self.raw, target.start_byte, target.end_byte)
        if found is None or operator.type not in {"=", "+="} or target.end_byte != operator.start_byte:
            raise ParseMismatch("an assignment is not understood")
        if target.type == "subscript":
            self.has_arithmetic = True
            inside = self.read_expansions(target.children)
            text = self._text_without_expansions(target.start_byte, target.end_byte, inside)
            self.taint.note_evaluation(text[len(found[0]) :], (located.expansion for located in inside.values()))
        if len(children) > 2 and children[2].type == "array":
            self.taint.note_assignment(found[0], self._read_array(children[2], operator.end_byte, node.end_byte))
            source = decode_latin1(self.raw[operator.end_byte : node.end_byte])
            return Assignment(found[0], Word(None, source, unquoted=False))
        value = self._read_value(children[2:], operator.end_byte, node.end_byte)
        if operator.type == "+=":
            self.taint.note_append(found[0], value)
        else:
            self.taint.note_assignment(found[0], [value])
        return Assignment(found[0], value)

    def _read_value(self, nodes: "Sequence[Node]", start: int, end: int) -> Word:
        if start == end:
            return literal_word("")
        found = PLAIN_WORD.match(self.raw, start)
        if found is not None and found.end() == end:
            return literal_word(found[0])
        scanner = WordScanner(self.raw, self.read_expansions(nodes))
        if scanner.scan_word(start, stop=end) != end or self._continues(end):
            raise ParseMismatch("a value does not end where the syntax tree ends it")
        return self._expand(scanner, start, end, braces=False)[0]

    def _read_array(self, node: "Node", start: int, end: int) -> list[Word]:
        words: list[Word] = []
        offset = start
        for index, child in enumerate(node.children):
            self.walker.require_blank(offset, child.start_byte)
            offset = child.end_byte
            if child.type == "comment":
                raise ParseMismatch("a comment is in an array")
            if child.is_named:
                words += map(self._read_element, self.read_single_word(child))
                self.require_separate(node.children, index + 1, offset)
        if offset != end or node.start_byte != start:
            raise ParseMismatch("an array does not end where the syntax tree ends it")
        return words

    def _read_element(self, word: Word) -> Word:
        """Note the evaluation of the subscript of ``[x]=y``; its brackets are not a pattern."""
        if not word.source.startswith("[") or "]=" not in word.source:
            return word
        pieces = tuple(piece for piece in word.pieces if isinstance(piece, str) or piece.kind != "glob")
        word = Word(None, word.source, pieces, unquoted=False)
        self.has_arithmetic = True
        self.taint.note_evaluation(word.source, word.expansions)
        value = word.source.partition("]=")[2]
        return literal_word(value) if PLAIN_WORD.fullmatch(value) else word

    def read_test_words(self, node: "Node") -> list[Word]:
        """Read the words of ``[ … ]``: an expression for the grammar, a command for bash."""
        expansions = self.read_expansions([node])
        words: list[Word] = []
        offset = node.start_byte
        end = node.end_byte
        used = 0
        while offset < end:
            if self.raw[offset] in " \t":
                offset += 1
                continue
            start = offset
            scanner = WordScanner(self.raw, expansions)
            offset = scanner.scan_word(start, stop=end, partial=True)
            if offset == start:
                raise ParseMismatch(f"{self.raw[offset]!r} is in a test")
            used += scanner.used_expansions
            words += self._expand(scanner, start, offset)
        if used != len(expansions):
            raise ParseMismatch("bash does not see an expansion of the syntax tree")
        return words

    # ---------------------------------------------------------------------------------------- expansions

    def read_expansions(self, nodes: "Iterable[Node]") -> dict[int, LocatedExpansion]:
        """Walk over the outermost expansions of some nodes; return them by their start."""
        expansions: dict[int, LocatedExpansion] = {}
        pending = list(nodes)[::-1]
        while pending:
            node = pending.pop()
            kind = _EXPANSION_NODES.get(node.type)
            if kind is not None:
                start = node.start_byte
                while self.raw[start] in " \t\n":  # in strings the grammar includes leading blanks
                    start += 1
                expansions[start] = LocatedExpansion(node.end_byte, self._read_expansion(node, kind, start))
            elif node.child_count:
                pending += node.children[::-1]
        return expansions

    def _read_expansion(self, node: "Node", kind: ExpansionKind, start: int) -> WordExpansion:
        if kind == "arithmetic":
            brackets = 2 if self.raw.startswith("$((", start) else 1  # $((…)) or $[…]
            self.read_arithmetic(node, start + 1 + brackets, node.end_byte - brackets)
            return WordExpansion(kind)
        if kind == "parameter":
            return self._read_parameter(node, start)
        count = len(self.walker.commands)
        if self.raw[start] == "`":
            self._read_backquotes(start + 1, node.end_byte - 1)
        else:
            before = self.walker.stdin
            self.walker.stdin = UNKNOWN_TEXT if self.raw[start] == ">" else before
            self.walker.depth += 1
            self.walker.walk_block(node)
            self.walker.depth -= 1
            self.walker.stdin = before
        commands = self.walker.commands[count:]
        output = predict_output(commands[0]) if len(commands) == 1 else None
        if len(commands) == 1 and commands[0].name in {"echo", "printf"}:
            self.taint.assigned_values += commands[0].words[1:]
        guess = output.text.rstrip("\n") if output is not None and output.certain else None
        here = "PWD" if len(commands) == 1 and commands[0].name == "pwd" and len(commands[0].words) == 1 else ""
        plain = kind == "command" and prints_number(commands)
        return WordExpansion(kind, here, guess=guess, plain_value=plain, producers=self._producers_since(count))

    def _producers_since(self, count: int) -> tuple[Words, ...]:
        """Return the words of the commands since ``count`` if they are one command or one pipeline."""
        commands = self.walker.commands[count:]
        parts = self.walker.pipelines[-1] if self.walker.pipelines else ()
        piped = [index for part in parts for index in part if len(part) == 1]
        if len(commands) > 1 and piped != [*range(count, len(self.walker.commands))]:
            return ()
        return tuple(command.words for command in commands)

    def _read_backquotes(self, start: int, end: int) -> None:
        text = self.raw[start:end]
        if re.search(r"(?<!\\)(?:\\\\)*`", text) or '\\"' in text:
            raise ParseMismatch("backquotes inside backquotes are not understood")
        if _EVALUATES.search(text):  # it is parsed separately, but shares the variables
            self.taint.note_evaluation(text)
        script = self.walker.read_nested(re.sub(r"\\([\\`$])", r"\1", decode_latin1(text)), self.walker.stdin)
        self.walker.merge_script(script, "")

    def _read_parameter(self, node: "Node", start: int) -> WordExpansion:
        text = self._text_without_expansions(start + 2, node.end_byte - 1, self.read_expansions(node.children))
        if "}" in text or ("\\" in text and ('"' in text or "'" in text)) or text.count('"') % 2 or text.count("'") % 2:
            raise ParseMismatch("it is not certain where a parameter ends")
        if found := _DEFAULT_ASSIGNMENT.match(text):
            self.note_assignment(found[1])
            self.taint.tainted.add(found[1])
        if _INDIRECT.match(text) or text.endswith(("@P", "@E")):
            self.doubts.append("it runs or reads what a variable names")
        if ":" in text or "[" in text:
            self.has_arithmetic = True
            self.taint.note_evaluation(" ".join(_EVALUATED_PART.findall(text)))
        return WordExpansion("parameter", text)

    def _text_without_expansions(
        self, start: int, end: int, inside: dict[int, LocatedExpansion], ignored: str = "(?!)"
    ) -> str:
        """Return a text with a blank for each expansion. Raises ``ParseMismatch`` for one outside ``inside``."""
        parts: list[str] = []
        offset = start
        for position, located in sorted(inside.items()):
            if position < offset:
                raise ParseMismatch("expansions overlap")
            parts.append(self.raw[offset:position])
            offset = located.end
        parts.append(self.raw[offset:end])
        text = " ".join(parts)
        if offset > end or _EXPANSION_START.search(re.sub(ignored, " ", text)):
            raise ParseMismatch("an expansion is missing in the syntax tree")
        return text

    # ---------------------------------------------------------------------------------------- numbers and conditions

    def note_builtin(self, words: Words) -> None:
        """Note the variables that a builtin sets: bash evaluates a subscript in their names."""
        names, texts = find_evaluated_words(words)
        self.has_arithmetic = self.has_arithmetic or bool(names or texts)
        for word in names:
            text = word.placeholder_text
            self.taint.note_evaluation("".join(text.partition("[")[1:]), word.expansions)
            if words[0].value not in DECLARATION_BUILTINS | {"test", "["}:
                self.note_assignment(text.partition("[")[0])
        for word in texts:
            self.taint.note_evaluation(word.placeholder_text, word.expansions)
            for found in _ARITHMETIC_ASSIGNMENT.finditer(word.placeholder_text):
                self.note_assignment(found[1])

    def read_arithmetic(
        self, node: "Node", start: int, end: int, until: int | None = None, *, header: bool = False
    ) -> None:
        """Walk over text that bash evaluates as arithmetic."""
        children = [child for child in node.children if until is None or child.end_byte <= until]
        inside = self.read_expansions(children)
        text = self._text_without_expansions(start, end, inside)
        self.taint.note_evaluation(text, (located.expansion for located in inside.values()))
        body = text.replace(";", " ", 2) if header else text
        if not _ARITHMETIC_TEXT.fullmatch(body) or not _has_balanced_parentheses(text):
            raise ParseMismatch("arithmetic is not understood")
        self.has_arithmetic = self.has_arithmetic or re.search(r"[A-Za-z_]", text) is not None or " " in text
        for found in (*_ARITHMETIC_ASSIGNMENT.finditer(text), *_ARITHMETIC_INCREMENT.finditer(text)):
            self.note_assignment(found[1])

    def read_condition(self, node: "Node") -> list[Word]:
        """Walk over ``[[ … ]]`` and the commands in its expansions."""
        expansions = self.read_expansions([node])
        start, end = node.start_byte, node.end_byte
        text = self._text_without_expansions(start + 2, end - 2, expansions, r"'[^']*'|\\.")
        bare = _QUOTED_TEXT.sub(" ", text)
        if re.search(r"[;\n'\"\\]|\]\]|(?<!&)&(?!&)", bare) or self.raw[start + 2] not in " \t":
            raise ParseMismatch("a condition is not understood")
        if _NUMERIC_TESTS.search(bare):
            self.has_arithmetic = True
            self.taint.note_evaluation(_compared_operands(text), (located.expansion for located in expansions.values()))
        self._note_payload([WordSegment(decode_latin1(text), quoted=False)])
        body = Word(None, decode_latin1(self.raw[start + 2 : end - 2]).strip(), unquoted=False)
        return [literal_word("[["), body, literal_word("]]")]

    def read_heredoc(self, node: "Node", start: int, end: int) -> bool:
        """Walk over the expansions of an unquoted here-document; return whether there are none."""
        bodies = [child for child in node.children if child.type == "heredoc_body"]
        inside = self.read_expansions(bodies)
        offset = start
        literal = True
        used = 0
        while offset < end:
            character = self.raw[offset]
            if character == "\\":
                offset += 2
            elif character == "`":
                close = self._find_closing_backquote(offset + 1, end)
                self._read_backquotes(offset + 1, close)
                offset, literal = close + 1, False
            elif offset in inside:
                offset = inside[offset].end
                literal = False
                used = used + 1
            elif character == "$" and re.compile(r"\$[A-Za-z_0-9@*#?$!\-({\[]").match(self.raw, offset):
                if self.raw[offset + 1] in "({[":
                    raise ParseMismatch("an expansion is missing in the syntax tree")
                offset, literal = offset + 2, False
            else:
                offset += 1
        if used != len(inside):
            raise ParseMismatch("bash does not see an expansion of the syntax tree")
        return literal

    def _find_closing_backquote(self, offset: int, end: int) -> int:
        while offset < end and self.raw[offset] != "`":
            offset += 2 if self.raw[offset] == "\\" else 1
        if offset >= end:
            raise ParseMismatch("backquotes are not closed")
        return offset


def _has_balanced_parentheses(text: str) -> bool:
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            return False
    return depth == 0


def _compared_operands(text: str) -> str:
    """Return the operands of numeric comparisons, and of ``-v`` and ``-R``."""
    text = _QUOTED_TEXT.sub(lambda found: "" if found[0][0] == "\\" else re.sub(r"\s", ".", found[0]), text)
    return " ".join(_NUMERIC_OPERANDS.findall(text))
