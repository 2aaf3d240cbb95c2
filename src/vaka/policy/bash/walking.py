"""One walk over the tree of a text, gathering its simple commands.

The grammar is more generous than bash. So the tree is believed only where the text bears it out: every word is read
again from its first character and must end where the tree says, and between two nodes there is nothing but blanks.
Where the two disagree there is no sure reading.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from vaka.policy.bash.expanding import Expander
from vaka.policy.bash.grammar import BLOCKS, CASE_ENDS, RESERVED, TOKENS, fed_by_file
from vaka.policy.bash.nested import Text, fed, printed, scripts
from vaka.policy.bash.numbers import settled
from vaka.policy.bash.quoting import BREAKS, Mismatch, decoded
from vaka.policy.bash.redirecting import LOST_DASH, Redirector
from vaka.policy.bash.told import told
from vaka.policy.bash.words import Assignment, Script, Simple, Word, Words, literal
from vaka.policy.bash.wrappers import ELSEWHERE, EXACT, base, inner, plain

if TYPE_CHECKING:
    from tree_sitter import Node

Nodes: TypeAlias = "Sequence[Node]"

_DEEPEST = 60
_SHOWN = EXACT | ELSEWHERE
_FREE, _BLANKS = re.compile(r"[ \t\n]*"), re.compile(r"[ \t]*")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[.*\])?\+?=", re.DOTALL)


class Walk:
    """Gathers the simple commands of one text."""

    def __init__(self, raw: str, text: str, read: Callable[[str], Script]) -> None:
        self.raw = raw
        self.text = text
        self.read = read
        self.commands: list[Simple] = []
        self.functions: set[str] = set()
        self.bomb = False
        self.depth = 0
        self.stdin: Text | None = None
        self.piped = False
        self.words = Expander(self)
        self.redirector = Redirector(self)
        self.doubts = self.words.doubts
        self.kinds: dict[str, Callable[[Node, Nodes], None]] = {
            "list": self._list,
            "pipeline": self._pipeline,
            "negated_command": self._negated,
            "redirected_statement": self._redirected,
            "comment": self._comment,
            "for_statement": self._for,
            "c_style_for_statement": self._for_numbers,
            "case_statement": self._case,
            "function_definition": self._function,
            "declaration_command": self._words_of,
            "unset_command": self._words_of,
            "variable_assignment": self._assignments,
            "variable_assignments": self._assignments,
            "test_command": self._test,
            "file_redirect": self._held,
        }

    def script(self) -> Script:
        """Return what was gathered."""
        if (self.words.arithmetic and self.words.payload) or self.words.numbers.runs:
            self.doubts.append("bash runs commands inside a subscript that it works out")
        commands = tuple(settled(one, self.words.numbers) for one in self.commands)
        given = tuple(dict.fromkeys(self.words.numbers.values))
        return Script(self.text, commands, tuple(dict.fromkeys(self.doubts)), self.bomb, given=given)

    # ---------------------------------------------------------------------------------------- structure

    def program(self, root: "Node") -> None:
        """Walk over the whole text."""
        self.gap(0, root.start_byte)
        self.block(root)
        self.gap(root.end_byte, len(self.raw))

    def gap(self, start: int, end: int, allowed: re.Pattern[str] = _FREE) -> None:
        """Make sure that nothing but blanks stands between two nodes."""
        if start != end and not allowed.fullmatch(self.raw, start, end):
            raise Mismatch(f"{decoded(self.raw[start:end]).strip()!r} stands where nothing should")

    def block(self, node: "Node", skip: int = 0) -> None:
        """Walk over the statements of a node, from its child number ``skip`` on."""
        children = node.children
        at = children[skip].start_byte if len(children) > skip else node.end_byte
        for child in children[skip:]:
            self.gap(at, child.start_byte)
            at = child.end_byte
            if child.is_named:
                self.statement(child)
            else:
                self._token(child, node)

    def _token(self, child: "Node", parent: "Node") -> None:
        if (
            child.type not in TOKENS
            and child.type != "\n"
            and not (parent.type == "case_item" and child.type in CASE_ENDS)
        ):
            raise Mismatch(f"{child.type!r} stands where it should not")
        if child.type != "\n" and self.raw[child.start_byte : child.end_byte] != child.type:
            raise Mismatch(f"{child.type!r} is not where the tree sees it")
        if child.type[0].isalpha() or child.type == "}":
            self.bounded(child)
        if child.type == "{" and self.raw[child.end_byte : child.end_byte + 1] not in {" ", "\t", "\n"}:
            raise Mismatch("a brace begins a group only before a blank")

    def bounded(self, node: "Node") -> None:
        """Make sure that a keyword is a word of its own."""
        start, end = node.start_byte, node.end_byte
        if (start and self.raw[start - 1] not in BREAKS) or (end < len(self.raw) and self.raw[end] not in BREAKS):
            raise Mismatch(f"{node.type!r} is part of a word")

    def statement(self, node: "Node", tail: Nodes = ()) -> None:
        """Walk over one statement; ``tail`` are redirections that the tree hung onto something around it."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise Mismatch("it is nested too deeply")
        if node.type == "command":
            self._command(node, tail)
        elif node.type in BLOCKS:
            self._group(node, tail)
        elif (found := self.kinds.get(node.type)) is not None:
            found(node, tail)
        else:
            raise Mismatch(f"{node.type.replace('_', ' ')} is not understood")
        self.depth -= 1

    def _group(self, node: "Node", tail: Nodes) -> None:
        if node.children and node.children[0].type == "((":
            self.bounded(node)
            self.words.arithmetic_text(node, node.start_byte + 2, node.end_byte - 2)
            self._hold(tail)
            return
        before, taken = self.stdin, self._hold(tail)
        self.stdin = taken or before
        self.block(node)
        self.stdin = before

    def _held(self, node: "Node", tail: Nodes) -> None:
        self._hold([node, *tail])

    def _hold(self, tail: Nodes) -> Text | None:
        """Take in redirections of something that is no simple command; return the text they feed to it."""
        if not tail:
            return None
        redirections, extra, following = self.redirector.all(tail)
        if extra:
            raise Mismatch("a word stands behind a redirection of a group")
        source = self._source(tail[0].start_byte, tail[-1].end_byte)
        self._add(Simple((), (), tuple(redirections), source))
        self._follow(following, None)
        return fed(tuple(redirections))

    def _list(self, node: "Node", tail: Nodes) -> None:
        parts: list[Node] = []
        while node.type == "list":  # a long list leans to the left, deeper than we may recurse
            left, operator, right = self._three(node)
            parts += [right]
            if operator.type not in {"&&", "||"}:
                raise Mismatch(f"{operator.type!r} does not join commands")
            node = left
        parts.append(node)
        for part in reversed(parts[1:]):
            self.statement(part)
        self.statement(parts[0], tail)

    def _three(self, node: "Node") -> "tuple[Node, Node, Node]":
        children = [child for child in node.children if child.type != "comment"]
        if len(children) != 3 or len(children) != node.child_count:
            raise Mismatch("a list of commands is not understood")
        self.gap(children[0].end_byte, children[1].start_byte)
        self.gap(children[1].end_byte, children[2].start_byte)
        return children[0], children[1], children[2]

    def _pipeline(self, node: "Node", tail: Nodes, given: Text | None = None, *, piped: bool = False) -> None:
        before = self.stdin
        children = node.children
        last = max(index for index, child in enumerate(children) if child.is_named)
        at = node.start_byte
        for index, child in enumerate(children):
            self.gap(at, child.start_byte)
            at = child.end_byte
            if not child.is_named:
                self._token(child, node)
                continue
            self.stdin, self.piped = given if piped else before, piped
            count = len(self.commands)
            self.statement(child, tail if index == last else ())
            given, piped = self._printed(count, given) if index != last else None, True
        self.stdin, self.piped = before, False

    def _printed(self, count: int, given: Text | None) -> Text | None:
        """What the commands since ``count`` print, when it is one of which that is plain to see.

        ``given`` is what it gets to read: some only hand that on.
        """
        mine = [one for one in self.commands[count:] if not one.origin]
        if len(mine) != 1:
            return None
        handed_on = mine[0].name == "tee" or (mine[0].name == "cat" and len(mine[0].words) == 1)
        return given if handed_on and not mine[0].redirections else printed(mine[0])

    def _negated(self, node: "Node", tail: Nodes) -> None:
        if node.child_count != 2:
            raise Mismatch("a comment stands behind '!'")
        bang, body = node.children
        self.gap(bang.end_byte, body.start_byte)
        if bang.end_byte == body.start_byte and self.raw[body.start_byte] != "(":
            raise Mismatch("'!' is part of a word")
        self.statement(body, tail)

    def _redirected(self, node: "Node", tail: Nodes) -> None:
        children = node.children
        for left, right in pairwise(children):
            dash = right.type == "heredoc_redirect"
            self.gap(left.end_byte, right.start_byte, LOST_DASH if dash else _BLANKS)
        if children[0].type.endswith("redirect"):
            self._hold([*children, *tail])
        else:
            self.statement(children[0], [*children[1:], *tail])

    def _comment(self, node: "Node", _tail: Nodes) -> None:
        start = node.start_byte
        if start and self.raw[start - 1] not in " \t\n;&|()":
            raise Mismatch("a comment begins inside a word")
        if "\n" in self.raw[start : node.end_byte]:
            raise Mismatch("a comment goes on behind its line")

    # ---------------------------------------------------------------------------------------- control flow

    def _for(self, node: "Node", tail: Nodes) -> None:
        name = ""
        for index, child in enumerate(node.children):
            if index:
                self.gap(node.children[index - 1].end_byte, child.start_byte)
            if child.type == "variable_name":
                name = self.raw[child.start_byte : child.end_byte]
                self.words.assigned(name)
            elif child.type == "do_group" or child.type in BLOCKS:
                self._group(child, tail)
            elif child.is_named:
                self.words.numbers.given(name, self.words.one(child))
                self.words.apart(node.children, index + 1, child.end_byte)
            else:
                self._token(child, node)

    def _for_numbers(self, node: "Node", tail: Nodes) -> None:
        types = [child.type for child in node.children]
        start, end = node.children[types.index("((")], node.children[types.index("))")]
        self.bounded(node.children[0])
        self.words.arithmetic_text(node, start.end_byte, end.start_byte, until=end.start_byte, header=True)
        self.block(node, types.index("))") + 1)
        self._hold(tail)

    def _case(self, node: "Node", tail: Nodes) -> None:
        for index, child in enumerate(node.children):
            if index:
                self.gap(node.children[index - 1].end_byte, child.start_byte)
            if child.type == "case_item":
                self._case_item(child)
            elif child.type == "comment":
                self._comment(child, ())
            elif child.is_named:
                self.words.one(child)
            else:
                self._token(child, node)
        self._hold(tail)

    def _case_item(self, node: "Node") -> None:
        children = node.children
        close = next((index for index, child in enumerate(children) if child.type == ")"), None)
        if close is None:
            raise Mismatch("a pattern of a case does not end")
        for left, right in pairwise(children[: close + 1]):
            self.gap(left.end_byte, right.start_byte)
        for index, child in enumerate(children[:close]):
            if child.is_named:
                self.words.one(child)
                self.words.apart(children, index + 1, child.end_byte)
        self.block(node, close)

    def _function(self, node: "Node", tail: Nodes) -> None:
        children = node.children
        index = next(index for index, child in enumerate(children) if child.type == "word")
        name = decoded(self.raw[children[index].start_byte : children[index].end_byte])
        rest = [child for child in children[index + 1 :] if child.is_named]
        for left, right in pairwise(children):
            self.gap(left.end_byte, right.start_byte)
        for child in children:
            if not child.is_named:
                self._token(child, node)
        if not rest:
            raise Mismatch("a function has no body")
        count, outer = len(self.commands), self.depth == 1
        self.statement(rest[0], [*rest[1:], *tail])
        body = self.raw[rest[0].start_byte : rest[0].end_byte]
        if any(one.name == name for one in self.commands[count:]) and ("|" in body or "&" in body):
            self.bomb = True
        if outer:
            self.functions.add(name)

    # ---------------------------------------------------------------------------------------- simple commands

    def _command(self, node: "Node", tail: Nodes) -> None:
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Node] = []
        children = node.children
        at, touching = node.start_byte, False
        for index, child in enumerate(children):
            start, end = child.start_byte, child.end_byte
            if end <= at and index:
                continue  # part of the word before
            self.gap(at, start, _BLANKS)
            kind = child.type
            if kind.endswith("redirect"):
                redirects.append(child)
                at, touching = end, True
            elif touching and start == at:
                raise Mismatch("a word goes on where the tree ends it")
            elif kind == "variable_assignment" and not words:
                assignments.append(self.words.assignment(child))
                at, touching = end, True
            else:
                found, at = self.words.word(children, index)
                words += found
                touching = True
        if at != node.end_byte:
            raise Mismatch("a command ends elsewhere than it seems to")
        if words and words[0].bare and words[0].value in RESERVED:
            raise Mismatch(f"{words[0].value!r} is no command")
        self._finish(node, words, assignments, [*redirects, *tail])

    def _behind_keyword(self, words: list[Word], assignments: list[Assignment]) -> list[Word]:
        """Find the variables that are set behind ``time``: for the grammar it is a command, for bash it is not."""
        start = 1
        while start < len(words) and words[start].bare and words[start].value in {"-p", "--", "time"}:
            start += 1
        if not self.piped and start < len(words) and (words[start].value or "").startswith("-"):
            raise Mismatch("what stands behind 'time' is no option, but a command")
        end = start
        while end < len(words) and (found := _VARIABLE.match(words[end].source)) is not None:
            if found[2] or self.piped:  # behind a pipe it is no keyword but a program
                raise Mismatch("what stands behind 'time' is not understood")
            assignments.append(Assignment(found[1], Word(None, words[end].source[found.end() :])))
            end += 1
        return words[:start] + words[end:]

    def _finish(self, node: "Node", words: list[Word], assignments: list[Assignment], redirects: list["Node"]) -> None:
        redirections, extra, following = self.redirector.all(redirects)
        words = [*words, *extra]
        if words and words[0].bare and words[0].value in {"time", "coproc"}:
            words = self._behind_keyword(words, assignments)
        end = max([node.end_byte, *(one.end_byte for one in redirects if one.type != "heredoc_redirect")])
        simple = Simple(tuple(words), tuple(assignments), tuple(redirections), self._source(node.start_byte, end))
        self._add(simple)
        if following:
            self._follow(following, printed(simple))

    def _source(self, start: int, end: int) -> str:
        return decoded(self.raw[start:end])

    def _words_of(self, node: "Node", tail: Nodes) -> None:
        """``export``, ``declare``, ``unset`` and the like: commands that the grammar has a node of its own for."""
        words: list[Word] = []
        assignments: list[Assignment] = []
        at = node.start_byte
        for index, child in enumerate(node.children):
            if child.end_byte <= at and index:
                continue
            self.gap(at, child.start_byte, _BLANKS)
            if child.type == "variable_assignment":
                made = self.words.assignment(child)
                assignments.append(made)
                said = f"{made.name}={made.value.value}" if made.value.value is not None else None
                words.append(Word(said, self._source(child.start_byte, child.end_byte), bare=False))
                at = child.end_byte
                self.words.apart(node.children, index + 1, at)
            elif not child.is_named and index == 0:
                words.append(literal(child.type))
                at = child.end_byte
            else:
                found, at = self.words.word(node.children, index)
                words += found
        self.words.arithmetic = True  # a subscript in a name is worked out
        self._finish(node, words, assignments, list(tail))

    def _assignments(self, node: "Node", tail: Nodes) -> None:
        nodes = node.children if node.type == "variable_assignments" else [node]
        for left, right in pairwise(nodes):
            self.gap(left.end_byte, right.start_byte, _BLANKS)
            self.words.apart([right], 0, left.end_byte)
        found = [self.words.assignment(child) for child in nodes]
        self._finish(node, [], found, list(tail))

    def _test(self, node: "Node", tail: Nodes) -> None:
        self.bounded(node)
        if node.children[0].type == "[[":
            words = self.words.condition(node)
        elif node.children[0].type == "[":
            words = self.words.region(node)
        else:
            raise Mismatch("a test is not understood")
        self._finish(node, words, [], list(tail))

    def _add(self, simple: Simple) -> None:
        words = simple.words
        self.words.numbers.read(simple)
        readings = inner(words)
        for reading in readings if words and words[0].bare and words[0].value in {"time", "coproc"} else ():
            if reading[0].bare and reading[0].value in RESERVED | {"("}:
                raise Mismatch(f"{reading[0].value!r} is no command")
        stdin = fed(simple.redirections) or (self.stdin if not fed_by_file(simple) else None)
        found = dict.fromkeys(one for reading in (words, *readings) for one in scripts(reading, stdin))
        unsure = any(not one.text.sure for one in found)
        inside = [(one.origin, self.read(one.text.text)) for one in found]
        if words and (name := base(words[0].sketch)) in _SHOWN:
            # Only a rule that names the whole of it allows such a runner, or it runs nothing here: its script is no
            # command of its own.
            readings += tuple(
                part for _, script in inside for one in script.commands for part in (one.words, *one.wrapped)
            )
            inside = []
            if name in ELSEWHERE:
                unsure, readings = False, tuple(one for one in readings if one and one[0].value is not None)
        for text in dict.fromkeys(text for reading in (words, *readings) for text in told(reading)):
            readings += self._told(text)
        if simple.name in self.functions:
            self.words.numbers.values += words[1:]
        doubt = "the script it runs is not known beforehand" if unsure else ""
        self.commands.append(
            msgspec.structs.replace(
                simple, wrapped=readings, plain=plain(words), doubt=doubt, function=simple.name in self.functions
            )
        )
        for origin, script in inside:
            self.merge(script, origin)

    def _told(self, text: str) -> tuple[Words, ...]:
        """The commands in a text that may be a script; nothing when it is none."""
        try:
            commands = self.read(text).commands
        except (Mismatch, LookupError, ValueError):
            return ()
        return tuple(part for one in commands for part in (one.words, *one.wrapped) if part)

    def merge(self, script: Script, origin: str) -> None:
        """Take in what a script inside this one does."""
        for one in script.commands:
            self.commands.append(msgspec.structs.replace(one, origin=one.origin or origin))
        self.doubts += script.doubts
        self.words.numbers.values += script.given
        self.bomb = self.bomb or script.bomb

    def _follow(self, nodes: Sequence["Node"], given: Text | None) -> None:
        """Walk over what stands behind a here-document on its line."""
        for left, right in pairwise(nodes):
            self.gap(left.end_byte, right.start_byte)
        for node in nodes:
            if node.type == "pipeline":
                self._pipeline(node, (), given, piped=True)
            elif node.type not in {"&&", "||"}:
                self.statement(node)
