"""A matrix of vectors of length 1, and the rows nearest to a vector. Loaded on first use: it needs numpy."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from vaka.stores.vectors import MatrixRow, damaged_record

_Floats: TypeAlias = npt.NDArray[np.float32]

FIRST_CAPACITY = 16
BATCH_ROWS = 2_048


class VectorMatrix:
    """The vectors of one scope as rows of a matrix, each with the number of its stored row."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self.size = 0
        self.change = -1
        self._vectors: _Floats = np.empty((FIRST_CAPACITY, dimension), np.float32)
        self._numbers: npt.NDArray[np.int64] = np.empty(FIRST_CAPACITY, np.int64)
        self._places: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        """The size in memory, about."""
        return self._vectors.nbytes + self._numbers.nbytes + 100 * len(self._places)

    def put(self, rows: Sequence[MatrixRow]) -> None:
        """Add rows, or replace those with the same numbers; ``Corrupt`` for a vector of another length."""
        if not rows:
            return
        for row in rows:
            if len(row.vector) != 4 * self.dimension:
                raise damaged_record(f"number {row.number}")
        self._reserve(self.size + len(rows))
        for first in range(0, len(rows), BATCH_ROWS):
            self._put_batch(rows[first : first + BATCH_ROWS])

    def remove(self, numbers: Sequence[int]) -> None:
        """Remove rows; the last row takes the place of a removed one."""
        for number in numbers:
            place = self._places.pop(number, None)
            if place is None:
                continue
            self.size -= 1
            if place != self.size:
                last = int(self._numbers[self.size])
                self._vectors[place], self._numbers[place] = self._vectors[self.size], last
                self._places[last] = place

    def rank(self, query: bytes, count: int) -> list[tuple[int, float]]:
        """Return the numbers and cosine similarities of the nearest rows; of equal ones the lowest number first."""
        vector = np.frombuffer(query, "<f4").astype(np.float64)
        vector /= np.linalg.norm(vector)
        # Not ``@``: the threads of BLAS spin on every core, and the slowest of them is waited for.
        similarities: Any = np.einsum("ij,j->i", self._vectors[: self.size], vector.astype(np.float32))
        numbers = self._numbers[: self.size]
        if count < self.size:
            least = np.partition(similarities, self.size - count)[self.size - count]
            near = np.flatnonzero(similarities >= least)
            similarities, numbers = similarities[near], numbers[near]
        order = np.lexsort((numbers, -similarities))[:count]
        ranked = np.clip(similarities[order], -1.0, 1.0).tolist()
        return list(zip(numbers[order].tolist(), ranked, strict=True))

    def _put_batch(self, rows: Sequence[MatrixRow]) -> None:
        raw = b"".join([row.vector for row in rows])
        vectors: Any = np.frombuffer(raw, "<f4").reshape(len(rows), self.dimension)
        lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64))
        self._vectors[[self._place_of(row.number) for row in rows]] = vectors / lengths[:, None]

    def _place_of(self, number: int) -> int:
        place = self._places.get(number)
        if place is None:
            place = self._places[number] = self.size
            self._numbers[place] = number
            self.size += 1
        return place

    def _reserve(self, size: int) -> None:
        if size > len(self._numbers):
            capacity = max(size, 2 * len(self._numbers))
            self._vectors = np.concatenate(
                [self._vectors[: self.size], np.empty((capacity - self.size, self.dimension), np.float32)]
            )
            self._numbers = np.concatenate([self._numbers[: self.size], np.empty(capacity - self.size, np.int64)])
