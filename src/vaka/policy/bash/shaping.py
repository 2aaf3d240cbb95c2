"""From the parts of a word to words: braces, tildes and patterns."""

import re
from itertools import pairwise
from typing import TypeAlias

from vaka.policy.bash.quoting import Segment
from vaka.policy.bash.words import Hole, Piece, Word

Part: TypeAlias = Segment | Hole

_MOST_WORDS = 256
_NUMBERS = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")
_LETTERS = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,9}))?")
_GLOB = re.compile(r"[*?]|\[[^\]]*\]?")
_TILDE = re.compile(r"((?:[A-Za-z_][A-Za-z0-9_]*\+?=)?)(~[^/:]*)")


class _TooMany(Exception):
    """More words than anybody writes by hand, or braces of which bash alone knows what they become."""


def shape(parts: list[Part], source: str, *, bare: bool, braces: bool = True) -> list[Word]:
    """Return the words that the parts of one written word become."""
    if not any(isinstance(part, Hole) or not part.quoted for part in parts):
        return [Word("".join(part.text for part in parts if isinstance(part, Segment)), source, bare=bare)]
    if braces and any(isinstance(part, Segment) and not part.quoted and "{" in part.text for part in parts):
        atoms = _atoms(parts)
        try:
            _balanced(atoms)
            expanded = _expand(atoms, [0])
        except _TooMany:
            return [Word(None, source, (Hole("brace", source, splits=True),), bare=bare, braced=True)]
        if len(expanded) > 1:
            return [_finished(atoms, source, bare=False, braced=True) for atoms in expanded if atoms]
    return [_finished(parts, source, bare=bare)]


def _atoms(parts: list[Part]) -> list[Part]:
    """Each sign that may mean something on its own."""
    found: list[Part] = []
    for part in parts:
        if isinstance(part, Hole) or part.quoted:
            found.append(part)
        else:
            found += [Segment(character, quoted=False) for character in part.text]
    return found


def _balanced(atoms: list[Part]) -> None:
    """Raise unless every brace has its other half, or there is nothing to expand."""
    depth, signs = 0, [_sign(atom) for atom in atoms]
    for sign in signs:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            break
    if depth and ("," in signs or "." in signs):
        raise _TooMany


def _sign(part: Part) -> str:
    return part.text if isinstance(part, Segment) and not part.quoted else ""


def _expand(atoms: list[Part], count: list[int]) -> list[list[Part]]:
    count[0] += 1
    if count[0] > _MOST_WORDS:
        raise _TooMany
    for start, atom in enumerate(atoms):
        if _sign(atom) != "{":
            continue
        cuts = _cuts(atoms, start)
        if cuts is None:
            continue
        alternatives = _alternatives(atoms, cuts, count)
        if alternatives is None:
            continue
        rest = _expand(atoms[cuts[-1] + 1 :], count)
        if len(alternatives) * len(rest) > _MOST_WORDS:
            raise _TooMany
        return [[*atoms[:start], *middle, *end] for middle in alternatives for end in rest]
    return [atoms]


def _cuts(atoms: list[Part], start: int) -> list[int] | None:
    """Where a brace opens, its commas are and where it closes."""
    depth, cuts = 0, [start]
    for index in range(start + 1, len(atoms)):
        sign = _sign(atoms[index])
        if sign == "{":
            depth += 1
        elif sign == "}":
            if depth == 0:
                return [*cuts, index]
            depth -= 1
        elif sign == "," and depth == 0:
            cuts.append(index)
    return None


def _alternatives(atoms: list[Part], cuts: list[int], count: list[int]) -> list[list[Part]] | None:
    if len(cuts) > 2:
        inner = [atoms[left + 1 : right] for left, right in pairwise(cuts)]
        return [made for part in inner for made in _expand(part, count)]
    between = atoms[cuts[0] + 1 : cuts[1]]
    if all(_sign(atom) for atom in between):
        sequence = _sequence("".join(_sign(atom) for atom in between))
        return [[Segment(text, quoted=False)] for text in sequence] if sequence else None
    return None


def _sequence(text: str) -> list[str]:
    if found := _NUMBERS.fullmatch(text):
        first, last, step = int(found[1]), int(found[2]), abs(int(found[3] or 1)) or 1
        width = max(len(found[1]), len(found[2])) if re.match(r"-?0\d", found[1]) or re.match(r"-?0\d", found[2]) else 0
        return [str(number).zfill(width) for number in _steps(first, last, step)]
    if found := _LETTERS.fullmatch(text):
        return [chr(code) for code in _steps(ord(found[1]), ord(found[2]), abs(int(found[3] or 1)) or 1)]
    return []


def _steps(first: int, last: int, step: int) -> range:
    if abs(last - first) // step > _MOST_WORDS:
        raise _TooMany
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _finished(parts: list[Part], source: str, *, bare: bool, braced: bool = False) -> Word:
    pieces: list[Piece] = []
    text = ""
    for index, part in enumerate(_merged(parts)):
        for piece in _of(part, first=index == 0):
            if isinstance(piece, str):
                text += piece
            else:
                if text:
                    pieces.append(text)
                    text = ""
                pieces.append(piece)
    if not pieces:
        return Word(text, source, bare=bare, braced=braced)
    if text:
        pieces.append(text)
    return Word(None, source, tuple(pieces), bare=bare, braced=braced)


def _of(part: Part, *, first: bool) -> list[Piece]:
    if isinstance(part, Hole):
        return [part]
    return [part.text] if part.quoted else _unquoted(part.text, first=first)


def _merged(parts: list[Part]) -> list[Part]:
    """Join neighbours of the same kind, so that a bracket finds its end."""
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Segment) and isinstance(last, Segment) and part.quoted == last.quoted:
            merged[-1] = Segment(last.text + part.text, part.quoted)
        else:
            merged.append(part)
    return merged


def _unquoted(text: str, *, first: bool) -> list[Piece]:
    pieces: list[Piece] = []
    if first and "~" in text and (found := _TILDE.match(text)):
        pieces += [found[1], Hole("tilde", found[2])] if found[1] else [Hole("tilde", found[2])]
        text = text[found.end() :]
    at = 0
    for found in _GLOB.finditer(text):
        if found[0] == "[":
            continue
        pieces += [text[at : found.start()], Hole("glob", found[0], splits=True)]
        at = found.end()
    pieces.append(text[at:])
    return [piece for piece in pieces if piece != ""]
