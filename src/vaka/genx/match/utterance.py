"""Texts of users, prepared for comparison: one form for case, width, accents and spaces; clauses; numbers."""

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

from vaka.genx.match.rules import Scalar

_DENSE_RANGES = (  # scripts that put no spaces between words
    ("\u0e00", "\u0eff"),
    ("\u1000", "\u109f"),
    ("\u1780", "\u17ff"),
    ("\u3040", "\u30ff"),
    ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"),
    ("\u4e00", "\u9fff"),
    ("\uf900", "\ufaff"),
    ("\U00020000", "\U0003ffff"),
)
_SPECIAL = {"đ": "d", "ı": "i", "أ": "ا", "إ": "ا", "آ": "ا", "ى": "ي", "ة": "ه", "ـ": ""} | dict.fromkeys("'’‘`´", "")
_ARABIC_MARKS = ("\u064b", "\u065f")

_SENTENCE_END = re.compile(r"[!?;。！？；؟؛\n]+|(?<!\b\w)\.+(?=\s|$)")
_COMMA = re.compile(r"(?:(?<!\d),|,(?!\d)|[，、،])\s*")
_CJK_DIGITS = {char: number for number, char in enumerate("零一二三四五六七八九")} | {"〇": 0, "两": 2, "兩": 2}
_MAX_DIGITS = 18
_CJK_UNITS = {"十": 10, "百": 100, "千": 1000}
_CJK_NUMBER = re.compile(r"[零〇一二两兩三四五六七八九十百千万]+")
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)*")
_THOUSANDS = re.compile(r",(?=\d{3}(?!\d))")


class Utterance(msgspec.Struct, frozen=True):
    """A text in the form for comparison: ``plain`` has no punctuation; ``places`` lead back to ``source``."""

    source: str
    plain: str
    places: list[int]

    def original(self, start: int, end: int) -> str:
        """Return the part of the source that ``plain[start:end]`` stands for."""
        if start >= end:
            return ""
        return self.source[self.places[start] : self.places[end - 1] + 1].strip()


def is_dense(char: str) -> bool:
    """Return whether a character is of a script without spaces between words."""
    return char >= "\u0e00" and any(first <= char <= last for first, last in _DENSE_RANGES)


def read_utterance(text: str) -> Utterance:
    """Return the text for comparison."""
    source = unicodedata.normalize("NFC", text)
    chars: list[str] = []
    places: list[int] = []
    for place, char in enumerate(source):
        for plain in char if _is_decimal_mark(source, place) else _plain_form(char):
            if plain == " " and (not chars or chars[-1] == " " or is_dense(chars[-1])):
                continue
            if chars and chars[-1] == " " and is_dense(plain):
                chars.pop()
                places.pop()
            chars.append(plain)
            places.append(place)
    if chars and chars[-1] == " ":
        chars.pop()
        places.pop()
    return Utterance(source, "".join(chars), places)


def _is_decimal_mark(text: str, place: int) -> bool:
    return text[place] in ".," and text[place - 1 : place].isdigit() and text[place + 1 : place + 2].isdigit()


@lru_cache(maxsize=8192)
def _plain_form(char: str) -> str:
    """Return what stands for a character: lower case, half width, without accent; a space for punctuation."""
    plain = ""
    for part in unicodedata.normalize("NFKC", char).casefold():
        base = unicodedata.normalize("NFD", part)[0] if part > "\x7f" else part
        part = base if base.isascii() else part
        kind = unicodedata.category(part)
        if part in _SPECIAL:
            plain += _SPECIAL[part]
        elif kind == "Nd":
            plain += str(unicodedata.decimal(part))
        elif kind[0] in "LN" or (kind[0] == "M" and not _ARABIC_MARKS[0] <= part <= _ARABIC_MARKS[1]):
            plain += part
        elif kind[0] in "PSZC":
            plain += part if part in "+%°$€" else " "
    return plain


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return [part for part in _SENTENCE_END.split(text) if part.strip()]


def split_clauses(sentence: str) -> list[tuple[int, int]]:
    """Return where the parts of a sentence between commas and words such as *and* begin and end."""
    utterance = read_utterance(sentence)
    breaks = [found.span() for found in _COMMA.finditer(utterance.source)] + [
        (utterance.places[found.start()], utterance.places[found.end() - 1] + 1)
        for found in _words().joins.finditer(utterance.plain)
    ]
    spans: list[tuple[int, int]] = []
    start = 0
    for first, last in sorted(breaks):
        if utterance.source[start:first].strip() and utterance.source[last:].strip():
            spans.append((start, first))
            start = last
    return [*spans, (start, len(utterance.source))]


def strip_fillers(plain: str) -> tuple[int, int]:
    """Return where the text without words of politeness at its ends begins and ends."""
    start, end = 0, len(plain)
    words = _words()
    while found := words.first_filler.match(plain, start, end):
        start = found.end()
    while found := words.last_filler.search(plain, max(start, end - words.longest_filler), end):
        end = found.start()
    return start, end


def is_negated(utterance: Utterance) -> bool:
    """Return whether a text says *not*."""
    words = _words()
    question = words.questions.search(utterance.plain)
    end = len(utterance.plain) if question is None else question.start()
    if any(found["negation"] for found in words.negations.finditer(utterance.plain, 0, end)):
        return True
    return words.exact_negations.search(utterance.source.casefold()) is not None


class _Words(msgspec.Struct, frozen=True):
    """The words of all languages, as expressions over texts in the form for comparison."""

    joins: re.Pattern[str]
    first_filler: re.Pattern[str]
    last_filler: re.Pattern[str]
    longest_filler: int
    """Characters of the longest word, with the characters before it."""
    negations: re.Pattern[str]
    exact_negations: re.Pattern[str]
    questions: re.Pattern[str]
    numbers: dict[str, int]


@lru_cache(maxsize=1)
def _words() -> _Words:
    source = resources.files("vaka.genx.match").joinpath("languages.toml").read_text(encoding="utf-8")
    languages: list[dict[str, Any]] = list(tomllib.loads(source).values())

    def alternatives(key: str) -> str:
        words = {word for language in languages for word in language.get(key, ())}
        return "|".join(_word_expression(word) for word in sorted(words, key=lambda word: (-len(word), word)))

    numbers = {
        word: number for language in languages for number, word in enumerate(language.get("numbers", "").split())
    }
    for language in languages:
        numbers |= language.get("more_numbers", {})
    fillers = alternatives("fillers")
    return _Words(
        joins=re.compile(f" ?(?:{alternatives('joins')}) ?"),
        first_filler=re.compile(f"(?:{fillers}) ?(?=.)"),
        last_filler=re.compile(f"(?<=.) ?(?:{fillers})$"),
        longest_filler=max(len(word) for language in languages for word in language.get("fillers", ())) + 2,
        negations=re.compile(f"{alternatives('not_negations')}|(?P<negation>{alternatives('negations')})"),
        exact_negations=re.compile(alternatives("exact_negations")),
        questions=re.compile(f"(?:{alternatives('questions')})$"),
        numbers=numbers,
    )


def _word_expression(word: str) -> str:
    """Return an expression for a word; of scripts with spaces only whole words count."""
    left = "" if is_dense(word[0]) else r"\b"
    right = "" if is_dense(word[-1]) or is_hangul(word[-1]) else r"\b"
    return left + re.escape(word) + right


def is_hangul(char: str) -> bool:
    """Return whether a character is of the Korean script, whose words have endings."""
    return "\uac00" <= char <= "\ud7a3"


def find_number(text: str) -> int | float | None:
    """Return the first number of a text, in digits of any script or as a common word."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    digits = "".join(str(unicodedata.decimal(char, char)) for char in plain)
    if found := _NUMBER.search(digits):
        return _read_number(found[0][:_MAX_DIGITS])
    for word in read_utterance(text).plain.split():
        if word in _words().numbers:
            return _words().numbers[word]
    if found := _CJK_NUMBER.search(plain):
        return _cjk_number(found[0])
    return None


def _read_number(digits: str) -> int | float | None:
    """Return the number of digits with a point or a comma in them; a comma before three digits groups them."""
    plain = _THOUSANDS.sub("", digits).replace(",", ".")
    try:
        return float(plain) if "." in plain else int(plain)
    except ValueError:  # a date, a version
        return None


def typed_number(text: str, kind: str) -> Scalar | None:
    """Return the number of a text as a value of type ``int`` or ``float``, ``None`` without one."""
    number = find_number(text)
    if number is None or kind == "float":
        return None if number is None else float(number)
    return int(number) if number == int(number) else None


def _cjk_number(text: str) -> int:
    if not any(char in "十百千万" for char in text):
        return int("".join(str(_CJK_DIGITS[char]) for char in text[:_MAX_DIGITS]))
    total = section = digit = 0
    for char in text:
        if char in _CJK_DIGITS:
            digit = _CJK_DIGITS[char]
        elif char == "万":
            total = (total + section + digit) * 10_000
            section = 0
            digit = 0
        else:
            section += (digit or 1) * _CJK_UNITS[char]
            digit = 0
    return total + section + digit


def words_of(plain: str) -> Iterator[tuple[str, bool]]:
    """Yield the runs of a text in the form for comparison, and whether each is of a script without spaces."""
    for word in plain.split():
        start = 0
        for at in range(1, len(word) + 1):
            if at == len(word) or is_dense(word[at]) != is_dense(word[start]):
                yield word[start:at], is_dense(word[start])
                start = at
