"""Search queries: parse what a person typed, match and score texts, and cut snippets."""

import re
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from vaka.text.words import fold_text, is_unspaced, locate_words, split_words

MAX_TERMS = 32
"""Words and phrases of a query that count."""
_CHUNK = re.compile(r'(-?)(?:"([^"]*)"?|([^\s"]+))')
_TYPICAL_WORDS = 100
"""A text of so many words gets half the score for its first match."""


class SearchTerm(NamedTuple):
    """Words that must follow one another; with ``prefix`` the last one is the beginning of a word."""

    words: tuple[str, ...]
    prefix: bool = False

    @property
    def pattern(self) -> str:
        """The part of a joined text (see ``join_words``) that the term matches."""
        return f" {'  '.join(self.words)}{'' if self.prefix else ' '}"


class ParsedQuery(NamedTuple):
    """Terms that must all occur, and terms of which none may occur."""

    required: tuple[SearchTerm, ...] = ()
    excluded: tuple[SearchTerm, ...] = ()


def parse_query(text: str) -> ParsedQuery:
    """Return the terms of a query: words, ``"phrases"``, ``-excluded`` words and ``prefix*``; never an error."""
    terms: dict[str, list[SearchTerm]] = {"": [], "-": []}
    for match in _CHUNK.finditer(text):
        sign, phrase, chunk = match.groups()
        term = _make_term(chunk if phrase is None else phrase)
        if term is not None and term not in terms[sign] and len(terms[sign]) < MAX_TERMS:
            terms[sign].append(term)
    return ParsedQuery(tuple(terms[""]), tuple(terms["-"]))


def _make_term(chunk: str) -> SearchTerm | None:
    words = split_words(chunk)
    if not words:
        return None
    if is_unspaced(words[-1]):
        # The text may go on after the last character, so it is not searched as the end of its run.
        if len(words) > 1 and len(words[-2]) > 1 and words[-2].endswith(words[-1]) and is_unspaced(words[-2]):
            return SearchTerm(tuple(words[:-1]))
        return SearchTerm(tuple(words), prefix=True)
    # The beginning of a plural is not the beginning of its singular, so a plural finds both forms of the whole word.
    prefix = chunk.endswith("*") and fold_text(chunk.rstrip("*")).endswith(words[-1])
    return SearchTerm(tuple(words), prefix=prefix)


def join_words(words: Sequence[str]) -> str:
    """Return words as one text in which each is between two blanks of its own."""
    return f" {'  '.join(words)} "


def is_match(joined: str, query: ParsedQuery) -> bool:
    """Return whether a text, given as its joined words, is found by a query."""
    return (
        bool(query.required)
        and all(term.pattern in joined for term in query.required)
        and not any(term.pattern in joined for term in query.excluded)
    )


def score_words(joined: str, query: ParsedQuery) -> float:
    """Return how well a text matches: the more often it has each term, and the shorter it is, the better.

    It depends on the text alone, so it stays the same while other texts come and go.
    """
    weight = joined.count(" ") / (2 * _TYPICAL_WORDS)
    counts = [joined.count(term.pattern) for term in query.required]
    return sum(count / (count + weight) for count in counts if count) / max(len(counts), 1)


SNIPPET_LENGTH = 240
"""Characters of a snippet, without its ellipses."""
_BEFORE = 60
"""Characters before the first match."""
_ELLIPSIS = "…"
_BREAKS = dict.fromkeys(map(ord, "\n\r\t\v\f"), " ")


def cut_snippet(text: str, query: ParsedQuery) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the part of a text around the first match, on one line, and the offsets of all matches in it."""
    spans = _find_matches(text, query)
    begin = max(spans[0][0] - _BEFORE, 0) if spans else 0
    end = min(begin + SNIPPET_LENGTH, len(text))
    lead = _ELLIPSIS if begin else ""
    shift = len(lead) - begin
    matches = tuple((first + shift, min(after, end) + shift) for first, after in spans if first < end)
    return f"{lead}{text[begin:end].translate(_BREAKS)}{_ELLIPSIS if end < len(text) else ''}", matches


def _find_matches(text: str, query: ParsedQuery) -> list[tuple[int, int]]:
    """Return the offsets of the matches near the first one, in order; overlapping ones are merged."""
    longest = max((len(term.words) for term in query.required), default=1)
    recent: deque[tuple[str, int, int]] = deque(maxlen=longest)
    found: list[tuple[int, int]] = []
    for word in locate_words(text):
        recent.append(word)
        for term in query.required:
            if _ends_with(recent, term):
                last = term.words[-1]
                after = word[1] + len(last) if term.prefix and is_unspaced(last) else word[2]
                found.append((recent[-len(term.words)][1], after))
        if found and word[1] > found[0][0] + SNIPPET_LENGTH:
            break
    merged: list[tuple[int, int]] = []
    for first, after in sorted(found):
        if merged and first < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(after, merged[-1][1]))
        else:
            merged.append((first, after))
    return merged


def _ends_with(recent: Sequence[tuple[str, int, int]], term: SearchTerm) -> bool:
    """Return whether the last words are the words of a term."""
    *head, last = term.words
    word = recent[-1][0]
    if not (word.startswith(last) if term.prefix else word == last):
        return False
    begin = len(recent) - len(term.words)
    return begin >= 0 and all(recent[begin + offset][0] == other for offset, other in enumerate(head))
