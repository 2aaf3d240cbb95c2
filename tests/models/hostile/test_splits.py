"""The split of the bytes, line ends, compression and pings do not change the answer."""

import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.hostile.adapters import (
    ADAPTERS,
    WIRES,
    InMemoryAdapter,
    Outcome,
    answer_body,
    answer_events,
    ask_each,
    ask_once,
    feed_bytes,
)
from tests.models.origin_tags import strip_origin
from vaka.core.ports.model import Chunk
from vaka.testing.fake_provider import Fault


@cache
def expected_chunks(wire: str) -> tuple[Chunk, ...]:
    with ThreadPoolExecutor(1) as pool:  # a loop may be running here
        chunks, error = pool.submit(feed_bytes, wire, answer_body(wire)).result()
    assert error is None
    return tuple(strip_origin(chunks))


def check_same(wire: str, heard: Outcome) -> None:
    chunks, error = heard
    assert (strip_origin(chunks), error) == ([*expected_chunks(wire)], None)


def split_at(data: bytes, places: list[int]) -> list[bytes]:
    cuts = sorted({min(place, len(data)) for place in places})
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


@given(st.sampled_from(list(ADAPTERS)), st.lists(st.integers(0, 20_000), max_size=40))
def test_any_split_of_the_bytes_gives_the_same_chunks(wire: str, places: list[int]) -> None:
    check_same(wire, feed_bytes(wire, *split_at(answer_body(wire), places)))


@WIRES
def test_a_split_at_any_place_gives_the_same_chunks(wire: str) -> None:
    data, chance = answer_body(wire), random.Random(0)
    with InMemoryAdapter(wire) as ear:
        for place in chance.sample(range(len(data)), 100):
            check_same(wire, ear.feed(data[:place], data[place:]))


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@WIRES
def test_a_split_at_every_place_gives_the_same_chunks(wire: str) -> None:
    data = answer_body(wire)
    with InMemoryAdapter(wire) as ear:
        for place in range(len(data)):
            check_same(wire, ear.feed(data[:place], data[place:]))


@WIRES
async def test_single_bytes_give_the_same_answer(wire: str) -> None:
    async with aclosing(ask_each(wire, *(Fault(drip=size) for size in (1, 2, 3, 7, 100)))) as answers:
        async for answer in answers:
            check_same(wire, answer)


@WIRES
async def test_a_compressed_answer_is_an_answer(wire: str) -> None:
    check_same(wire, await ask_once(wire, Fault(gzip=True)))
    check_same(wire, await ask_once(wire, Fault(gzip=True, drip=5)))


@WIRES
async def test_pings_are_not_part_of_an_answer(wire: str) -> None:
    check_same(wire, await ask_once(wire, Fault(pings=3)))


@WIRES
@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
def test_lines_may_end_in_any_way(wire: str, end: bytes) -> None:
    check_same(wire, feed_bytes(wire, answer_body(wire).replace(b"\n", end)))


@WIRES
def test_comments_and_blank_lines_between_events_are_skipped(wire: str) -> None:
    between = b": comment\n\nid: 7\nretry: 10\n\n\n\n"
    check_same(wire, feed_bytes(wire, b"\xef\xbb\xbf" + between.join([b"", *answer_events(wire), b""])))


@WIRES
def test_a_space_after_the_colon_is_not_needed(wire: str) -> None:
    check_same(
        wire, feed_bytes(wire, answer_body(wire).replace(b"\ndata: ", b"\ndata:").replace(b"event: ", b"event:"))
    )
