"""A provider that does not come to an end is given up, as the limits say."""

import pytest

from tests.models.hostile.scene import WIRES, adapter, ask_once, body, close
from vaka.core.types.errors import ModelUnavailable, StreamCut
from vaka.models.sse import Limits
from vaka.testing.adapters import attempt
from vaka.testing.models import heard, stall
from vaka.testing.provider import FOR_EVER, Fault, Provider

SHORT = 0.05
"""Seconds: as long as a test has to wait for something that does not happen."""


@WIRES
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
async def test_a_silence_is_given_up_wherever_it_begins(wire: str, share: float) -> None:
    fault = Fault(stall_after=int(len(body(wire)) * share))
    chunks, error = await ask_once(wire, fault, limits=Limits(idle_seconds=SHORT))
    assert (heard(chunks).stops, type(error)) == ([], StreamCut)
    assert "sent nothing for 0.05 seconds" in str(error)


@WIRES
async def test_whoever_gives_up_hangs_up(wire: str) -> None:
    async with Provider(stall()) as provider:
        model = adapter(wire, provider.url, limits=Limits(idle_seconds=SHORT))
        _, error = await attempt(model)
        assert isinstance(error, ModelUnavailable)
        await provider.until(lambda seen: seen.left == 1)
        await close(model)


@WIRES
async def test_signs_of_life_for_ever_are_given_up_too(wire: str) -> None:
    limits = Limits(total_seconds=SHORT * 2, idle_seconds=60)
    chunks, error = await ask_once(wire, Fault(pings=FOR_EVER), limits=limits)
    assert (chunks, type(error)) == ([], StreamCut)
    assert "took longer than the 0.1 seconds it may" in str(error)


@WIRES
async def test_signs_of_life_without_end_are_too_much_at_some_point(wire: str) -> None:
    chunks, error = await ask_once(wire, Fault(pings=FOR_EVER), limits=Limits(total_bytes=100_000))
    assert (chunks, type(error)) == ([], StreamCut)
    assert "larger than the 100000 bytes" in str(error)


@WIRES
async def test_an_end_that_comes_without_the_end_of_its_body_is_an_end(wire: str) -> None:
    """Where the wire has a marker nobody waits for more; Gemini's has none but the end of the body."""
    chunks, error = await ask_once(wire, Fault(stall_after=10**9), limits=Limits(idle_seconds=SHORT))
    if wire == "gemini":
        assert (heard(chunks).stops, type(error)) == ([], StreamCut)
    else:
        assert (heard(chunks).stops, error) == (["calls"], None)
