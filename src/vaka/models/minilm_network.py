"""The network of all-MiniLM-L6-v2 in numpy: six BERT layers, mean pooling, unit length. Imported on first use."""

from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file  # pyright: ignore[reportUnknownVariableType]  # its paths are generic
from tokenizers import Tokenizer

MAX_TOKENS = 256
LAYERS = 6
HEADS = 12
WIDTH = 384
BLOCK_ROWS = 64
ERF_COEFFICIENTS = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)
"""The polynomial of the error function in Abramowitz and Stegun, 7.1.26."""

Floats: TypeAlias = NDArray[np.float32]


class MiniLMNetwork:
    """The network with the weights of a folder. Raises ``ValueError`` for invalid weights."""

    def __init__(self, folder: Path) -> None:
        try:
            loaded: dict[str, Any] = load_file(folder / "model.safetensors")
        except SafetensorError as error:
            raise ValueError(str(error)) from error
        self._weights: dict[str, Floats] = {name.removeprefix("bert."): value for name, value in loaded.items()}
        if self._weights["embeddings.word_embeddings.weight"].shape[1] != WIDTH:
            raise ValueError(f"expected a network {WIDTH} numbers wide")
        self._tokenizer: Any = Tokenizer.from_buffer((folder / "tokenizer.json").read_bytes())
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> list[list[float]]:
        """Return a vector for each text."""
        encoded = self._tokenizer.encode_batch(texts)
        tokens = np.array([text.ids for text in encoded])
        mask = np.array([text.attention_mask for text in encoded], np.float32)
        hidden = self._embed_tokens(tokens)
        padding = (1 - mask)[:, None, None, :] * np.float32(-1e9)
        for layer in range(LAYERS):
            hidden = self._run_layer(hidden, padding, f"encoder.layer.{layer}.")
        mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        unit: Floats = mean / np.linalg.norm(mean, axis=-1, keepdims=True)
        return [[float(number) for number in vector] for vector in unit]

    def _embed_tokens(self, tokens: NDArray[Any]) -> Floats:
        weights = self._weights
        words = weights["embeddings.word_embeddings.weight"][tokens]
        positions = weights["embeddings.position_embeddings.weight"][: tokens.shape[1]]
        types = weights["embeddings.token_type_embeddings.weight"][0]
        return self._layer_norm(words + positions + types, "embeddings.LayerNorm")

    def _run_layer(self, hidden: Floats, padding: Floats, layer: str) -> Floats:
        attention = self._linear(self._attend(hidden, padding, layer), layer + "attention.output.dense")
        hidden = self._layer_norm(hidden + attention, layer + "attention.output.LayerNorm")
        inner = _gelu(self._linear(hidden, layer + "intermediate.dense"))
        return self._layer_norm(hidden + self._linear(inner, layer + "output.dense"), layer + "output.LayerNorm")

    def _attend(self, hidden: Floats, padding: Floats, layer: str) -> Floats:
        texts, length, _ = hidden.shape
        split = (texts, length, HEADS, WIDTH // HEADS)
        query, key, value = (
            self._linear(hidden, f"{layer}attention.self.{name}").reshape(split).transpose(0, 2, 1, 3)
            for name in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 1, 3, 2) / np.float32((WIDTH / HEADS) ** 0.5) + padding
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        attended: Floats = (shares @ value).transpose(0, 2, 1, 3).reshape(texts, length, WIDTH)
        return attended

    def _linear(self, values: Floats, name: str) -> Floats:
        flat = values.reshape(-1, values.shape[-1])  # one large product is many times faster than one for each
        product: Floats = flat @ self._weights[name + ".weight"].T
        product += self._weights[name + ".bias"]
        return product.reshape(*values.shape[:-1], -1)

    def _layer_norm(self, values: Floats, name: str) -> Floats:
        centred = values - values.mean(-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(-1, keepdims=True) + np.float32(1e-12))
        scaled: Floats = centred / spread * self._weights[name + ".weight"] + self._weights[name + ".bias"]
        return scaled


def _gelu(values: Floats) -> Floats:
    """Apply GELU in place, a few rows at a time, which fit into the CPU cache."""
    rows = values.reshape(-1, values.shape[-1])
    for start in range(0, len(rows), BLOCK_ROWS):
        block = rows[start : start + BLOCK_ROWS]
        block *= np.float32(0.5) * (1 + _erf(block * np.float32(0.5**0.5)))
    return values


def _erf(values: Floats) -> Floats:
    """Approximate the error function to the precision of float32."""
    size = np.abs(values)
    t = 1 / (1 + np.float32(0.3275911) * size)
    series = t * np.float32(ERF_COEFFICIENTS[0])
    for factor in ERF_COEFFICIENTS[1:]:
        series += np.float32(factor)
        series *= t
    erf: Floats = np.copysign(1 - series * np.exp(-size * size), values)
    return erf
