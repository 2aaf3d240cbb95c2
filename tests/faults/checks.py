"""What must hold after every fault, whatever it was."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from tests.faults.voyage import ONCE, Ledger, Plan
from vaka.core.types.control import ApprovalResolved
from vaka.core.types.event import Event
from vaka.core.types.ids import CallId
from vaka.core.types.message import ToolResult
from vaka.core.types.progress import ToolCalled, ToolCompleted, ToolFailed, ToolReturned, ToolStarted
from vaka.testing.fingerprint import fingerprint, outline

Calls = frozenset[CallId]
NONE: Calls = frozenset()


def acknowledged(lines: Iterable[str]) -> dict[str, str]:
    """Return the cursors a process has acknowledged, each with the hash of the bytes it was shown."""
    return {words[1]: words[2] for line in lines if (words := line.split())[0] == "event"}


def nothing_lost(shown: dict[str, str], log: Sequence[Event]) -> None:
    """Everything that was acknowledged is in the log, byte for byte."""
    kept = {event.id: hashlib.sha256(event.stored).hexdigest() for event in log}
    assert shown.items() <= kept.items(), f"lost or changed: {sorted(shown.items() - kept.items())}"


def whole(log: Sequence[Event]) -> None:
    """The log is one unbroken chain, and each call in it has exactly one result."""
    assert [event.seq for event in log] == list(range(1, len(log) + 1))
    prev = ""
    for event in log:
        assert event.prev == prev
        prev = hashlib.sha256(event.stored).hexdigest()
    made = Counter(event.data.call.id for event in log if isinstance(event.data, ToolCalled))
    ended = Counter(id for id, _ in _results(log))
    assert made == ended
    assert set(made.values()) <= {1}


def lost(log: Sequence[Event]) -> Calls:
    """Return the ``once`` calls that had begun and whose return is not in the log."""
    begun = {e.data.call.id for e in log if isinstance(e.data, ToolStarted) and e.data.effect == "once"}
    back = {e.data.result.call for e in log if isinstance(e.data, ToolReturned | ToolCompleted | ToolFailed)}
    return frozenset(begun - back)


def approved(log: Sequence[Event]) -> bool:
    """Whether the person's yes is in the log."""
    return any(isinstance(event.data, ApprovalResolved) for event in log)


def results(log: Sequence[Event]) -> dict[CallId, ToolResult]:
    """Return the one result of each call."""
    return dict(_results(log))


def calls_of(log: Sequence[Event], *names: str) -> Calls:
    """Return the ids of the calls of some tools."""
    made = (event.data.call for event in log if isinstance(event.data, ToolCalled))
    return frozenset(call.id for call in made if call.name in names)


def effects(plan: Plan, log: Sequence[Event], unsure: Calls) -> None:
    """A ``once`` call has had its effect once, or at most once if its return was lost; a key has one effect."""
    counted = Ledger(plan.ledger).count()
    found = results(log)
    for name in ONCE:
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


def same(log: Sequence[Event], calm: Sequence[Event], but: Calls = NONE, unasked: str = "") -> None:
    """A log comes to the same as that of the run without the fault, but for the results of some calls.

    ``unasked``: a tool that nobody was asked about this time.
    """
    if fingerprint(log, without=but) != fingerprint(calm, without=but):
        assert _outline(log, but, unasked) == _outline(calm, but, unasked)


def _outline(log: Sequence[Event], but: Calls, unasked: str) -> dict[str, Any]:
    found = outline(log, without=but)
    for thread in found["agents"].values():
        for fact in thread:
            if unasked and fact.get("tool") == unasked:
                del fact["asked"]
    return found


def _results(log: Sequence[Event]) -> list[tuple[CallId, ToolResult]]:
    ends = [event.data for event in log if isinstance(event.data, ToolCompleted | ToolFailed)]
    return [(end.result.call, end.result) for end in ends]
