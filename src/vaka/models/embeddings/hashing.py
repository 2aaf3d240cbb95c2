"""Feature hashing: vectors without a model, the same on every machine; and how every embedder checks and batches its texts. Pure."""

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
from vaka.core.types.message import replace_surrogates


def check_texts(texts: Sequence[str]) -> list[str]:
    """Return ``texts`` as they can be sent. Raises ``InvalidInput`` for one text, and for what is none."""
    if isinstance(texts, str):
        raise InvalidInput(f"expected a list of texts, got one text: {texts[:40]!r}")
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidInput(f"expected a list of texts, got {type(text).__name__} in it: {text!r}")
    return [replace_surrogates(text) for text in texts]


def split_batches(texts: Sequence[str], *, count: int, size: int) -> Iterator[list[str]]:
    """Yield ``texts`` in order, at most ``count`` at a time and ``size`` bytes, or one that is larger alone."""
    batch: list[str] = []
    bytes_of_batch = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) >= count or bytes_of_batch + length > size):
            yield batch
            batch, bytes_of_batch = [], 0
        batch.append(text)
        bytes_of_batch += length
    if batch:
        yield batch


DEFAULT_SIZE = 512

NGRAM_LENGTHS = (3, 4)
"""Lengths of the parts of words that count."""

THREAD_CHARACTERS = 10_000
"""Characters from which on the work is done beside the loop."""

_HASH_PERSON = b"vaka-hashing-1"  # whoever changes how vectors are made changes this, or old vectors would lie

_WORD_WEIGHT, _PAIR_WEIGHT, _NGRAM_WEIGHT = 1.0, 0.5, 1.0

_UNSPACED_SCRIPTS = (  # scripts that put no spaces between words
    ("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u30ff"), ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip

_WeightedIndex: TypeAlias = tuple[int, float]


class HashingEmbedder:
    """Feature hashing of words, pairs of words and parts of words, with signs; vectors have length 1."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise InvalidInput(f"a vector has at least 1 number, not {size!r}")
        self._size = size

    @property
    def name(self) -> str:
        """What this embedder is called in logs."""
        return f"hashing/{self._size}"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        clean = check_texts(texts)
        if sum(map(len, clean)) < THREAD_CHARACTERS:
            return self._embed_all(clean)
        return await asyncio.to_thread(self._embed_all, clean)

    def _embed_all(self, texts: Sequence[str]) -> list[list[float]]:
        spots: dict[str, list[_WeightedIndex]] = {}  # words come again and again
        return [self._embed_one(text, spots) for text in texts]

    def _embed_one(self, text: str, spots: dict[str, list[_WeightedIndex]]) -> list[float]:
        found = list(split_words(text)) or [text.strip()]
        vector = [0.0] * self._size
        for word, count in Counter(found).items():
            if word not in spots:
                spots[word] = self._word_features(word)
            for place, weight in spots[word]:
                vector[place] += weight * math.sqrt(count)
        for (first, second), count in Counter(pairwise(found)).items():
            for place, weight in self._hash_feature(f"pair\0{first}\0{second}", _PAIR_WEIGHT):
                vector[place] += weight * math.sqrt(count)
        return _normalize(vector)

    def _word_features(self, word: str) -> list[_WeightedIndex]:
        parts = list(_ngrams_of(word))
        spots = self._hash_feature(f"word\0{word}", _WORD_WEIGHT)
        for part in parts:
            spots += self._hash_feature(f"part\0{part}", _NGRAM_WEIGHT / math.sqrt(len(parts)))
        return spots

    def _hash_feature(self, feature: str, weight: float) -> list[_WeightedIndex]:
        """Return where a feature counts, and how: in two places, so that one shared with another is not all of it."""
        digest = hashlib.blake2b(feature.encode(), digest_size=17, person=_HASH_PERSON).digest()
        signs, half = digest[16], weight / math.sqrt(2)
        return [
            (int.from_bytes(digest[:8], "big") % self._size, half if signs & 1 else -half),
            (int.from_bytes(digest[8:16], "big") % self._size, half if signs & 2 else -half),
        ]


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text in any script, folded.

    A symbol is a word of its own; of what is written without spaces, each two characters side by side are one.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for kind, run in groupby(folded, _char_kind):
        if kind == "word":
            yield "".join(run)
        elif kind == "symbol":
            yield from run
        elif kind == "dense":
            together = "".join(run)
            yield from (together[at : at + 2] for at in range(max(len(together) - 1, 1)))


@lru_cache(maxsize=4096)
def _char_kind(char: str) -> str:
    kind = unicodedata.category(char)[0]
    if kind in "LNM":  # letters, numbers, and the marks that belong to them
        return "dense" if any(first <= char <= last for first, last in _UNSPACED_SCRIPTS) else "word"
    return "symbol" if kind == "S" else ""


def _ngrams_of(word: str) -> Iterator[str]:
    """Yield the parts of a word, its ends marked, so that forms of a word are near each other."""
    marked = f"<{word}>"
    for length in NGRAM_LENGTHS:
        for start in range(len(marked) - length + 1):
            yield marked[start : start + length]


def _normalize(vector: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(number * number for number in vector))  # sum() differs between versions of Python
    if not length:  # features met in one place, with other signs
        return [1.0, *vector[1:]]
    return [number / length for number in vector]
