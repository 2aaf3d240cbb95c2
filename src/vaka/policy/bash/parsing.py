"""The grammar of bash, loaded once."""

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


@cache
def _parser() -> "Parser | None":
    try:
        import tree_sitter_bash  # noqa: PLC0415 - an optional library that only commands need
        from tree_sitter import Language, Parser  # noqa: PLC0415 - as above
    except ImportError:
        return None
    return Parser(Language(tree_sitter_bash.language()))


def available() -> bool:
    """Return whether commands can be read at all."""
    return _parser() is not None


def parse(data: bytes) -> "Node | None":
    """Return the root of the tree of a text, ``None`` when the grammar is not installed."""
    parser = _parser()
    return parser.parse(data).root_node if parser is not None else None
