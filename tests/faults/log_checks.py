"""Assertions that must hold for a log after every fault."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.faults.crash_run import ONCE_TOOLS, EffectLedger, Plan
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolCalled, ToolCompleted, ToolFailed, ToolReturned, ToolStarted
from vaka.testing.crashes import fingerprint, outline_log

CallIds = frozenset[CallId]
NO_CALLS: CallIds = frozenset()


def parse_acknowledged(lines: Iterable[str]) -> dict[str, str]:
    """Return the cursors a process has acknowledged, each with the hash of the event's bytes."""
    return {words[1]: words[2] for line in lines if (words := line.split())[0] == "event"}


def assert_nothing_lost(shown: dict[str, str], log: Sequence[Event]) -> None:
    """Everything that was acknowledged is in the log, byte for byte."""
    kept = {event.id: hashlib.sha256(event.stored).hexdigest() for event in log}
    assert shown.items() <= kept.items(), f"lost or changed: {sorted(shown.items() - kept.items())}"


def assert_chain_complete(log: Sequence[Event]) -> None:
    """The log is one unbroken chain, and each call in it has exactly one result."""
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    prev = ""
    for event in log:
        assert event.prev == prev
        prev = hashlib.sha256(event.stored).hexdigest()
    made = Counter(event.data.call.id for event in log if isinstance(event.data, ToolCalled))
    ended = Counter(id for id, _ in _list_results(log))
    assert made == ended
    assert set(made.values()) <= {1}


def lost_calls(log: Sequence[Event]) -> CallIds:
    """Return the ``once`` calls that had begun and whose return is not in the log."""
    begun = {e.data.call.id for e in log if isinstance(e.data, ToolStarted) and e.data.effect == "once"}
    back = {e.data.result.call for e in log if isinstance(e.data, ToolReturned | ToolCompleted | ToolFailed)}
    return frozenset(begun - back)


def has_approval(log: Sequence[Event]) -> bool:
    """Whether the approval is in the log."""
    return any(isinstance(event.data, ApprovalResolved) for event in log)


def results_by_call(log: Sequence[Event]) -> dict[CallId, ToolResult]:
    """Return the one result of each call."""
    return dict(_list_results(log))


def calls_of(log: Sequence[Event], *names: str) -> CallIds:
    """Return the ids of the calls of some tools."""
    made = (event.data.call for event in log if isinstance(event.data, ToolCalled))
    return frozenset(call.id for call in made if call.name in names)


def assert_effects(plan: Plan, log: Sequence[Event], unsure: CallIds) -> None:
    """A ``once`` call has had its effect once, or at most once if its return was lost; a key has one effect."""
    counted = EffectLedger(plan.ledger).count_effects()
    found = results_by_call(log)
    for name in ONCE_TOOLS:
        for call in calls_of(log, name):
            times = counted[name, call]
            if call in unsure:
                assert times <= 1
                assert found[call].reason == "outcome_unknown"
                assert "unknown" in found[call].text
            else:
                assert times == (0 if found[call].reason == "denied" else 1), (name, call, found[call])
    for call in calls_of(log, "stamp"):
        assert counted["stamp", call] == 1


def assert_same_outcome(
    log: Sequence[Event], undisturbed_log: Sequence[Event], without: CallIds = NO_CALLS, unasked: str = ""
) -> None:
    """A log has the same outcome as that of the run without a fault, except for the results of some calls.

    ``unasked``: a tool without an approval request in this run.
    """
    if fingerprint(log, without=without) != fingerprint(undisturbed_log, without=without):
        assert _outline(log, without, unasked) == _outline(undisturbed_log, without, unasked)


def _outline(log: Sequence[Event], but: CallIds, unasked: str) -> dict[str, Any]:
    found = outline_log(log, without=but)
    for thread in found["agents"].values():
        for fact in thread:
            if unasked and fact.get("tool") == unasked:
                del fact["asked"]
    return found


def _list_results(log: Sequence[Event]) -> list[tuple[CallId, ToolResult]]:
    ends = [event.data for event in log if isinstance(event.data, ToolCompleted | ToolFailed)]
    return [(end.result.call, end.result) for end in ends]
