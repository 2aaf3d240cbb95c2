"""A stream that is cut at any place is never an answer, and no tool runs."""

from contextlib import aclosing

import pytest

from tests.models.hostile.adapters import ANSWER, WIRES, agent_answer_size, answer_body, ask_each, run_agent
from vaka.core.types.errors import StreamCut
from vaka.testing.fake_provider import Fault
from vaka.testing.models import join_chunks

pytestmark = pytest.mark.every_loop

SAMPLE_COUNT = 60


def sample_offsets(size: int, count: int = SAMPLE_COUNT) -> list[int]:
    """Return places all over an answer, and all of its last bytes: there is where ends are."""
    return sorted({*range(0, size, size // count), *range(size - 40, size)})


async def check_cuts(wire: str, faults: list[Fault], *kinds: type[Exception]) -> None:
    asked = 0
    async with aclosing(ask_each(wire, *faults)) as answers:
        async for chunks, error in answers:
            assert join_chunks(chunks).stops == [], faults[asked]
            assert type(error) in kinds, (faults[asked], error)
            asked += 1
    assert asked == len(faults)


async def check_agent_runs(wire: str, faults: list[Fault]) -> None:
    lived = 0
    async with aclosing(run_agent(wire, *faults)) as lives:
        async for one in lives:
            assert one.completed == [], faults[lived]
            assert one.notes == [], faults[lived]
            assert "tool.started" not in one.types, faults[lived]
            assert "turn.failed" in one.types, faults[lived]
            lived += 1
    assert lived == len(faults)


@WIRES
def test_the_streams_under_test_have_several_events(wire: str) -> None:
    assert len(answer_body(wire)) > 1000
    assert ANSWER["text"].split()[-1].encode() in answer_body(wire)


@WIRES
async def test_an_answer_that_is_not_cut_is_whole_and_its_tools_run(wire: str) -> None:
    async with aclosing(run_agent(wire, None, Fault(cut=len(answer_body(wire)) + 10_000))) as lives:
        async for one in lives:
            assert len(one.completed) == 2
            assert sorted(one.notes) == ["it rains in Hilo, not in Kona", "the trade winds are back 🌺"]


@WIRES
async def test_a_body_that_ends_early_in_good_order_is_a_cut(wire: str) -> None:
    await check_cuts(wire, [Fault(cut=at) for at in sample_offsets(len(answer_body(wire)))], StreamCut)


@WIRES
async def test_a_connection_that_is_reset_is_a_cut(wire: str) -> None:
    await check_cuts(wire, [Fault(reset_after=at) for at in sample_offsets(len(answer_body(wire)), 20)], StreamCut)


@WIRES
async def test_a_connection_that_ends_before_the_length_it_promised_is_a_cut(wire: str) -> None:
    faults = [
        Fault(content_length=len(answer_body(wire)) + 1, cut=at) for at in sample_offsets(len(answer_body(wire)), 20)
    ]
    await check_cuts(wire, faults, StreamCut)


@WIRES
async def test_no_tool_runs_and_no_message_counts_wherever_a_stream_is_cut(wire: str) -> None:
    await check_agent_runs(wire, [Fault(cut=at) for at in sample_offsets(agent_answer_size(wire), 30)])


@WIRES
async def test_no_tool_runs_and_no_message_counts_wherever_a_connection_breaks(wire: str) -> None:
    await check_agent_runs(wire, [Fault(reset_after=at) for at in sample_offsets(agent_answer_size(wire), 10)])


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@WIRES
async def test_a_cut_at_every_byte_is_a_cut(wire: str) -> None:
    await check_cuts(wire, [Fault(cut=at) for at in range(len(answer_body(wire)))], StreamCut)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@WIRES
async def test_no_tool_runs_though_a_stream_is_cut_at_every_byte(wire: str) -> None:
    await check_agent_runs(wire, [Fault(cut=at) for at in range(agent_answer_size(wire))])
