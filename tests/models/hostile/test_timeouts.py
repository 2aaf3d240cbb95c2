"""An answer that does not end reaches a time limit."""

import pytest

from tests.models.hostile.adapters import WIRES, adapter, answer_body, ask_once, close_model
from vaka.core.types.errors import ModelUnavailable, StreamCut
from vaka.models.transport.sse import StreamLimits
from vaka.testing.fake_provider import UNLIMITED, FakeProvider, Fault
from vaka.testing.models import join_chunks, stall, try_stream

SHORT = 0.05
"""Seconds: as long as a test has to wait for something that does not happen."""


@WIRES
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
async def test_a_silence_is_given_up_wherever_it_begins(wire: str, share: float) -> None:
    fault = Fault(stall_after=int(len(answer_body(wire)) * share))
    chunks, error = await ask_once(wire, fault, limits=StreamLimits(idle_seconds=SHORT))
    assert (join_chunks(chunks).stops, type(error)) == ([], StreamCut)
    assert "sent nothing for 0.05 seconds" in str(error)


@WIRES
async def test_a_timeout_closes_the_connection(wire: str) -> None:
    async with FakeProvider(stall()) as provider:
        model = adapter(wire, provider.url, limits=StreamLimits(idle_seconds=SHORT))
        _, error = await try_stream(model)
        assert isinstance(error, ModelUnavailable)
        await provider.wait_until(lambda seen: seen.abandoned_count == 1)
        await close_model(model)


@WIRES
async def test_pings_without_end_reach_the_time_limit(wire: str) -> None:
    limits = StreamLimits(total_seconds=SHORT * 2, idle_seconds=60)
    chunks, error = await ask_once(wire, Fault(pings=UNLIMITED), limits=limits)
    assert (chunks, type(error)) == ([], StreamCut)
    assert "took longer than the 0.1 seconds it may" in str(error)


@WIRES
async def test_pings_without_end_reach_the_size_limit(wire: str) -> None:
    chunks, error = await ask_once(wire, Fault(pings=UNLIMITED), limits=StreamLimits(total_bytes=100_000))
    assert (chunks, type(error)) == ([], StreamCut)
    assert "larger than the 100000 bytes" in str(error)


@WIRES
async def test_an_end_that_comes_without_the_end_of_its_body_is_an_end(wire: str) -> None:
    """A wire with an end marker does not wait for the end of the body; Gemini's has none."""
    chunks, error = await ask_once(wire, Fault(stall_after=10**9), limits=StreamLimits(idle_seconds=SHORT))
    if wire == "gemini":
        assert (join_chunks(chunks).stops, type(error)) == ([], StreamCut)
    else:
        assert (join_chunks(chunks).stops, error) == (["calls"], None)
