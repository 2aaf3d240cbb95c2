"""What embedders share. Pure."""

from collections.abc import Iterator, Sequence

from vaka.core.types.content import clean
from vaka.core.types.errors import InvalidInput


def given(texts: Sequence[str]) -> list[str]:
    """Return ``texts`` as they can be sent. Raises ``InvalidInput`` for one text, and for what is none."""
    if isinstance(texts, str):
        raise InvalidInput(f"expected a list of texts, got one text: {texts[:40]!r}")
    for text in texts:
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # callers may be untyped
            raise InvalidInput(f"expected a list of texts, got {type(text).__name__} in it: {text!r}")
    return [clean(text) for text in texts]


def batches(texts: Sequence[str], *, count: int, size: int) -> Iterator[list[str]]:
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
