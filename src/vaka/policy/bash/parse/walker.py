"""Collect the simple commands of a syntax tree.

The grammar accepts more than bash and sometimes differs from it, so the tree is trusted only where a scan of the text
confirms each word: anything else raises ``ParseMismatch``.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from vaka.policy.bash.parse.expansion import Expander
from vaka.policy.bash.parse.inline_scripts import UNKNOWN_TEXT, ScriptText, input_text_of, predict_output
from vaka.policy.bash.parse.nested_commands import ScriptReader, add_nested_commands
from vaka.policy.bash.parse.redirections import LOST_DASH, RedirectionReader
from vaka.policy.bash.parse.syntax import (
    Assignment,
    ShellScript,
    SimpleCommand,
    Word,
    literal_word,
)
from vaka.policy.bash.parse.variables import mark_plain_variables
from vaka.policy.bash.parse.words import WORD_BREAKS, ParseMismatch, decode_latin1
from vaka.policy.bash.programs import name_set

if TYPE_CHECKING:
    from tree_sitter import Node

Nodes: TypeAlias = "Sequence[Node]"

_MAX_DEPTH = 60
_RESERVED_WORDS = name_set("if then else elif fi for while until do done case esac in function select { } ! [[ ]]")
_SYNTAX_TOKENS = name_set(
    "; & { } ( ) if then elif else fi while until do done case in esac for select && || | |& ! function $( <( >( `"
) | {"\n"}
_CASE_TERMINATORS = name_set(";; ;& ;;&")
_BLOCK_NODES = name_set(
    "program subshell compound_statement if_statement elif_clause else_clause while_statement do_group"
)
_WHITESPACE, _BLANKS = re.compile(r"[ \t\n]*"), re.compile(r"[ \t]*")
_ASSIGNMENT_START = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(\[.*\])?\+?=", re.DOTALL)


class TreeWalker:
    """Collects the simple commands of one text."""

    def __init__(self, raw: str, text: str, read_nested: ScriptReader, stdin: ScriptText | None) -> None:
        self.raw = raw
        self.text = text
        self.read_nested = read_nested
        self.commands: list[SimpleCommand] = []
        self.functions: set[str] = set()
        self.fork_bomb = False
        self.stops_at_failure = False
        self.pipelines: list[tuple[range, ...]] = []
        self.depth = 0
        self.stdin = stdin
        self.piped = False
        self.expander = Expander(self)
        self.redirections = RedirectionReader(self)
        self.doubts = self.expander.doubts
        self.handlers: dict[str, Callable[[Node, Nodes], object]] = {
            "command": self._walk_command,
            "list": self._walk_list,
            "pipeline": self._walk_pipeline,
            "negated_command": self._walk_negated,
            "redirected_statement": self._walk_redirected,
            "comment": self._check_comment,
            "for_statement": self._walk_for,
            "case_statement": self._walk_case,
            "c_style_for_statement": self._walk_c_style_for,
            "function_definition": self._walk_function,
            "declaration_command": self._walk_declaration,
            "unset_command": self._walk_declaration,
            "variable_assignment": self._walk_assignments,
            "variable_assignments": self._walk_assignments,
            "test_command": self._walk_test,
            "file_redirect": lambda node, tail: self._add_redirections([node, *tail]),
            **dict.fromkeys(_BLOCK_NODES, self._walk_group),
        }

    def build_script(self) -> ShellScript:
        if (self.expander.has_arithmetic and self.expander.has_payload) or self.expander.taint.may_run_tainted:
            self.doubts.append("bash runs commands inside a subscript that it evaluates")
        commands = tuple(mark_plain_variables(command, self.expander.taint) for command in self.commands)
        values = tuple(dict.fromkeys(self.expander.taint.assigned_values))
        doubts = tuple(dict.fromkeys(self.doubts))
        taint = self.expander.taint
        variables = {name: tuple(dict.fromkeys(words)) for name, words in taint.values_by_name.items()}
        return ShellScript(
            self.text,
            commands,
            doubts,
            self.fork_bomb,
            assigned_values=values,
            pipelines=tuple(self.pipelines),
            variables=variables,
            input_variables=frozenset(taint.input_variables),
            stops_at_failure=self.stops_at_failure,
        )

    # ---------------------------------------------------------------------------------------- structure

    def walk_program(self, root: "Node") -> None:
        self.require_blank(0, root.start_byte)
        self.stops_at_failure = _is_chain(root)
        self.walk_block(root)
        self.require_blank(root.end_byte, len(self.raw))

    def require_blanks_between(self, nodes: Nodes, allowed: re.Pattern[str] = _WHITESPACE) -> None:
        for left, right in pairwise(nodes):
            self.require_blank(left.end_byte, right.start_byte, allowed)

    def require_blank(self, start: int, end: int, allowed: re.Pattern[str] = _WHITESPACE) -> None:
        """Raise ``ParseMismatch`` if there is more than blanks between two nodes."""
        if start != end and not allowed.fullmatch(self.raw, start, end):
            raise ParseMismatch(f"{decode_latin1(self.raw[start:end]).strip()!r} is where nothing should be")

    def walk_block(self, node: "Node", skip: int = 0) -> None:
        """Walk over the statements of a node, from child ``skip`` on."""
        children = node.children
        offset = children[skip].start_byte if len(children) > skip else node.end_byte
        for child in children[skip:]:
            self.require_blank(offset, child.start_byte)
            offset = child.end_byte
            if child.is_named:
                self.walk_statement(child)
            else:
                self._check_token(child, node)

    def _check_token(self, child: "Node", parent: "Node") -> None:
        in_case = parent.type == "case_item" and child.type in _CASE_TERMINATORS
        if child.type not in _SYNTAX_TOKENS and not in_case:
            raise ParseMismatch(f"{child.type!r} is where it should not be")
        if child.type != "\n" and self.raw[child.start_byte : child.end_byte] != child.type:
            raise ParseMismatch(f"{child.type!r} is not where the syntax tree has it")
        if child.type[0].isalpha() or child.type == "}":
            self.require_whole_word(child)
        if child.type == "{" and self.raw[child.end_byte : child.end_byte + 1] not in {" ", "\t", "\n"}:
            raise ParseMismatch("a brace begins a group only before a blank")

    def require_whole_word(self, node: "Node") -> None:
        """Raise ``ParseMismatch`` if a keyword is part of a longer word."""
        before = self.raw[node.start_byte - 1] if node.start_byte else ""
        if not WORD_BREAKS.issuperset(before + self.raw[node.end_byte : node.end_byte + 1]):
            raise ParseMismatch(f"{node.type!r} is part of a word")

    def walk_statement(self, node: "Node", tail: Nodes = ()) -> None:
        """Walk over one statement; ``tail`` are its redirections that the tree attaches to a parent."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ParseMismatch("it is nested too deeply")
        handler = self.handlers.get(node.type)
        if handler is None:
            raise ParseMismatch(f"{node.type.replace('_', ' ')} is not understood")
        handler(node, tail)
        self.depth -= 1

    def _walk_group(self, node: "Node", tail: Nodes) -> None:
        if node.children and node.children[0].type == "((":
            self.require_whole_word(node)
            self.expander.read_arithmetic(node, node.start_byte + 2, node.end_byte - 2)
            self._add_redirections(tail)
            return
        before = self.stdin
        self.stdin = self._add_redirections(tail)
        self.walk_block(node)
        self.stdin = before

    def _add_redirections(self, tail: Nodes) -> ScriptText | None:
        """Add the redirections of a compound command; return its input."""
        if not tail:
            return self.stdin
        redirections, extra, following = self.redirections.read_all(tail)
        if extra:
            raise ParseMismatch("a word follows a redirection of a group")
        source = self._source_text(tail[0].start_byte, tail[-1].end_byte)
        self._add_command(SimpleCommand((), (), tuple(redirections), source))
        self._walk_following(following, UNKNOWN_TEXT, len(self.commands) - 1)
        return input_text_of(tuple(redirections), self.stdin)

    def _walk_list(self, node: "Node", tail: Nodes) -> None:
        parts: list[Node] = []
        while node.type == "list":  # a long list is nested to the left, too deep for recursion
            left, operator, right = self._split_list(node)
            parts.append(right)
            if operator.type not in {"&&", "||"}:
                raise ParseMismatch(f"{operator.type!r} does not join commands")
            node = left
        parts.append(node)
        for part in reversed(parts[1:]):
            self.walk_statement(part)
        self.walk_statement(parts[0], tail)

    def _split_list(self, node: "Node") -> "tuple[Node, Node, Node]":
        children = [child for child in node.children if child.type != "comment"]
        if len(children) != 3 or len(children) != node.child_count:
            raise ParseMismatch("a list of commands is not understood")
        self.require_blanks_between(children)
        return children[0], children[1], children[2]

    def _walk_pipeline(
        self, node: "Node", tail: Nodes, stdin: ScriptText | None = None, *, piped: bool = False, first: int = 0
    ) -> None:
        before = self.stdin
        parts = [range(first, len(self.commands))] if piped else list[range]()
        children = node.children
        last = max(index for index, child in enumerate(children) if child.is_named)
        offset = node.start_byte
        for index, child in enumerate(children):
            self.require_blank(offset, child.start_byte)
            offset = child.end_byte
            if not child.is_named:
                self._check_token(child, node)
                continue
            self.stdin, self.piped = stdin if piped else before, piped
            count = len(self.commands)
            self.walk_statement(child, tail if index == last else ())
            stdin, piped = self._output_since(count, stdin) or UNKNOWN_TEXT, True
            parts.append(range(count, len(self.commands)))
        self.pipelines.append(tuple(parts))
        self.stdin, self.piped = before, False

    def _output_since(self, count: int, stdin: ScriptText | None) -> ScriptText | None:
        """Return the predicted output of the commands since ``count``; ``tee`` and ``cat`` copy ``stdin``."""
        commands = [command for command in self.commands[count:] if not command.origin]
        if len(commands) != 1:
            return None
        command = commands[0]
        copies = command.name == "tee" or (command.name == "cat" and len(command.words) == 1)
        return stdin if copies and not command.redirections else predict_output(command)

    def _walk_negated(self, node: "Node", tail: Nodes) -> None:
        if node.child_count != 2:
            raise ParseMismatch("a comment follows '!'")
        bang, body = node.children
        self.require_blank(bang.end_byte, body.start_byte)
        if bang.end_byte == body.start_byte and self.raw[body.start_byte] != "(":
            raise ParseMismatch("'!' is part of a word")
        self.walk_statement(body, tail)

    def _walk_redirected(self, node: "Node", tail: Nodes) -> None:
        children = node.children
        for left, right in pairwise(children):
            dash = right.type == "heredoc_redirect"
            self.require_blank(left.end_byte, right.start_byte, LOST_DASH if dash else _BLANKS)
        if children[0].type.endswith("redirect"):
            self._add_redirections([*children, *tail])
        else:
            self.walk_statement(children[0], [*children[1:], *tail])

    def _check_comment(self, node: "Node", _tail: Nodes) -> None:
        start = node.start_byte
        if start and self.raw[start - 1] not in " \t\n;&|()":
            raise ParseMismatch("a comment begins inside a word")
        if "\n" in self.raw[start : node.end_byte]:
            raise ParseMismatch("a comment continues after its line")

    # ---------------------------------------------------------------------------------------- control flow

    def _walk_for(self, node: "Node", tail: Nodes) -> None:
        name = ""
        self.require_blanks_between(node.children)
        for index, child in enumerate(node.children):
            if child.type == "variable_name":
                name = self.raw[child.start_byte : child.end_byte]
                self.expander.note_assignment(name)
            elif child.type in _BLOCK_NODES:
                self._walk_group(child, tail)
            elif child.is_named:
                self.expander.taint.note_assignment(name, self.expander.read_single_word(child))
                self.expander.require_separate(node.children, index + 1, child.end_byte)
            else:
                self._check_token(child, node)

    def _walk_c_style_for(self, node: "Node", tail: Nodes) -> None:
        types = [child.type for child in node.children]
        start, end = node.children[types.index("((")], node.children[types.index("))")]
        self.require_whole_word(node.children[0])
        self.expander.read_arithmetic(node, start.end_byte, end.start_byte, until=end.start_byte, header=True)
        before, self.stdin = self.stdin, self._add_redirections(tail)
        self.walk_block(node, types.index("))") + 1)
        self.stdin = before

    def _walk_case(self, node: "Node", tail: Nodes) -> None:
        self.require_blanks_between(node.children)
        before, self.stdin = self.stdin, self._add_redirections(tail)
        for child in node.children:
            if child.type == "case_item":
                self._walk_case_item(child)
            elif child.type == "comment":
                self._check_comment(child, ())
            elif child.is_named:
                self.expander.read_single_word(child)
            else:
                self._check_token(child, node)
        self.stdin = before

    def _walk_case_item(self, node: "Node") -> None:
        children = node.children
        close = next((index for index, child in enumerate(children) if child.type == ")"), None)
        if close is None:
            raise ParseMismatch("a pattern of a case does not end")
        self.require_blanks_between(children[: close + 1])
        for index, child in enumerate(children[:close]):
            if child.is_named:
                self.expander.read_single_word(child)
                self.expander.require_separate(children, index + 1, child.end_byte)
        self.walk_block(node, close)

    def _walk_function(self, node: "Node", tail: Nodes) -> None:
        children = node.children
        index = next(index for index, child in enumerate(children) if child.type == "word")
        name = decode_latin1(self.raw[children[index].start_byte : children[index].end_byte])
        rest = [child for child in children[index + 1 :] if child.is_named]
        self.require_blanks_between(children)
        for child in children:
            if not child.is_named:
                self._check_token(child, node)
        if not rest:
            raise ParseMismatch("a function has no body")
        count, outer = len(self.commands), self.depth == 1
        before, self.stdin = self.stdin, UNKNOWN_TEXT  # each call has its own stdin
        self.walk_statement(rest[0], [*rest[1:], *tail])
        self.stdin = before
        body = self.raw[rest[0].start_byte : rest[0].end_byte]
        if any(command.name == name for command in self.commands[count:]) and ("|" in body or "&" in body):
            self.fork_bomb = True
        if outer:
            self.functions.add(name)

    # ---------------------------------------------------------------------------------------- simple commands

    def _walk_command(self, node: "Node", tail: Nodes) -> None:
        words: list[Word] = []
        assignments: list[Assignment] = []
        redirects: list[Node] = []
        children = node.children
        offset, touching = node.start_byte, False
        for index, child in enumerate(children):
            start, end = child.start_byte, child.end_byte
            if end <= offset and index:
                continue  # part of the previous word
            self.require_blank(offset, start, _BLANKS)
            kind = child.type
            if kind.endswith("redirect"):
                redirects.append(child)
                offset, touching = end, True
            elif touching and start == offset:
                raise ParseMismatch("a word continues where the syntax tree ends it")
            elif kind == "variable_assignment" and not words:
                assignments.append(self.expander.read_assignment(child))
                offset, touching = end, True
            else:
                expanded, offset = self.expander.read_word(children, index)
                words += expanded
                touching = True
        if offset != node.end_byte:
            raise ParseMismatch("a command does not end where the syntax tree ends it")
        if words and words[0].unquoted and words[0].value in _RESERVED_WORDS:
            raise ParseMismatch(f"{words[0].value!r} is not a command")
        self._finish_command(node, words, assignments, [*redirects, *tail])

    def _strip_keyword_assignments(self, words: list[Word], assignments: list[Assignment]) -> list[Word]:
        """Move assignments after ``time`` or ``coproc``: a command for the grammar, a keyword for bash."""
        start = 1
        while start < len(words) and words[start].unquoted and words[start].value in {"-p", "--", "time"}:
            start += 1
        if not self.piped and start < len(words) and (words[start].value or "").startswith("-"):
            raise ParseMismatch("an option after 'time' may be a command")
        end = start
        while end < len(words) and (found := _ASSIGNMENT_START.match(words[end].source)) is not None:
            if found[2] or self.piped:  # in a pipe it is a program, not a keyword
                raise ParseMismatch("the words after 'time' are not understood")
            assignments.append(Assignment(found[1], Word(None, words[end].source[found.end() :])))
            end += 1
        return words[:start] + words[end:]

    def _finish_command(
        self, node: "Node", words: list[Word], assignments: list[Assignment], redirects: list["Node"]
    ) -> None:
        redirections, extra, following = self.redirections.read_all(redirects)
        words = [*words, *extra]
        if words and words[0].unquoted and words[0].value in {"time", "coproc"}:
            words = self._strip_keyword_assignments(words, assignments)
        end = max([node.end_byte, *(child.end_byte for child in redirects if child.type != "heredoc_redirect")])
        source = self._source_text(node.start_byte, end)
        simple = SimpleCommand(tuple(words), tuple(assignments), tuple(redirections), source)
        first = len(self.commands)
        self._add_command(simple)
        if following:
            self._walk_following(following, predict_output(simple) or UNKNOWN_TEXT, first)

    def _source_text(self, start: int, end: int) -> str:
        return decode_latin1(self.raw[start:end])

    def _walk_declaration(self, node: "Node", tail: Nodes) -> None:
        """Walk over ``export``, ``declare``, ``unset`` and the like, for which the grammar has its own nodes."""
        words: list[Word] = []
        assignments: list[Assignment] = []
        offset = node.start_byte
        for index, child in enumerate(node.children):
            if child.end_byte <= offset and index:
                continue
            self.require_blank(offset, child.start_byte, _BLANKS)
            if child.type == "variable_assignment":
                assignment = self.expander.read_assignment(child)
                assignments.append(assignment)
                value = assignment.value.value
                text = f"{assignment.name}={value}" if value is not None else None
                words.append(Word(text, self._source_text(child.start_byte, child.end_byte), unquoted=False))
                offset = child.end_byte
                self.expander.require_separate(node.children, index + 1, offset)
            elif not child.is_named and index == 0:
                words.append(literal_word(child.type))
                offset = child.end_byte
            else:
                expanded, offset = self.expander.read_word(node.children, index)
                words += expanded
        self.expander.has_arithmetic = True  # bash evaluates a subscript in a name
        self._finish_command(node, words, assignments, list(tail))

    def _walk_assignments(self, node: "Node", tail: Nodes) -> None:
        nodes = node.children if node.type == "variable_assignments" else [node]
        self.require_blanks_between(nodes, _BLANKS)
        for left, right in pairwise(nodes):
            self.expander.require_separate([right], 0, left.end_byte)
        self._finish_command(node, [], [self.expander.read_assignment(child) for child in nodes], list(tail))

    def _walk_test(self, node: "Node", tail: Nodes) -> None:
        self.require_whole_word(node)
        if node.children[0].type == "[[":
            words = self.expander.read_condition(node)
        elif node.children[0].type == "[":
            words = self.expander.read_test_words(node)
        else:
            raise ParseMismatch("a test is not understood")
        self._finish_command(node, words, [], list(tail))

    def _add_command(self, simple: SimpleCommand) -> None:
        self.expander.taint.note_read(simple)
        if simple.name == "exec" and len(simple.words) == 1:
            self.stdin = input_text_of(simple.redirections, self.stdin)
        stdin = UNKNOWN_TEXT if simple.name == "coproc" else input_text_of(simple.redirections, self.stdin)
        complete, scripts = add_nested_commands(simple, stdin, self.read_nested)
        for command in (
            complete.wrapped_commands if simple.name in {"time", "coproc"} and simple.words[0].unquoted else ()
        ):
            if command[0].unquoted and command[0].value in _RESERVED_WORDS | {"("}:
                raise ParseMismatch(f"{command[0].value!r} is not a command")
        for command in complete.forms:
            self.expander.note_builtin(command)
        if simple.name in self.functions:
            self.expander.taint.assigned_values += simple.words[1:]
        self.commands.append(msgspec.structs.replace(complete, calls_function=simple.name in self.functions))
        for origin, script in scripts:
            self.merge_script(script, origin)

    def merge_script(self, script: ShellScript, origin: str) -> None:
        """Add the commands and doubts of a script inside this one."""
        count = len(self.commands)
        self.commands += (msgspec.structs.replace(inner, origin=inner.origin or origin) for inner in script.commands)
        self.doubts += script.doubts
        self.pipelines += (
            tuple(range(part.start + count, part.stop + count) for part in parts) for parts in script.pipelines
        )
        self.expander.taint.merge(script)
        self.fork_bomb = self.fork_bomb or script.fork_bomb

    def _walk_following(self, nodes: Sequence["Node"], stdin: ScriptText | None, first: int) -> None:
        """Walk over the commands that follow a here-document on its line; ``first`` is the command that reads it."""
        self.require_blanks_between(nodes)
        for node in nodes:
            if node.type == "pipeline":
                self._walk_pipeline(node, (), stdin, piped=True, first=first)
            elif node.type not in {"&&", "||"}:
                self.walk_statement(node)


def _is_chain(root: "Node") -> bool:
    """Return whether a program is one list of simple commands that are joined by ``&&``."""
    statements = root.named_children
    if len(statements) != 1 or any(child.type in {"&", ";"} for child in root.children):
        return False
    node = statements[0]
    while node.type == "list" and len(node.children) == 3 and node.children[1].type == "&&":
        if not _is_simple(node.children[2]):
            return False
        node = node.children[0]
    return _is_simple(node)


def _is_simple(node: "Node") -> bool:
    return node.type == "command" or (node.type == "redirected_statement" and node.children[0].type == "command")
