"""How ``env -S`` takes a text apart: its own quotes and escapes, which are not those of a shell."""

import re
from collections.abc import Iterator

from vaka.policy.bash.words import UNKNOWN, Hole, Piece, Word

_TOKEN = re.compile(
    r"(?P<blank>[ \t\n\v\f\r]+|\\_)|'(?P<single>(?:[^'\\]|\\.)*)'|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|\\(?P<escape>.)|(?P<comment>#)|(?P<plain>[^ \t\n\v\f\r'\"\\#]+|.)|(?P<end>$)",
    re.DOTALL,
)
_VARIABLE = re.compile(rf"\$\{{(\w+)\}}|{re.escape(UNKNOWN)}")
_ESCAPES = {"f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v", "_": " "}


def apart(text: str) -> list[Word]:
    """Return the words that ``env -S`` makes of a text; a variable in one is not known."""
    words: list[Word] = []
    pieces: list[Piece] | None = None
    for token in _TOKEN.finditer(text):
        kind, part = token.lastgroup, token[0]
        stops = kind in ("blank", "end") or (kind == "comment" and pieces is None) or (kind, part) == ("escape", "\\c")
        if not stops:
            pieces = [] if pieces is None else pieces
            pieces.extend(_read(kind or "", token[kind or 0]))
            continue
        if pieces is not None:
            words.append(_word(pieces))
            pieces = None
        if kind != "blank":
            break
    return words


def _read(kind: str, text: str) -> Iterator[Piece]:
    if kind == "escape":
        yield _ESCAPES.get(text, text)
    elif kind == "single":
        yield re.sub(r"\\(['\\])", r"\1", text)
    elif kind == "double":
        for at, part in enumerate(re.split(r"\\(.)", text, flags=re.DOTALL)):
            yield from [_ESCAPES.get(part, part)] if at % 2 else _expanded(part)
    else:
        yield from _expanded(text)


def _expanded(text: str) -> Iterator[Piece]:
    at = 0
    for found in _VARIABLE.finditer(text):
        yield text[at : found.start()]
        yield Hole("parameter", found[1] or "")
        at = found.end()
    yield text[at:]


def _word(pieces: list[Piece]) -> Word:
    texts = [piece for piece in pieces if isinstance(piece, str)]
    if len(texts) == len(pieces):
        return Word("".join(texts), "".join(texts))
    shown = "".join(piece if isinstance(piece, str) else f"${{{piece.name}}}" for piece in pieces)
    return Word(None, shown, tuple(piece for piece in pieces if piece))
