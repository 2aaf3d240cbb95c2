"""A message an agent sends to itself at an earlier place of its turn: the conversation goes on from there.

Before each step of an agent that has the tool, the log names the place and the model is told its number. A mail is kept
with the result of the call that sent it, and goes off between steps, when every call of its step has its result: one
write takes the conversation back and has the mail in it. So after a crash it has gone off, or it goes off then.
"""

import msgspec

from vaka.core.loop.context import Context
from vaka.core.loop.scope import Turn
from vaka.core.ports.tool import ToolContext
from vaka.core.types.content import Text, clean
from vaka.core.types.control import CheckpointSaved, Onward, SessionReverted, StateChanged
from vaka.core.types.errors import InvalidInput
from vaka.core.types.ids import CallId
from vaka.core.types.monitor import Logged

TOOL = "DMail"
"""The tool that sends mail; an agent that has it is told where it can go back to."""
KEY = "mail.sent"


class Mail(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mail on its way."""

    call: CallId
    checkpoint: int
    message: str


def label(number: int) -> str:
    """Return the name a checkpoint has in the log."""
    return f"checkpoint-{number}"


def mark(turn: Turn) -> tuple[CheckpointSaved, ...]:
    """Return what names the place before a step, if this agent can go back to it."""
    if turn.path or TOOL not in turn.tools:
        return ()
    return (_checkpoint(turn.state.marked),)


def send(context: ToolContext, message: str, checkpoint: int) -> str:
    """Put a mail on its way and return what to say of it. Raises ``InvalidInput`` when it cannot arrive."""
    if not isinstance(context, Context) or context.path:
        raise InvalidInput("only the agent that answers people can go back, not one that works for another")
    turn, known = context.owner, _read(context.kept(KEY))
    if known is not None and known.call != context.call:
        raise InvalidInput(f"a mail to checkpoint {known.checkpoint} is on its way already; one can be sent in a step")
    most, done = turn.recipe.limits.max_rewinds, turn.state.turn.rewinds if turn.state.turn else 0
    if done >= most:
        raise InvalidInput(f"this turn has gone back {done} times, and may {most} times; go on from here")
    if label(checkpoint) not in turn.state.marks:
        there = ", ".join(name.rpartition("-")[2] for name in turn.state.marks) or "none"
        raise InvalidInput(
            f"there is no checkpoint {checkpoint} to go back to; this turn has {there}. Earlier turns stay: what was "
            "asked for in this one would be lost"
        )
    context.keep(KEY, msgspec.to_builtins(Mail(context.call, checkpoint, clean(message))))
    return (
        f"It goes off when the calls of this step have their results: the conversation then goes on from checkpoint "
        f"{checkpoint}, unless a person refuses one of them. What was done stays done."
    )


async def deliver(turn: Turn) -> None:
    """Let a mail that was sent arrive: between steps, with no call open."""
    mail = _read(turn.kept(KEY)) if TOOL in turn.tools and not turn.path else None
    if mail is None:
        return
    if turn.log.deferred:
        await turn.log.append(turn.at)  # everything up to here is in the log, also that the mail was sent
    state = turn.state
    assert state.turn is not None  # noqa: S101  # it is at work
    at = state.marks.get(label(mail.checkpoint))
    if at is None:
        gone = f"the mail to checkpoint {mail.checkpoint} was dropped: the turn it was sent in has ended"
        await turn.log.append(turn.at, StateChanged(key=KEY), Logged(level="info", message=gone))
        return
    lane = turn.lane
    onward = Onward(
        turn=turn.id, step=lane.step, rewinds=state.turn.rewinds + 1, usage=lane.usage, spent=state.turn.usage,
        total=state.usage, models=state.models, tools=lane.tools, grants=tuple(state.grants),
    )  # fmt: skip
    reverted = SessionReverted(
        to=at - 1, calls=state.calls, reason=f"a mail to checkpoint {mail.checkpoint}", onward=onward
    )
    await turn.log.revert(turn.at, reverted, _checkpoint(mail.checkpoint, mail.message))


def _checkpoint(number: int, mail: str = "") -> CheckpointSaved:
    told = [Text(text=f"<system>CHECKPOINT {number}</system>")]
    if mail:
        told.append(Text(text=_ARRIVED.format(mail.replace("</system", "<\u200b/system"))))
    return CheckpointSaved(label=label(number), number=number, told=tuple(told))


_ARRIVED = (
    "<system>You wrote this to yourself further on in this turn; the conversation was then taken back to this place. "
    "What you did there stays done: files, and all else outside of the conversation, are as you left them.\n\n{}"
    "</system>"
)


def _read(value: object) -> Mail | None:
    try:
        return msgspec.convert(value, Mail) if value is not None else None
    except msgspec.ValidationError:
        return None  # somebody else's value
