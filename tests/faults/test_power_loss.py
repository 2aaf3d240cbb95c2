"""A power cut: the write-ahead log ends anywhere, or has wrong bytes. The run resumes from what is left.

The files are recorded after each commit of a run. The write-ahead log only grows, so it can be cut wherever a disk may
have cut it, together with the ledger of that moment.
"""

import random
import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import msgspec
import pytest

from tests.faults import log_checks
from tests.faults.crash_run import ANSWER, EffectLedger, Plan
from tests.faults.log_stores import SqliteLogStore, read_log
from tests.faults.run_plan import run_plan
from vaka.core.types.errors import StoreError
from vaka.core.types.event import Event
from vaka.core.types.progress import TurnCompleted
from vaka.stores import common
from vaka.testing.crashes import disable_failpoints

HEADER, FRAME = 32, 24 + 4096


class Commit(msgspec.Struct, frozen=True):
    """The state after a commit: the length of the write-ahead log, the acknowledged head, and the ledger."""

    length: int
    acknowledged: int
    ledger: bytes


class RecordedRun:
    """A run, and its files after each commit."""

    def __init__(self, folder: Path) -> None:
        self.home = SqliteLogStore(folder, "power")
        self.plan = self.home.new_plan()
        self.path = Path(self.plan.store.removeprefix("sqlite:///"))
        self.commits: list[Commit] = [Commit(0, 0, b"")]
        self.files: tuple[bytes, bytes] = (b"", b"")
        self._shown: list[Event] = []

    async def run(self) -> None:
        with self._record_commits():
            assert await run_plan(self.plan, self._shown.append) == "ended"
        self.log = await read_log(self.plan)

    @contextmanager
    def _record_commits(self) -> Generator[None]:
        common.on_failpoint = self._record_commit
        try:
            yield
        finally:
            disable_failpoints()

    def _record_commit(self, place: str) -> None:
        if place != "append.after_commit":
            return
        wal = self.path.with_name("vaka.db-wal").read_bytes()
        assert wal.startswith(self.files[1]), "the write-ahead log was restarted, so it cannot be cut"
        self.files = (self.path.read_bytes(), wal)
        acknowledged = max((event.seq for event in self._shown), default=0)
        self.commits.append(Commit(len(wal), acknowledged, Path(self.plan.ledger).read_bytes()))

    def commit_at(self, length: int) -> Commit:
        """Return the last commit that is complete in a log of this length."""
        return [commit for commit in self.commits if commit.length <= length][-1]

    def plan_from_files(self, database: bytes, wal: bytes, commit: Commit) -> Plan:
        """Return a plan for a session with these files."""
        plan = msgspec.structs.replace(self.home.new_plan(), ahead=60.0, how="resume")
        path = Path(plan.store.removeprefix("sqlite:///"))
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(database)
        path.with_name("vaka.db-wal").write_bytes(wal)
        if commit.ledger:
            Path(plan.ledger).write_bytes(commit.ledger)
        return plan

    async def resume_and_check(self, plan: Plan, *, at_least: int = 0) -> None:
        """The rest is a prefix of the log, and the resumed run has the same outcome."""
        before = await read_log(plan)
        assert [event.stored for event in before] == [event.stored for event in self.log[: len(before)]]
        assert len(before) >= at_least
        unsure = log_checks.lost_calls(before)
        assert await run_plan(plan, lambda _: None) == "ended"
        log = await read_log(plan)
        log_checks.assert_chain_complete(log)
        log_checks.assert_effects(plan, log, unsure)
        assert [event.stored for event in log[: len(before)]] == [event.stored for event in before]
        last = log[-1].data
        assert isinstance(last, TurnCompleted)
        assert last.text == ANSWER
        log_checks.assert_same_outcome(log, self.log, without=unsure)
        shutil.rmtree(Path(plan.store.removeprefix("sqlite:///")).parent)


@pytest.fixture
async def recorded(tmp_path: Path) -> RecordedRun:
    recorded = RecordedRun(tmp_path)
    await recorded.run()
    return recorded


async def test_a_log_cut_after_any_commit_has_everything_that_was_acknowledged(recorded: RecordedRun) -> None:
    database, wal = recorded.files
    for commit in recorded.commits[1:]:
        plan = recorded.plan_from_files(database, wal[: commit.length], commit)
        await recorded.resume_and_check(plan, at_least=commit.acknowledged)


async def _resume_each_length(recorded: RecordedRun, lengths: list[int]) -> None:
    database, wal = recorded.files
    for length in lengths:
        commit = recorded.commit_at(length)
        plan = recorded.plan_from_files(database, wal[:length], commit)
        await recorded.resume_and_check(plan, at_least=commit.acknowledged)


def _frame_offsets(wal: bytes) -> list[int]:
    return list(range(HEADER, len(wal) + 1, FRAME))


async def test_a_run_resumes_from_a_log_cut_at_some_frames(recorded: RecordedRun) -> None:
    wal = recorded.files[1]
    begun = [length for length in _frame_offsets(wal) if length >= recorded.commits[1].length]
    await _resume_each_length(recorded, begun[::12])


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_a_run_resumes_from_a_log_cut_anywhere(recorded: RecordedRun) -> None:
    wal = recorded.files[1]
    chance = random.Random(1)
    begun = [length for length in _frame_offsets(wal) if length >= recorded.commits[1].length]
    inside = [length + chance.randrange(1, FRAME) for length in begun[:-1] for _ in range(3)]
    await _resume_each_length(recorded, begun + inside)


async def _damage_files(recorded: RecordedRun, seed: int) -> tuple[bytes, bytes, int]:
    """Return the files with wrong bytes, and the length of the log that is certainly good."""
    chance = random.Random(seed)
    database, wal = (bytearray(file) for file in recorded.files)
    kind = seed % 4
    if kind == 0:  # a flipped bit in the log
        place = chance.randrange(recorded.commits[1].length, len(wal))
        wal[place] ^= 1 << chance.randrange(8)
        return bytes(database), bytes(wal), HEADER + (place - HEADER) // FRAME * FRAME
    if kind == 1:  # a garbage tail
        return bytes(database), bytes(wal) + chance.randbytes(chance.randrange(1, 3 * FRAME)), len(wal)
    if kind == 2:  # a tail written twice
        return bytes(database), bytes(wal) + bytes(wal[-FRAME * chance.randrange(1, 5) :]), len(wal)
    place = chance.randrange(len(database))  # a flipped bit in the database
    database[place] ^= 1 << chance.randrange(8)
    return bytes(database), bytes(wal), -1


async def _resume_damaged(recorded: RecordedRun, seeds: range) -> None:
    for seed in seeds:
        database, wal, good = await _damage_files(recorded, seed)
        commit = recorded.commit_at(max(good, recorded.commits[1].length))
        plan = recorded.plan_from_files(database, wal, commit)
        if good >= 0:
            await recorded.resume_and_check(plan, at_least=commit.acknowledged)
            continue
        with suppress(StoreError):  # detected damage is an error
            log = await read_log(plan)
            assert [event.stored for event in log] == [event.stored for event in recorded.log[: len(log)]]


async def test_a_damaged_log_is_an_error_or_a_prefix(recorded: RecordedRun) -> None:
    await _resume_damaged(recorded, range(24))


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
async def test_every_damaged_log_is_an_error_or_a_prefix(recorded: RecordedRun) -> None:
    await _resume_damaged(recorded, range(600))


async def test_a_session_with_a_rewritten_event_is_not_resumed(recorded: RecordedRun) -> None:
    """The database itself is intact, but one event in it was changed."""
    commit = recorded.commits[-2]
    plan = recorded.plan_from_files(recorded.files[0], recorded.files[1][: commit.length], commit)
    change = (
        "update events set body = cast(replace(cast(body as text), 'open sea', 'dry land') as blob) "
        "where cast(body as text) like '%open sea%'"
    )
    with closing(sqlite3.connect(plan.store.removeprefix("sqlite:///"))) as database, database:
        assert database.execute(change).rowcount == 1
    assert await run_plan(plan, lambda _: None) == "corrupt"
    assert (
        EffectLedger(plan.ledger).count_effects().total() == EffectLedger(recorded.plan.ledger).count_effects().total()
    )
