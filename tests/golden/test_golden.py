"""Recorded logs mean the same for ever."""

import json

import msgspec
import pytest

from tests.golden.record import FOLDER, STORIES, meaning, read
from vaka.core.session.chain import Chain
from vaka.core.session.fold import fold
from vaka.core.session.line import live
from vaka.core.session.state import State, dump
from vaka.core.types.event import Unknown, seal
from vaka.core.types.ids import SessionId

LOGS = sorted(file.stem for file in FOLDER.glob("*.jsonl"))


@pytest.mark.parametrize("name", LOGS)
async def test_a_recorded_log_means_what_it_meant(name: str) -> None:
    expected = json.loads((FOLDER / f"{name}.expected.json").read_bytes())
    assert json.loads(msgspec.json.encode(await meaning(read(name)))) == expected


@pytest.mark.parametrize("name", LOGS)
def test_a_recorded_log_is_whole_and_everything_in_it_is_understood(name: str) -> None:
    chain = Chain(SessionId(name))
    for seq, line in enumerate((FOLDER / f"{name}.jsonl").read_bytes().splitlines(), 1):
        event = chain.take(seq, line)
        assert not isinstance(event.data, Unknown)
        assert seal(event, epoch=event.epoch, seq=seq, prev=event.prev).stored == line
    expected = json.loads((FOLDER / f"{name}.expected.json").read_bytes())
    chain.end(seq, expected["row"]["hash"])


@pytest.mark.parametrize("name", LOGS)
def test_the_fold_of_the_live_branch_is_the_state(name: str) -> None:
    events = read(name)
    state = fold(State(), live(events))
    state.seq, state.epoch = events[-1].seq, events[-1].epoch
    assert json.loads(dump(state)) == json.loads((FOLDER / f"{name}.expected.json").read_bytes())["state"]


def test_every_story_was_recorded() -> None:
    assert set(STORIES) <= set(LOGS)
