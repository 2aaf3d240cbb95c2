"""Feature hashing: vectors without a model, equal on every machine; and checks and batches of all embedders. Pure."""

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
    """Return ``texts`` without lone surrogates. Raises ``InvalidInput`` for a string and for other items."""
    if isinstance(texts, str):
        raise InvalidInput(f"expected a list of texts, got one text: {texts[:40]!r}")
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidInput(f"expected a list of texts, got {type(text).__name__} in it: {text!r}")
    return [replace_surrogates(text) for text in texts]


def split_batches(texts: Sequence[str], *, count: int, size: int) -> Iterator[list[str]]:
    """Yield batches of at most ``count`` texts and ``size`` bytes, in order; a larger text is a batch of its own."""
    batch: list[str] = []
    batch_size = 0
    for text in texts:
        length = len(text.encode())
        if batch and (len(batch) >= count or batch_size + length > size):
            yield batch
            batch, batch_size = [], 0
        batch.append(text)
        batch_size += length
    if batch:
        yield batch


DEFAULT_SIZE = 512
NGRAM_LENGTHS = (3, 4)
THREAD_CHARACTERS = 10_000
"""Characters from which on the work is done in a thread."""

_HASH_PERSON = b"vaka-hashing-1"  # change this with the algorithm: old and new vectors must not be comparable
_WORD_WEIGHT, _PAIR_WEIGHT, _NGRAM_WEIGHT = 1.0, 0.5, 1.0
_UNSPACED_SCRIPTS = (  # scripts that put no spaces between words
    ("\u0e00", "\u0eff"), ("\u1000", "\u109f"), ("\u1780", "\u17ff"), ("\u3040", "\u30ff"), ("\u31f0", "\u31ff"),
    ("\u3400", "\u4dbf"), ("\u4e00", "\u9fff"), ("\uf900", "\ufaff"), ("\U00020000", "\U0003ffff"),
)  # fmt: skip

_WeightedIndex: TypeAlias = tuple[int, float]


class HashingEmbedder:
    """Signed feature hashing of words, pairs of words and n-grams of words; vectors have length 1."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise InvalidInput(f"a vector has at least 1 number, not {size!r}")
        self._size = size

    @property
    def name(self) -> str:
        """The name in logs."""
        return f"hashing/{self._size}"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        clean = check_texts(texts)
        if sum(map(len, clean)) < THREAD_CHARACTERS:
            return self._embed_all(clean)
        return await asyncio.to_thread(self._embed_all, clean)

    def _embed_all(self, texts: Sequence[str]) -> list[list[float]]:
        features: dict[str, list[_WeightedIndex]] = {}  # of words, which repeat
        return [self._embed_one(text, features) for text in texts]

    def _embed_one(self, text: str, features: dict[str, list[_WeightedIndex]]) -> list[float]:
        words = list(split_words(text)) or [text.strip()]
        vector = [0.0] * self._size
        for word, count in Counter(words).items():
            if word not in features:
                features[word] = self._word_features(word)
            for index, weight in features[word]:
                vector[index] += weight * math.sqrt(count)
        for (first, second), count in Counter(pairwise(words)).items():
            for index, weight in self._hash_feature(f"pair\0{first}\0{second}", _PAIR_WEIGHT):
                vector[index] += weight * math.sqrt(count)
        return _normalize(vector)

    def _word_features(self, word: str) -> list[_WeightedIndex]:
        ngrams = list(_ngrams_of(word))
        features = self._hash_feature(f"word\0{word}", _WORD_WEIGHT)
        for ngram in ngrams:
            features += self._hash_feature(f"part\0{ngram}", _NGRAM_WEIGHT / math.sqrt(len(ngrams)))
        return features

    def _hash_feature(self, feature: str, weight: float) -> list[_WeightedIndex]:
        """Return the two weighted indexes of a feature: one collision does not hide it."""
        digest = hashlib.blake2b(feature.encode(), digest_size=17, person=_HASH_PERSON).digest()
        signs, half = digest[16], weight / math.sqrt(2)
        return [
            (int.from_bytes(digest[:8], "big") % self._size, half if signs & 1 else -half),
            (int.from_bytes(digest[8:16], "big") % self._size, half if signs & 2 else -half),
        ]


def split_words(text: str) -> Iterator[str]:
    """Yield the words of a text in any script, case-folded.

    A symbol is a word of its own; of scripts without spaces, each two adjacent characters are a word.
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    for kind, run in groupby(folded, _char_kind):
        if kind == "word":
            yield "".join(run)
        elif kind == "symbol":
            yield from run
        elif kind == "dense":
            chars = "".join(run)
            yield from (chars[at : at + 2] for at in range(max(len(chars) - 1, 1)))


@lru_cache(maxsize=4096)
def _char_kind(char: str) -> str:
    kind = unicodedata.category(char)[0]
    if kind in "LNM":  # letters, numbers and combining marks
        return "dense" if any(first <= char <= last for first, last in _UNSPACED_SCRIPTS) else "word"
    return "symbol" if kind == "S" else ""


def _ngrams_of(word: str) -> Iterator[str]:
    """Yield the n-grams of a word with its ends marked, so that forms of a word are near each other."""
    marked = f"<{word}>"
    for length in NGRAM_LENGTHS:
        for start in range(len(marked) - length + 1):
            yield marked[start : start + length]


def _normalize(vector: list[float]) -> list[float]:
    length = math.sqrt(math.fsum(number * number for number in vector))  # sum() differs between versions of Python
    if not length:  # the features cancelled each other
        return [1.0, *vector[1:]]
    return [number / length for number in vector]
