"""Fork and rewind: which events say that a conversation goes on from an earlier place. Pure."""

from collections.abc import Sequence

from vaka.core.session.fold import seals
from vaka.core.session.place import Place
from vaka.core.session.state import State
from vaka.core.types.control import SessionForked, SessionReverted
from vaka.core.types.event import Body, Event, seal
from vaka.core.types.ids import SessionId, TurnId
from vaka.core.types.progress import ToolFailed, TurnInterrupted

_CUT = "The conversation was taken back to before this call had a result."


def forked(state: State, origin: SessionId, cursor: str) -> list[tuple[Place, Body]]:
    """Return what follows the copied prefix of a fork; ``state`` is that of the prefix."""
    turn = state.turn
    entries: list[tuple[Place, Body]] = [(Place(), SessionForked(origin=origin, cursor=cursor)), *_sealed(state)]
    if turn is not None:
        entries.append((Place(turn.id), TurnInterrupted(note="forked here", usage=turn.usage)))
    return entries


def reverted(prefix: State, now: State, reason: str) -> list[tuple[Place, Body]]:
    """Return what takes a session as it is ``now`` back to ``prefix``: what is allowed there and was still allowed."""
    grants = tuple(grant for grant in prefix.grants if grant in now.grants) if prefix.grants else None
    body = SessionReverted(to=prefix.seq, calls=now.calls, reason=reason, grants=grants)
    return [(Place(), body), *_sealed(prefix)]


def ended(state: State, note: str) -> list[tuple[Place, Body]]:
    """Return what ends an unfinished turn nobody goes on with; nothing when there is none."""
    if state.turn is None:
        return []
    return [*_sealed(state), (Place(state.turn.id), TurnInterrupted(note=note, usage=state.turn.usage))]


def chained(session: SessionId, last: Event | None, entries: Sequence[tuple[Place, Body]], ts: str) -> list[Event]:
    """Seal ``entries`` as the events that follow ``last``."""
    events: list[Event] = []
    seq, epoch, prev = (last.seq, last.epoch, last.hash) if last else (0, 1, "")
    for place, body in entries:
        seq += 1
        event = Event(data=body, session=session, ts=ts, turn=place.turn, step=place.step, path=place.path)
        events.append(seal(event, epoch=epoch, seq=seq, prev=prev))
        prev = events[-1].hash
    return events


def _sealed(state: State) -> list[tuple[Place, Body]]:
    turn = state.turn.id if state.turn else TurnId("")
    return [
        (Place(turn, step, path), ToolFailed(result=result))
        for path, step, result in seals(state, "sealed", _CUT)
    ]  # fmt: skip
