"""Redirections of a command: where its input comes from and its output goes to, here-documents among them."""

import re
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from vaka.policy.bash import heredoc
from vaka.policy.bash.quoting import BREAKS, Mismatch, decoded
from vaka.policy.bash.words import Redirection, Word, Words, literal

if TYPE_CHECKING:
    from tree_sitter import Node

    from vaka.policy.bash.walking import Walk

_BLANKS = re.compile(r"[ \t]*")
LOST_DASH = re.compile(r"[ \t]*|[ \t]+-[ \t]*")
"""What may stand before a here-document: the grammar loses a ``-`` there, as in ``python3 - <<EOF``."""
_LOST_WORD = re.compile(r"-[A-Za-z0-9=_./-]*")


class Redirector:
    """Reads the redirections that a walk over a tree meets."""

    def __init__(self, walk: "Walk") -> None:
        self.walk = walk
        self.raw = walk.raw

    def all(self, nodes: "Iterable[Node]") -> "tuple[list[Redirection], Words, list[Node]]":
        """Return the redirections, words that stand behind them, and commands that follow on a here-document's line."""
        found: list[Redirection] = []
        extra: list[Word] = []
        following: list[Node] = []
        for node in nodes:
            if node.type == "heredoc_redirect":
                extra += self._before(node)
                self._heredoc(node, found, extra, following)
            else:
                found.append(self._one(node, extra))
        return found, tuple(extra), following

    def _one(self, node: "Node", extra: list[Word]) -> Redirection:
        children = list(node.children)
        if children and children[0].type == "file_descriptor":
            start, end = children[0].start_byte, children[0].end_byte
            alone = start == 0 or self.raw[start - 1] in BREAKS
            if end != children[1].start_byte or not alone or not self.raw[start:end].isdecimal():
                raise Mismatch("a number before a redirection does not belong to it")
            children.pop(0)
        operator = self._operator(children.pop(0))
        at = node.children[-len(children) - 1].end_byte
        words: list[Word] = []
        for index, child in enumerate(children):
            if child.end_byte <= at:
                continue
            self.walk.gap(at, child.start_byte, _BLANKS)
            made, at = self.walk.words.word(children, index)
            words += made
        if operator in {">&-", "<&-"}:
            extra += words
            return Redirection(operator, literal("-"))
        if at != node.end_byte or not words or words[0].braced:
            raise Mismatch("a redirection has no target, or several")
        extra += words[1:]
        return Redirection(operator, words[0], words[0].sketch + "\n" if operator == "<<<" else None)

    def _operator(self, node: "Node") -> str:
        if self.raw[node.start_byte : node.end_byte] != node.type:
            raise Mismatch(f"{node.type!r} is not where the tree sees it")
        return node.type

    def _before(self, node: "Node") -> Iterator[Word]:
        """Yield a word that the grammar loses: ``-`` before a here-document, or ``-n`` right before its sign."""
        before, sign = node.prev_sibling, node.children[0]
        if before is not None and "-" in self.raw[before.end_byte : node.start_byte]:
            yield literal("-")
        lost = self.raw[sign.start_byte : sign.end_byte].removesuffix(sign.type)
        if lost and (
            not _LOST_WORD.fullmatch(lost) or self.raw[sign.start_byte - 1 : sign.start_byte] not in {" ", "\t"}
        ):
            raise Mismatch("a word stands in the sign of a here-document")
        if lost:
            yield literal(lost)

    def _heredoc(self, node: "Node", found: list[Redirection], extra: list[Word], following: list["Node"]) -> None:
        start, end, quoted = heredoc.body(self.raw, node)
        text = self.raw[start:end]
        sure = quoted or self.walk.words.heredoc_text(node, start, end)
        if node.children[0].type == "<<-":
            text = re.sub(r"^\t+", "", text, flags=re.MULTILINE)
        found.append(Redirection(node.children[0].type, Word("" if sure else None), decoded(text)))
        at = node.children[1].end_byte
        middle = [child for child in node.children[2:-1] if child.type != "heredoc_body"]
        index = 0
        while index < len(middle) and middle[index].type not in {"pipeline", "&&", "||"}:
            child = middle[index]
            self.walk.gap(at, child.start_byte, _BLANKS)
            if child.type.endswith("redirect"):
                found.append(self._one(child, extra))
                at = child.end_byte
            else:
                made, at = self.walk.words.word(middle, index)
                extra += made
            index += 1
        following += middle[index:]
