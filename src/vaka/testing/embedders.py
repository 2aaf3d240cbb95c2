"""What every embedder promises, as tests: subclass ``EmbedderContract`` and give it a fixture ``embedder``.

::

    class TestMine(EmbedderContract):
        @pytest.fixture
        async def embedder(self) -> AsyncIterator[Embedder]: ...
"""
# ruff: noqa: S101  # asserts are what a contract is made of

import asyncio
import math
from collections.abc import Sequence
from typing import Any

from vaka.core.ports.model import Embedder
from vaka.core.types.errors import InvalidInput

TOLERANCE = 1e-4
"""How far two vectors of one text may be apart: networks round differently in company."""

UNUSUAL_TEXTS = (
    "", " ", "\n\t", "\0", "?!", "a", "…", "🌧️", "👩‍👩‍👧", "\u202eabc", "e\u0301", "日本語のテキスト", "हिन्दी", "نص",
    "ภาษาไทย", "\ud83d", "\udc80 half", "x" * 20_000, "word " * 4_000,
)  # fmt: skip


def cosine_similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors: 1 for the same direction."""
    return sum(a * b for a, b in zip(one, other, strict=True)) / (math.hypot(*one) * math.hypot(*other))


def distance_between(one: Sequence[float], other: Sequence[float]) -> float:
    """How far two vectors are from each other."""
    return math.dist(one, other)


class EmbedderContract:
    """What every embedder promises."""

    async def test_no_texts_give_no_vectors(self, embedder: Embedder) -> None:
        """And nobody is asked."""
        assert await embedder.embed([]) == []

    async def test_each_text_has_a_vector_of_one_length_in_order(self, embedder: Embedder) -> None:
        """All of them unit vectors of plain numbers."""
        texts = [f"text number {number}" for number in range(40)]
        vectors = await embedder.embed(texts)
        assert len(vectors) == 40
        assert len({len(vector) for vector in vectors}) == 1
        assert all(type(number) is float for vector in vectors for number in vector)
        assert all(abs(math.hypot(*vector) - 1) < TOLERANCE for vector in vectors)
        for at in (0, 17, 39):
            assert distance_between((await embedder.embed([texts[at]]))[0], vectors[at]) < TOLERANCE

    async def test_a_text_has_one_vector_in_any_company(self, embedder: Embedder) -> None:
        """Twice in one call, in another order, as a tuple, between texts of other lengths."""
        first, second, third = await embedder.embed(("rain in Hilo", "y" * 3_000, "rain in Hilo"))
        assert distance_between(first, third) < TOLERANCE
        again = await embedder.embed(["y" * 3_000, "rain in Hilo"])
        assert distance_between(again[0], second) < TOLERANCE
        assert distance_between(again[1], first) < TOLERANCE

    async def test_what_is_alike_is_nearer_than_what_is_not(self, embedder: Embedder) -> None:
        """That is what vectors are for."""
        question, answer, other = await embedder.embed(
            ["How do I reset my password?", "You can reset your password in the settings.", "The moon is full tonight."]
        )
        assert cosine_similarity(question, answer) > cosine_similarity(question, other) + 0.1

    async def test_any_text_has_a_vector(self, embedder: Embedder) -> None:
        """Empty ones, all scripts, what UTF-8 cannot carry, and very long ones."""
        vectors = await embedder.embed(UNUSUAL_TEXTS)
        assert len(vectors) == len(UNUSUAL_TEXTS)
        assert all(math.isfinite(number) for vector in vectors for number in vector)
        assert all(abs(math.hypot(*vector) - 1) < TOLERANCE for vector in vectors)

    async def test_one_text_is_not_taken_for_its_letters(self, embedder: Embedder) -> None:
        """Nor is anything else taken for a text."""
        for wrong in ("rain", ["rain", None], [b"rain"]):
            assert "list of texts" in await _refusal_message(embedder, wrong)

    async def test_texts_are_not_changed(self, embedder: Embedder) -> None:
        """What was handed over is as it was."""
        texts = ["", "Rain", "\ud83d"]
        await embedder.embed(texts)
        assert texts == ["", "Rain", "\ud83d"]

    async def test_calls_at_the_same_time_do_not_mix(self, embedder: Embedder) -> None:
        """Each gets its own."""
        texts = [f"text number {number}" for number in range(10)]
        alone = await embedder.embed(texts)
        together = await asyncio.gather(*(embedder.embed([text]) for text in texts))
        assert all(distance_between(vector, many[0]) < TOLERANCE for vector, many in zip(alone, together, strict=True))


async def _refusal_message(embedder: Embedder, texts: Any) -> str:
    try:
        made = await embedder.embed(texts)
    except InvalidInput as error:
        return str(error)
    raise AssertionError(f"expected an error for {texts!r}, got {made!r}")
