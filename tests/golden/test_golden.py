"""Recorded logs fold to the same state for ever."""

import json

import msgspec
import pytest

from tests.golden.record import FOLDER, SCENARIOS, interpret_log, read_log
from vaka.core.session.branches import live_events_of
from vaka.core.session.fold import fold
from vaka.core.session.hash_chain import HashChain, seal
from vaka.core.session.snapshot import encode_state
from vaka.core.types.state import SessionState
from vaka.core.types.event import Unknown
from vaka.core.types.ids import SessionId

LOGS = sorted(file.stem for file in FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("name", LOGS)
async def test_a_recorded_log_has_the_recorded_state_and_messages(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.expected.json").read_bytes())
    assert json.loads(msgspec.json.encode(await interpret_log(read_log(name)))) == expected


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_verifies_and_has_no_unknown_events(name: str) -> None:
    chain = HashChain(SessionId(name))
    for seq, line in enumerate((FOLDER / f"{name}.jsonl").read_bytes().splitlines(), 1):
        event = chain.check_next(seq, line)
        assert not isinstance(event.data, Unknown)
        assert seal(event, epoch=event.epoch, seq=seq, prev=event.prev).stored == line
    expected = json.loads((FOLDER / f"{name}.expected.json").read_bytes())
    chain.check_end(seq, expected["row"]["hash"])


@pytest.mark.parametrize("name", LOGS)
def test_the_fold_of_the_live_branch_is_the_state(name: str) -> None:
    events = read_log(name)
    state = fold(SessionState(), live_events_of(events))
    state.seq, state.epoch = events[-1].seq, events[-1].epoch
    assert json.loads(encode_state(state)) == json.loads((FOLDER / f"{name}.expected.json").read_bytes())["state"]


def test_every_scenario_is_recorded() -> None:
    assert set(SCENARIOS) <= set(LOGS)
