"""An answer that does not end reaches a time limit."""

import pytest

from tests.models.hostile.adapters import WIRES, Outcome, adapter, answer_body, ask_once, close_model
from vaka.core.types.errors import ModelUnavailable, StreamCut
from vaka.models.transport.sse import StreamLimits
from vaka.testing.fake_provider import UNLIMITED, FakeProvider, Fault
from vaka.testing.models import join_chunks, stall, try_stream

pytestmark = pytest.mark.every_loop

SECONDS = (0.05, 0.5, 5.0, 50.0)
"""Limits to try in turn: on a busy machine a short one can expire before the provider has sent what it should."""


async def ask_until_cut(wire: str, fault: Fault) -> Outcome:
    """Ask a provider that becomes silent, until the silence is within the answer and not before it."""
    outcome: Outcome = [], None
    for seconds in SECONDS:
        outcome = await ask_once(wire, fault, limits=StreamLimits(idle_seconds=seconds))
        assert f"sent nothing for {seconds:g} seconds" in str(outcome[1])
        if isinstance(outcome[1], StreamCut):
            break
    return outcome


@WIRES
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
async def test_a_silence_is_given_up_wherever_it_begins(wire: str, share: float) -> None:
    chunks, error = await ask_until_cut(wire, Fault(stall_after=int(len(answer_body(wire)) * share)))
    assert (join_chunks(chunks).stops, type(error)) == ([], StreamCut)


@WIRES
async def test_a_timeout_closes_the_connection(wire: str) -> None:
    async with FakeProvider(lambda _: stall()) as provider:
        for seconds in SECONDS:
            model = adapter(wire, provider.url, limits=StreamLimits(idle_seconds=seconds))
            _, error = await try_stream(model)
            assert isinstance(error, ModelUnavailable)
            if provider.requests:
                await provider.wait_until(lambda seen: seen.abandoned_count == 1)
            await close_model(model)
            if provider.requests:
                break
        assert len(provider.requests) == 1


@WIRES
async def test_pings_without_end_reach_the_time_limit(wire: str) -> None:
    limits = StreamLimits(total_seconds=0.1, idle_seconds=60)
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
    fault = Fault(stall_after=10**9)
    if wire == "gemini":
        chunks, error = await ask_until_cut(wire, fault)
        assert (join_chunks(chunks).stops, type(error)) == ([], StreamCut)
    else:
        chunks, error = await ask_once(wire, fault)
        assert (join_chunks(chunks).stops, error) == (["calls"], None)
