"""Quote removal, then braces, tildes and globs. Texts are bytes decoded as Latin-1, so offsets match the tree."""

import re
from itertools import pairwise
from typing import NamedTuple, TypeAlias

import msgspec

from vaka.policy.bash.parse.syntax import Piece, Word, WordExpansion, is_numeric_parameter


class ParseMismatch(Exception):
    """The syntax tree and bash may disagree on the meaning of the text."""


class WordSegment(NamedTuple):
    """A piece of a word, and whether it was quoted."""

    text: str
    quoted: bool


PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=@%+,^\-]+(?=[ \t\n;&|)]|$)")

WORD_BREAKS = frozenset(" \t\n;&|()<>")

SIMPLE_PARAMETER = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!\-])")

_UNQUOTED_TEXT = re.compile(r"[^ \t\n;&|()<>\\'\"$`]+")

_STRING_TEXT = re.compile(r'[^"\\$`]+')

_ANSI_ESCAPE = re.compile(
    r"\\(?:([abeEfnrtv\\'\"?])|([0-7]{1,3})|x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.))",
    re.DOTALL,
)

_ANSI_LETTERS = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    "'": "'",
    '"': '"',
    "?": "?",
}


def _decode_ansi_escape(found: re.Match[str]) -> str:
    named, octal, two, four, eight, control = found.groups()
    if named:
        return _ANSI_LETTERS[named]
    if octal or two:
        return chr(int(octal, 8) & 0xFF if octal else int(two, 16))
    if control is not None:
        return chr(ord(control.upper()) ^ 0x40 if control != "?" else 0x7F)
    number = int(four or eight, 16)
    if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
        raise ParseMismatch(f"{found[0]!r} is not a character")
    return chr(number).encode("utf-8").decode("latin-1")


def decode_ansi(text: str) -> str:
    """Return the decoded text of ``$'…'``; bash cuts it at a NUL."""
    if "\\x{" in text:  # versions of bash differ
        raise ParseMismatch("\\x{ in a word is not understood")
    return _ANSI_ESCAPE.sub(_decode_ansi_escape, text).split("\0", 1)[0]


def find_ansi_end(text: str, offset: int) -> int:
    """Return the end of the text of ``$'…'`` that starts at ``offset``."""
    while offset < len(text):
        if text[offset] == "\\":
            offset += 2
        elif text[offset] == "'":
            return offset
        else:
            offset += 1
    raise ParseMismatch("a quote is not closed")


def decode_latin1(text: str) -> str:
    """Return UTF-8 bytes, given as Latin-1, as text."""
    return text if text.isascii() else text.encode("latin-1").decode("utf-8", "surrogateescape")


class LocatedExpansion(NamedTuple):
    """An expansion of the syntax tree, with its end."""

    end: int
    expansion: WordExpansion


class WordScanner:
    """Reads one word from its first character; expansions come from the tree."""

    def __init__(self, text: str, expansions: dict[int, LocatedExpansion]) -> None:
        self.text = text
        self.expansions = expansions
        self.used_expansions = 0
        self.parts: list[WordSegment | WordExpansion] = []
        self.unquoted = True

    def scan_word(self, offset: int, *, stop: int, partial: bool = False) -> int:
        """Read a word and return its end; unless ``partial``, all expansions must be in it."""
        text = self.text
        while offset < stop:
            character = text[offset]
            if character in WORD_BREAKS and not (character in "<>" and offset in self.expansions):
                break
            if found := _UNQUOTED_TEXT.match(text, offset, stop):
                self._add_text(found[0], quoted=False)
                offset = found.end()
            else:
                offset = self._scan_special(character, offset)
        if offset > stop:
            raise ParseMismatch("a word continues after the end of its command")
        if not partial and self.used_expansions != len(self.expansions):
            raise ParseMismatch("bash does not see an expansion of the syntax tree")
        return offset

    def _add_text(self, text: str, *, quoted: bool) -> None:
        self.parts.append(WordSegment(decode_latin1(text), quoted))

    def _scan_special(self, character: str, offset: int) -> int:
        if character == "\\":
            self.unquoted = False
            if offset + 1 >= len(self.text):
                raise ParseMismatch("a backslash at the end escapes nothing")
            escaped = self.text[offset + 1]
            if escaped >= "\x80":  # the first byte of a character that is not ASCII
                return offset + 1
            self._add_text(escaped, quoted=True)
            return offset + 2
        if character == "'":
            self.unquoted = False
            end = self.text.find("'", offset + 1)
            if end < 0:
                raise ParseMismatch("a quote is not closed")
            self._add_text(self.text[offset + 1 : end], quoted=True)
            return end + 1
        if character == '"':
            return self.scan_string(offset + 1)
        return self._scan_dollar(offset)

    def _scan_dollar(self, offset: int) -> int:
        text = self.text
        if text.startswith("$'", offset):
            self.unquoted = False
            end = find_ansi_end(text, offset + 2)
            self._add_text(decode_ansi(text[offset + 2 : end]), quoted=True)
            return end + 1
        if text.startswith('$"', offset):
            return self.scan_string(offset + 2)
        return self.scan_expansion(offset, quoted=False)

    def scan_expansion(self, offset: int, *, quoted: bool) -> int:
        """Read an expansion that starts with a dollar, a backquote or a process substitution."""
        self.unquoted = False
        known = self.expansions.get(offset)
        if known is not None:
            self.used_expansions += 1
            expansion = known.expansion
            splits = (not quoted or "@" in expansion.name) and expansion.kind != "process" and not expansion.numeric
            self.parts.append(msgspec.structs.replace(expansion, may_split=splits))
            return known.end
        if found := SIMPLE_PARAMETER.match(self.text, offset):
            splits = (not quoted or found[1] == "@") and not is_numeric_parameter(found[1])
            self.parts.append(WordExpansion("parameter", found[1], splits))
            return found.end()
        if self.text[offset] != "$" or self.text.startswith(("$(", "${", "$["), offset):
            raise ParseMismatch("an expansion is missing in the syntax tree")
        self._add_text("$", quoted=True)
        return offset + 1

    def scan_string(self, offset: int) -> int:
        """Read a double-quoted string after its first quote."""
        text = self.text
        self.unquoted = False
        self._add_text("", quoted=True)
        while offset < len(text):
            character = text[offset]
            if character == '"':
                return offset + 1
            if found := _STRING_TEXT.match(text, offset):
                self._add_text(found[0], quoted=True)
                offset = found.end()
            elif character == "\\":
                escaped = text[offset + 1 : offset + 2]
                ascii_only = escaped if escaped < "\x80" else ""
                self._add_text(escaped if escaped in '$`"\\' else "\\" + ascii_only, quoted=True)
                offset += 2 if escaped < "\x80" else 1
            else:
                offset = self.scan_expansion(offset, quoted=True)
        raise ParseMismatch("a string is not closed")


WordPart: TypeAlias = WordSegment | WordExpansion

_MAX_WORDS = 256

_NUMBER_RANGE = re.compile(r"(-?\d{1,9})\.\.(-?\d{1,9})(?:\.\.(-?\d{1,9}))?")

_LETTER_RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])(?:\.\.(-?\d{1,9}))?")

_GLOB = re.compile(r"[*?]|\[[!^]?\]?(?:\[([:.=])[^\]\[]{1,16}\1\]|[^\]])*\]|\[[^\]]*")

_BRACKET_CLASS = re.compile(r"\[[:.=]")

_TILDE = re.compile(r"((?:[A-Za-z_][A-Za-z0-9_]*\+?=)?)(~[^/:]*)")


class _TooManyWords(Exception):
    """A brace expansion with too many words, or with unbalanced braces."""


def expand_word(parts: list[WordPart], source: str, *, unquoted: bool, braces: bool = True) -> list[Word]:
    """Return the words that one word expands to."""
    if not any(isinstance(part, WordExpansion) or not part.quoted for part in parts):
        return [Word("".join(part.text for part in parts if isinstance(part, WordSegment)), source, unquoted=unquoted)]
    if braces and any(isinstance(part, WordSegment) and not part.quoted and "{" in part.text for part in parts):
        atoms = _split_atoms(parts)
        try:
            _check_balanced_braces(atoms)
            expanded = _expand_braces(atoms, [0])
        except _TooManyWords:
            expansion = WordExpansion("brace", source, may_split=True)
            return [Word(None, source, (expansion,), unquoted=unquoted, from_braces=True)]
        if expanded != [atoms]:
            return [_build_word(atoms, source, unquoted=False, from_braces=True) for atoms in expanded if atoms]
    return [_build_word(parts, source, unquoted=unquoted)]


def _split_atoms(parts: list[WordPart]) -> list[WordPart]:
    """Split unquoted text into characters, each of which may be syntax."""
    found: list[WordPart] = []
    for part in parts:
        if isinstance(part, WordExpansion) or part.quoted:
            found.append(part)
        else:
            found += [WordSegment(character, quoted=False) for character in part.text]
    return found


def _check_balanced_braces(atoms: list[WordPart]) -> None:
    """Raise ``_TooManyWords`` for an unbalanced brace, unless there is nothing to expand."""
    depth, signs = 0, [_syntax_character(atom) for atom in atoms]
    for sign in signs:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            break
    if depth and ("," in signs or "." in signs):
        raise _TooManyWords


def _syntax_character(part: WordPart) -> str:
    return part.text if isinstance(part, WordSegment) and not part.quoted else ""


def _expand_braces(atoms: list[WordPart], count: list[int]) -> list[list[WordPart]]:
    count[0] += 1
    if count[0] > _MAX_WORDS:
        raise _TooManyWords
    for start, atom in enumerate(atoms):
        if _syntax_character(atom) != "{":
            continue
        cuts = _find_brace_cuts(atoms, start)
        alternatives = _brace_alternatives(atoms, cuts, count) if cuts is not None else None
        if cuts is None or alternatives is None:
            continue
        rest = _expand_braces(atoms[cuts[-1] + 1 :], count)
        if len(alternatives) * len(rest) > _MAX_WORDS:
            raise _TooManyWords
        return [[*atoms[:start], *middle, *end] for middle in alternatives for end in rest]
    return [atoms]


def _find_brace_cuts(atoms: list[WordPart], start: int) -> list[int] | None:
    """Return the positions of an opening brace, its commas, and its closing brace."""
    depth, cuts = 0, [start]
    for index in range(start + 1, len(atoms)):
        sign = _syntax_character(atoms[index])
        if sign == "{":
            depth += 1
        elif sign == "}":
            if depth == 0:
                return [*cuts, index]
            depth -= 1
        elif sign == "," and depth == 0:
            cuts.append(index)
    return None


def _brace_alternatives(atoms: list[WordPart], cuts: list[int], count: list[int]) -> list[list[WordPart]] | None:
    if len(cuts) > 2:
        inner = [atoms[left + 1 : right] for left, right in pairwise(cuts)]
        return [word for part in inner for word in _expand_braces(part, count)]
    between = atoms[cuts[0] + 1 : cuts[1]]
    if all(_syntax_character(atom) for atom in between):
        sequence = _expand_range("".join(_syntax_character(atom) for atom in between))
        return [[WordSegment(text, quoted=False)] for text in sequence] if sequence else None
    return None


def _expand_range(text: str) -> list[str]:
    if found := _NUMBER_RANGE.fullmatch(text):
        first = int(found[1])
        last = int(found[2])
        step = abs(int(found[3] or 1)) or 1
        width = max(len(found[1]), len(found[2])) if re.match(r"-?0\d", found[1]) or re.match(r"-?0\d", found[2]) else 0
        return [str(number).zfill(width) for number in _range_steps(first, last, step)]
    if found := _LETTER_RANGE.fullmatch(text):
        return [chr(code) for code in _range_steps(ord(found[1]), ord(found[2]), abs(int(found[3] or 1)) or 1)]
    return []


def _range_steps(first: int, last: int, step: int) -> range:
    if abs(last - first) // step > _MAX_WORDS:
        raise _TooManyWords
    return range(first, last + 1, step) if first <= last else range(first, last - 1, -step)


def _build_word(parts: list[WordPart], source: str, *, unquoted: bool, from_braces: bool = False) -> Word:
    pieces: list[Piece] = []
    text = ""
    for index, part in enumerate(_merge_segments(parts)):
        for piece in _pieces_of(part, first=index == 0):
            if isinstance(piece, str):
                text += piece
            else:
                pieces += [text, piece] if text else [piece]
                text = ""
    if not pieces:
        return Word(text, source, unquoted=unquoted, from_braces=from_braces)
    pieces += [text] if text else []
    return Word(None, source, tuple(pieces), unquoted=unquoted, from_braces=from_braces)


def _pieces_of(part: WordPart, *, first: bool) -> list[Piece]:
    if isinstance(part, WordExpansion):
        return [part]
    return [part.text] if part.quoted else _expand_unquoted(part.text, first=first)


def _merge_segments(parts: list[WordPart]) -> list[WordPart]:
    """Join adjacent segments of the same kind, so that a bracket expression is in one segment."""
    merged: list[WordPart] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, WordSegment) and isinstance(last, WordSegment) and part.quoted == last.quoted:
            merged[-1] = WordSegment(last.text + part.text, part.quoted)
        else:
            merged.append(part)
    return merged


def _expand_unquoted(text: str, *, first: bool) -> list[Piece]:
    pieces: list[Piece] = []
    if first and "~" in text and (found := _TILDE.match(text)):
        pieces += [found[1], WordExpansion("tilde", found[2])] if found[1] else [WordExpansion("tilde", found[2])]
        text = text[found.end() :]
    offset = 0
    for found in _GLOB.finditer(text):
        if found[0] == "[":
            continue
        pieces += [text[offset : found.start()], WordExpansion("glob", _normalize_glob(found[0]), may_split=True)]
        offset = found.end()
    pieces.append(text[offset:])
    return [piece for piece in pieces if piece != ""]


def _normalize_glob(text: str) -> str:
    """Return a pattern that ``fnmatch`` reads as bash does; a pattern with ``[[:alpha:]]`` for example matches more."""
    if _BRACKET_CLASS.search(text, 1):
        return "?"
    return f"[!{text[2:]}" if text.startswith("[^") else text
