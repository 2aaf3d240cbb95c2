"""Redirections of a command, and the ends of its here-documents as bash sees them."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from vaka.policy.bash.parse.syntax import Redirection, Word, Words, literal_word
from vaka.policy.bash.parse.words import WORD_BREAKS, ParseMismatch, decode_latin1

if TYPE_CHECKING:
    from tree_sitter import Node

    from vaka.policy.bash.parse.walker import TreeWalker


_DELIMITER = re.compile(r"'[^']*'|\"[^\"$`\\]*\"|(?:[A-Za-z0-9_.+%@:/,!^-]|\\[A-Za-z0-9_.-])+")


class HeredocBody(NamedTuple):
    """The position of a here-document's text, and whether it is literal."""

    start: int
    end: int
    quoted: bool


def find_heredoc_body(raw: str, node: "Node") -> HeredocBody:
    """Return the text of a here-document as bash delimits it. Raises ``ParseMismatch`` if the tree differs."""
    operator, start = node.children[0], node.children[1]
    word = raw[start.start_byte : start.end_byte]
    known = operator.type in {"<<", "<<-"} and start.type == "heredoc_start" and _DELIMITER.fullmatch(word)
    if not known or raw[start.end_byte : start.end_byte + 1] not in WORD_BREAKS:
        raise ParseMismatch(f"it is not certain where the here-document {word!r} ends")
    line_end = raw.find("\n", start.end_byte)
    end = node.children[-1]
    if end.type != "heredoc_end" or line_end < 0:
        raise ParseMismatch("a here-document does not end")
    for child in node.children[2:-1]:
        if child.type != "heredoc_body" and child.end_byte > line_end + 1:
            raise ParseMismatch("the first line of a here-document does not end where the syntax tree ends it")
    delimiter = re.sub(r"\\(.)|['\"]", r"\1", word)
    offset = line_end + 1
    while offset < len(raw):
        stop = raw.find("\n", offset)
        stop = len(raw) if stop < 0 else stop
        line = raw[offset:stop]
        indent = len(line) - len(line.lstrip("\t")) if operator.type == "<<-" else 0
        if line[indent:] == delimiter:
            if (end.start_byte, end.end_byte) != (offset + indent, stop):
                raise ParseMismatch("a here-document does not end where the syntax tree ends it")
            return HeredocBody(line_end + 1, offset, quoted=word != delimiter)
        offset = stop + 1
    raise ParseMismatch("a here-document does not end")


_BLANKS = re.compile(r"[ \t]*")

LOST_DASH = re.compile(r"[ \t]*|[ \t]+-[ \t]*")
"""Text before a here-document: the grammar drops a ``-`` there, as in ``python3 - <<EOF``."""

_LOST_WORD = re.compile(r"-[A-Za-z0-9=_./-]*")


class RedirectionReader:
    """Reads the redirections of a syntax tree."""

    def __init__(self, walker: "TreeWalker") -> None:
        self.walker = walker
        self.raw = walker.raw

    def read_all(self, nodes: "Iterable[Node]") -> "tuple[list[Redirection], Words, list[Node]]":
        """Return the redirections, the words after them, and commands that follow on a here-document's line."""
        found: list[Redirection] = []
        extra: list[Word] = []
        following: list[Node] = []
        for node in nodes:
            if node.type == "heredoc_redirect":
                extra += self._lost_words(node)
                self._read_heredoc(node, found, extra, following)
            else:
                found.append(self._read_redirection(node, extra))
        return found, tuple(extra), following

    def _read_redirection(self, node: "Node", extra: list[Word]) -> Redirection:
        children = list(node.children)
        descriptor = ""
        if children and children[0].type == "file_descriptor":
            start, end = children[0].start_byte, children[0].end_byte
            alone = start == 0 or self.raw[start - 1] in WORD_BREAKS
            if end != children[1].start_byte or not alone or not self.raw[start:end].isdecimal():
                raise ParseMismatch("a number before a redirection does not belong to it")
            children.pop(0)
            descriptor = self.raw[start:end]
        sign = children.pop(0)
        operator = sign.type
        if self.raw[sign.start_byte : sign.end_byte] != operator:
            raise ParseMismatch(f"{operator!r} is not where the syntax tree has it")
        offset = sign.end_byte
        words: list[Word] = []
        for index, child in enumerate(children):
            if child.end_byte <= offset:
                continue
            self.walker.require_blank(offset, child.start_byte, _BLANKS)
            expanded, offset = self.walker.expander.read_word(children, index)
            words += expanded
        if operator in {">&-", "<&-"}:
            extra += words
            return Redirection(operator, literal_word("-"), descriptor=descriptor)
        if offset != node.end_byte or not words or words[0].from_braces:
            raise ParseMismatch("a redirection has no target, or several")
        extra += words[1:]
        body = words[0].placeholder_text + "\n" if operator == "<<<" else None
        return Redirection(operator, words[0], body, descriptor)

    def _lost_words(self, node: "Node") -> Iterator[Word]:
        """Yield a word that the grammar drops: ``-`` before a here-document, or ``-n`` directly before its operator."""
        before, sign = node.prev_sibling, node.children[0]
        if before is not None and "-" in self.raw[before.end_byte : node.start_byte]:
            yield literal_word("-")
        lost = self.raw[sign.start_byte : sign.end_byte].removesuffix(sign.type)
        if not lost:
            return
        if not _LOST_WORD.fullmatch(lost) or self.raw[sign.start_byte - 1 : sign.start_byte] not in {" ", "\t"}:
            raise ParseMismatch("a word is part of the operator of a here-document")
        yield literal_word(lost)

    def _read_heredoc(self, node: "Node", found: list[Redirection], extra: list[Word], following: list["Node"]) -> None:
        start, end, quoted = find_heredoc_body(self.raw, node)
        text = self.raw[start:end]
        literal = quoted or self.walker.expander.read_heredoc(node, start, end)
        if node.children[0].type == "<<-":
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        found.append(Redirection(node.children[0].type, Word("" if literal else None), decode_latin1(text)))
        offset = node.children[1].end_byte
        middle = [child for child in node.children[2:-1] if child.type != "heredoc_body"]
        index = 0
        while index < len(middle) and middle[index].type not in {"pipeline", "&&", "||"}:
            child = middle[index]
            self.walker.require_blank(offset, child.start_byte, _BLANKS)
            if child.type.endswith("redirect"):
                found.append(self._read_redirection(child, extra))
                offset = child.end_byte
            else:
                words, offset = self.walker.expander.read_word(middle, index)
                extra += words
            index += 1
        following += middle[index:]
