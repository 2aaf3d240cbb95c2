"""Split text into the words that a search compares.

Words are compared without case, accents, width, soft hyphens, and the vowel marks of Arabic and Hebrew; plurals that
end in -s as English makes them are their singular, ß is ss, and simplified Chinese characters are the traditional ones.
Scripts that
are written without spaces (Chinese, Japanese, Thai) and Korean become overlapping pairs of characters, so that any part
of such a text can be found; the last character of a run is a word, too, so that single characters are found as the
beginning of a word. Each emoji is a word, without the tone of its skin; symbols made of letters, such as ㎏, are those.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from vaka.text.plurals import singular_of

MAX_WORD_LENGTH = 64
"""Characters of a word that count."""

_ACCENTS = (
    "\u0300-\u036f\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc"
    "\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0898-\u089f\u08ca-\u08e1\u08e3-\u08ff\u00ad\u200c\u200d\u2060\u20d0-\u20f0"
    "\ufe00-\ufe0f\ufeff"
)
"""Characters that folding removes: accents, marks of Arabic and Hebrew, soft hyphens, joiners and variants.

Other scripts, such as Devanagari and Thai, need their marks.
"""

_MARKS = _ACCENTS + (
    "\u0483-\u0489\u0711\u0730-\u074a\u0900-\u0903\u093a-\u094f\u0951-\u0957"
    "\u0962\u0963\u0981-\u0983\u09bc-\u09cd\u09d7\u0a01-\u0a03\u0a3c-\u0a51\u0a70\u0a71\u0a75\u0a81-\u0a83\u0abc-\u0acd"
    "\u0b01-\u0b03\u0b3c-\u0b57\u0b82\u0bbe-\u0bcd\u0bd7\u0c00-\u0c04\u0c3c-\u0c56\u0c81-\u0c83\u0cbc-\u0cd6"
    "\u0d00-\u0d03\u0d3b-\u0d4d\u0d57\u0d81-\u0d83\u0dca-\u0df3\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc"
    "\u0ec8-\u0ece\u0f18-\u0f19\u0f35\u0f37\u0f39\u0f3e\u0f3f\u0f71-\u0f84\u0f86\u0f87\u0f8d-\u0fbc\u102b-\u103e"
    "\u1056-\u1059\u105e-\u1060\u1062-\u1064\u1067-\u106d\u1071-\u1074\u1082-\u108d\u17b4-\u17d3\u17dd\u1ab0-\u1ace"
    "\u1b00-\u1b04\u1b34-\u1b44\u1dc0-\u1dff\u302a-\u302f\u3099\u309a\ufe20-\ufe2f"
)
"""Combining marks, which Python's ``\\w`` leaves out, and the joiners that occur inside words."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3100-\u318f\u31a0-\u31bf"
    "\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces, and of Korean, whose words have endings."""

_LETTER_SYMBOLS = (
    "\u20a8\u2100-\u211f\u2121\u2123-\u214f\u249c-\u24e9\u2e80-\u2fdf\u3196-\u319f\u3200-\u33ff\ufdfc"
    "\U0001f110-\U0001f16c\U0001f200-\U0001f251"
)
"""Symbols that folding makes letters or digits of. The signs of trademarks are not: they would part phrases."""

_FLAG_LETTERS = "\U0001f1e6-\U0001f1ff"
_EMOJI = (
    "\u231a\u231b\u2328\u23cf\u23e9-\u23fa\u2600-\u27bf\u2b05-\u2b07\u2b1b\u2b1c\u2b50\u2b55\U0001f000-\U0001f0ff"
    "\U0001f170-\U0001f1ff\U0001f300-\U0001f3fa\U0001f400-\U0001faff"
)
_EMOJI_PARTS = "\u200d\u20e3\ufe0f\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f"
"""Characters that follow an emoji to vary it: joiners, tones of skin, and tags."""

_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}
"""Replaces capital letters, and what is not part of a word, in ASCII text."""
_ASCII_WORD = re.compile(r"[a-z0-9]+")
_RUN = re.compile(rf"[\w{_MARKS}]+|[{_LETTER_SYMBOLS}]+|[{_EMOJI}][{_EMOJI}{_EMOJI_PARTS}]*")
_PIECE = re.compile(
    rf"([{_UNSPACED}]+)|(?:(?![_{_UNSPACED}])[\w{_MARKS}])+|[{_FLAG_LETTERS}]{{1,2}}|[{_EMOJI}]",
)
_UNSPACED_CHARACTER = re.compile(f"[{_UNSPACED}]")
_REMOVED = re.compile(f"[{_ACCENTS}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]+")


@cache
def _han_variants() -> dict[int, str]:
    lines = Path(__file__).with_name("han_variants.txt").read_text("utf-8").splitlines()
    groups = [group for line in lines if not line.startswith("#") for group in line.split()]
    return {ord(variant): group[0] for group in groups for variant in group[1:]}


def fold_text(text: str) -> str:
    """Return text without differences of case, accent, vowel mark, width and form of Chinese characters."""
    if text.isascii():
        return text.lower()
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    if folded.isascii():
        return folded
    plain = unicodedata.normalize("NFC", _REMOVED.sub("", unicodedata.normalize("NFD", folded)))
    return plain.translate(_han_variants())


def split_words(text: str) -> list[str]:
    """Return the words of a text, in order."""
    if text.isascii():
        return _split_ascii(text)
    words: list[str] = []
    for line in text.split("\n"):
        if line.isascii():
            words += _split_ascii(line)
            continue
        for run in _RUN.findall(line):
            folded = run if run.isascii() else fold_text(run)
            words += _split_ascii(folded) if folded.isascii() else [word for word, _, _ in _locate_in_run(folded)]
    return words


def _split_ascii(text: str) -> list[str]:
    words = text.translate(_ASCII).split()
    if words and max(map(len, words)) > MAX_WORD_LENGTH:
        words = [word[:MAX_WORD_LENGTH] for word in words]
    return [singular_of(word) if word[-1] == "s" else word for word in words]


def locate_words(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the words of a text, each with the offsets of its first character and of the one after its last.

    A word that folding has made longer or shorter has the offsets of the characters around it, up to blanks.
    """
    if text.isascii():
        for match in _ASCII_WORD.finditer(text.lower()):
            yield _compared_word(match.group()), match.start(), match.end()
        return
    for match in _RUN.finditer(text):
        begin, end = match.span()
        folded = fold_text(match.group())
        same_length = len(folded) == end - begin
        for word, first, after in _locate_in_run(folded):
            yield (word, begin + first, begin + after) if same_length else (word, begin, end)


def unspaced_characters(words: str) -> str:
    """Return the characters of scripts without spaces that occur in words, each once, joined by blanks."""
    return "" if words.isascii() else " ".join(sorted(set(_UNSPACED_CHARACTER.findall(words))))


def is_unspaced(word: str) -> bool:
    """Return whether a word is a character, or a pair of them, of a script without spaces."""
    match = _PIECE.match(word)
    return match is not None and match[1] is not None


def _compared_word(word: str) -> str:
    word = word[:MAX_WORD_LENGTH]
    return singular_of(word) if word[-1] == "s" and word.isascii() else word


def _locate_in_run(folded: str) -> Iterator[tuple[str, int, int]]:
    for match in _PIECE.finditer(folded):
        begin, end = match.span()
        if match[1] is None:
            yield _compared_word(match.group()), begin, end
        else:
            for offset in range(begin, end):
                after = min(offset + 2, end)
                yield folded[offset:after], offset, after
