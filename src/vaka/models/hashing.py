"""Vectors without a model: texts that share words, or parts of words, are near each other. Pure.

Nothing is learnt and nothing is installed; a text has the same vector on every machine, for ever. Words that mean the
same but are written differently are strangers here.
"""

import asyncio
import hashlib
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby, pairwise
from typing import TypeAlias

from vaka.core.types.errors import InvalidInput
from vaka.models.vectors import given

SIZE = 512
GRAMS = (3, 4)
"""Lengths of the parts of words that count."""
LONG = 10_000
"""Characters from which on the work is done beside the loop."""

_PERSON = b"vaka-hashing-1"  # whoever changes how vectors are made changes this, or old vectors would lie
_WORD, _PAIR, _PART = 1.0, 0.5, 1.0
_DENSE = (  # scripts that put no spaces between words
    ("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u30ff"), ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip
_Spot: TypeAlias = tuple[int, float]


class HashingEmbedder:
    """Feature hashing of words, pairs of words and parts of words, with signs; vectors have length 1."""

    def __init__(self, size: int = SIZE) -> None:
        if size < 1:
            raise InvalidInput(f"a vector has at least 1 number, not {size!r}")
        self._size = size

    @property
    def name(self) -> str:
        """What this embedder is called in logs."""
        return f"hashing/{self._size}"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        clean = given(texts)
        if sum(map(len, clean)) < LONG:
            return self._vectors(clean)
        return await asyncio.to_thread(self._vectors, clean)

    def _vectors(self, texts: Sequence[str]) -> list[list[float]]:
        spots: dict[str, list[_Spot]] = {}  # words come again and again
        return [self._vector(text, spots) for text in texts]

    def _vector(self, text: str, spots: dict[str, list[_Spot]]) -> list[float]:
        found = list(words(text)) or [text.strip()]
        vector = [0.0] * self._size
        for word, count in Counter(found).items():
            if word not in spots:
                spots[word] = self._spots(word)
            for place, weight in spots[word]:
                vector[place] += weight * math.sqrt(count)
        for (first, second), count in Counter(pairwise(found)).items():
            for place, weight in self._hashed(f"pair\0{first}\0{second}", _PAIR):
                vector[place] += weight * math.sqrt(count)
        return _unit(vector)

    def _spots(self, word: str) -> list[_Spot]:
        parts = list(_parts(word))
        spots = self._hashed(f"word\0{word}", _WORD)
        for part in parts:
            spots += self._hashed(f"part\0{part}", _PART / math.sqrt(len(parts)))
        return spots

    def _hashed(self, feature: str, weight: float) -> list[_Spot]:
        """Return where a feature counts, and how: in two places, so that one shared with another is not all of it."""
        digest = hashlib.blake2b(feature.encode(), digest_size=17, person=_PERSON).digest()
        signs, half = digest[16], weight / math.sqrt(2)
        return [
            (int.from_bytes(digest[:8], "big") % self._size, half if signs & 1 else -half),
            (int.from_bytes(digest[8:16], "big") % self._size, half if signs & 2 else -half),
        ]


def words(text: str) -> Iterator[str]:
    """Yield the words of a text in any script, folded.

    A symbol is a word of its own; of what is written without spaces, each two characters side by side are one.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for kind, run in groupby(folded, _kind):
        if kind == "word":
            yield "".join(run)
        elif kind == "symbol":
            yield from run
        elif kind == "dense":
            together = "".join(run)
            yield from (together[at : at + 2] for at in range(max(len(together) - 1, 1)))


@lru_cache(maxsize=4096)
def _kind(char: str) -> str:
    kind = unicodedata.category(char)[0]
    if kind in "LNM":  # letters, numbers, and the marks that belong to them
        return "dense" if any(first <= char <= last for first, last in _DENSE) else "word"
    return "symbol" if kind == "S" else ""


def _parts(word: str) -> Iterator[str]:
    """Yield the parts of a word, its ends marked, so that forms of a word are near each other."""
    marked = f"<{word}>"
    for length in GRAMS:
        for start in range(len(marked) - length + 1):
            yield marked[start : start + length]


def _unit(vector: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(number * number for number in vector))  # sum() differs between versions of Python
    if not length:  # features met in one place, with other signs
        return [1.0, *vector[1:]]
    return [number / length for number in vector]
