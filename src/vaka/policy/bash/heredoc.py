"""Here-documents: where they really end.

The grammar takes a line with blanks around the delimiter for the end; bash does not. Whoever believes the grammar can
be made to take commands for text.
"""

import re
from typing import TYPE_CHECKING, NamedTuple

from vaka.policy.bash.quoting import BREAKS, Mismatch

if TYPE_CHECKING:
    from tree_sitter import Node

_DELIMITER = re.compile(r"'[^']*'|\"[^\"$`\\]*\"|(?:[A-Za-z0-9_.+%@:/,!^-]|\\[A-Za-z0-9_.-])+")


class Body(NamedTuple):
    """Where the text of a here-document is, and whether it is taken as it stands."""

    start: int
    end: int
    quoted: bool


def body(raw: str, node: "Node") -> Body:
    """Return where the text of a here-document is, as bash sees it; the tree must agree."""
    operator, start = node.children[0], node.children[1]
    word = raw[start.start_byte : start.end_byte]
    known = operator.type in {"<<", "<<-"} and start.type == "heredoc_start" and _DELIMITER.fullmatch(word)
    if not known or raw[start.end_byte : start.end_byte + 1] not in BREAKS:
        raise Mismatch(f"it is not certain where the here-document {word!r} ends")
    line_end = raw.find("\n", start.end_byte)
    end = node.children[-1]
    if end.type != "heredoc_end" or line_end < 0:
        raise Mismatch("a here-document does not end")
    for child in node.children[2:-1]:
        if child.type != "heredoc_body" and child.end_byte > line_end + 1:
            raise Mismatch("the line that begins a here-document does not end where it seems to")
    delimiter = re.sub(r"\\(.)|['\"]", r"\1", word)
    at = line_end + 1
    while at < len(raw):
        stop = raw.find("\n", at)
        stop = len(raw) if stop < 0 else stop
        line = raw[at:stop]
        indent = len(line) - len(line.lstrip("\t")) if operator.type == "<<-" else 0
        if line[indent:] == delimiter:
            if (end.start_byte, end.end_byte) != (at + indent, stop):
                raise Mismatch("a here-document ends elsewhere than it seems to")
            return Body(line_end + 1, at, quoted=word != delimiter)
        at = stop + 1
    raise Mismatch("a here-document does not end")
